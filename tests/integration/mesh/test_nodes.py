"""The mesh with the control plane: real agents and etcd, and a server process on PostgreSQL that follows them."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from sqlalchemy import make_url
from tests.support.netns import cluster, network
from tests.support.postgres import administer
from tests.support.servers import ServerProcess, servers
from tests.support.store import voters, wait_complete

from rackwright.mesh.datastore_config import DatastoreConfig
from rackwright.mesh.fleet import Fleet, wait_until

SERVERS = ["s1", "s2", "s3", "s4"]
CONFIG = DatastoreConfig(grace=2.0, learner_seconds=60.0, lease_seconds=3)
PATIENCE = 180.0


class Plane:
    """A server that follows the mesh through the agent of `s1`, asked as people ask it."""

    def __init__(self, fleet: Fleet, process: ServerProcess) -> None:
        self.fleet, self.process = fleet, process
        token = (process.home / "admin-token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        self.api = httpx.Client(base_url=f"{process.address}/api/v2", headers=headers, timeout=60, trust_env=False)

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

    def until(self, condition: Any, what: str) -> None:
        try:
            wait_until(condition, PATIENCE, what, every=0.2)
        except Exception as problem:
            raise AssertionError(f"{problem}; the server said:\n{self.process.said()[-3000:]}") from problem


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory, postgres_server: str, started_template: str) -> Iterator[Plane]:
    folder = tmp_path_factory.mktemp("plane")
    home = folder / "home"
    home.mkdir()
    administer(postgres_server, f"CREATE DATABASE mesh_nodes TEMPLATE {started_template} STRATEGY file_copy")
    url = make_url(postgres_server).set(database="mesh_nodes").render_as_string(hide_password=False)
    try:
        with network(SERVERS) as net, cluster(folder / "mesh", SERVERS, net, CONFIG) as fleet:
            wait_complete(fleet, "s1", seconds=300)
            more = ["--mesh-folder", str(fleet.home("s1"))]
            with servers(home, url, 1, lease=5, heartbeat=10, more=more) as [process]:
                made = Plane(fleet, process)
                with made.api:
                    yield made
    finally:
        administer(postgres_server, "DROP DATABASE mesh_nodes WITH (FORCE)")


def test_members_show_as_nodes_with_their_role(plane: Plane) -> None:
    plane.until(lambda: set(plane.nodes()) == set(SERVERS), "not every member is a node")
    node = plane.nodes()["s2"]
    assert (node["name"], node["alive"]) == ("s2.mesh.internal", True)
    assert node["discovery"]["mesh"]["state"] == "alive"
    plane.until(lambda: plane.holders("mesh-member") == dict.fromkeys(SERVERS, "active"), "no role says so")


def test_the_datastore_shows_as_a_noderole_and_moves_when_another_server_takes_over(plane: Plane) -> None:
    fleet = plane.fleet
    wait_complete(fleet, "s1", seconds=300)
    before = voters(fleet, "s1")
    plane.until(lambda: plane.holders("mesh-datastore") == dict.fromkeys(before, "active"), "it does not show")
    victim = min(before - {"s1"})
    heir = min(set(SERVERS) - before)
    fleet.kill(victim)
    try:
        plane.until(lambda: plane.nodes()[victim]["discovery"]["mesh"]["state"] == "dead", "its death does not show")
        after = before - {victim} | {heir}
        plane.until(lambda: plane.holders("mesh-datastore") == dict.fromkeys(after, "active"), "it did not move")
        assert not plane.nodes()[victim]["alive"]
        assert victim in plane.holders("mesh-member")
    finally:
        fleet.start(victim)
    plane.until(lambda: plane.nodes()[victim]["alive"], "its return does not show")
    assert set(plane.nodes()) == set(SERVERS)
