"""Certificates that live for seconds: they renew by themselves, and connections never outlive them."""

from collections.abc import Iterator

import pytest
from tests.support.netns import fleet

from rackwright.mesh.fleet import Fleet, wait_until

SERVERS = ["s1", "s2"]
SECONDS = 20


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("renewal"), SERVERS) as made:
        made.found(certificate_hours=str(SECONDS / 3600))
        made.start_all()
        made.wait_agree(dict.fromkeys(SERVERS, "alive"))
        yield made


def happened(fleet: Fleet, server: str, event: str) -> int:
    return sum(line["event"] == event for line in fleet.log(server))


def test_certificates_renew_and_the_cluster_lives_on_past_the_first_ones(pair: Fleet) -> None:
    expired = [pair.ask(server, "status")["certificate_expires"] for server in SERVERS]

    def both_outlived() -> bool:
        renewed = all(happened(pair, server, "renewed") for server in SERVERS)
        return renewed and any(happened(pair, server, "link_outlived_certificate") for server in SERVERS)

    wait_until(both_outlived, 3 * SECONDS, "no certificate was renewed, or links outlive theirs")
    pair.wait_agree(dict.fromkeys(SERVERS, "alive"))
    assert [pair.ask(server, "status")["certificate_expires"] for server in SERVERS] > expired
    assert not any(happened(pair, server, "member_dead") for server in SERVERS)
    assert not any(happened(pair, server, "renewal_failed") for server in SERVERS)
