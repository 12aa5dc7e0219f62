"""Settings: which source wins, what is refused, and what is shown."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rackwright.domain.errors import RackwrightError
from rackwright.server.settings import Options, SettingsInvalid, load_settings, show_settings
from rackwright.store.db.database import normalise_url


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in Options.model_fields:
        monkeypatch.delenv(f"RACKWRIGHT_{name.upper()}", raising=False)
    monkeypatch.delenv("RACKWRIGHT_CONFIG", raising=False)
    monkeypatch.setenv("RACKWRIGHT_HOME", str(tmp_path))
    return tmp_path


def test_a_flag_wins_over_the_environment_that_over_the_file_and_that_over_the_default(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "rackwright.toml").write_text('host = "127.0.0.2"\nport = 1001\ntick = 7\n')
    monkeypatch.setenv("RACKWRIGHT_HOST", "127.0.0.3")
    monkeypatch.setenv("RACKWRIGHT_PORT", "1002")
    settings = load_settings({"host": "127.0.0.4"})
    options = settings.options
    assert (options.host, options.port, options.tick, options.lease) == ("127.0.0.4", 1002, 7, Options(home).lease)
    sources = {setting.name: setting.source for setting in show_settings(settings)}
    assert sources["host"] == "flag"
    assert sources["port"] == "RACKWRIGHT_PORT"
    assert sources["tick"] == str(home / "rackwright.toml")
    assert sources["lease"] == "default"


def test_every_setting_can_come_from_each_source(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "rackwright.toml").write_text('metrics_allow = ["192.0.2.0/24"]\nlab = true\n')
    monkeypatch.setenv("RACKWRIGHT_WEBHOOK_ALLOW", '["10.0.0.0/8", "fd00::/8"]')
    options = load_settings({"tls_names": ["rack.example"], "tls": True}).options
    assert [str(network) for network in options.metrics_allow] == ["192.0.2.0/24"]
    assert [str(network) for network in options.webhook_allow] == ["10.0.0.0/8", "fd00::/8"]
    assert (options.lab, options.tls, options.tls_names) == (True, True, ["rack.example"])


@pytest.mark.parametrize(
    ("given", "addresses"),
    [
        ("10.0.0.1", ["10.0.0.1"]),
        ("FD77:0::1", ["fd77::1"]),
        ('["10.0.0.1", "fd77::1", "10.0.0.1"]', ["10.0.0.1", "fd77::1"]),
    ],
)
def test_machines_have_an_address_for_each_family(
    monkeypatch: pytest.MonkeyPatch, given: str, addresses: list[str]
) -> None:
    assert load_settings({}).options.provision_address == []
    monkeypatch.setenv("RACKWRIGHT_PROVISION_ADDRESS", given)
    assert load_settings({}).options.provision_address == addresses


def test_options_made_by_hand_do_not_depend_on_the_environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RACKWRIGHT_PORT", "1002")
    assert Options(home).port == 8090


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('hots = "x"', "no setting 'hots'; did you mean 'host'"),
        ("[tls]\nkey = 1", "tls"),
        ("port = 70000", "port (from"),
        ('port = "many"', "port (from"),
        ("tick = 0", "tick (from"),
        ("port = ", "is no TOML"),
        ('tls_key = "k.pem"', "belong together"),
        ('tls_key = "k.pem"\ntls_certificate = "c.pem"', "tls is off"),
        ('webhook_allow = ["10.0.0.1/8"]', "webhook_allow (from"),
        ('provision_address = "rack.example"', "'rack.example' is no IP address; write it like 10.0.0.1 or fd00::1"),
        ('provision_address = ["10.0.0.1", "[fd77::1]:8091"]', "is no IP address"),
        ('provision_address = "fe80::1"', "link-local"),
    ],
)
def test_a_wrong_file_is_refused_with_what_would_be_right(home: Path, text: str, says: str) -> None:
    (home / "rackwright.toml").write_text(text)
    with pytest.raises(SettingsInvalid) as refused:
        load_settings({})
    assert says in refused.value.message


def test_a_file_that_was_named_must_be_there(home: Path) -> None:
    assert load_settings({}).options.home == home
    with pytest.raises(SettingsInvalid, match="There is no settings file"):
        load_settings({}, home / "nowhere.toml")


def test_a_variable_that_is_no_list_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RACKWRIGHT_WEBHOOK_ALLOW", "10.0.0.0/8")
    with pytest.raises(SettingsInvalid, match="Lists are JSON"):
        load_settings({})


def test_a_password_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RACKWRIGHT_DATABASE_URL", "postgresql://rack:hunter2@db.example/rack")
    settings = load_settings({})
    shown = {setting.name: setting.value for setting in show_settings(settings)}
    assert "hunter2" not in str(shown)
    assert shown["database_url"] == "postgresql://rack:***@db.example/rack"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter2",
        "postgresql://me@db:hunter2/rack",
        "postgresql://me:hun@ter2@db/rack",
        "postgresql:///rack?password=hunter2",
        "me:hunter2@db/rack",
    ],
)
def test_no_part_of_a_password_is_shown_of_a_database_url(
    home: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("RACKWRIGHT_DATABASE_URL", url)
    shown = {setting.name: setting.value for setting in show_settings(load_settings({}))}["database_url"]
    assert "ter2" not in shown
    assert "ter2" not in _refusal(lambda: load_settings({"database_url": url}))
    assert "ter2" not in _refusal(lambda: normalise_url(url))


def _refusal(read: Callable[[], object]) -> str:
    """Return the error text if it is refused; a ValueError would be a traceback with the URL in it."""
    try:
        read()
    except RackwrightError as refused:
        return refused.message
    return ""
