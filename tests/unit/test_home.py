"""The home of Rackwright, and the short folder of a user."""

import tempfile
from pathlib import Path

import pytest

from rackwright.home import FolderNotOurs, default_home, short_folder


@pytest.mark.parametrize(
    ("environment", "home"),
    [
        ({"RACKWRIGHT_HOME": "/srv/rack", "XDG_DATA_HOME": "/data"}, Path("/srv/rack")),
        ({"RACKWRIGHT_HOME": "~/rack"}, Path.home() / "rack"),
        ({"RACKWRIGHT_HOME": "rack"}, Path.cwd() / "rack"),
        ({"RACKWRIGHT_HOME": "", "XDG_DATA_HOME": "/data"}, Path("/data/rackwright")),
        ({"XDG_DATA_HOME": "relative"}, Path.home() / ".local/share/rackwright"),
        ({}, Path.home() / ".local/share/rackwright"),
    ],
)
def test_the_home_is_the_named_one_or_else_in_the_data_directory(environment: dict[str, str], home: Path) -> None:
    assert default_home(environment) == home


def test_the_short_folder_is_this_users_alone_and_the_same_each_time(tmp_path: Path) -> None:
    folder = short_folder(Path("/a home"), tmp_path)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert short_folder(Path("/a home"), tmp_path) == folder
    assert short_folder(Path("/another home"), tmp_path) != folder


@pytest.mark.parametrize("trap", ["link", "open to all", "a file"])
def test_what_somebody_else_put_in_its_place_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trap: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = short_folder(Path("/a home"), tmp_path)
    folder.rmdir()
    if trap == "link":
        (tmp_path / "elsewhere").mkdir()
        folder.symlink_to(tmp_path / "elsewhere")
    elif trap == "open to all":
        folder.mkdir()
        folder.chmod(0o777)
    else:
        folder.write_text("")
    with pytest.raises((FolderNotOurs, FileExistsError)):
        short_folder(Path("/a home"), tmp_path)
