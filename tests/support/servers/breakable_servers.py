"""Machines, servers and a database to break while machines converge, and the person who helps where one is needed.

One thing is a person's by design: the secret of an install is handed out once, so a server that dies while it hands one
out leaves an install that only a person starts again. `Floor.help` is that person, and notes for each time what made
it necessary; `Floor.check` accepts no other reason than an answer that was lost with its server or its database.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.support.rack import Rack, unbroken
from tests.support.servers.server_processes import ServerProcess, servers
from tests.support.waiting import PATIENCE, until

from rackwright.domain.errors import Conflict
from rackwright.domain.machines.install import Stage
from rackwright.domain.runs import ENDED
from rackwright.domain.states import ACTIVE, ERROR, Trigger
from rackwright.lab.lab import Lab, running_lab
from rackwright.lab.machine import SECRET_PATIENCE, Behaviour, LostSecret, Machine
from rackwright.store.db.database import open_database
from rackwright.store.db.session import UNREACHABLE, GraphSession, Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph import commits
from rackwright.store.graph.binding import bind_proposed
from rackwright.store.graph.deployments import create_deployment, get_deployment
from rackwright.store.graph.noderoles import retry_noderole
from rackwright.store.runs import run_lifecycle
from rackwright.store.settings import write_setting
from rackwright.store.store import Store

SEED = 20261115
LEASE = 12.0
"""Seconds. What a dead server asked of a machine, such as a reset, comes before another does its work again. A server
that stands still for 8 seconds may be taken for dead: its runs are lost and done again, which nothing here forbids."""
HEARTBEAT = 60.0
"""Seconds between two signs of life of a machine, as the servers expect it: machines that are busy are not dead."""
BEHAVIOUR = Behaviour(boot=0.05, install=0.1, heartbeat=8.0)
STORES = 4
INSTALL = "provisioner-os-install"
NOTICED = SECRET_PATIENCE + 300.0
"""Seconds within which a machine notices that its connection broke; far more than it takes on a busy computer."""


@dataclass(frozen=True)
class Outage:
    """A time in which answers could be lost."""

    began: float
    ended: float
    server: str = ""
    """Its address; empty: the database was away, so all servers were."""

    def explains(self, lost: LostSecret) -> bool:
        return self.server in ("", lost.server) and self.began <= lost.at <= self.ended + NOTICED


@dataclass(frozen=True)
class Intervention:
    """An install that a person started again."""

    machine: int
    error: str
    lost: LostSecret | None
    """The answer that did not arrive."""


class Floor:
    """Machines, the servers they speak to, and the database all of it is in."""

    def __init__(self, store: Store, lab: Lab, running: list[ServerProcess]) -> None:
        self.store = store
        self.lab = lab
        self.servers = running
        self.rack = Rack(store)
        self.interventions: list[Intervention] = []
        self.outages: list[Outage] = []
        self._outside: list[Sequence[int]] = []
        """The nodes that are not let in yet, in the batches in which they are."""

    async def number(self, query: str, **values: object) -> int:
        async with self.store.read() as session:
            return int(await session.value(query, **values) or 0)

    # --- what people do

    async def discover(self) -> None:
        self.lab.power_on()
        found = "SELECT count(*) FROM nodes WHERE NOT available AND NOT system"
        await self.until(
            lambda: self._reaches(found, len(self.lab.machines)), "all machines are discovered", 4 * PATIENCE
        )

    async def _reaches(self, query: str, wanted: int) -> bool:
        return await self.number(query) >= wanted

    async def deploy(self, batches: int = 1) -> None:
        """Want a workload on each machine, in as few transactions as it takes, and let the first batch of them in."""

        async def work(session: GraphSession) -> list[int]:
            rows = await session.rows("SELECT id FROM nodes WHERE NOT available AND NOT system ORDER BY id")
            nodes = [row.id for row in rows]
            await write_setting(session, "cap", 40)
            await write_setting(session, "max_installs", 60)
            await create_deployment(session, "web", None)
            web = await get_deployment(session, "web", EVERYTHING)
            roles = ["lab-storage"] * STORES + ["lab-web"] * len(nodes)
            await bind_proposed(session, web, list(zip(nodes, roles, strict=False)))
            await commits.commit_proposal(session, await get_deployment(session, "web", EVERYTHING), None)
            return nodes

        nodes = await self.store.change_graph(work, actor="tester")
        size = -(-len(nodes) // batches)
        self._outside = [nodes[first : first + size] for first in range(0, len(nodes), size)]
        assert len(self._outside) == batches
        await self.let_in()

    async def let_in(self) -> None:
        """Let the next batch of machines in."""
        nodes = self._outside.pop(0)

        async def work(session: Session) -> None:
            await session.run(
                "UPDATE nodes SET available = true, waiting_since = NULL, identity_confirmed = true"
                " WHERE id = ANY (:ids)",
                ids=nodes,
            )
            session.touch(nodes)

        await self.store.change_graph(work, actor="tester")

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
                await self.store.change(partial(run_lifecycle.cancel_run, id=int(str(run_id))), actor="operator")
            elif state == ERROR and ("fetched a second time" in str(error) or "by operator" in str(error)):
                with contextlib.suppress(Conflict):  # what it stands on runs again after the boot; ask again later
                    await self.store.change(
                        partial(retry_noderole, id=int(str(id)), trigger=Trigger.REINSTALL), actor="operator"
                    )
                    self._note(machine, str(error))

    def _note(self, machine: Machine, error: str) -> None:
        lost = machine.journal.lost_secrets
        self.interventions.append(Intervention(machine.number, error, lost[-1] if lost else None))

    def unexplained(self) -> list[Intervention]:
        """Times a person was needed although no answer was lost with a server that died: each is a defect."""
        return [
            one
            for one in self.interventions
            if one.lost is None or not any(outage.explains(one.lost) for outage in self.outages)
        ]

    # --- what breaks

    async def kill(self, server: ServerProcess) -> None:
        """Kill -9, and start it again."""
        began = time.monotonic()
        server.kill()
        server.start()
        await asyncio.to_thread(server.wait_ready)
        self.outages.append(Outage(began, time.monotonic(), server.address))

    async def kill_at_random(self) -> int:
        """Kill a server before each batch that is still to be let in, the moments and the victims drawn; how often.

        There is work left whenever one is killed, for those outside are not ACTIVE.
        """
        chance = random.Random(SEED)  # repeatable, not secret
        kills = 0
        while self._outside:
            await asyncio.sleep(chance.uniform(0.2, 2.0))  # the moment of death is drawn, not waited for
            await self.kill(chance.choice(self.servers))
            kills += 1
            await self.help()
            await self.let_in()
        return kills

    @contextlib.asynccontextmanager
    async def without_database(self) -> AsyncIterator[None]:
        began = time.monotonic()
        yield
        self.outages.append(Outage(began, time.monotonic()))

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

    async def until_converged(self) -> None:
        await self.until(self.converged, "everything is ACTIVE", 4 * PATIENCE)

    async def until(self, ask: Callable[[], Awaitable[bool]], what: str, patience: float = PATIENCE) -> None:
        """Wait until it holds, through times without a database; if it does not, tell how all is."""

        async def holds() -> bool:
            with contextlib.suppress(*UNREACHABLE):
                return await ask()
            return False

        async def told() -> str:
            return f"{what}: {await self.why_not()}"

        await until(holds, told, patience, every=0.2)

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
        unexplained = self.unexplained()
        assert not unexplained, (
            f"a person was needed, and not because an answer was lost with its server: {unexplained}"
        )
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
async def floor(home: Path, url: str, machines: int, count: int, lease: float = LEASE) -> AsyncIterator[Floor]:
    """Servers and machines on a fresh database."""
    async with await open_database(url, home) as database:
        with servers(home, url, count, lease=lease, heartbeat=HEARTBEAT) as running:
            async with running_lab([one.address for one in running], machines, BEHAVIOUR, SEED) as lab:
                yield Floor(Store(database), lab, running)
