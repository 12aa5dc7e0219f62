"""`rackwright state apply --git`: states of a repository, pinned, and refused unless signed where that is asked."""

import json
import subprocess
from pathlib import Path

import pytest
from tests.support.programs import make_ssh_key

from rackwright.cli.commands.state import main


def git(folder: Path, *arguments: str) -> None:
    who = ["-c", "user.name=Tester", "-c", "user.email=tester@rack.example", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("rackwright.states.reading.sources.default_cache", lambda: tmp_path / "cache")
    folder = tmp_path / "states"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "init.sls").write_text("hello:\n  test.succeed_with_changes: []\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


def test_states_of_a_repository_are_applied_at_their_commit(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["apply", "--git", str(repository), "init.sls", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [state["id"] for state in report["states"]] == ["hello"]


def test_an_environment_that_is_not_there_is_refused_in_one_sentence(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["apply", "--git", str(repository), "--env", "nowhere", "init.sls"]) == 2
    message = capsys.readouterr().err
    assert "nowhere" in message
    assert "Refused: nothing was run." in message


def test_an_unsigned_commit_is_refused_where_signers_are_asked_for(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = make_ssh_key(tmp_path / "key")
    signers = tmp_path / "signers"
    signers.write_text(f"tester@rack.example {key.with_suffix('.pub').read_text()}")
    assert main(["apply", "--git", str(repository), "--signers", str(signers), "init.sls"]) == 2
    assert "sign" in capsys.readouterr().err


def test_no_states_at_all_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["apply"]) == 2
    assert "--git" in capsys.readouterr().err
