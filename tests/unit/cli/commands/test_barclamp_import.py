"""Barclamps are imported on the server's own host; an import makes no database, wherever commands go to."""

from pathlib import Path

import pytest
from tests.support.servers.command_line import Cli

from rackwright.cli.output.exits import Exit
from rackwright.server import running_servers


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(running_servers, "_registries", list)
    Cli("", tmp_path / "home").ok("barclamp", "new", str(tmp_path / "greeter"))
    return tmp_path / "greeter"


def test_it_is_refused_where_commands_go_to_another_host(folder: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    ended = Cli("https://me:hunter2@rack.example", home)("barclamp", "import", str(folder))
    assert ended.code == Exit.USAGE
    assert "rack.example, which is no server that you run on this host" in ended.err
    assert "hunter2" not in ended.err
    assert not home.exists()


@pytest.mark.parametrize("options", [[], ["--home", "{home}"]], ids=["the usual home", "a home that is named"])
def test_it_is_refused_where_no_server_has_a_database(folder: Path, tmp_path: Path, options: list[str]) -> None:
    home = tmp_path / "home"
    ended = Cli("", home)("barclamp", "import", str(folder), *(word.format(home=home) for word in options))
    assert ended.code == Exit.NOT_FOUND
    assert f"No server has a database in {home}" in ended.err
    assert not home.exists()
