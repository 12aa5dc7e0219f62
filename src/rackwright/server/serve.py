"""A running server: database, first start, application, and a clean end of all of it."""

import asyncio
import logging
import os
import secrets
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from ipaddress import IPv4Address, ip_address
from pathlib import Path

import httpx
import uvicorn
from fastapi import FastAPI

from rackwright.annealer.annealer import Annealer, Pace
from rackwright.annealer.hooks import HookDispatcher, HookPace
from rackwright.annealer.installs import InstallAdvancer
from rackwright.annealer.mesh_follower import MeshFollower
from rackwright.annealer.power_saving import PowerSaver
from rackwright.annealer.providers import ProviderDaemon, ProviderRefresher
from rackwright.annealer.reachability import ReachabilityCheck
from rackwright.annealer.role_files import RoleFiles
from rackwright.annealer.role_transitions import RoleTransitions
from rackwright.annealer.role_workers import RoleWorkers
from rackwright.annealer.silent_machines import MachineWatch
from rackwright.annealer.veto import VetoedChanges
from rackwright.api.app import create_app
from rackwright.api.auth.passwords import Passwords
from rackwright.api.context import Policy, Server
from rackwright.api.event_feed import EventFeed
from rackwright.api.http import problems
from rackwright.api.http.connections import BACKLOG, Acceptor, ConnectionLimits, Gate, TrackedConnection
from rackwright.api.http.time_limits import CLIENT_WARNING_FILTER, TRACEBACK_FILTER, TimeLimitedProtocol
from rackwright.api.webhook_sender import WebhookSender
from rackwright.barclamps.loader import built_in
from rackwright.jigs.registry import kinds_that_run_files, make_jigs
from rackwright.mesh.client import MeshClient
from rackwright.private_files import write_private_file
from rackwright.provision import kea, knot
from rackwright.provision.images.shelf import Shelf
from rackwright.server.jig_ports import Means
from rackwright.server.provisioning import look_of, reach_of, serving_machines, simulates
from rackwright.server.retention import Keep, Retention
from rackwright.server.running_servers import announced, local_url
from rackwright.server.settings import Options, SettingsInvalid
from rackwright.server.tls import certificate_of, keep_fresh
from rackwright.server.webhook_deliveries import WebhookDeliveries
from rackwright.store.bootstrap import first_start
from rackwright.store.database_errors import EmbeddedPostgresFailed
from rackwright.store.db.database import open_database
from rackwright.store.db.resealing import rotate_key
from rackwright.store.db.session import Session
from rackwright.store.db.vault_check import open_vault
from rackwright.store.embedded.server import EmbeddedPostgres
from rackwright.store.machines.boot import PROVIDER_ROLE
from rackwright.store.machines.keys import publish_server_key
from rackwright.store.people.sessions import Lifetime
from rackwright.store.people.users import ensure_admin
from rackwright.store.runs.claims import Claimant
from rackwright.store.store import Store

__all__ = ["PASSWORD_FILE", "TOKEN_FILE", "Options", "listening", "running", "serve"]

log = logging.getLogger(__name__)

NO_NODE = 0
ANSWER_SECONDS = 30.0
LIMITS = httpx.Limits(keepalive_expiry=2.0)
"""A machine of the lab keeps an idle connection for longer; else it would be closed just when it is used again."""
KEEP_ALIVE_SECONDS = 75
"""How long a connection is kept that nobody uses. Longer than clients keep one (httpx: 5 s, ours of the lab: 2 s;
browsers ask again by themselves): one that is closed just when it is used again is an error, and nobody knows whether
the request was taken."""
NO_PROXIES = ConnectionLimits()
TOKEN_FILE = "admin-token"  # noqa: S105  # the file's name, not a secret
PASSWORD_FILE = "admin-password"  # noqa: S105  # likewise


@asynccontextmanager
async def running(options: Options) -> AsyncIterator[Server]:
    """The parts of a server on an open database, past its first start."""
    async with await open_database(options.database_url, options.home) as database, _held(database.embedded):
        store = Store(database, await open_vault(Store(database), options.home))
        if options.rotate_key:
            log.warning("%d secrets are sealed under a new key now", await rotate_key(store, options.home))
        await first_start(store, built_in(options.test_barclamp, options.lab), host_name())
        passwords = Passwords()
        await _first_admin(store, passwords, options.home)
        machines = partial(listening, limits=replace(limits_of(options), proxies=()))
        async with _parts(store, passwords, options) as server, serving_machines(server, options, machines):
            if options.manual:
                yield server
            else:
                async with _annealing(server, options):
                    yield server


@asynccontextmanager
async def _held(embedded: EmbeddedPostgres | None) -> AsyncIterator[None]:
    """The embedded database is ours to miss: when it ends, so do we, and say why."""
    if embedded is None:
        yield
        return
    whole = asyncio.current_task()
    assert whole is not None
    watch = asyncio.create_task(embedded.wait_until_lost(), name="embedded database")
    lost = False

    def ended(task: asyncio.Task[None]) -> None:
        nonlocal lost
        if not task.cancelled():
            lost = True
            whole.cancel()

    watch.add_done_callback(ended)
    try:
        yield
    except BaseException as error:
        if not lost:
            raise
        whole.uncancel()
        raise EmbeddedPostgresFailed(
            f"The embedded PostgreSQL in {embedded.directory} has ended: its keeper was killed or told to stop. The "
            f"server ends with it; nothing that was committed is lost. See {embedded.directory / 'log'}, then start "
            "the server again."
        ) from error
    finally:
        watch.cancel()


async def _first_admin(store: Store, passwords: Passwords, home: Path) -> None:
    """The first user. Password and token are written down for the owner of this host, and nowhere else."""
    async with store.read() as session:
        if await session.value("SELECT 1 FROM users LIMIT 1"):
            return
    password = secrets.token_urlsafe(15)
    hashed = await passwords.hash(password)

    async def work(session: Session) -> None:
        # The files come before the commit: killed in between, there is no user yet, and the next start makes both anew.
        token = await ensure_admin(session, hashed)
        if token is not None:
            keep_secret(home / TOKEN_FILE, token)
            keep_secret(home / PASSWORD_FILE, password)

    await store.change(work, actor="first start")


@asynccontextmanager
async def _parts(store: Store, passwords: Passwords, options: Options) -> AsyncIterator[Server]:
    workers = RoleWorkers()
    claimant = Claimant(f"{host_name()}:{os.getpid()}", await _own_node(store), options.lease, kinds_that_run_files())
    shelf = Shelf(options.home)
    dhcp = kea.Kea(
        options.home,
        options.dhcp_interfaces,
        options.port if simulates(options) else options.provision_port,
        dns=_dns_server(options),
        program=options.kea,
        launcher=options.launcher,
    )
    names = knot.Knot(
        options.home,
        options.dns_address,
        options.dns_port,
        host_name(),
        program=options.knot,
        launcher=options.launcher,
    )
    images = shelf if options.provision_address else None
    means = Means(store, options.home, claimant.node_id, images, dhcp, names, options.launcher, mesh=_mesh_of(options))
    means.boot = look_of(shelf, options)
    await _tidy_files(store, means.files)
    await store.change(lambda session: publish_server_key(session, host_name(), means.public_key), actor="first start")
    async with httpx.AsyncClient(trust_env=False, timeout=ANSWER_SECONDS, limits=LIMITS) as http:
        reach = reach_of(means, http, options)
        look = ReachabilityCheck(store, reach, claimant.node_id).check
        transitions = RoleTransitions(store, workers, means.files)
        jigs = make_jigs(means.jig_ports(transitions, http if options.lab else None, look))
        provided = [
            ProviderDaemon(dhcp.daemon, "provisioner-dhcp-server", PROVIDER_ROLE),
            ProviderDaemon(names.daemon, "dns-server", "dns-database"),
        ]
        hooks = HookDispatcher(store, workers, means.files, jigs, claimant.worker, HookPace(lease=options.lease))
        try:
            yield Server(
                store,
                jigs,
                claimant,
                VetoedChanges(store, workers, means.files),
                hooks,
                InstallAdvancer(store, reach, options.tick, options.lease),
                shelf,
                ProviderRefresher(store, claimant.node_id or NO_NODE, provided, options.lease),
                heartbeat=options.heartbeat,
                kernel_arguments=options.kernel_arguments,
                discovered_names=options.discovered_names,
                annealer=None if options.manual else Annealer(store, jigs, claimant, Pace(tick=options.tick)),
                policy=policy_of(options),
                passwords=passwords,
                simulates=simulates(options),
            )
        finally:
            await dhcp.stop()
            await names.stop()
            await means.connections.close()
            await workers.close()


async def _tidy_files(store: Store, files: RoleFiles) -> None:
    """Remove from this server's disk what no barclamp consists of any more."""
    async with store.read() as session:
        digests = {row.digest for row in await session.rows("SELECT digest FROM barclamps")}
    await asyncio.to_thread(files.tidy, digests)


def policy_of(options: Options) -> Policy:
    return Policy(
        Lifetime(options.session_idle, options.session_absolute),
        metrics_allow=options.metrics_allow,
        webhook_allow=options.webhook_allow,
    )


def _mesh_of(options: Options) -> MeshClient | None:
    return None if options.mesh_folder is None else MeshClient(options.mesh_folder)


def _dns_server(options: Options) -> IPv4Address | None:
    """Where machines find the names of nodes, as far as DHCP can tell them."""
    address = None if options.dns_address is None else ip_address(options.dns_address)
    return address if isinstance(address, IPv4Address) and options.dns_port == 53 else None


@asynccontextmanager
async def _annealing(server: Server, options: Options) -> AsyncIterator[None]:
    """All that works by itself. What breaks is started again, and the server goes on."""
    annealer, supervisor = server.annealer, server.supervisor
    assert annealer is not None
    watch = MachineWatch(server.store, server.installs.reach, options.heartbeat)
    powersave = PowerSaver(server.store, server.installs.reach, options.tick)
    webhooks = WebhookDeliveries(server.store, server.claimant.worker, WebhookSender(options.webhook_allow))
    retention = Retention(server.store, Keep(options.event_retention, options.run_retention))
    mesh = _mesh_of(options)
    until_stopped: dict[str, Callable[[], Awaitable[None]]] = {"annealer": annealer.run, "hooks": server.hooks.run}
    until_cancelled: dict[str, Callable[[], Awaitable[None]]] = {
        "installs": server.installs.run,
        "providers": server.providers.run,
        "watch": watch.run,
        "powersave": powersave.run,
        "webhooks": webhooks.run,
        "retention": retention.run,
    }
    if mesh is not None:
        until_cancelled["mesh follower"] = MeshFollower(server.store, mesh, options.tick).run
    async with asyncio.TaskGroup() as group:
        tasks = {
            name: group.create_task(supervisor.keep_running(name, run), name=name)
            for name, run in (until_stopped | until_cancelled).items()
        }
        try:
            yield
        finally:
            supervisor.stop()
            annealer.stop()
            server.hooks.stop()
            for name in until_cancelled:
                tasks[name].cancel()


async def _own_node(store: Store) -> int:
    """The admin node that this host is: what is bound there only this server may run."""
    async with store.read() as session:
        found: int | None = await session.value("SELECT id FROM nodes WHERE admin AND name = :name", name=host_name())
    if found is None:
        log.warning("No admin node is called %s, so work on admin nodes is left to other servers.", host_name())
    return found or NO_NODE


class _Config(uvicorn.Config):
    """With a TLS context of our own, so that its certificate can change while it serves."""

    context: ssl.SSLContext | None = None

    def load(self) -> None:
        super().load()
        self.ssl = self.context


class _Serving(uvicorn.Server):
    """Takes connections in through a gate, and ends streams of events before it waits for all answers to end: they
    never do by themselves. Leaves signals alone: they are for whoever runs the event loop."""

    def __init__(self, config: _Config, limits: ConnectionLimits) -> None:
        super().__init__(config)
        self._limits = limits
        self._acceptors: list[Acceptor] = []

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        assert sockets is not None
        logging.getLogger("uvicorn.error").addFilter(CLIENT_WARNING_FILTER)
        for logger in ("uvicorn.error", problems.__name__):
            logging.getLogger(logger).addFilter(TRACEBACK_FILTER)
        gate = Gate(self._limits)
        self._acceptors = [Acceptor(listener, gate, self._protocol, self.config.ssl) for listener in sockets]
        for acceptor in self._acceptors:
            acceptor.start()
        self.servers = self._acceptors  # type: ignore[assignment]  # all that is used of them is how they close
        self.started = True

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().serve(sockets)
        finally:
            # Also when it is cancelled: a closed socket that the event loop still watches harms the next one that gets
            # its number.
            for acceptor in self._acceptors:
                acceptor.close()

    def _protocol(self, tracked: TrackedConnection) -> asyncio.Protocol:
        return TimeLimitedProtocol(self.config, self.server_state, {}, tracked=tracked, limits=self._limits)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        feed: EventFeed | None = getattr(getattr(self.config.app, "state", None), "feed", None)
        if feed is not None:
            await feed.close()
        await super().shutdown(sockets)
        if feed is not None:
            await feed.wait_idle()


@asynccontextmanager
async def listening(
    app: FastAPI,
    host: str = "127.0.0.1",
    port: int = 0,
    tls: ssl.SSLContext | None = None,
    limits: ConnectionLimits = NO_PROXIES,
) -> AsyncIterator[str]:
    """Serve an application beside what else this event loop does; gives its address. Port 0: any that is free."""
    with _bound(host, port) as listener:
        listener.listen(BACKLOG)  # from here on callers wait for their answer instead of being refused
        server = _Serving(_config(app, tls, limits, patience=2), limits)
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield _address(host, listener, tls)
        finally:
            server.should_exit = True
            await task


async def serve(options: Options) -> None:
    """Serve until SIGTERM or SIGINT, then end in order: answers first, then what runs is handed back."""
    with _Stopping() as stopping:
        try:
            await _serve(options, stopping)
        except asyncio.CancelledError:
            if not stopping.asked:
                raise


async def _serve(options: Options, stopping: "_Stopping") -> None:
    # What may be refused comes before anything is started.
    certificate = certificate_of(options, host_name())
    context = None if certificate is None else certificate.context()
    password = options.home / PASSWORD_FILE
    known = password.exists()
    with _bound(options.host, options.port) as listener:
        async with running(options) as server, _fresh(context, options):
            if not known and password.exists():
                # Once, to whoever starts the server for the first time, and to no log.
                _say(f"Log in as admin with {password.read_text().strip()} (also in {password}).")
            address = _address(options.host, listener, context)
            _say(f"Rackwright on {address}; admin's token in {options.home / TOKEN_FILE}")
            if certificate is not None:
                _say(f"Its certificate has the SHA-256 fingerprint {certificate.fingerprint}")
            limits = limits_of(options)
            serving = _Serving(_config(create_app(server), context, limits, patience=10), limits)
            stopping.serving = serving
            here = local_url("http" if context is None else "https", options.host, listener.getsockname()[1])
            with announced(options.home, here, None if certificate is None else certificate.certificate):
                await serving.serve(sockets=[listener])


class _Stopping:
    """What the first SIGTERM or SIGINT does: end what is being started, or stop serving. A second SIGINT no longer
    waits for answers."""

    def __init__(self) -> None:
        self.asked = False
        self.serving: _Serving | None = None
        self._task = asyncio.current_task()

    def __enter__(self) -> "_Stopping":
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop)
        loop.add_signal_handler(signal.SIGINT, self._stop, True)
        return self

    def __exit__(self, *_: object) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(number)

    def _stop(self, in_a_hurry: bool = False) -> None:
        again, self.asked = self.asked, True
        if self.serving is not None:
            self.serving.should_exit = True
            self.serving.force_exit |= again and in_a_hurry
        elif not again and self._task is not None:
            self._task.cancel()


def limits_of(options: Options) -> ConnectionLimits:
    return ConnectionLimits(
        options.connections,
        options.connections_per_source,
        options.request_timeout,
        options.stall_timeout,
        options.trusted_proxies,
    )


@asynccontextmanager
async def _fresh(context: ssl.SSLContext | None, options: Options) -> AsyncIterator[None]:
    task = None if context is None else asyncio.create_task(keep_fresh(context, options, host_name()))
    try:
        yield
    finally:
        if task is not None:
            task.cancel()


def _say(line: str) -> None:
    print(line, file=sys.stderr)  # noqa: T201  # to whoever started the server


@contextmanager
def _bound(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol: asyncio turns Nagle's algorithm off only for sockets that say they are TCP.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise SettingsInvalid(
                f"Cannot listen on {host} port {port}: {error.strerror}. Choose another with --host and --port."
            ) from None
        yield listener


def _config(app: FastAPI, tls: ssl.SSLContext | None, limits: ConnectionLimits, patience: int) -> _Config:
    config = _Config(
        app,
        log_level="warning",
        lifespan="off",
        ws="none",
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=patience,
        proxy_headers=bool(limits.proxies),
        forwarded_allow_ips=[str(proxy) for proxy in limits.proxies],
    )
    config.context = tls
    return config


def _address(host: str, listener: socket.socket, tls: ssl.SSLContext | None) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"{'http' if tls is None else 'https'}://{shown}:{listener.getsockname()[1]}"


def keep_secret(path: Path, secret: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_private_file(path, f"{secret}\n".encode())


def host_name() -> str:
    """This host's full name; nodes need one."""
    name = socket.getfqdn().lower()
    return name if "." in name and not name.startswith("localhost") else f"{socket.gethostname().lower()}.internal"
