"""Certificates renew by themselves before they end, and the cluster lives on with the new ones.

The agents' wall clock is put forward to when renewal is due, and then past the end of the first certificates. From due
to the end there are 55 seconds, which a busy machine does not miss. That no connection outlives its certificate is
`test_transport.py`.
"""

import ssl
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from tests.support.mesh.faketime import FakeClock
from tests.support.mesh.netns import fleet
from tests.support.waiting import PATIENCE, wait_until

from rackwright.lab.mesh_fleet import Fleet
from rackwright.mesh.address import parse_address
from rackwright.mesh.identity.server_identity import Identity, IdentityFiles

SERVERS = ["s1", "s2"]
ALIVE = dict.fromkeys(SERVERS, "alive")
SECONDS = 150
"""A certificate's life. An agent looks every thirtieth of it whether renewal is due."""


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> FakeClock:
    return FakeClock(tmp_path_factory.mktemp("time"))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, clock: FakeClock) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("renewal"), SERVERS) as made:
        made.environment = dict.fromkeys(SERVERS, clock.environment)
        made.create_cluster(certificate_hours=str(SECONDS / 3600))
        made.start_all()
        made.wait_agree(ALIVE)
        yield made


def happened(fleet: Fleet, server: str, event: str) -> list[dict[str, Any]]:
    return [line for line in fleet.log(server) if line["event"] == event]


def held(fleet: Fleet, server: str) -> Identity:
    return IdentityFiles(fleet.home(server)).load()


def shown(fleet: Fleet, server: str) -> x509.Certificate:
    """What the running agent shows to whoever connects."""
    host, port = parse_address(fleet.address(server))
    return x509.load_pem_x509_certificate(ssl.get_server_certificate((host, port), timeout=PATIENCE).encode())


def test_certificates_renew_and_the_cluster_lives_on_past_the_first_ones(pair: Fleet, clock: FakeClock) -> None:
    first = {server: held(pair, server) for server in SERVERS}
    clock.pass_to(max(one.renew_at for one in first.values()) + timedelta(seconds=1))
    wait_until(
        lambda: all(held(pair, server).expires > first[server].expires for server in SERVERS),
        "the certificates are renewed",
        every=0.2,
    )
    wait_until(
        lambda: all(shown(pair, server).not_valid_after_utc > first[server].expires for server in SERVERS),
        "the agents show the new ones",
        every=0.2,
    )
    for server in SERVERS:
        renewed = datetime.fromisoformat(happened(pair, server, "renewed")[0]["time"])
        assert renewed < first[server].expires, "while the first one was good"

    ended = max(one.expires for one in first.values()) + timedelta(seconds=1)
    clock.pass_to(ended)
    # Now nobody could connect with a first one.
    pair.stop("s2")
    pair.start("s2")
    pair.wait_agree(ALIVE)
    assert datetime.fromisoformat(happened(pair, "s2", "started")[-1]["time"]) >= ended
    for server in SERVERS:
        assert datetime.fromisoformat(pair.ask(server, "status")["certificate_expires"]) > first[server].expires
        assert happened(pair, server, "member_dead") == []
        assert happened(pair, server, "renewal_failed") == []
