"""Five servers in network namespaces of their own, hurt in every way a data centre knows. Afterwards all must agree.

They keep time as people's servers do, so a busy machine may make somebody dead for a while: what is asserted is what
all come to agree on. That nobody is held dead who lives is `test_no_false_death.py`.
"""

from collections.abc import Iterator

import pytest
from tests.support.mesh.netns import AS_SHIPPED, cluster, network
from tests.support.waiting import wait_until

from rackwright.lab.mesh_fleet import Fleet
from rackwright.lab.namespaces import Network

pytestmark = pytest.mark.chaos

SERVERS = ["s1", "s2", "s3", "s4", "s5"]
ALIVE = dict.fromkeys(SERVERS, "alive")


@pytest.fixture(scope="module")
def formed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("five")
    with network(SERVERS) as wires, cluster(folder, SERVERS, wires, swim=AS_SHIPPED) as fleet:
        yield fleet


@pytest.fixture
def five(formed: Fleet) -> Iterator[Fleet]:
    """All five, alive and agreed, before and after each test: no hurt may leave a trace."""
    formed.wait_agree(ALIVE)
    yield formed
    wires(formed).heal()
    for server in SERVERS:
        if formed.running(server):
            formed.resume(server)
        else:
            formed.start(server)
    formed.wait_agree(ALIVE)


def wires(fleet: Fleet) -> Network:
    assert fleet.network is not None
    return fleet.network


def others(*gone: str) -> list[str]:
    return [server for server in SERVERS if server not in gone]


def test_all_know_a_killed_agent_is_dead_and_that_it_is_back(five: Fleet) -> None:
    five.kill("s3")
    five.wait_agree({**ALIVE, "s3": "dead"}, others("s3"))
    five.start("s3")
    five.wait_agree(ALIVE)


def test_a_server_without_its_cable_is_dead_to_all_and_alive_again_once_mended(five: Fleet) -> None:
    wires(five).cut("s2")
    five.wait_agree({**ALIVE, "s2": "dead"}, others("s2"))
    wires(five).mend("s2")
    five.wait_agree(ALIVE)


def test_a_paused_agent_is_held_dead_and_refutes_it_when_it_wakes(five: Fleet) -> None:
    five.pause("s5")
    five.wait_agree({**ALIVE, "s5": "dead"}, others("s5"))
    session = next(member["session"] for member in five.ask("s1", "members")["members"] if member["name"] == "s5")
    five.resume("s5")
    five.wait_agree(ALIVE)
    again = next(member["session"] for member in five.ask("s1", "members")["members"] if member["name"] == "s5")
    assert again == session, "it was the same process all along"


def test_two_halves_hold_each_other_dead_and_agree_once_healed(five: Fleet) -> None:
    wires(five).split(["s4", "s5"])
    five.wait_agree({**ALIVE, "s4": "dead", "s5": "dead"}, ["s1", "s2", "s3"])
    five.wait_agree({**ALIVE, "s1": "dead", "s2": "dead", "s3": "dead"}, ["s4", "s5"])
    wires(five).heal()
    five.wait_agree(ALIVE)


def test_a_death_is_found_through_a_fifth_of_all_packets_lost_and_all_agree_afterwards(five: Fleet) -> None:
    for server in SERVERS:
        wires(five).drop_packets(server, 20)
    five.kill("s3")
    # Through such a network somebody else may be held dead for a while; the dead one must never be held alive.
    wait_until(
        lambda: all(five.states(server)["s3"] == "dead" for server in others("s3")), "all hold s3 dead", every=0.2
    )
    wires(five).heal()
    five.wait_agree({**ALIVE, "s3": "dead"}, others("s3"))


def test_after_a_power_cut_of_all_they_find_each_other_again(five: Fleet) -> None:
    # Who knows whom is on disk by then, or was there from the join: no seed has to be the first one up.
    for server in SERVERS:
        five.kill(server)
    for server in reversed(SERVERS):
        five.start(server, wait=False)
    for server in SERVERS:
        five.wait_for_agent(server)
    five.wait_agree(ALIVE)
