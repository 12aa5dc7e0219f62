"""What the jigs of a server are given: ways to the store, the server's SSH key, and clients."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import TypeVar

import asyncssh
import httpx

from rackwright.annealer.role_files import RoleFiles
from rackwright.domain.catalogue import JsonObject
from rackwright.domain.machines.install import SLEDGEHAMMER
from rackwright.domain.machines.ssh_login import login_of, marked_lines
from rackwright.domain.networks.call_targets import Address, machine_refusal, real_address
from rackwright.domain.networks.dhcp import DhcpState
from rackwright.domain.networks.dns import DnsState
from rackwright.domain.runs import Run
from rackwright.home import short_folder
from rackwright.jigs.boot_server import nothing_served
from rackwright.jigs.os_install import BadInstall
from rackwright.jigs.ports import BootLook, JigPorts, NodeLook, Transitions
from rackwright.mesh.client import MeshClient
from rackwright.private_files import create_private_file
from rackwright.provision.host_addresses import own_addresses
from rackwright.provision.images.shelf import ROOT_FILE, NoImage, Shelf
from rackwright.provision.kea import Kea
from rackwright.provision.knot import Knot
from rackwright.reach.mesh_states import MeshStateRunner
from rackwright.reach.parcel import BadParcel, NodeFolders
from rackwright.reach.ssh_connections import Connections, HostKeyWatch, NotTried, Target
from rackwright.store.db.session import UNREACHABLE, Session, first_line
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.events.outbox import emit
from rackwright.store.machines.boot import dhcp_state, record_served
from rackwright.store.machines.install_attempts import open_attempt
from rackwright.store.machines.keys import line_fingerprint, server_keys
from rackwright.store.machines.mesh_members import fence_scope, mark_on
from rackwright.store.machines.node_address import (
    NodeAddress,
    SaidBy,
    is_held_by_another,
    node_address,
    note_refused_key,
)
from rackwright.store.machines.nodes import get_node
from rackwright.store.networks.allocations import ensure_addresses
from rackwright.store.networks.dns_names import name_state
from rackwright.store.networks.network_rows import get_network
from rackwright.store.store import Store

log = logging.getLogger(__name__)

T = TypeVar("T")

ACTOR = "annealer"


def server_key(home: Path) -> asyncssh.SSHKey:
    """The key by which nodes know this server; made at its first start, kept for its owner alone."""
    path = home / "ssh" / "id_ed25519"
    try:
        return asyncssh.read_private_key(path)
    except FileNotFoundError:
        key = asyncssh.generate_private_key("ssh-ed25519", comment="rackwright")
        # A first start that comes second uses the key of the first one.
        create_private_file(path, key.export_private_key())
        return asyncssh.read_private_key(path)


def _local_folders(home: Path) -> NodeFolders:
    try:
        return NodeFolders(str(home / "jig" / "locks"), str(home / "jig" / "work"))
    except BadParcel:
        # A home whose name the wrapper's shell line cannot hold: a folder of this user's own, named after it.
        folder = short_folder(home)
        return NodeFolders(str(folder / "locks"), str(folder / "work"))


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


async def _addresses_of(where: NodeAddress) -> list[Address]:
    """The addresses that a place stands for."""
    with contextlib.suppress(ValueError):
        return [ip_address(where.place)]
    try:
        found = await asyncio.get_running_loop().getaddrinfo(where.place, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise NotTried(
            f"{where.node} is at {where.place} by {where.said_by}, and that name has no address ({error}). Say where it"
            f" is: rackwright attrib set node/{where.node} node-address ADDRESS"
        ) from None
    return list(dict.fromkeys(ip_address(str(entry[4][0]).partition("%")[0]) for entry in found))


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
        self.files = RoleFiles(store, home)
        self._launcher = launcher
        self.kea = kea or Kea(home)
        self.knot = knot or Knot(home)
        self._own_node = own_node
        self._mesh = mesh
        self._key_path = home / "ssh" / "id_ed25519"
        self._shelf = shelf
        """Where the images to install are. Without one, machines are simulated and need none."""
        # Its own, below its home: servers of two databases on one host must not fence each other off.
        self._folders = _local_folders(home)
        watch = HostKeyWatch(self.pin_host_key, self.suspect_host_key)
        key = server_key(home)
        self.public_key = key.export_public_key().decode().strip()
        self.connections = Connections(key, watch)
        self.boot: BootLook = nothing_served
        """How this server sees to it that machines can boot."""

    def jig_ports(self, transitions: Transitions, lab_client: httpx.AsyncClient | None, look: NodeLook) -> JigPorts:
        return JigPorts(
            transitions=transitions,
            open_attempt=self.open_attempt,
            look_at_boot=self.boot,
            entries=self.entries,
            boot_provider=self.kea,
            record_served=self.record_served,
            names=self.names,
            name_server=self.knot,
            assign=self.assign,
            look_at_node=look,
            targets=self.target,
            connections=self.connections,
            scripts=self.scripts,
            state_tree=self.state_tree,
            membership=self.membership,
            is_member=self._is_member,
            mesh=self._mesh_way(),
            lab_client=lab_client,
        )

    async def scripts(self, run: Run) -> Sequence[Path]:
        """The scripts of a run's role, among the files that the run is to run."""
        folder = await self._files_of(run)
        return sorted((folder / "script" / "roles" / run.role).glob("*.sh"))

    async def state_tree(self, run: Run) -> Path | None:
        """The state tree of a run's role, beside its barclamp's scripts."""
        tree = await self._files_of(run) / "states" / run.role
        return tree if tree.is_dir() else None

    async def _files_of(self, run: Run) -> Path:
        return await self._patiently(lambda: self.files.folder(run.content, run.barclamp, run.role))

    async def target(self, node_id: int) -> Target:
        """How a node is reached; NotTried if what was said of its address must not be believed."""
        async with self._store.read() as session:
            where = await node_address(session, node_id)
        if node_id == self._own_node:
            return Target(where.place, local=True, folders=self._folders)
        address = where.place
        if where.said_by is not SaidBy.REGISTRATION:
            address = await self._believed(node_id, where)
        return Target(
            address, where.login.port, where.login.user, where.host_key, first_use=where.first_use, node=where.node
        )

    async def _believed(self, node_id: int, where: NodeAddress) -> str:
        """The address behind what a person said. A name is looked up here, so that what is checked is what is used."""
        addresses = await _addresses_of(where)
        refused = None if where.approved else next(filter(None, map(machine_refusal, addresses)), None)
        if refused is not None:
            raise NotTried(f"{where.node} is said to be at {where.place}, but {refused}. Nothing was sent.")
        forms = {str(form) for address in addresses for form in (address, real_address(address))}
        if not where.approved and forms & {str(own) for _, own in await own_addresses(self._launcher)}:
            raise NotTried(f"{where.node} is said to be at {where.place}, which is this server. Nothing was sent.")
        async with self._store.read() as session:
            held = await is_held_by_another(session, node_id, sorted(forms))
        if held:
            raise NotTried(
                f"{where.place}, where {where.node} is by {where.said_by}, is the address of another node."
                " Nothing was sent. Correct the address of one of them."
            )
        return str(addresses[0])

    async def pin_host_key(self, node_id: int, key: str) -> None:
        async def work(session: Session) -> None:
            await session.run(
                "UPDATE nodes SET host_key = :key, offered_host_key = NULL WHERE id = :id", key=key, id=node_id
            )
            data: JsonObject = {"fingerprint": line_fingerprint(key), "first_use": True}
            await emit(session, "node.host_key_pinned", node_id, node_id=node_id, data=data)

        await self._store.change(work, actor=ACTOR)

    async def suspect_host_key(self, node_id: int, offered: str) -> None:
        """A key that changed without our doing puts the node back into quarantine."""
        await self._store.change(lambda session: note_refused_key(session, node_id, offered), actor=ACTOR)

    async def open_attempt(self, run: Run, target_os: str, frozen: JsonObject) -> None:
        """Freeze all that the installer is told; BadInstall if something it needs is not there."""
        image = _image_of(self._shelf, target_os)

        async def work(session: Session) -> None:
            node = await get_node(session, run.node_id, EVERYTHING)
            if not node.identity_confirmed:
                raise BadInstall(
                    f"Nobody who may accept machines has agreed yet which machine {run.node} is. "
                    f"Have it accepted: rackwright node accept {run.node}"
                )
            keys = [*await server_keys(session), *marked_lines(login_of(node.hint).authorized_keys)]
            whole: JsonObject = {**frozen, **image, "node": run.node, "authorized_keys": [*keys]}
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

    async def _is_member(self, run: Run) -> bool:
        way = self._mesh_way()
        return way is not None and await way.can_reach(run)

    def _mesh_way(self) -> MeshStateRunner | None:
        """Signed by the key that nodes know this server by over SSH, too."""
        if self._mesh is None:
            return None
        return MeshStateRunner(self._mesh, self._key_path, self.membership, self._fence_scope, self._own_node)

    async def _fence_scope(self) -> str:
        return await self._surely(fence_scope)

    async def membership(self, node_id: int) -> JsonObject | None:
        return await self._surely(lambda session: mark_on(session, node_id))

    async def names(self) -> DnsState:
        return await self._surely(name_state)

    async def entries(self, node_role_id: int) -> DhcpState:
        return await self._surely(lambda session: dhcp_state(session, node_role_id))

    async def _surely(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """Change something in the database, however long that is away."""
        return await self._patiently(lambda: self._store.change(work, actor=ACTOR))

    async def _patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        """A database that is away for a moment fails no run. For what may be repeated; the run's deadline ends it."""
        while True:
            try:
                return await work()
            except UNREACHABLE as error:
                log.warning("a run waits for the database: %s", first_line(error))
            await asyncio.sleep(0.5)
