"""A running server that serves real machines' DHCP and DNS, in network namespaces made for the test."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tests.support.mesh.netns import network
from tests.support.networks import ADMIN_NETWORK
from tests.support.rack import Rack
from tests.support.waiting import PATIENCE, until

from rackwright.api.context import Server
from rackwright.lab.namespaces import Network as Wires
from rackwright.provision.kea import Kea
from rackwright.server.composition import running_server
from rackwright.server.settings import Options
from rackwright.store.db.session import GraphSession
from rackwright.store.machines.nodes import NewNode, create_node
from rackwright.store.networks.networks import create_network

T = TypeVar("T")

CLIENT = Path(__file__).with_name("dhcp_client.py")


class Provider:
    """The server on `admin` (10.77.0.1), and machines that ask on `client`."""

    def __init__(self, wires: Wires, server: Server, options: Options) -> None:
        self.wires = wires
        self.server = server
        self.options = options
        self.rack = Rack(server.store)
        self._path = options.home / "bin" / "kea-dhcp4"

    async def node(self, name: str, *macs: str, **other: Any) -> int:
        new = NewNode(name, macs=macs, **other)
        return await self.change(lambda session: create_node(session, new))

    async def change(self, work: Callable[[GraphSession], Awaitable[T]]) -> T:
        return await self.server.store.change_graph(work, actor="tester")

    async def ask(self, mac: str, *more: str) -> Any:
        """What a machine with that MAC is given by DHCP."""
        words = [sys.executable, str(CLIENT), "eth0", mac, "--seconds", str(PATIENCE), *more]
        return await run_json(self.wires.command("client", words))

    # --- Kea

    def kea(self) -> Kea:
        """Another pair of hands at the same Kea."""
        return Kea(self.options.home, self.options.dhcp_interfaces, launcher=self.options.launcher)

    def kea_pid(self) -> int:
        [pid] = [pid for pid in self.wires.processes("admin") if program_of(pid) == "kea-dhcp4"]
        return pid

    def take_kea_away(self) -> None:
        self._path.rename(self._path.with_name("gone"))

    def put_kea_back(self) -> None:
        self._path.with_name("gone").rename(self._path)

    async def caught_up(self, role: str = "provisioner-dhcp-database") -> None:
        """All hooks were called, nothing waits to run, and what is to be served is served."""

        async def settled() -> bool:
            [(calls,)] = await self.rack.rows("SELECT count(*) FROM hook_calls WHERE state <> 'failed'")
            [(runs,)] = await self.rack.rows("SELECT count(*) FROM runs WHERE state IN ('queued', 'running')")
            [(todo,)] = await self.rack.rows(
                "SELECT count(*) FROM node_roles nr JOIN nodes n ON n.id = nr.node_id"
                " WHERE nr.state <> 0 AND n.alive AND n.available"
            )
            [(behind,)] = await self.rack.rows(
                "SELECT count(*) FROM node_roles nr JOIN roles r ON r.id = nr.role_id AND r.name = :role"
                " LEFT JOIN boot_providers b ON b.node_role_id = nr.id"
                " WHERE coalesce(b.generation, -1) < coalesce((SELECT generation FROM boot_state), 0)",
                role=role,
            )
            return not (calls or runs or todo or behind)

        await until(settled, "the providers caught up")


def program_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


async def run_json(command: Sequence[str]) -> Any:
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert process.returncode == 0
    return json.loads(output)


@contextlib.asynccontextmanager
async def providing(home: Path, url: str, **options: Any) -> AsyncIterator[Provider]:
    """A server past its first start, with the admin network."""
    with network(["admin", "client"]) as wires:
        programs = home / "bin"  # names of our own for the programs, which a test can take away
        programs.mkdir(parents=True)
        (programs / "kea-dhcp4").symlink_to("/usr/sbin/kea-dhcp4")
        chosen = Options(
            home,
            database_url=url,
            tick=0.5,
            launcher=tuple(wires.command("admin", [])),
            kea=str(programs / "kea-dhcp4"),
            **{"dhcp_interfaces": ("eth0",), **options},
        )
        async with running_server(chosen) as server:
            provider = Provider(wires, server, chosen)
            await provider.change(lambda session: create_network(session, ADMIN_NETWORK))
            yield provider
