"""Which server a command speaks to: the one named, the one of the login, the one that runs here; and the error if none.

The rules are tested with files alone: this very process stands for a server that runs.
"""

import json
import os
from pathlib import Path

import pytest

from rackwright.cli.profile import DEFAULT_URL, NoServer, Profile, current_profile, save_login
from rackwright.server import running_servers
from rackwright.server.running_servers import announced, local_url, servers_of_home
from rackwright.shown_urls import shown_url

URL = "http://127.0.0.1:18123"


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of somebody who has never used this host."""
    monkeypatch.setattr(running_servers, "_registries", lambda: [tmp_path / "registry"])
    return {"XDG_DATA_HOME": str(tmp_path / "data"), "XDG_CONFIG_HOME": str(tmp_path / "config")}


def _make_home(path: Path, token: str = "rw_local") -> Path:
    path.mkdir(parents=True)
    (path / "admin-token").write_text(f"{token}\n")
    return path


def test_a_server_in_the_default_home_is_found_at_its_port(user: dict[str, str], tmp_path: Path) -> None:
    home = _make_home(tmp_path / "data" / "rackwright")
    certificate = home / "certificate.pem"
    with announced(home, URL, certificate):
        assert current_profile(user) == Profile(URL, "rw_local", str(certificate), str(home / "admin-token"))


def test_the_only_server_of_a_user_is_found_in_any_home(user: dict[str, str], tmp_path: Path) -> None:
    with announced(_make_home(tmp_path / "elsewhere"), URL):
        assert current_profile(user).url == URL
        with pytest.raises(NoServer, match="no server runs in /nonexistent"):
            current_profile({**user, "RACKWRIGHT_HOME": "/nonexistent"})


def test_of_several_servers_none_is_guessed(user: dict[str, str], tmp_path: Path) -> None:
    one, other = _make_home(tmp_path / "one"), _make_home(tmp_path / "other")
    with announced(one, URL):
        registered = tmp_path / "registry" / f"{os.getpid()}.json"
        second = json.loads(registered.read_text()) | {"home": str(other), "url": "http://127.0.0.1:18124"}
        (tmp_path / "registry" / "second.json").write_text(json.dumps(second))
        with pytest.raises(NoServer, match=f"{URL} .*18124.*--url.*RACKWRIGHT_HOME"):
            current_profile(user)
        assert current_profile({**user, "RACKWRIGHT_HOME": str(one)}).url == URL


def test_the_order_is_url_then_login_then_the_server_here(user: dict[str, str], tmp_path: Path) -> None:
    with announced(_make_home(tmp_path / "data" / "rackwright"), URL):
        save_login(Profile("https://kept.example", "rw_kept"), user)
        assert current_profile(user).url == "https://kept.example"
        assert current_profile({**user, "RACKWRIGHT_URL": URL}).token == "rw_local"
        named = current_profile({**user, "RACKWRIGHT_URL": "https://other.example", "RACKWRIGHT_TOKEN": "rw_given"})
        assert (named.url, named.token) == ("https://other.example", "rw_given")


def test_the_token_of_this_hosts_server_is_sent_to_no_other(user: dict[str, str], tmp_path: Path) -> None:
    with announced(_make_home(tmp_path / "data" / "rackwright"), URL), pytest.raises(NoServer, match="not logged in"):
        current_profile({**user, "RACKWRIGHT_URL": "https://stranger.example"})


def test_what_was_tried_is_said(user: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(NoServer) as error:
        current_profile(user)
    for tried in ("--url", "RACKWRIGHT_URL", "login.json", str(tmp_path / "data" / "rackwright"), "rackwright server"):
        assert tried in str(error.value)
    assert current_profile({**user, "RACKWRIGHT_TOKEN": "rw_given"}).url == DEFAULT_URL


def test_a_file_that_a_killed_server_left_is_taken_away(user: dict[str, str], tmp_path: Path) -> None:
    home = _make_home(tmp_path / "data" / "rackwright")
    with announced(home, URL):
        file = home / "running" / f"{os.getpid()}.json"
        assert file.stat().st_mode & 0o777 == 0o600
        record = json.loads(file.read_text())
    assert not file.exists()
    assert not (tmp_path / "registry").exists()
    for stale in (json.dumps(record | {"started": "1"}), json.dumps(record | {"pid": 2**22 + 1}), "no json", "{}"):
        file.write_text(stale)
        assert servers_of_home(home) == []
        assert not file.exists()


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:1"),
        ("0.0.0.0", "http://127.0.0.1:1"),  # nothing is bound
        ("::", "http://[::1]:1"),
        ("fd00::7", "http://[fd00::7]:1"),
        ("rack.example", "http://rack.example:1"),
    ],
)
def test_a_listener_on_all_addresses_is_reached_over_loopback(host: str, url: str) -> None:
    assert local_url("http", host, 1) == url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://rack.example:8090", "https://rack.example:8090"),
        ("http://me:hunter2@rack.example/api", "http://***@rack.example/api"),
        ("postgresql://me:hunter2@@db:54x2/rack", "postgresql://***@db:54x2/rack"),
        ("postgresql://me:hun/ter2?@db/rack", "postgresql://***@db/rack"),
        ("postgresql:///rack?host=/run&password=hunter2", "postgresql:///rack?host=/run&password=***"),
        ("host=db password=hunter2 dbname=rack", "host=db password=*** dbname=rack"),
        ("me:hunter2@rack.example", "***@rack.example"),
    ],
)
def test_a_url_is_shown_without_what_is_secret_in_it(url: str, shown: str) -> None:
    assert shown_url(url) == shown
