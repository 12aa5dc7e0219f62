"""Certificates: when one is made, for whom, and when plain HTTP is refused."""

import datetime
import stat
from pathlib import Path

import pytest
from cryptography import x509

from rackwright.server.settings import Options, SettingsInvalid
from rackwright.server.tls import LIFETIME, RENEW_BEFORE, choose_certificate, ensure_self_signed

NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
NAMES = ["rack.example", "192.0.2.1", "::1"]


def names_in(path: Path) -> set[str]:
    loaded = x509.load_pem_x509_certificate(path.read_bytes())
    names = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(name.value) for name in names}


def test_the_key_is_for_the_owner_alone_and_the_certificate_has_names_and_addresses(tmp_path: Path) -> None:
    files = ensure_self_signed(tmp_path, NAMES, NOW)
    assert stat.S_IMODE(files.key.stat().st_mode) == 0o600
    assert names_in(files.certificate) == {"rack.example", "192.0.2.1", "::1"}
    files.context()


def test_it_is_made_once_and_anew_before_it_ends_or_when_a_name_is_missing(tmp_path: Path) -> None:
    first = ensure_self_signed(tmp_path, NAMES, NOW).fingerprint
    renewal, day = NOW + LIFETIME - RENEW_BEFORE, datetime.timedelta(days=1)
    assert ensure_self_signed(tmp_path, NAMES, renewal - day).fingerprint == first
    second = ensure_self_signed(tmp_path, NAMES, renewal + day).fingerprint
    assert second != first
    third = ensure_self_signed(tmp_path, [*NAMES, "other.example"], NOW + LIFETIME)
    assert third.fingerprint != second
    assert "other.example" in names_in(third.certificate)


def test_a_key_that_does_not_fit_is_replaced(tmp_path: Path) -> None:
    files = ensure_self_signed(tmp_path, NAMES, NOW)
    other = ensure_self_signed(tmp_path / "other", NAMES, NOW)
    files.key.write_bytes(other.key.read_bytes())
    ensure_self_signed(tmp_path, NAMES, NOW).context()


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "rack.example"])
def test_plain_http_beyond_this_host_takes_a_decision(tmp_path: Path, host: str) -> None:
    with pytest.raises(SettingsInvalid, match="--tls"):
        choose_certificate(Options(tmp_path, host=host), "rack.example")
    assert choose_certificate(Options(tmp_path, host=host, insecure_http=True), "rack.example") is None
    assert choose_certificate(Options(tmp_path, host=host, tls=True), "rack.example") is not None


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_plain_http_on_this_host_is_fine(tmp_path: Path, host: str) -> None:
    assert choose_certificate(Options(tmp_path, host=host), "rack.example") is None


def test_a_given_certificate_that_cannot_be_used_is_said_so(tmp_path: Path) -> None:
    options = Options(tmp_path, tls=True, tls_certificate=tmp_path / "c.pem", tls_key=tmp_path / "k.pem")
    given = choose_certificate(options, "rack.example")
    assert given is not None
    with pytest.raises(SettingsInvalid, match="cannot be used"):
        given.context()
