"""The command table."""

import pytest

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
