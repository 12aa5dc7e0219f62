"""What a server provides to its jigs and hammers: access to the store, its SSH key and connections, and its daemons.

The jigs know none of this: they see the types of `jigs/ports.py`, which `ServerPorts` fills.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import TypeVar

import asyncssh
import httpx

from rackwright.annealer.role_files import RoleFiles
from rackwright.domain.architectures import Architecture
from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.installs.node_network.living import NodeNetwork
from rackwright.domain.installs.request import SystemImage
from rackwright.domain.installs.resolve import ResolvedInstall, resolve_install
from rackwright.domain.installs.wipes import find_unconfirmed, name_data
from rackwright.domain.machines.ssh_login import login_of, marked_lines
from rackwright.domain.networks.call_targets import Address, machine_refusal, real_address
from rackwright.domain.networks.dhcp6 import DhcpStates
from rackwright.domain.networks.dns import DnsState
from rackwright.domain.runs import Run
from rackwright.home import short_folder
from rackwright.jigs.boot_server import inspect_no_network
from rackwright.jigs.node_network import BadNodeNetwork
from rackwright.jigs.os_install import BadInstall
from rackwright.jigs.ports import InspectBoot, InspectNode, JigPorts, Transitions
from rackwright.mesh.client import MeshClient
from rackwright.private_files import create_private_file
from rackwright.provision.host_addresses import own_addresses
from rackwright.provision.images.agent_version import check_agent
from rackwright.provision.images.boot_check import check_firmware, read_abilities
from rackwright.provision.images.shelf import ROOT_FILE, NoImage, Shelf
from rackwright.provision.kea import Kea
from rackwright.provision.knot import Knot
from rackwright.reach.mesh_states import MeshStateRunner
from rackwright.reach.parcel import BadParcel, NodeFolders
from rackwright.reach.ssh_connections import Connections, HostKeyWatch, NotTried, Target
from rackwright.store.db.session import UNREACHABLE, Session, first_line
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.events.outbox import emit
from rackwright.store.graph.node_networks import read_node_network
from rackwright.store.graph.planned_installs import select_planned_installs
from rackwright.store.machines.boot import read_dhcp_state, record_served
from rackwright.store.machines.confirmed_wipes import read_confirmed_wipes
from rackwright.store.machines.install_attempts import open_attempt
from rackwright.store.machines.keys import line_fingerprint, read_server_keys
from rackwright.store.machines.mesh_members import read_fence_scope, read_mark
from rackwright.store.machines.node_address import (
    AddressSource,
    NodeAddress,
    is_address_of_another_node,
    read_node_address,
    record_found_address,
    record_refused_key,
)
from rackwright.store.machines.nodes import get_node
from rackwright.store.networks.allocations import ensure_addresses
from rackwright.store.networks.dns_names import read_dns_state
from rackwright.store.networks.network_rows import get_network
from rackwright.store.store import Store

log = logging.getLogger(__name__)

T = TypeVar("T")

ACTOR = "annealer"


def load_server_key(home: Path) -> asyncssh.SSHKey:
    """Return the key by which nodes know this server; it is made at the first start and kept for its owner alone."""
    path = home / "ssh" / "id_ed25519"
    try:
        return asyncssh.read_private_key(path)
    except FileNotFoundError:
        key = asyncssh.generate_private_key("ssh-ed25519", comment="rackwright")
        # If two servers start for the first time at once, the second uses the key of the first.
        create_private_file(path, key.export_private_key())
        return asyncssh.read_private_key(path)


def _local_folders(home: Path) -> NodeFolders:
    """Return the folders for work on this host: below the server's home, or in a short folder of this user."""
    try:
        return NodeFolders(str(home / "jig" / "locks"), str(home / "jig" / "work"))
    except BadParcel:
        # A home whose name the wrapper's shell line cannot hold: a folder of this user's own, named after it.
        folder = short_folder(home)
        return NodeFolders(str(folder / "locks"), str(folder / "work"))


def _describe_image(shelf: Shelf | None, target_os: str) -> JsonObject:
    """Return what the installer is told of the image; BadInstall, before the machine is touched, if there is none."""
    if shelf is None:
        return {}
    try:
        architecture = _find_architecture(shelf, target_os)
        check_agent(shelf, architecture.sledgehammer)
        shelf.check_trusted(shelf.find(architecture.sledgehammer))
        root = shelf.installable(target_os).files[ROOT_FILE]
    except NoImage as error:
        raise BadInstall(str(error)) from None
    chunks: list[Json] = [{"size": chunk.size, "sha256": chunk.sha256} for chunk in root.chunks]
    # The path and the digest of all of it are for a sledgehammer that was built before there were chunks.
    image: JsonObject = {"path": f"/files/{target_os}/{ROOT_FILE}", "size": root.size, "sha256": root.sha256}
    return {"image": {**image, "machine": architecture.kernel_name, "chunks": chunks}}


def _find_architecture(shelf: Shelf, target_os: str) -> Architecture:
    """Return the kind of machine that an image is for; NoImage if there is no image, or it is for none that is known.

    The installer is that of the same kind: an image for another kind than the machine's is refused elsewhere.
    """
    named = shelf.find(target_os).architecture
    try:
        return Architecture(named)
    except ValueError:
        raise NoImage(f"Image {target_os!r} is for {named[:80]}: there is no installer of that kind.") from None


def check_image_firmware(shelf: Shelf | None, target_os: str, config: JsonObject) -> None:
    """Raise BadInstall, before the machine is touched, if its firmware starts nothing of the image."""
    storage = config.get("storage")
    if shelf is None or not isinstance(storage, dict):
        return
    try:
        check_firmware(target_os, shelf.find(target_os).about, storage.get("firmware"))
    except NoImage as error:
        raise BadInstall(str(error)) from None


async def _resolve_install(session: Session, run: Run, image: SystemImage | None) -> ResolvedInstall:
    """Return what the install of a run comes to on its machine; BadInstall if it cannot be done there.

    `image` is that which is installed; None: no image is needed.
    """
    [install] = await select_planned_installs(session, [run.node_role_id], proposed=False)
    chosen = run.input.get("provisioner")
    settings: JsonObject = chosen if isinstance(chosen, dict) else {}
    request = replace(install.request, settings=settings, image=image)
    resolved = await asyncio.to_thread(resolve_install, request)
    if resolved.problems:
        raise BadInstall("; ".join(str(problem) for problem in resolved.problems))
    unconfirmed = find_unconfirmed(resolved.wiped, await read_confirmed_wipes(session, run.node_role_id))
    if unconfirmed:
        raise BadInstall(
            "Nothing was touched: nobody confirmed that this data may be lost, or it is not what was confirmed: "
            f"{name_data((run.node, disk) for disk in unconfirmed)}. Look at it, and confirm it: "
            f"rackwright node reinstall {run.node}"
        )
    return resolved


async def _resolve_addresses(recorded: NodeAddress) -> list[Address]:
    """Return the addresses that a recorded address, or a name in place of one, stands for."""
    with contextlib.suppress(ValueError):
        return [ip_address(recorded.host)]
    try:
        entries = await asyncio.get_running_loop().getaddrinfo(recorded.host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise NotTried(
            f"{recorded.node} is at {recorded.host} by {recorded.source}, and that name has no address ({error}). Say"
            f" where it is: rackwright attrib set node/{recorded.node} node-address ADDRESS"
        ) from None
    return list(dict.fromkeys(ip_address(str(entry[4][0]).partition("%")[0]) for entry in entries))


class ServerPorts:
    """What one server process provides to its jigs and hammers."""

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
        key = load_server_key(home)
        self.public_key = key.export_public_key().decode().strip()
        self.connections = Connections(key, watch)
        self.check_boot: InspectBoot = inspect_no_network
        """Checks that this server lets machines boot over the network."""

    def jig_ports(self, transitions: Transitions, lab_client: httpx.AsyncClient | None, look: InspectNode) -> JigPorts:
        return JigPorts(
            transitions=transitions,
            open_attempt=self.open_attempt,
            inspect_boot=self.check_boot,
            read_dhcp_state=self.dhcp_state,
            boot_provider=self.kea,
            record_served=self.record_served,
            resolve_node_network=self.node_network,
            record_address=self.record_address,
            read_dns_state=self.dns_state,
            name_server=self.knot,
            assign_addresses=self.assign_addresses,
            inspect_node=look,
            targets=self.target,
            connections=self.connections,
            scripts=self.scripts,
            state_tree=self.state_tree,
            membership=self.membership,
            is_member=self._is_member,
            mesh=self._make_mesh_way(),
            lab_client=lab_client,
        )

    async def scripts(self, run: Run) -> Sequence[Path]:
        """Return the scripts of a run's role, among the files that the run is to run."""
        folder = await self._barclamp_folder(run)
        return sorted((folder / "script" / "roles" / run.role).glob("*.sh"))

    async def state_tree(self, run: Run) -> Path | None:
        """Return the state tree of a run's role, which lies beside its barclamp's scripts; None if it has none."""
        tree = await self._barclamp_folder(run) / "states" / run.role
        return tree if tree.is_dir() else None

    async def _barclamp_folder(self, run: Run) -> Path:
        return await self._retry_until_reachable(lambda: self.files.folder(run.content, run.barclamp, run.role))

    async def target(self, node_id: int) -> Target:
        """Return how a node is reached over SSH; NotTried if the address that a person gave must not be used."""
        async with self._store.read() as session:
            recorded = await read_node_address(session, node_id)
        if node_id == self._own_node:
            return Target(recorded.host, local=True, folders=self._folders)
        address = recorded.host
        if recorded.source is not AddressSource.REGISTRATION:
            address = await self._checked_address(node_id, recorded)
        login = recorded.login
        return Target(
            address, login.port, login.user, recorded.host_key, first_use=recorded.first_use, node=recorded.node
        )

    async def _checked_address(self, node_id: int, recorded: NodeAddress) -> str:
        """Return the IP address for an address or name that a person gave; NotTried if it must not be used.

        A name is looked up here, so that the address that is checked is the one that is used.
        """
        addresses = await _resolve_addresses(recorded)
        refusal = None if recorded.approved else next(filter(None, map(machine_refusal, addresses)), None)
        if refusal is not None:
            raise NotTried(f"{recorded.node} is said to be at {recorded.host}, but {refusal}. Nothing was sent.")
        forms = {str(form) for address in addresses for form in (address, real_address(address))}
        if not recorded.approved and forms & {str(own) for _, own in await own_addresses(self._launcher)}:
            raise NotTried(f"{recorded.node} is said to be at {recorded.host}, which is this server. Nothing was sent.")
        async with self._store.read() as session:
            is_taken = await is_address_of_another_node(session, node_id, sorted(forms))
        if is_taken:
            raise NotTried(
                f"{recorded.host}, where {recorded.node} is by {recorded.source}, is the address of another node."
                " Nothing was sent. Correct the address of one of them."
            )
        return str(addresses[0])

    async def pin_host_key(self, node_id: int, key: str) -> None:
        """Record the host key that a node showed at its first use."""

        async def pin(session: Session) -> None:
            await session.run(
                "UPDATE nodes SET host_key = :key, offered_host_key = NULL WHERE id = :id", key=key, id=node_id
            )
            data: JsonObject = {"fingerprint": line_fingerprint(key), "first_use": True}
            await emit(session, "node.host_key_pinned", node_id, node_id=node_id, data=data)

        await self._store.change(pin, actor=ACTOR)

    async def suspect_host_key(self, node_id: int, offered: str) -> None:
        """Put a node whose host key changed without our doing back into quarantine."""
        await self._store.change(lambda session: record_refused_key(session, node_id, offered), actor=ACTOR)

    async def open_attempt(self, run: Run, target_os: str) -> None:
        """Freeze all that the installer is told; BadInstall if something that the installer needs is not there."""
        image = _describe_image(self._shelf, target_os)
        abilities = None if self._shelf is None else read_abilities(self._shelf, target_os)

        async def open_frozen(session: Session) -> None:
            node = await get_node(session, run.node_id, EVERYTHING)
            if not node.identity_confirmed:
                raise BadInstall(
                    f"Nobody who may accept machines has agreed yet which machine {run.node} is. "
                    f"Have it accepted: rackwright node accept {run.node}"
                )
            keys = [*await read_server_keys(session), *marked_lines(login_of(node.hint).authorized_keys)]
            resolved = await _resolve_install(session, run, abilities)
            check_image_firmware(self._shelf, target_os, resolved.config)
            install: JsonObject = {**resolved.config, **image, "node": run.node, "authorized_keys": [*keys]}
            await open_attempt(session, run, target_os, install, [f"note: {note}" for note in resolved.notes])

        await self._change_when_reachable(open_frozen)

    async def node_network(self, run: Run) -> NodeNetwork:
        """Return the network that is wanted of the run's node; BadNodeNetwork if it cannot be had there."""
        network, problems = await self._change_when_reachable(lambda session: read_node_network(session, run))
        if network is None:
            raise BadNodeNetwork("; ".join(map(str, problems)))
        return network

    async def record_address(self, run: Run, address: str) -> None:
        await self._change_when_reachable(lambda session: record_found_address(session, run.node_id, address))

    async def record_served(self, node_role_id: int, generation: int) -> None:
        await self._change_when_reachable(lambda session: record_served(session, node_role_id, generation))

    async def assign_addresses(self, run: Run, network: str) -> Sequence[str]:
        """Give a node its addresses on a network, or an admin node those that it has there already; return them."""
        is_here = run.node_id == self._own_node
        existing = [address for _, address in await own_addresses(self._launcher)] if is_here else []

        async def assign(session: Session) -> list[str]:
            subnets = (await get_network(session, network)).network.subnets
            prefix_lengths = {subnet.version: subnet.prefixlen for subnet in subnets}
            allocations = await ensure_addresses(session, network, run.node_id, run.node_role_id, existing)
            return [f"{entry.address}/{prefix_lengths[entry.address.version]}" for entry in allocations]

        return await self._change_when_reachable(assign)

    async def _is_member(self, run: Run) -> bool:
        mesh_way = self._make_mesh_way()
        return mesh_way is not None and await mesh_way.can_reach(run)

    def _make_mesh_way(self) -> MeshStateRunner | None:
        """Return the way to nodes through the mesh; its runs are signed by the key that nodes know over SSH, too."""
        if self._mesh is None:
            return None
        return MeshStateRunner(self._mesh, self._key_path, self.membership, self._fence_scope, self._own_node)

    async def _fence_scope(self) -> str:
        return await self._change_when_reachable(read_fence_scope)

    async def membership(self, node_id: int) -> JsonObject | None:
        return await self._change_when_reachable(lambda session: read_mark(session, node_id))

    async def dns_state(self) -> DnsState:
        return await self._change_when_reachable(read_dns_state)

    async def dhcp_state(self, node_role_id: int) -> DhcpStates:
        return await self._change_when_reachable(lambda session: read_dhcp_state(session, node_role_id))

    async def _change_when_reachable(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """Change something in the database; while the database is away, try again."""
        return await self._retry_until_reachable(lambda: self._store.change(work, actor=ACTOR))

    async def _retry_until_reachable(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do work that may be repeated, again and again while the database is away; the run's deadline ends it.

        So a database that is away for a moment fails no run.
        """
        while True:
            try:
                return await work()
            except UNREACHABLE as error:
                log.warning("a run waits for the database: %s", first_line(error))
            await asyncio.sleep(0.5)
