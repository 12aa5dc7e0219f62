"""Two hosts, each with its server and its Kea, in network namespaces: both serve, and one is enough when one dies."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.support.machines.boot_provider import CLIENT, program_of, run_json
from tests.support.mesh.netns import network
from tests.support.networks import ADMIN_NETWORK
from tests.support.processes import is_alive
from tests.support.rack import Rack
from tests.support.servers.server_processes import DIES_WITH_US
from tests.support.waiting import PATIENCE, until

from rackwright.barclamps.loader import built_in
from rackwright.lab.namespaces import Network as Wires
from rackwright.store.bootstrap import first_start
from rackwright.store.db.database import open_database
from rackwright.store.db.vault import KEY_FILE, load_vault
from rackwright.store.machines.boot import lagging_providers, set_bootenv
from rackwright.store.machines.nodes import NewNode, create_node
from rackwright.store.networks.networks import create_network
from rackwright.store.store import Store

HOSTS = ("a1", "a2")
M1, M2, STRANGER = "52:54:00:00:00:01", "52:54:00:00:00:02", "52:54:00:ff:ff:01"


@dataclass
class Hosts:
    wires: Wires
    rack: Rack
    processes: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)

    async def node(self, name: str, mac: str) -> int:
        return await self.rack.do(lambda session: create_node(session, NewNode(name, macs=[mac])))

    async def lagging(self, node_id: int, generation: int) -> list[str]:
        async with self.rack.store.read() as session:
            return await lagging_providers(session, node_id, generation)

    async def published(self, node_id: int, bootenv: str) -> None:
        """Every provider that is there serves what the node is to boot now."""
        generation = await self.rack.do(lambda session: set_bootenv(session, node_id, bootenv))

        async def none_lags() -> bool:
            return not await self.lagging(node_id, generation)

        await until(none_lags, f"{bootenv} is published", 2 * PATIENCE)

    async def offers(self, mac: str, servers: int) -> list[Any]:
        """What a machine is offered, once so many servers offer something."""
        command = [sys.executable, str(CLIENT), "eth0", mac, "--offers", str(servers), "--seconds", str(PATIENCE)]
        offers: list[Any] = await run_json(self.wires.command("client", command))
        return offers

    def kea_pids(self, host: str) -> list[int]:
        return [pid for pid in self.wires.processes(host) if program_of(pid) == "kea-dhcp4"]

    async def start(self, host: str, home: Path, url: str) -> None:
        server = [
            *(sys.executable, "-m", "rackwright", "server", "--home", str(home / host), "--database-url", url),
            *("--dhcp-interface", "eth0", "--lease", "5", "--tick", "0.5"),
        ]
        # A host name of its own, by which the server finds which admin node it is.
        script = f'hostname {host}.rack.example && exec "$@"'
        command = [*DIES_WITH_US, *self.wires.command(host, ["unshare", "--uts", "sh", "-c", script, "sh", *server])]
        with (home / f"{host}.log").open("wb") as log:
            self.processes[host] = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)

    async def stop(self) -> None:
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        for process in self.processes.values():
            await process.wait()


def _share_keys(first: Path, *others: Path) -> None:
    """Servers of one database have the same keys to its secrets."""
    load_vault(first)
    for home in others:
        home.mkdir()
        shutil.copy(first / KEY_FILE, home)


@pytest.fixture
async def hosts(migrated_url: str, tmp_path: Path) -> AsyncIterator[Hosts]:
    with network([*HOSTS, "client"]) as wires:
        async with await open_database(migrated_url, tmp_path / "test") as database:
            store = Store(database)
            await first_start(store, built_in(), "a1.rack.example")
            made = Hosts(wires, Rack(store))
            second = NewNode("a2.rack.example", admin=True, alive=True)
            await made.rack.do(lambda session: create_node(session, second))
            await made.rack.do(lambda session: create_network(session, ADMIN_NETWORK))
            _share_keys(*(tmp_path / host for host in HOSTS))
            try:
                for host in HOSTS:
                    await made.start(host, tmp_path, migrated_url)
                yield made
            finally:
                await made.stop()


async def test_both_serve_what_is_published_and_one_alone_goes_on_when_the_other_is_killed(hosts: Hosts) -> None:
    first = await hosts.node("n1.rack.example", M1)
    await hosts.published(first, "debian-12-install")
    rows = await hosts.rack.rows(
        "SELECT generation FROM boot_providers WHERE node_role_id IN (SELECT nr.id"
        " FROM node_roles nr JOIN roles r ON r.id = nr.role_id"
        " WHERE r.name = 'provisioner-dhcp-database')"
    )
    assert len(rows) == 2
    known = await hosts.offers(M1, 2)
    assert [one["server"] for one in known] == ["10.77.0.1", "10.77.0.2"]
    assert {one["address"] for one in known} == {"10.77.0.20"}
    assert [one["next_server"] for one in known] == ["10.77.0.1", "10.77.0.2"]
    strange = await hosts.offers(STRANGER, 2)
    assert len({one["address"] for one in strange}) == 2, "two servers never give one address to two strangers"

    [kea] = hosts.kea_pids("a1")
    os.kill(hosts.processes["a1"].pid, signal.SIGKILL)
    await until(lambda: not is_alive(kea), "the Kea of the killed server is gone")
    second = await hosts.node("n2.rack.example", M2)
    await hosts.published(second, "debian-12-install")
    [offer] = await hosts.offers(M2, 1)
    assert (offer["server"], offer["address"]) == ("10.77.0.2", "10.77.0.21")
