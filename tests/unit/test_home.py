"""Where Rackwright keeps its things."""

from pathlib import Path

import pytest

from rackwright.home import default_home


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
