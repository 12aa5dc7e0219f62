"""A wall clock that is stepped on a server: no server is held dead for it, as the protocol uses a monotonic clock."""

from collections.abc import Iterator

import pytest
from tests.support.mesh.faketime import FakeClock
from tests.support.mesh.netns import cluster
from tests.support.waiting import wait_until

from rackwright.lab.mesh_fleet import Fleet

pytestmark = pytest.mark.chaos

SERVERS = ["s1", "s2", "s3"]
ALIVE = dict.fromkeys(SERVERS, "alive")


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> FakeClock:
    return FakeClock(tmp_path_factory.mktemp("time"))


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory, clock: FakeClock) -> Iterator[Fleet]:
    """s2 takes its wall clock from the test."""
    with cluster(tmp_path_factory.mktemp("clock"), SERVERS) as fleet:
        fleet.stop("s2")
        fleet.environment["s2"] = clock.environment
        fleet.start("s2")
        fleet.wait_agree(ALIVE)
        yield fleet


def wall_clock(fleet: Fleet, server: str) -> str:
    """The newest time in its log."""
    return str(fleet.log(server)[-1]["time"])


def counted(fleet: Fleet, name: str) -> float:
    return sum(fleet.metric(server, f"rackwright_mesh_swim_{name}_total") for server in SERVERS)


@pytest.mark.parametrize("step", ["+3d", "-40m", "+5m", "+0"])
def test_a_stepped_clock_kills_nobody(three: Fleet, clock: FakeClock, step: str) -> None:
    deaths, probes = counted(three, "deaths"), three.metric("s2", "rackwright_mesh_swim_probes_total")
    clock.step(step)
    # Long enough for every member to have probed and been probed by the stepped one, several times.
    wait_until(
        lambda: three.metric("s2", "rackwright_mesh_swim_probes_total") >= probes + 5,
        "s2 has probed five times more",
        every=0.2,
    )
    three.wait_agree(ALIVE)
    assert counted(three, "deaths") == deaths


def test_a_server_with_a_wrong_clock_can_still_connect_anew(three: Fleet, clock: FakeClock) -> None:
    clock.step("+3d")
    three.kill("s2")
    three.wait_agree({**ALIVE, "s2": "dead"}, ["s1", "s3"])
    three.start("s2")
    three.wait_agree(ALIVE)
    assert wall_clock(three, "s2") > wall_clock(three, "s1"), "its clock was not stepped at all"
