"""A running server: database, first start, application, and a clean end of all of it."""

import asyncio
import logging
import os
import secrets
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import uvicorn
from fastapi import FastAPI

from rackwright.annealer.annealer import Annealer, Pace
from rackwright.annealer.equipment import Means
from rackwright.annealer.hooks import HookDispatcher, HookPace
from rackwright.annealer.installs import Installs, Reach
from rackwright.annealer.judged import Judge
from rackwright.annealer.powersave import Powersave
from rackwright.annealer.role_workers import RoleWorkers
from rackwright.annealer.transitions import RoleTransitions
from rackwright.annealer.watch import Watch
from rackwright.api.app import create_app
from rackwright.api.context import Server
from rackwright.api.feed import Feed
from rackwright.api.passwords import Passwords
from rackwright.barclamps.loader import built_in
from rackwright.hammers.simulated import SimulatedHammer
from rackwright.jigs.registry import all_jigs
from rackwright.store.bootstrap import first_start
from rackwright.store.database import open_database
from rackwright.store.people import ensure_admin
from rackwright.store.runs import DEFAULT_LEASE, Claimant
from rackwright.store.session import Store
from rackwright.store.vault import load_vault

log = logging.getLogger(__name__)

NO_NODE = 0
BACKLOG = 2048
TOKEN_FILE = "admin-token"  # noqa: S105  # the file's name, not a secret
PASSWORD_FILE = "admin-password"  # noqa: S105  # likewise


@dataclass(frozen=True)
class Options:
    home: Path
    database_url: str | None = None
    host: str = "127.0.0.1"
    port: int = 8090
    test_barclamp: bool = False
    lab: bool = False
    """Import the workload for simulated machines."""
    heartbeat: float = 10.0
    """Seconds between the heartbeats that machines send."""
    lease: float = DEFAULT_LEASE
    tick: float = 5.0
    manual: bool = False
    """Without annealer: nothing runs and no hook is called but by a pass by hand."""


@asynccontextmanager
async def running(options: Options) -> AsyncIterator[Server]:
    """The parts of a server on an open database, past its first start."""
    async with await open_database(options.database_url, options.home) as database:
        store = Store(database.engine, load_vault(options.home))
        await first_start(store, built_in(options.test_barclamp, options.lab), host_name())
        passwords = Passwords()
        await _first_admin(store, passwords, options.home)
        async with _parts(store, passwords, options) as server:
            if options.manual:
                yield server
            else:
                async with _annealing(server, options):
                    yield server


async def _first_admin(store: Store, passwords: Passwords, home: Path) -> None:
    """The first user. Password and token are written down for the owner of this host, and nowhere else."""
    async with store.read() as session:
        if await session.value("SELECT 1 FROM users LIMIT 1"):
            return
    password = secrets.token_urlsafe(15)
    hashed = await passwords.hash(password)
    token = await store.change(lambda session: ensure_admin(session, hashed), actor="first start")
    if token is not None:
        keep_secret(home / TOKEN_FILE, token)
        keep_secret(home / PASSWORD_FILE, password)


@asynccontextmanager
async def _parts(store: Store, passwords: Passwords, options: Options) -> AsyncIterator[Server]:
    workers = RoleWorkers()
    claimant = Claimant(f"{host_name()}:{os.getpid()}", await _own_node(store), options.lease)
    means = Means(store, options.home, claimant.node_id)
    async with httpx.AsyncClient(trust_env=False) as http:
        jigs = all_jigs(means.equipment(RoleTransitions(store, workers), http))
        hooks = HookDispatcher(store, workers, jigs, claimant.worker, HookPace(lease=options.lease))
        simulated = SimulatedHammer(http)
        reach = Reach(hammer=lambda _: simulated, probe=lambda _: simulated)
        try:
            yield Server(
                store,
                jigs,
                claimant,
                Judge(store, workers),
                hooks,
                Installs(store, reach, options.tick, options.lease),
                passwords=passwords,
            )
        finally:
            await means.connections.close()
            await workers.close()


@asynccontextmanager
async def _annealing(server: Server, options: Options) -> AsyncIterator[None]:
    """All that works by itself; if one of them breaks, so does the server."""
    annealer = Annealer(server.store, server.jigs, server.claimant, Pace(tick=options.tick))
    watch = Watch(server.store, options.heartbeat)
    powersave = Powersave(server.store, server.installs.reach, options.tick)
    async with asyncio.TaskGroup() as group:
        group.create_task(annealer.run(), name="annealer")
        group.create_task(server.hooks.run(), name="hooks")
        idle = [group.create_task(part.run()) for part in (server.installs, watch, powersave)]
        try:
            yield
        finally:
            annealer.stop()
            server.hooks.stop()
            for task in idle:
                task.cancel()


async def _own_node(store: Store) -> int:
    """The admin node that this host is: what is bound there only this server may run."""
    async with store.read() as session:
        found: int | None = await session.value("SELECT id FROM nodes WHERE admin AND name = :name", name=host_name())
    if found is None:
        log.warning("No admin node is called %s, so work on admin nodes is left to other servers.", host_name())
    return found or NO_NODE


class _Serving(uvicorn.Server):
    """Ends streams of events before it waits for all answers to end: they never do by themselves."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        feed: Feed | None = getattr(getattr(self.config.app, "state", None), "feed", None)
        if feed is not None:
            await feed.close()
        await super().shutdown(sockets)


class _Listening(_Serving):
    """Leaves signals alone: they are for whoever runs the event loop."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def listening(app: FastAPI, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Serve an application beside what else this event loop does; gives its address. Port 0: any that is free."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)  # from here on callers wait for their answer instead of being refused
        config = uvicorn.Config(app, log_level="warning", lifespan="off", backlog=BACKLOG, timeout_graceful_shutdown=2)
        server = _Listening(config)
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield f"http://{host}:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task


async def serve(options: Options) -> None:
    """Serve until told to stop."""
    password = options.home / PASSWORD_FILE
    known = password.exists()
    async with running(options) as server:
        if not known and password.exists():
            # Once, to whoever starts the server for the first time, and to no log.
            print(f"Log in as admin with {password.read_text().strip()} (also in {password}).", file=sys.stderr)  # noqa: T201
        config = uvicorn.Config(
            create_app(server),
            host=options.host,
            port=options.port,
            log_level="warning",
            lifespan="off",
            timeout_graceful_shutdown=10,
        )
        await _Serving(config).serve()


def keep_secret(path: Path, secret: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secret + "\n")
    aside.rename(path)


def host_name() -> str:
    """This host's full name; nodes need one."""
    name = socket.getfqdn().lower()
    return name if "." in name and not name.startswith("localhost") else f"{socket.gethostname().lower()}.internal"
