"""Five servers, of which none may be reported dead that lives: when one leaves, when one slept, and when all is well.

A suspect has 15 seconds here before it is held dead, so that a machine that is busy for ten seconds changes nothing.
With the seconds that people have it is shown by simulation in `tests/unit/mesh/membership/test_simulated_cluster.py`,
and measured with every core loaded by `bench/detect.py`.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.mesh.netns import UNHURRIED, cluster, network
from tests.support.waiting import wait_until

from rackwright.lab.mesh_fleet import Fleet
from rackwright.mesh.membership.protocol_config import SwimConfig

pytestmark = pytest.mark.chaos

SERVERS = ["s1", "s2", "s3", "s4", "s5"]
ALIVE = dict.fromkeys(SERVERS, "alive")
SLEEPER = "s1"
PERIODS = 25
"""Protocol periods, of a second at the least: more than the time after which a suspect is held dead."""


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("no-false-death")
    with network(SERVERS) as wires, cluster(folder, SERVERS, wires) as fleet:
        fleet.configure(SLEEPER, swim={**UNHURRIED, "pause_threshold": SwimConfig().pause_threshold})
        fleet.stop(SLEEPER)
        fleet.start(SLEEPER)
        fleet.wait_agree(ALIVE)
        yield fleet


def others(*gone: str) -> list[str]:
    return [server for server in SERVERS if server not in gone]


def deaths(fleet: Fleet, server: str) -> list[dict[str, Any]]:
    """The log lines in which this server says that somebody is dead."""
    return [line for line in fleet.log(server) if line["event"] == "member_dead"]


def proved(fleet: Fleet, *servers: str) -> float:
    return sum(fleet.metric(server, "rackwright_mesh_swim_deaths_proved_total") for server in servers)


def test_nobody_is_suspected_to_death_while_nothing_is_wrong(five: Fleet) -> None:
    def probed_long_enough() -> bool:
        return all(five.metric(server, "rackwright_mesh_swim_probes_total") >= PERIODS for server in SERVERS)

    wait_until(probed_long_enough, f"each server has probed {PERIODS} times since its start", every=0.2)
    five.wait_agree(ALIVE)
    assert {server: deaths(five, server) for server in SERVERS} == {server: [] for server in SERVERS}


def test_a_server_that_leaves_has_left_and_did_not_die(five: Fleet) -> None:
    before = {server: deaths(five, server) for server in others("s2")}
    five.stop("s2")
    five.wait_agree({**ALIVE, "s2": "left"}, others("s2"))
    five.start("s2")
    five.wait_agree(ALIVE)
    assert {server: deaths(five, server) for server in others("s2")} == before


def test_a_killed_agent_is_proved_dead_by_its_refusals_not_by_silence(five: Fleet) -> None:
    before = proved(five, *others("s4"))
    five.kill("s4")
    five.wait_agree({**ALIVE, "s4": "dead"}, others("s4"))
    assert proved(five, *others("s4")) > before
    five.start("s4")
    five.wait_agree(ALIVE)


def test_an_agent_that_wakes_from_a_pause_declares_nobody_dead(five: Fleet) -> None:
    """It slept longer than anybody has to answer: the others know that, for they hold it dead by then."""
    before = deaths(five, SLEEPER)
    five.pause(SLEEPER)
    five.wait_agree({**ALIVE, SLEEPER: "dead"}, others(SLEEPER))
    five.resume(SLEEPER)
    five.wait_agree(ALIVE)
    assert deaths(five, SLEEPER) == before
