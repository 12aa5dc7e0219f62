"""How a server is put together: database, first start, the parts that the API uses, and their end in the right order.

`serve.py` adds the listener for people and the signals that stop the server; the lab and tests use `running_server`
alone.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address

import httpx

from rackwright.annealer.annealer import Annealer, Pace
from rackwright.annealer.hooks import HookDispatcher, HookPace
from rackwright.annealer.installs import InstallAdvancer
from rackwright.annealer.power_orders import PowerOrders
from rackwright.annealer.providers import ProviderDaemon, ProviderRefresher
from rackwright.annealer.reachability import ReachabilityCheck
from rackwright.annealer.role_files import RoleFiles
from rackwright.annealer.role_transitions import RoleTransitions
from rackwright.annealer.role_workers import RoleWorkers
from rackwright.annealer.veto import VetoedChanges
from rackwright.api.auth.passwords import Passwords
from rackwright.api.context import Policy, Server
from rackwright.barclamps.loader import built_in
from rackwright.jigs.registry import kinds_that_run_files, make_jigs
from rackwright.mesh.client import MeshClient
from rackwright.provision import kea, knot
from rackwright.provision.images.boot_check import read_abilities
from rackwright.provision.images.cloud_init_schema import read_schema
from rackwright.provision.images.shelf import Shelf
from rackwright.server.background_work import working_in_background
from rackwright.server.first_admin import create_first_admin
from rackwright.server.host_name import host_name
from rackwright.server.jig_ports import ServerPorts
from rackwright.server.listener import connection_limits, listening
from rackwright.server.provisioning import (
    has_simulated_machines,
    make_boot_check,
    make_reach,
    serving_machines,
)
from rackwright.server.settings import Options
from rackwright.store.bootstrap import first_start
from rackwright.store.database_errors import EmbeddedPostgresFailed
from rackwright.store.db.database import open_database
from rackwright.store.embedded.server import EmbeddedPostgres
from rackwright.store.machines.boot import PROVIDER_ROLE
from rackwright.store.machines.keys import publish_server_key
from rackwright.store.people.sessions import Lifetime
from rackwright.store.resealing import rotate_key
from rackwright.store.runs.claims import Claimant
from rackwright.store.store import Store
from rackwright.store.vault_check import open_vault

log = logging.getLogger(__name__)

NO_NODE = 0
"""The node id of a server whose host is no admin node."""
ANSWER_SECONDS = 30.0
LIMITS = httpx.Limits(keepalive_expiry=2.0)
"""A machine of the lab keeps an idle connection for longer; else it would be closed just when it is used again."""
MACHINE_UNACKNOWLEDGED_SECONDS = 20
"""A machine that is reset leaves its connections open, and GRUB opens new ones from the same ports."""


@asynccontextmanager
async def running_server(options: Options) -> AsyncIterator[Server]:
    """Run a server without its listener for people: open the database, do the first start, and start all its parts.

    It gives the parts, past the first start; they end with the block.
    """
    async with await open_database(options.database_url, options.home) as database, _ending_with(database.embedded):
        store = Store(database, await open_vault(Store(database), options.home))
        if options.rotate_key:
            log.warning("%d secrets are sealed under a new key now", await rotate_key(store, options.home))
        await first_start(store, built_in(options.test_barclamp, options.lab), host_name())
        passwords = Passwords()
        await create_first_admin(store, passwords, options.home)
        mesh = None if options.mesh_folder is None else MeshClient(options.mesh_folder)
        listen = partial(
            listening,
            limits=replace(connection_limits(options), proxies=()),
            unacknowledged_seconds=MACHINE_UNACKNOWLEDGED_SECONDS,
        )
        async with _composed(store, passwords, options, mesh) as server, serving_machines(server, options, listen):
            if options.manual:
                yield server
            else:
                async with working_in_background(server, options, mesh):
                    yield server


@asynccontextmanager
async def _ending_with(embedded: EmbeddedPostgres | None) -> AsyncIterator[None]:
    """End the block with an error that says why if the embedded database ends: the server cannot go on without it."""
    if embedded is None:
        yield
        return
    server_task = asyncio.current_task()
    assert server_task is not None
    watch = asyncio.create_task(embedded.wait_until_lost(), name="embedded database")
    lost = False

    def cancel_server(task: asyncio.Task[None]) -> None:
        nonlocal lost
        if not task.cancelled():
            lost = True
            server_task.cancel()

    watch.add_done_callback(cancel_server)
    try:
        yield
    except BaseException as error:
        if not lost:
            raise
        server_task.uncancel()
        raise EmbeddedPostgresFailed(
            f"The embedded PostgreSQL in {embedded.directory} has ended: its keeper was killed or told to stop. The "
            f"server ends with it; nothing that was committed is lost. See {embedded.directory / 'log'}, then start "
            "the server again."
        ) from error
    finally:
        watch.cancel()


@asynccontextmanager
async def _composed(
    store: Store, passwords: Passwords, options: Options, mesh: MeshClient | None
) -> AsyncIterator[Server]:
    """Make the parts of a server and connect them to each other; end the daemons and connections with the block."""
    workers = RoleWorkers()
    claimant = Claimant(
        f"{host_name()}:{os.getpid()}", await _own_node_id(store), options.lease, kinds_that_run_files()
    )
    shelf = Shelf(options.home, options.image_signing_keys)
    dhcp = kea.Kea(
        options.home,
        options.dhcp_interfaces,
        options.port if has_simulated_machines(options) else options.provision_port,
        dns=_dns_server(options),
        program=options.kea,
        program6=options.kea6,
        launcher=options.launcher,
        boot_addresses=[ip_address(address) for address in options.provision_address],
    )
    dns = knot.Knot(
        options.home,
        options.dns_address,
        options.dns_port,
        host_name(),
        program=options.knot,
        launcher=options.launcher,
    )
    images = shelf if options.provision_address else None
    if images is not None:
        store.read_cloud_init = partial(read_schema, images)
        store.read_image = partial(read_abilities, images)
    ports = ServerPorts(store, options.home, claimant.node_id, images, dhcp, dns, options.launcher, mesh=mesh)
    ports.check_boot = make_boot_check(shelf, options)
    await _remove_unused_files(store, ports.files)
    await store.change(lambda session: publish_server_key(session, host_name(), ports.public_key), actor="first start")
    async with httpx.AsyncClient(trust_env=False, timeout=ANSWER_SECONDS, limits=LIMITS) as http:
        reach = make_reach(ports, http, options)
        look = ReachabilityCheck(store, reach, claimant.node_id).check
        transitions = RoleTransitions(store, workers, ports.files)
        jigs = make_jigs(ports.jig_ports(transitions, http if options.lab else None, look))
        provided = [
            *(ProviderDaemon(daemon, "provisioner-dhcp-server", PROVIDER_ROLE) for daemon in dhcp.daemons),
            ProviderDaemon(dns.daemon, "dns-server", "dns-database"),
        ]
        hooks = HookDispatcher(store, workers, ports.files, jigs, claimant.worker, HookPace(lease=options.lease))
        try:
            yield Server(
                store,
                jigs,
                claimant,
                VetoedChanges(store, workers, ports.files),
                hooks,
                InstallAdvancer(store, reach, options.tick, options.lease),
                PowerOrders(store, reach, claimant.worker),
                shelf,
                ProviderRefresher(store, claimant.node_id or NO_NODE, provided, options.lease),
                heartbeat=options.heartbeat,
                kernel_arguments=options.kernel_arguments,
                discovered_names=options.discovered_names,
                annealer=None if options.manual else Annealer(store, jigs, claimant, Pace(tick=options.tick)),
                policy=_api_policy(options),
                passwords=passwords,
                simulates=has_simulated_machines(options),
            )
        finally:
            await dhcp.stop()
            await dns.stop()
            await ports.connections.close()
            await workers.close()


async def _own_node_id(store: Store) -> int:
    """Return the id of the admin node that this host is: what is bound there only this server may run."""
    async with store.read() as session:
        node_id: int | None = await session.value("SELECT id FROM nodes WHERE admin AND name = :name", name=host_name())
    if node_id is None:
        log.warning("No admin node is called %s, so work on admin nodes is left to other servers.", host_name())
    return node_id or NO_NODE


async def _remove_unused_files(store: Store, files: RoleFiles) -> None:
    """Remove from this server's disk the files that no barclamp consists of any more."""
    async with store.read() as session:
        digests = {row.digest for row in await session.rows("SELECT digest FROM barclamps")}
    await asyncio.to_thread(files.tidy, digests)


def _api_policy(options: Options) -> Policy:
    return Policy(
        Lifetime(options.session_idle, options.session_absolute),
        metrics_allow=options.metrics_allow,
        webhook_allow=options.webhook_allow,
    )


def _dns_server(options: Options) -> IPv4Address | IPv6Address | None:
    """Return where machines find the names of nodes; None if DHCP cannot tell them (another port than 53)."""
    if options.dns_address is None or options.dns_port != 53:
        return None
    return ip_address(options.dns_address)
