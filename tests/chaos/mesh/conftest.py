"""Five servers that are one cluster, and keys of an operator they trust and of a stranger."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.chaos.mesh.mesh_run import ALIVE, SERVERS
from tests.support.mesh.fleet_datastore import UNHURRIED_STORE, wait_complete
from tests.support.mesh.netns import cluster, network
from tests.support.programs import make_ssh_key

from rackwright.lab.mesh_fleet import Fleet


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    for name in ("operator", "stranger"):
        make_ssh_key(folder / name)
    return folder


@pytest.fixture(scope="module")
def formed(tmp_path_factory: pytest.TempPathFactory, keys: Path) -> Iterator[Fleet]:
    with network(SERVERS) as net, cluster(tmp_path_factory.mktemp("runs"), SERVERS, net, UNHURRIED_STORE) as fleet:
        wait_complete(fleet, "s1")
        fleet.rackwright("s1", "mesh", "trust", "add", "ops", str(keys / "operator.pub"))
        yield fleet


@pytest.fixture
def five(formed: Fleet) -> Iterator[Fleet]:
    formed.wait_agree(ALIVE)
    wait_complete(formed, "s1")
    yield formed
    formed.start_all()
