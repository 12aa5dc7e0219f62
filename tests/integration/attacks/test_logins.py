"""Guessing passwords: who guesses is limited, and nobody else is.

- So many wrong passwords for a name from one source, and that source waits. The person whose name it is logs in from
  anywhere else at once: no stranger can lock somebody out.
- Where a request comes from is what the connection says. X-Forwarded-For is believed from proxies that the settings
  name, and nobody is one by default, this host included.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from tests.support.servers.public_server import Front, front
from tests.support.waiting import PATIENCE

from rackwright.server.first_admin import PASSWORD_FILE

ENEMY = "127.0.0.66"
MANY = 40
"""Guesses at once, so that none is forgotten while they are made, however slow the machine."""


@pytest.fixture
def site(tmp_path: Path, migrated_url: str) -> Iterator[Front]:
    with front(tmp_path, migrated_url) as running:
        yield running


def log_in(site: Front, password: str, source: str = "127.0.0.1", forwarded: str = "") -> httpx.Response:
    headers = {"X-Forwarded-For": forwarded} if forwarded else {}
    transport = httpx.HTTPTransport(local_address=source)
    with httpx.Client(transport=transport, timeout=PATIENCE, base_url=site.people, headers=headers) as client:
        return client.post("/api/v2/sessions", json={"name": "admin", "password": password})


def password_of(site: Front) -> str:
    return (site.server.home / PASSWORD_FILE).read_text().strip()


def test_wrong_passwords_stop_who_sends_them_and_not_the_person(site: Front) -> None:
    with ThreadPoolExecutor(MANY) as guesses:
        answers = list(guesses.map(lambda _: log_in(site, "guess", ENEMY).status_code, range(MANY)))
    assert set(answers) == {401, 429}
    assert log_in(site, password_of(site)).status_code == 201


def test_nobody_pretends_to_come_from_elsewhere(site: Front) -> None:
    with ThreadPoolExecutor(MANY) as guesses:
        forged = [f"203.0.113.{number}" for number in range(MANY)]
        answers = list(guesses.map(lambda address: log_in(site, "guess", ENEMY, address).status_code, forged))
    assert 429 in answers, "each guess counts for the one who sent it"
    assert log_in(site, password_of(site), forwarded="203.0.113.9").status_code == 201
    assert addresses(site) == {"127.0.0.1"}


def test_a_proxy_that_the_settings_name_is_believed(tmp_path: Path, migrated_url: str) -> None:
    with front(tmp_path, migrated_url, trusted_proxies='["127.0.0.77/32"]') as site:
        assert log_in(site, password_of(site), "127.0.0.77", forwarded="203.0.113.9").status_code == 201
        assert log_in(site, password_of(site), "127.0.0.78", forwarded="203.0.113.9").status_code == 201
        assert addresses(site) == {"203.0.113.9", "127.0.0.78"}


def addresses(site: Front) -> set[str]:
    """Where logins came from, as the server wrote it down."""
    with site.client(token=True) as administrator:
        return {login["address"] for login in administrator.get("/api/v2/sessions").json()["items"]}
