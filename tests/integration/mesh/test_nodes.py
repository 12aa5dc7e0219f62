"""The mesh with the control plane: real agents and etcd, and a server process on PostgreSQL that follows them."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from sqlalchemy import make_url
from tests.support.mesh.fleet_datastore import UNHURRIED_STORE, datastore, takeover_soon, wait_complete, wires
from tests.support.mesh.netns import fleet, network
from tests.support.servers.postgres import administer, execute
from tests.support.servers.server_processes import ServerProcess, servers
from tests.support.waiting import PATIENCE, wait_until

from rackwright.barclamps.loader import load_folder
from rackwright.client.access import access_of_home
from rackwright.client.transport import open_http
from rackwright.domain.catalogue import JsonObject
from rackwright.domain.runs import Answer, Run
from rackwright.lab.mesh_fleet import Fleet
from rackwright.mesh import control
from rackwright.mesh.client import MeshClient
from rackwright.mesh.errors import MeshError
from rackwright.reach.mesh_states import MeshStateRunner, StateJob
from rackwright.reach.state_events import StateEventReader
from rackwright.store.barclamp_import import import_barclamps
from rackwright.store.db.database import open_database
from rackwright.store.store import Store

SERVERS = ["s1", "s2", "s3", "s4"]
CHECKED = "s4"
CHECK: dict[str, Any] = {"name": "app", "kind": "command", "interval": 1.0, "timeout": 0.7, "failures": 1}
"""Software of `CHECKED` that fails while there is a file `broken`."""


class Plane:
    """A server that follows the mesh through the agent of `s1`, asked as people ask it."""

    def __init__(self, fleet: Fleet, process: ServerProcess) -> None:
        self.fleet, self.process = fleet, process
        self.api = open_http(access_of_home(process.address, process.home), PATIENCE)

    def get(self, path: str, **query: str) -> Any:
        answer = self.api.get(path, params=query)
        assert answer.is_success, answer.text
        return answer.json()

    def nodes(self) -> dict[str, dict[str, Any]]:
        """The nodes that are members, by their names in the mesh."""
        listed = self.get("/nodes", system="false", limit="100")["items"]
        found = [self.get(f"/nodes/{one['id']}") for one in listed]
        return {one["discovery"]["mesh"]["member"]: one for one in found if "mesh" in one["discovery"]}

    def holders(self, role: str) -> dict[str, str]:
        """The state of each noderole of a role, by node."""
        listed = self.get("/node_roles", role=role, limit="100")["items"]
        return {one["node"].partition(".")[0]: one["state"] for one in listed}

    def datastore_shows(self, without: str = "") -> bool:
        """Whether the noderoles say who holds the datastore, at full strength."""
        try:
            members = datastore(self.fleet, "s1")["members"]
        except MeshError:
            return False
        held = {one["server"] for one in members if not one["learner"]} - {without}
        return len(held) == 3 and self.holders("mesh-datastore") == dict.fromkeys(held, "active")

    def post(self, path: str, content: Any = None) -> Any:
        answer = self.api.post(path, json=content)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def bind(self, server: str, role: str) -> int:
        """Have the role run on the node of a server; gives the noderole."""
        node = self.nodes()[server]["name"]
        if self.api.get("/deployments/trials").status_code == 404:
            self.post("/deployments", {"name": "trials"})
        else:
            self.post("/deployments/trials/propose")
        self.post("/node_roles", {"node": node, "role": role, "deployment": "trials"})
        self.post("/deployments/trials/commit", {})
        [made] = self.get("/node_roles", role=role, node=node)["items"]
        return int(made["id"])

    def told(self, kind: str, **about: str) -> list[dict[str, Any]]:
        """The mesh's events of this kind, as any of its servers tells them."""
        told = [line["event"] for line in control.listen(self.fleet.home("s2"), "events")]
        return [event for event in told if event["kind"] == kind and about.items() <= event.items()]

    def events(self, kind: str) -> list[dict[str, Any]]:
        """The control plane's own events of this kind."""
        return [event["data"] for event in self.get("/events", kind=kind, limit="1000")["items"]]

    def runs(self, noderole: int) -> list[dict[str, Any]]:
        """The runs of a noderole, the newest first."""
        listed: list[dict[str, Any]] = self.get("/runs", node_role_id=str(noderole))["items"]
        return listed

    def until_state(self, noderole: int, state: str) -> dict[str, Any]:
        self.until(lambda: self.get(f"/node_roles/{noderole}")["state"] == state, f"it becomes {state}")
        found: dict[str, Any] = self.get(f"/node_roles/{noderole}")
        return found

    def log(self, run: int) -> str:
        return self.api.get(f"/runs/{run}/log").text

    def until(self, condition: Callable[[], bool], what: str) -> None:
        wait_until(condition, lambda: f"{what}; the server said:\n{self.process.said()[-3000:]}", every=0.2)


BARCLAMP = """
name: trial
display: Trial
description: States for members of the mesh
version: "1.0"
roles:
  - name: trial-say
    jig: state
    description: Says where it runs
    template: {greeting: hello}
  - name: trial-wait
    jig: state
    description: Runs until it is ended
    template: {file: FILE, state: {via: mesh}}
"""

SAY = """
say:
  cmd.run:
    - name: echo {{ greeting }} from; ip -4 -oneline address
"""

WAIT = """
wait:
  cmd.run:
    - name: echo $$ >>{{ file }}; exec sleep 3600
"""


def import_trial(folder: Path, url: str) -> None:
    """A barclamp whose roles are states."""
    barclamp = folder / "trial"
    for role, states in (("trial-say", SAY), ("trial-wait", WAIT)):
        (barclamp / "states" / role).mkdir(parents=True)
        (barclamp / "states" / role / "init.sls").write_text(states)
    (barclamp / "barclamp.yml").write_text(BARCLAMP.replace("FILE", str(folder / "waiting")))

    async def work() -> None:
        async with await open_database(url, folder) as database:
            await Store(database).change_graph(lambda session: import_barclamps(session, [load_folder(barclamp)]))

    asyncio.run(work())


def trust(fleet: Fleet, home: Path) -> None:
    """What an administrator does once: the mesh obeys what this server signs."""
    public = fleet.folder / "plane.pub"
    public.write_bytes(asyncssh.read_private_key(home / "ssh" / "id_ed25519").export_public_key())
    fleet.rackwright("s1", "mesh", "trust", "add", "plane", str(public))


class Waiting:
    """The processes that `trial-wait` has started, all of which are gone afterwards."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def started(self) -> list[int]:
        return [int(line) for line in self.file.read_text().split()] if self.file.exists() else []

    def running(self) -> list[int]:
        return [pid for pid in self.started() if self._runs(pid)]

    @staticmethod
    def _runs(pid: int) -> bool:
        with contextlib.suppress(OSError):
            return b"sleep" in Path(f"/proc/{pid}/cmdline").read_bytes()
        return False

    def end(self) -> None:
        for pid in self.running():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.file.unlink(missing_ok=True)


@pytest.fixture
def waiting(plane: Plane) -> Iterator[Waiting]:
    made = Waiting(plane.process.home.parent / "waiting")
    yield made
    made.end()


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory, postgres_server: str, started_template: str) -> Iterator[Plane]:
    folder = tmp_path_factory.mktemp("plane")
    home = folder / "home"
    home.mkdir()
    administer(postgres_server, f"CREATE DATABASE mesh_nodes TEMPLATE {started_template} STRATEGY file_copy")
    url = make_url(postgres_server).set(database="mesh_nodes").render_as_string(hide_password=False)
    try:
        with network(SERVERS) as net, fleet(folder / "mesh", SERVERS, net, UNHURRIED_STORE) as mesh:
            mesh.create_cluster()
            mesh.configure(CHECKED, checks=(CHECK | {"command": ["test", "!", "-e", str(folder / "broken")]},))
            mesh.start_all()
            wait_complete(mesh, "s1")
            more = ["--mesh-folder", str(mesh.home("s1"))]
            with servers(home, url, 1, lease=60, heartbeat=60, more=more) as [process]:
                import_trial(folder, url)
                trust(mesh, home)
                made = Plane(mesh, process)
                with made.api:
                    yield made
    finally:
        administer(postgres_server, "DROP DATABASE mesh_nodes WITH (FORCE)")


def test_members_show_as_nodes_with_their_role(plane: Plane) -> None:
    plane.until(lambda: set(plane.nodes()) == set(SERVERS), "every member is a node")
    node = plane.nodes()["s2"]
    assert node["name"] == "s2.mesh.internal"
    plane.until(lambda: plane.nodes()["s2"]["alive"] is True, "its node is alive")
    plane.until(lambda: plane.nodes()["s2"]["discovery"]["mesh"]["state"] == "alive", "its node says that it is alive")
    plane.until(
        lambda: plane.holders("mesh-member") == dict.fromkeys(SERVERS, "active"), "each has the role of a member"
    )


def test_a_server_that_joined_with_a_token_tells_no_trouble_of_a_datastore_that_works(plane: Plane) -> None:
    [plain] = set(SERVERS) - wait_complete(plane.fleet, "s1")
    told = datastore(plane.fleet, plain)
    assert (told["here"], told["quorum"], told["problem"]) == ("none", True, "")
    wait_until(
        lambda: not any(datastore(plane.fleet, server)["problem"] for server in SERVERS), "nobody tells of a problem"
    )


def test_the_datastore_shows_as_a_noderole_and_moves_when_another_server_takes_over(plane: Plane) -> None:
    fleet = plane.fleet
    wait_complete(fleet, "s1")
    plane.until(plane.datastore_shows, "it shows who holds the datastore")
    victim = min(plane.holders("mesh-datastore").keys() - {"s1"})
    fleet.kill(victim)
    try:
        plane.until(lambda: plane.nodes()[victim]["discovery"]["mesh"]["state"] == "dead", "its death shows")
        with takeover_soon(fleet, "s1"):
            plane.until(lambda: plane.datastore_shows(without=victim), "it shows that another has taken over")
        plane.until(lambda: not plane.nodes()[victim]["alive"], "the node is not alive")
        assert victim in plane.holders("mesh-member")
    finally:
        fleet.start(victim)
    plane.until(lambda: bool(plane.nodes()[victim]["alive"]), "its return shows")
    plane.until(lambda: bool(plane.told("member_alive", member=victim)), "the mesh tells of its return")
    assert len(plane.told("member_dead", member=victim)) == 1, "three servers saw it die, and it is told once"
    assert [event for event in plane.events("mesh.member_dead") if event["member"] == victim] == [{"member": victim}]
    assert set(plane.nodes()) == set(SERVERS)


def test_software_that_fails_is_an_event_of_the_mesh_and_of_the_server_once(plane: Plane) -> None:
    broken = plane.process.home.parent / "broken"
    about = {"member": CHECKED, "check": "app"}
    broken.touch()
    plane.until(lambda: about in map(without_why, plane.events("mesh.check_failing")), "the server tells it")
    plane.until(lambda: bool(plane.told("check_failing", **about)), "the mesh tells it")
    broken.unlink()
    plane.until(lambda: about in plane.events("mesh.check_passing"), "the server tells that it passes")
    plane.until(lambda: bool(plane.told("check_passing", **about)), "the mesh tells that it passes")
    assert len(plane.told("check_failing", **about)) == len(plane.told("check_passing", **about)) == 1
    assert plane.told("check_failing", **about)[0]["why"], "it says why"


def without_why(data: dict[str, Any]) -> dict[str, Any]:
    return {name: data[name] for name in data if name != "why"}


def test_states_go_through_the_mesh_and_what_they_say_comes_back(plane: Plane) -> None:
    plane.until(lambda: set(plane.nodes()) == set(SERVERS), "every member is a node")
    noderole = plane.bind("s4", "trial-say")
    wall = plane.until_state(noderole, "active")["wall"]
    assert wall["states"]["say"]["stdout"].startswith("hello from")
    assert wires(plane.fleet).address("s4") in wall["states"]["say"]["stdout"], "it ran on another server"
    assert "changed: say (cmd.run)" in plane.log(plane.runs(noderole)[0]["id"])


async def test_a_secret_is_sealed_on_its_way_and_masked_on_its_way_back(plane: Plane, tmp_path: Path) -> None:
    async def membership(node_id: int) -> JsonObject | None:
        return {"member": "s2", "state": "alive"}

    async def scope() -> str:
        return "test"

    (tmp_path / "init.sls").write_text("say:\n  cmd.run:\n    - name: echo {{ word }} is {{ greeting }}\n")
    key = plane.process.home / "ssh" / "id_ed25519"
    runner = MeshStateRunner(MeshClient(plane.fleet.home("s1")), key, membership, scope)
    values: JsonObject = {"word": "it", "greeting": "kept-to-ourselves"}
    run = Run(1, 1, 1, "s2.example", "say", "state", "state", values, PATIENCE, secrets=frozenset({"greeting"}))
    log: list[str] = []
    outcome = await runner.run_states(run, StateJob(tmp_path, ["init"], "ansible"), StateEventReader(log.append))
    assert outcome.answer is Answer.SUCCEEDED, outcome.error
    assert "it is" in json.dumps(outcome.wall)
    assert "kept-to-ourselves" not in json.dumps(outcome.wall) + "".join(log)


def test_a_run_is_taken_over_from_a_server_that_died_and_ended_when_it_is_cancelled(
    plane: Plane, waiting: Waiting
) -> None:
    plane.until(lambda: set(plane.nodes()) == set(SERVERS), "every member is a node")
    noderole = plane.bind("s3", "trial-wait")
    plane.until(lambda: bool(waiting.running()), "it runs")
    first = waiting.running()[0]
    plane.process.kill()
    # So that nobody has to wait for it to run out.
    execute(plane.process.database_url, "UPDATE runs SET lease_until = now() WHERE state = 'running'")
    plane.process.start()
    plane.process.wait_ready()
    plane.until(lambda: bool(waiting.running()) and first not in waiting.running(), "it is taken over")
    assert plane.runs(noderole)[-1]["state"] == "lost"
    plane.post(f"/runs/{plane.runs(noderole)[0]['id']}/cancel")
    plane.until(lambda: not waiting.running(), "it runs on the node no more")
    plane.until_state(noderole, "error")

    def ends() -> list[set[str]]:
        runs = plane.fleet.ask("s1", "runs")["runs"]
        return [set(run["tasks"].values()) for run in runs if run["targets"] == ["s3"]]

    assert len(ends()) >= 2
    plane.until(lambda: set.union(*ends()) == {"cancelled"}, "both runs of it are cancelled")


def test_a_node_that_is_lost_in_the_middle_fails_the_run_and_says_so(plane: Plane, waiting: Waiting) -> None:
    plane.until(lambda: set(plane.nodes()) == set(SERVERS), "every member is a node")
    plane.until(plane.datastore_shows, "it shows who holds the datastore")
    # No datastore server: this is about the run alone.
    server = min(set(SERVERS) - plane.holders("mesh-datastore").keys() - {"s1"}, default="s4")
    noderole = plane.bind(server, "trial-wait")
    plane.until(lambda: bool(waiting.running()), "it runs")
    plane.fleet.kill(server)
    try:
        error = plane.until_state(noderole, "error")["error"]
        assert f"{server}.mesh.internal was lost to the mesh: {server} was lost while it ran" in error
    finally:
        plane.fleet.start(server)
