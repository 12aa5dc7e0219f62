"""Five servers in network namespaces of their own, hurt in every way a data centre knows. Afterwards all must agree."""

import time
from collections.abc import Iterator

import pytest
from tests.support.netns import cluster, network

from rackwright.mesh.fleet import Fleet, wait_until
from rackwright.mesh.namespaces import Network

pytestmark = pytest.mark.chaos

SERVERS = ["s1", "s2", "s3", "s4", "s5"]
ALIVE = dict.fromkeys(SERVERS, "alive")


@pytest.fixture(scope="module")
def formed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with network(SERVERS) as wires, cluster(tmp_path_factory.mktemp("five"), SERVERS, wires) as made:
        yield made


@pytest.fixture
def five(formed: Fleet) -> Iterator[Fleet]:
    """All five, alive and agreed, before and after each test: no hurt may leave a trace."""
    formed.wait_agree(ALIVE, seconds=60)
    yield formed
    wires(formed).heal()
    for server in SERVERS:
        if formed.running(server):
            formed.resume(server)
        else:
            formed.start(server)
    formed.wait_agree(ALIVE, seconds=60)


def wires(fleet: Fleet) -> Network:
    assert fleet.network is not None
    return fleet.network


def others(*gone: str) -> list[str]:
    return [server for server in SERVERS if server not in gone]


def deaths(fleet: Fleet, server: str) -> int:
    """How often this server has declared someone dead."""
    return int(fleet.metric(server, "rackwright_mesh_swim_deaths_total"))


def test_all_know_a_killed_agent_is_dead_and_that_it_is_back(five: Fleet) -> None:
    five.kill("s3")
    five.wait_agree({**ALIVE, "s3": "dead"}, others("s3"), seconds=60)
    five.start("s3")
    five.wait_agree(ALIVE)


def test_a_killed_agent_is_proved_dead_by_its_refusals_not_by_silence(five: Fleet) -> None:
    before = sum(five.metric(server, "rackwright_mesh_swim_deaths_proved_total") for server in others("s4"))
    five.kill("s4")
    five.wait_agree({**ALIVE, "s4": "dead"}, others("s4"), seconds=60)
    assert sum(five.metric(server, "rackwright_mesh_swim_deaths_proved_total") for server in others("s4")) > before


def test_a_server_without_its_cable_is_dead_to_all_and_alive_again_once_mended(five: Fleet) -> None:
    wires(five).cut("s2")
    five.wait_agree({**ALIVE, "s2": "dead"}, others("s2"), seconds=40)
    wires(five).mend("s2")
    five.wait_agree(ALIVE, seconds=60)


def test_a_paused_agent_is_held_dead_and_refutes_it_when_it_wakes(five: Fleet) -> None:
    five.pause("s5")
    five.wait_agree({**ALIVE, "s5": "dead"}, others("s5"), seconds=40)
    session = next(member["session"] for member in five.ask("s1", "members")["members"] if member["name"] == "s5")
    five.resume("s5")
    five.wait_agree(ALIVE)
    again = next(member["session"] for member in five.ask("s1", "members")["members"] if member["name"] == "s5")
    assert again == session, "it was the same process all along"


def test_an_agent_that_wakes_from_a_pause_declares_nobody_dead(five: Fleet) -> None:
    before = deaths(five, "s1")
    five.pause("s1")
    five.wait_agree({**ALIVE, "s1": "dead"}, others("s1"), seconds=40)
    five.resume("s1")
    five.wait_agree(ALIVE)
    assert deaths(five, "s1") == before


def test_two_halves_hold_each_other_dead_and_agree_once_healed(five: Fleet) -> None:
    wires(five).split(["s4", "s5"])
    five.wait_agree({**ALIVE, "s4": "dead", "s5": "dead"}, ["s1", "s2", "s3"], seconds=60)
    five.wait_agree({**ALIVE, "s1": "dead", "s2": "dead", "s3": "dead"}, ["s4", "s5"], seconds=60)
    wires(five).heal()
    five.wait_agree(ALIVE, seconds=60)


def test_a_death_is_found_through_a_fifth_of_all_packets_lost_and_all_agree_afterwards(five: Fleet) -> None:
    for server in SERVERS:
        wires(five).lose(server, 20)
    five.kill("s3")
    # Through such a network somebody else may be held dead for a while; the dead one must never be held alive.
    wait_until(lambda: all(five.states(server)["s3"] == "dead" for server in others("s3")), 60, "s3 is not held dead")
    wires(five).heal()
    five.wait_agree({**ALIVE, "s3": "dead"}, others("s3"), seconds=60)


def test_a_server_that_leaves_has_left_and_did_not_die(five: Fleet) -> None:
    before = sum(deaths(five, server) for server in others("s2"))
    five.stop("s2")
    five.wait_agree({**ALIVE, "s2": "left"}, others("s2"), seconds=60)
    five.start("s2")
    five.wait_agree(ALIVE)
    assert sum(deaths(five, server) for server in others("s2")) == before


def test_after_a_power_cut_of_all_they_find_each_other_again(five: Fleet) -> None:
    # Who knows whom is on disk by then, or was there from the join: no seed has to be the first one up.
    for server in SERVERS:
        five.kill(server)
    for server in reversed(SERVERS):
        five.start(server, wait=False)
    for server in SERVERS:
        five.wait_for_agent(server)
    five.wait_agree(ALIVE, seconds=60)


def test_nobody_is_suspected_to_death_while_nothing_is_wrong(five: Fleet) -> None:
    before = {server: deaths(five, server) for server in SERVERS}
    end = time.monotonic() + 10
    wait_until(lambda: time.monotonic() > end or not five.agree(ALIVE), 20, "", every=0.5)
    five.wait_agree(ALIVE, seconds=60)
    assert {server: deaths(five, server) for server in SERVERS} == before
