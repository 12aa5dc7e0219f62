"""What the jigs of a server are given: ways to the store, the server's SSH key, and clients."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import asyncssh
import httpx

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.dhcp import DhcpState
from rackwright.domain.dns import DnsState
from rackwright.domain.errors import NotFound
from rackwright.domain.install import SLEDGEHAMMER
from rackwright.domain.runs import Run
from rackwright.home import short_folder
from rackwright.images.shelf import ROOT_FILE, NoImage, Shelf
from rackwright.jigs.boot_server import Look, nothing_served
from rackwright.jigs.kea import Kea
from rackwright.jigs.knot import Knot
from rackwright.jigs.network import own_addresses
from rackwright.jigs.os_install import BadInstall
from rackwright.jigs.parcel import BadParcel, Places
from rackwright.jigs.registry import Equipment
from rackwright.jigs.role_provided import Transitions
from rackwright.jigs.script import ScriptJig
from rackwright.jigs.ssh import Connections, HostKeyWatch, Target
from rackwright.jigs.state_mesh import MeshWay
from rackwright.mesh.client import MeshClient
from rackwright.store.allocations import ensure_addresses
from rackwright.store.attempts import open_attempt
from rackwright.store.boot import dhcp_state, record_served
from rackwright.store.dns import name_state
from rackwright.store.events import emit
from rackwright.store.keys import server_keys
from rackwright.store.members import fence_scope, mark_on
from rackwright.store.network_rows import get_network
from rackwright.store.nodes import get_node, update_node
from rackwright.store.session import UNREACHABLE, Session, Store, first_line

log = logging.getLogger(__name__)

T = TypeVar("T")

ACTOR = "annealer"


def server_key(home: Path) -> asyncssh.SSHKey:
    """The key by which nodes know this server; made at its first start, kept for its owner alone."""
    path = home / "ssh" / "id_ed25519"
    try:
        return asyncssh.read_private_key(path)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        key = asyncssh.generate_private_key("ssh-ed25519", comment="rackwright")
        with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(key.export_private_key())
        aside.rename(path)
        return asyncssh.read_private_key(path)


def _local_places(home: Path) -> Places:
    try:
        return Places(str(home / "jig" / "locks"), str(home / "jig" / "work"))
    except BadParcel:
        # A home whose name the wrapper's shell line cannot hold: a folder of this user's own, named after it.
        folder = short_folder(home)
        return Places(str(folder / "locks"), str(folder / "work"))


def _image_of(shelf: Shelf | None, target_os: str) -> JsonObject:
    """What is said of the image to install: checked before anything of the machine is touched."""
    if shelf is None:
        return {}
    try:
        shelf.find(SLEDGEHAMMER)
        root = shelf.file(target_os, ROOT_FILE)
    except NoImage as error:
        raise BadInstall(str(error)) from None
    return {"image": {"path": f"/files/{target_os}/{ROOT_FILE}", "size": root.size, "sha256": root.sha256}}


class Means:
    """One server process's means for its jigs."""

    def __init__(
        self,
        store: Store,
        home: Path,
        own_node: int | None,
        shelf: Shelf | None = None,
        kea: Kea | None = None,
        knot: Knot | None = None,
        launcher: Sequence[str] = (),
        mesh: MeshClient | None = None,
    ) -> None:
        self._store = store
        self._launcher = launcher
        self.kea = kea or Kea(home)
        self.knot = knot or Knot(home)
        self._own_node = own_node
        self._mesh = mesh
        self._key_path = home / "ssh" / "id_ed25519"
        self._shelf = shelf
        """Where the images to install are. Without one, machines are simulated and need none."""
        # Its own, below its home: servers of two databases on one host must not fence each other off.
        self._places = _local_places(home)
        watch = HostKeyWatch(self.pin_host_key, self.suspect_host_key)
        key = server_key(home)
        self.public_key = key.export_public_key().decode().strip()
        self.connections = Connections(key, watch)
        self.boot: Look = nothing_served
        """How this server sees to it that machines can boot."""

    def equipment(self, transitions: Transitions, lab_client: httpx.AsyncClient | None) -> Equipment:
        return Equipment(
            transitions=transitions,
            open_attempt=self.open_attempt,
            boot=self.boot,
            entries=self.entries,
            boot_provider=self.kea,
            record_served=self.record_served,
            names=self.names,
            name_server=self.knot,
            assign=self.assign,
            script=ScriptJig(self.scripts, self.target, self.connections, lambda run: run.deadline),
            state_tree=self.state_tree,
            membership=self.membership,
            mesh=self._mesh_way(),
            lab_client=lab_client,
        )

    def scripts(self, role: str) -> Sequence[Path]:
        """The scripts of a role: in its barclamp's folder on this server's disk."""
        stored = self._store.known_catalogue
        path = stored.paths.get(role) if stored else None
        return sorted((Path(path) / "script" / "roles" / role).glob("*.sh")) if path else []

    def state_tree(self, role: str) -> Path | None:
        """The state tree of a role, beside its barclamp's scripts."""
        stored = self._store.known_catalogue
        path = stored.paths.get(role) if stored else None
        folder = Path(path) / "states" / role if path else None
        return folder if folder is not None and folder.is_dir() else None

    async def target(self, node_id: int) -> Target:
        """How a node is reached. A key may be pinned on first use: the provisioning network is the trust boundary."""
        async with self._store.read() as session:
            row = await session.row("SELECT name, discovery, hint, host_key FROM nodes WHERE id = :id", id=node_id)
        if row is None:
            raise NotFound("node", node_id)
        address = {**row.discovery, **row.hint}.get("address")
        return Target(
            address=address if isinstance(address, str) else row.name,
            host_key=row.host_key,
            first_use=row.host_key is None,
            local=node_id == self._own_node,
            places=self._places if node_id == self._own_node else Places(),
        )

    async def pin_host_key(self, node_id: int, key: str) -> None:
        async def work(session: Session) -> None:
            await session.run("UPDATE nodes SET host_key = :key WHERE id = :id", key=key, id=node_id)
            await emit(session, "node.host_key_pinned", node_id, node_id=node_id)

        await self._store.change(work, actor=ACTOR)

    async def suspect_host_key(self, node_id: int, offered: str) -> None:
        """A key that changed without our doing puts the node back into quarantine."""

        async def work(session: Session) -> None:
            await update_node(session, node_id, {"available": False})
            await emit(session, "node.host_key_differs", node_id, node_id=node_id, data={"offered": offered})

        await self._store.change(work, actor=ACTOR)

    async def open_attempt(self, run: Run, target_os: str, frozen: JsonObject) -> None:
        """Freeze all that the installer is told; BadInstall if something it needs is not there."""
        image = _image_of(self._shelf, target_os)

        async def work(session: Session) -> None:
            if not (await get_node(session, run.node_id)).identity_confirmed:
                raise BadInstall(
                    f"Nobody who may accept machines has agreed yet which machine {run.node} is. "
                    f"Have it accepted: rackwright node accept {run.node}"
                )
            whole: JsonObject = {**frozen, **image, "node": run.node, "authorized_keys": [*await server_keys(session)]}
            await open_attempt(session, run, target_os, whole)

        await self._surely(work)

    async def record_served(self, node_role_id: int, generation: int) -> None:
        await self._surely(lambda session: record_served(session, node_role_id, generation))

    async def assign(self, run: Run, network: str) -> Sequence[str]:
        """Give a node its addresses on a network; an admin node those that it has there already."""
        has = [address for _, address in await own_addresses(self._launcher)] if run.node_id == self._own_node else []

        async def work(session: Session) -> list[str]:
            subnets = {one.version: one.prefixlen for one in (await get_network(session, network)).network.subnets}
            given = await ensure_addresses(session, network, run.node_id, run.node_role_id, has)
            return [f"{one.address}/{subnets[one.address.version]}" for one in given]

        return await self._surely(work)

    def _mesh_way(self) -> MeshWay | None:
        """Signed by the key that nodes know this server by over SSH, too."""
        if self._mesh is None:
            return None
        return MeshWay(self._mesh, self._key_path, self.membership, self._fence_scope, self._own_node)

    async def _fence_scope(self) -> str:
        return await self._surely(fence_scope)

    async def membership(self, node_id: int) -> JsonObject | None:
        return await self._surely(lambda session: mark_on(session, node_id))

    async def names(self) -> DnsState:
        return await self._surely(name_state)

    async def entries(self, node_role_id: int) -> DhcpState:
        return await self._surely(lambda session: dhcp_state(session, node_role_id))

    async def _surely(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """A database that is away for a moment fails no run. For what may be repeated; the run's deadline ends it."""
        while True:
            try:
                return await self._store.change(work, actor=ACTOR)
            except UNREACHABLE as error:
                log.warning("a run waits for the database: %s", first_line(error))
            await asyncio.sleep(0.5)
