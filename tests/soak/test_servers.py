"""Servers killed, paused and cut off from their database while machines converge, installs included.

After each: never two runs at once on a machine, by the machine's own account; no run lost; nothing stuck; no machine
installed twice; everything ACTIVE. One thing is a person's by design: a secret is handed out once, so a server that
dies while it hands one out leaves an install that only a person starts again. `Floor.help` is that person.
"""

import asyncio
import contextlib
import random
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from tests.support.postgres import NO_SYNC
from tests.support.rack import Rack, unbroken
from tests.support.servers import ServerProcess, servers

from rackwright.domain.errors import Conflict
from rackwright.domain.install import Stage
from rackwright.domain.runs import ENDED
from rackwright.domain.states import ACTIVE, ERROR, Trigger
from rackwright.lab.lab import Lab, running_lab
from rackwright.lab.machine import Behaviour
from rackwright.store import commits, run_life
from rackwright.store.binding import bind_proposed
from rackwright.store.database import open_database
from rackwright.store.deployments import create_deployment, get_deployment
from rackwright.store.embedded import EmbeddedPostgres, database_url
from rackwright.store.noderoles import retry
from rackwright.store.session import UNREACHABLE, Session, Store
from rackwright.store.settings import write_setting

pytestmark = [pytest.mark.chaos, pytest.mark.xdist_group("server-processes")]

SEED = 20261115
LEASE = 3.0
BEHAVIOUR = Behaviour(boot=0.05, install=0.1, heartbeat=8.0)
STORES = 4
INSTALL = "provisioner-os-install"


class Floor:
    """Machines, the servers they speak to, and the database all of it is in."""

    def __init__(self, store: Store, lab: Lab, running: list[ServerProcess]) -> None:
        self.store = store
        self.lab = lab
        self.servers = running
        self.rack = Rack(store)
        self.interventions = 0

    async def number(self, query: str, **values: object) -> int:
        async with self.store.read() as session:
            return int(await session.value(query, **values) or 0)

    # --- what people do

    async def discover(self) -> None:
        self.lab.power_on()
        found = "SELECT count(*) FROM nodes WHERE NOT available AND NOT system"
        await self.until(lambda: self._reaches(found, len(self.lab.machines)), 120)

    async def _reaches(self, query: str, wanted: int) -> bool:
        return await self.number(query) >= wanted

    async def deploy(self) -> None:
        """Let all machines in, and want a workload on each, in as few transactions as it takes."""

        async def work(session: Session) -> None:
            rows = await session.rows("SELECT id FROM nodes WHERE NOT available AND NOT system ORDER BY id")
            nodes = [row.id for row in rows]
            await write_setting(session, "cap", 40)
            await write_setting(session, "max_installs", 60)
            await create_deployment(session, "web", None)
            web = await get_deployment(session, "web")
            roles = ["lab-storage"] * STORES + ["lab-web"] * len(nodes)
            await bind_proposed(session, web, list(zip(nodes, roles, strict=False)))
            await commits.commit(session, await get_deployment(session, "web"), None)
            await session.run("UPDATE nodes SET available = true WHERE id = ANY (:ids)", ids=nodes)
            session.touch(nodes)

        await self.store.change(work, actor="tester", graph=True)

    async def help(self) -> None:
        """Start installs again whose secret was lost with the server that handed it out."""
        rows = await self.rack.rows(
            "SELECT n.id, n.uuid::text, nr.id, nr.run_id, nr.state, nr.error, a.stage FROM node_roles nr"
            " JOIN roles r ON r.id = nr.role_id AND r.name = :role JOIN nodes n ON n.id = nr.node_id"
            " LEFT JOIN install_attempts a ON a.run_id = nr.run_id WHERE nr.state <> 0",
            role=INSTALL,
        )
        machines = {machine.uuid: machine for machine in self.lab.machines.values()}
        for _, uuid, id, run_id, state, error, stage in rows:
            machine = machines[str(uuid)]
            last_boot = machine.journal.boots[-1] if machine.journal.boots else ""
            if state == ERROR and last_boot.endswith("-install"):
                await machine.reset()  # it hangs in an installer that was refused
            elif stage == Stage.INSTALLING and last_boot == "sledgehammer":
                await self.store.change(partial(run_life.cancel_run, id=int(str(run_id))), actor="operator")
            elif state == ERROR and ("fetched a second time" in str(error) or "by operator" in str(error)):
                with contextlib.suppress(Conflict):  # what it stands on runs again after the boot; ask again later
                    await self.store.change(
                        partial(retry, id=int(str(id)), trigger=Trigger.REINSTALL), actor="operator"
                    )
                    self.interventions += 1

    # --- how it goes

    async def left(self) -> int:
        """Noderoles that are not ACTIVE, and runs that are not over."""
        return await self.number(
            "SELECT (SELECT count(*) FROM node_roles WHERE state <> :active)"
            " + (SELECT count(*) FROM runs WHERE state <> ALL (:ended))",
            active=int(ACTIVE),
            ended=[state.value for state in ENDED],
        )

    async def converged(self) -> bool:
        await self.help()
        return await self.left() == 0

    async def until_converged(self, seconds: float) -> None:
        await self.until(self.converged, seconds)

    async def until(self, holds: Callable[[], Awaitable[bool]], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while True:
            with contextlib.suppress(*UNREACHABLE):
                if await holds():
                    return
            assert time.monotonic() < deadline, f"not within {seconds:g} s: {await self.why_not()}"
            await asyncio.sleep(0.2)

    async def why_not(self) -> str:
        stuck = await self.rack.rows(
            "SELECT r.name, nr.state, nr.error, n.alive, a.stage, count(*) FROM node_roles nr"
            " JOIN roles r ON r.id = nr.role_id JOIN nodes n ON n.id = nr.node_id"
            " LEFT JOIN install_attempts a ON a.run_id = nr.run_id WHERE nr.state <> 0 GROUP BY 1, 2, 3, 4, 5"
            " ORDER BY 6 DESC LIMIT 20"
        )
        runs = await self.rack.rows("SELECT state, jig, refresh, count(*) FROM runs GROUP BY 1, 2, 3 ORDER BY 1, 2")
        return f"noderoles {stuck}\nruns {runs}\n" + "\n".join(one.said()[-1500:] for one in self.servers)

    async def check(self) -> None:
        """What must hold whatever happened."""
        assert self.lab.overlaps() == []
        assert {machine.number: machine.journal.installs for machine in self.lab.machines.values()} == dict.fromkeys(
            self.lab.machines, 1
        )
        await unbroken(self.rack)
        lost = await self.rack.rows(
            "SELECT id FROM runs lost WHERE state = 'lost' AND NOT EXISTS (SELECT FROM runs later"
            " WHERE later.node_role_id = lost.node_role_id AND later.id > lost.id AND later.state = 'succeeded')"
        )
        assert lost == [], "what a dead server left is done by another"
        older = [old for machine in self.lab.machines.values() for old, _ in machine.journal.superseded]
        given_up = await self.rack.rows(
            "SELECT count(*) FROM runs WHERE id = ANY (:ids) AND state IN ('lost', 'cancelled', 'failed')", ids=older
        )
        assert given_up == [(len(set(older)),)], "only what was given up may be superseded on a machine"
        for server in self.servers:
            assert "please report this" not in server.said(), "a counter or slot was wrong"
            assert "Traceback" not in server.said(), server.said()[-4000:]


@contextlib.asynccontextmanager
async def floor(home: Path, url: str, machines: int, count: int) -> AsyncIterator[Floor]:
    """Servers and machines on a fresh database."""
    async with await open_database(url, home) as database:
        with servers(home, url, count, lease=LEASE, heartbeat=BEHAVIOUR.heartbeat * 2) as running:
            async with running_lab([one.address for one in running], machines, BEHAVIOUR, SEED) as lab:
                yield Floor(Store(database.engine), lab, running)


async def _restart(server: ServerProcess) -> None:
    server.start()
    deadline = time.monotonic() + 90
    while not await asyncio.to_thread(server.ready):
        assert time.monotonic() < deadline, server.said()[-4000:]
        await asyncio.sleep(0.1)


# --- (a) killed


async def test_servers_killed_at_random_while_200_machines_converge(migrated_url: str, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    async with floor(tmp_path, migrated_url, machines=200, count=3) as site:
        await site.discover()
        await site.deploy()
        kills = 0
        while await site.left() and kills < 6:
            victim = chance.choice(site.servers)
            await asyncio.sleep(chance.uniform(0.2, 2.0))  # the moment of death is drawn, not waited for
            victim.kill()
            kills += 1
            await _restart(victim)
            await site.help()
        assert kills >= 3, "it converged before anything was killed"
        await site.until_converged(400)
        await site.check()


# --- (b) paused


@dataclass(frozen=True)
class SlowRun:
    id: int
    node_role_id: int
    worker: str


async def test_a_server_that_slept_past_its_lease_is_refused_when_it_wakes(migrated_url: str, tmp_path: Path) -> None:
    async with floor(tmp_path, migrated_url, machines=STORES + 2, count=2) as site:
        await site.discover()
        await site.deploy()
        await site.until_converged(120)
        machine = site.lab.machines[1]
        [(node_id,)] = await site.rack.rows("SELECT id FROM nodes WHERE uuid = CAST(:uuid AS uuid)", uuid=machine.uuid)
        slow = await _start_slow_run(site, int(str(node_id)))
        sleeper = next(one for one in site.servers if slow.worker.endswith(f":{one.pid}"))
        [other] = [one for one in site.servers if one is not sleeper]
        sleeper.pause()
        await site.until(lambda: _is_lost(site, slow.id), 60)
        await site.until_converged(120)
        sleeper.wake()
        other.kill()
        # Only the sleeper is left: what runs now shows that it has been through its passes since it woke.
        await site.store.change(lambda session: retry(session, slow.node_role_id), actor="tester")
        await site.until_converged(120)
        assert await site.rack.rows("SELECT state FROM runs WHERE id = :id", id=slow.id) == [("lost",)]
        workers = await site.rack.rows(
            "SELECT worker FROM runs WHERE node_role_id = :id ORDER BY id DESC LIMIT 1", id=slow.node_role_id
        )
        assert str(workers[0][0]).endswith(f":{sleeper.pid}")
        assert any(old == slow.id for old, _ in machine.journal.superseded), "the slow run was still on the machine"
        assert site.interventions == 0, "no server died while it handed out a secret"
        await site.check()


async def _start_slow_run(site: Floor, node_id: int) -> SlowRun:
    """Have something run on a machine for longer than this test; gives its run, once the machine has it."""

    async def work(session: Session) -> None:
        await session.run(
            'UPDATE node_roles nr SET sysdata = \'{"simulate": {"seconds": 3600}}\' FROM roles r'
            " WHERE r.id = nr.role_id AND r.name = 'lab-base' AND nr.node_id = :id",
            id=node_id,
        )
        [row] = await session.rows(
            "SELECT nr.id FROM node_roles nr JOIN roles r ON r.id = nr.role_id AND r.name = 'lab-base'"
            " WHERE nr.node_id = :id",
            id=node_id,
        )
        await retry(session, row.id)

    await site.store.change(work, actor="tester")
    found: list[SlowRun] = []

    async def begun() -> bool:
        rows = await site.rack.rows(
            "SELECT id, node_role_id, worker FROM runs WHERE node_id = :id AND state = 'running' AND jig = 'lab'",
            id=node_id,
        )
        marks = {mark.token for machine in site.lab.machines.values() for mark in machine.journal.marks}
        found[:] = [SlowRun(int(str(id)), int(str(nr)), str(worker)) for id, nr, worker in rows if id in marks]
        return bool(found)

    await site.until(begun, 60)
    # The run that takes its place is a quick one.
    await site.store.change(
        lambda session: session.run("UPDATE node_roles SET sysdata = '{}' WHERE id = :id", id=found[0].node_role_id),
        actor="tester",
    )
    return found[0]


async def _is_lost(site: Floor, run_id: int) -> bool:
    return await site.rack.rows("SELECT state FROM runs WHERE id = :id", id=run_id) == [("lost",)]


# --- (c) without a database


async def test_the_database_restarts_in_the_middle(tmp_path: Path) -> None:
    async with _own_postgres(tmp_path) as (url, restart), floor(tmp_path, url, machines=40, count=2) as site:
        await site.discover()
        await site.deploy()
        for share in (0.8, 0.4):
            before = await site.left()
            await site.until(partial(_at_most, site, round(before * share)), 120)
            await restart()
        await site.until_converged(180)
        await site.check()


async def _at_most(site: Floor, left: int) -> bool:
    await site.help()
    return await site.left() <= left


@contextlib.asynccontextmanager
async def _own_postgres(home: Path) -> AsyncIterator[tuple[str, Callable[[], Awaitable[None]]]]:
    """A server of our own behind an address that stays the same, and how to restart it."""
    postgres = EmbeddedPostgres(home / "database", NO_SYNC)
    with tempfile.TemporaryDirectory(prefix="rackwright-test-") as place:
        link = Path(place, "sockets")

        def link_again() -> None:
            assert postgres.sockets is not None
            link.unlink(missing_ok=True)
            link.symlink_to(postgres.sockets)

        async def start() -> None:
            await postgres.start()
            link_again()

        async def restart() -> None:
            await postgres.stop()
            await start()

        await start()
        try:
            yield database_url(link), restart
        finally:
            await postgres.stop()
