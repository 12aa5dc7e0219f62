"""Certificates renew by themselves before they end, and connections never outlive them.

A third of a certificate's life is left when it is renewed: 40 seconds here, which a machine that is busy for half a
minute does not miss.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.netns import fleet
from tests.support.waiting import PATIENCE, wait_until

from rackwright.mesh.fleet import Fleet

SERVERS = ["s1", "s2"]
SECONDS = 120


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("renewal"), SERVERS) as made:
        made.found(certificate_hours=str(SECONDS / 3600))
        made.start_all()
        made.wait_agree(dict.fromkeys(SERVERS, "alive"))
        yield made


def happened(fleet: Fleet, server: str, event: str) -> list[dict[str, Any]]:
    return [line for line in fleet.log(server) if line["event"] == event]


def test_certificates_renew_and_the_cluster_lives_on_past_the_first_ones(pair: Fleet) -> None:
    # As it was at the start: on a busy machine it may be renewed by now.
    expired = [happened(pair, server, "started")[0]["expires"] for server in SERVERS]

    def both_outlived() -> bool:
        renewed = all(happened(pair, server, "renewed") for server in SERVERS)
        return renewed and any(happened(pair, server, "link_outlived_certificate") for server in SERVERS)

    wait_until(both_outlived, "certificates are renewed, and a link ended with the first one", SECONDS + PATIENCE)
    pair.wait_agree(dict.fromkeys(SERVERS, "alive"))
    for server, first in zip(SERVERS, expired, strict=True):
        assert pair.ask(server, "status")["certificate_expires"] > first
        assert happened(pair, server, "member_dead") == []
        assert happened(pair, server, "renewal_failed") == []
