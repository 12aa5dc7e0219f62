"""Software that dies on one server and hangs on another: every server knows, and when it is back.

That they know within two check intervals is measured by `bench/detect.py`, and shown of the schedule in
`tests/unit/mesh/health/test_health.py`.
"""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.mesh.netns import fleet, network
from tests.support.waiting import wait_until

from rackwright.lab.mesh_fleet import Fleet

pytestmark = pytest.mark.chaos

SERVERS = ["s1", "s2", "s3", "s4", "s5"]
CHECK = {"name": "web", "kind": "http", "url": "http://127.0.0.1:8080/", "interval": 3.0, "timeout": 1.0}


class Service:
    """A real web server on one server of the fleet."""

    def __init__(self, fleet: Fleet, server: str, folder: Path) -> None:
        self.fleet, self.server, self.folder = fleet, server, folder
        self.start()

    def start(self) -> None:
        assert self.fleet.network is not None
        program = [sys.executable, "-m", "http.server", "8080", "--bind", "127.0.0.1", "--directory", str(self.folder)]
        command = self.fleet.network.command(self.server, ["setpriv", "--pdeathsig", "KILL", *program])
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with network(SERVERS) as wires, fleet(tmp_path_factory.mktemp("software"), SERVERS, wires) as running_fleet:
        running_fleet.create_cluster()
        for server in ("s3", "s4"):
            running_fleet.configure(server, checks=(CHECK,))
        running_fleet.start_all()
        running_fleet.wait_agree(dict.fromkeys(SERVERS, "alive"))
        yield running_fleet


@pytest.fixture
def service(five: Fleet, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Service]:
    web_service = Service(five, request.param, tmp_path)
    try:
        wait_all_know(five, web_service.server, "passing")
        yield web_service
    finally:
        web_service.kill()


def wait_all_know(servers: Fleet, server: str, status: str) -> None:
    def all_say_so() -> bool:
        return all(check_status(servers, observer, server) == status for observer in SERVERS)

    wait_until(all_say_so, f"all hold the web server of {server} to be {status}", every=0.2)


def check_status(servers: Fleet, observer: str, server: str) -> str | None:
    members = servers.ask(observer, "members")["members"]
    checks = next(member["checks"] for member in members if member["name"] == server)
    status = checks.get("web")
    return None if status is None else str(status)


@pytest.mark.parametrize("service", ["s3"], indirect=True)
def test_all_know_and_log_that_a_service_was_killed_and_know_of_its_return(five: Fleet, service: Service) -> None:
    service.kill()
    wait_all_know(five, "s3", "failing")
    for server in SERVERS:
        lines = [line for line in five.log(server) if line["event"] == "check_failing" and line["member"] == "s3"]
        assert lines, f"{server} logged nothing"
        assert lines[-1]["check"] == "web"
        assert lines[-1]["why"]
    service.start()
    wait_all_know(five, "s3", "passing")


@pytest.mark.parametrize("service", ["s4"], indirect=True)
def test_all_know_of_a_hanging_service_and_of_its_return(five: Fleet, service: Service) -> None:
    service.process.send_signal(signal.SIGSTOP)
    wait_all_know(five, "s4", "failing")
    wait_until(
        lambda: check_status(five, "s1", "s4") == "failing" and five.states("s1")["s4"] == "alive",
        "the server is well, and its software is not",
        every=0.2,
    )
    service.process.send_signal(signal.SIGCONT)
    wait_all_know(five, "s4", "passing")
