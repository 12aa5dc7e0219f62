"""The command table."""

import subprocess
import sys

import pytest
from tests.support.waiting import PATIENCE

from rackwright.cli import main as cli


def test_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "NOUNS", {"node": ("nowhere:app", "machines")})
    assert cli.run("noed", []) == 2
    assert "did you mean 'node'?" in capsys.readouterr().err


def test_help_lists_every_noun(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["--help"])
    assert end.value.code == 0
    printed = capsys.readouterr().out
    assert all(noun in printed for noun in cli.NOUNS)


def test_a_run_across_servers_starts_without_what_other_commands_need() -> None:
    program = (
        "import sys; from rackwright.cli import main\n"
        "try: main.main(['mesh', 'run', '--on', 'a', '--key', 'k', '--mode', 'none'])\n"
        "except SystemExit as end: print(end.code)\n"
        "print([name for name in ('typer', 'rich', 'pydantic', 'asyncio', 'cryptography') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stdout.splitlines() == ["1", "[]"]
    assert "'none' is no mode" in done.stderr


def test_all_verbs_of_the_mesh_are_listed_also_the_one_that_is_called_directly(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["mesh", "--help"])
    assert end.value.code == 0
    assert "Bring servers into a state" in capsys.readouterr().out
    with pytest.raises(SystemExit) as end:
        cli.main(["mesh", "run", "--help"])
    assert end.value.code == 0
    assert "--secret" in capsys.readouterr().out
