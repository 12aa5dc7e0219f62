"""How fast the annealer works: transitions a second, beside a queue that has neither graph nor per-node lock.

Everything is measured on one embedded PostgreSQL with fsync on, in one run.
"""

import argparse
import asyncio
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from graph import fill, more_active, more_waiting
from peers import environment
from rackwright.annealer.annealer import Annealer
from rackwright.annealer.run_cap import AUTO
from rackwright.domain.runs import Outcome, Run
from rackwright.domain.states import ACTIVE, TODO
from rackwright.jigs.base import Jig, JigNode
from rackwright.jigs.noop import NoopJig
from rackwright.reach.run_log import Log
from rackwright.store.db.database import open_database
from rackwright.store.db.session import Session
from rackwright.store.graph.noderoles import retry_noderole
from rackwright.store.runs.claims import Claimant
from rackwright.store.settings import write_setting
from rackwright.store.store import Store
from report import Goal, at_least, at_most, emit
from waiting import HOUR, until

HERE = Path(__file__).parent

THEIR_BATCH = 10
"""What pgqueuer takes from its queue at a time unless it is told otherwise."""


@dataclass
class CountingJig(NoopJig):
    """Does nothing, and says when enough of it is done."""

    enough: int
    done: asyncio.Event = field(default_factory=asyncio.Event)
    runs: int = 0
    last: float = 0.0

    async def run(self, run: Run, log: Log) -> Outcome:
        self.runs += 1
        self.last = time.perf_counter()
        if self.runs >= self.enough:
            self.done.set()
        return Outcome.success()


class CrowdedJig(NoopJig):
    """Something that takes longer for everybody the more are at it, beyond what it can bear."""

    instant = False

    def __init__(self, bears: int, seconds: float) -> None:
        self.bears = bears
        self.seconds = seconds
        self.now = 0

    async def node_create(self, node: JigNode) -> None: ...

    async def run(self, run: Run, log: Log) -> Outcome:
        self.now += 1
        try:
            crowd = self.now / self.bears
            await asyncio.sleep(self.seconds * max(1.0, crowd * crowd))
        finally:
            self.now -= 1
        return Outcome.success()


async def rate(store: Store, cap: int, transitions: int) -> float:
    """Transitions a second of one annealer over the next `transitions` of them, until the last is committed."""
    await store.change(lambda session: write_setting(session, "cap", cap))
    async with store.read() as session:
        await session.catalogue()  # a server reads it once, after an import
    jig = CountingJig(transitions)
    annealer = Annealer(store, {"noop": jig}, Claimant("bench"))
    began = time.perf_counter()
    task = asyncio.create_task(annealer.run())
    await jig.done.wait()
    await until(lambda: annealer.counters.settled >= transitions, "the last is committed", HOUR, every=0.001)
    seconds = time.perf_counter() - began
    annealer.stop()
    await task
    return transitions / seconds


async def rerun_all(store: Store) -> None:
    """Everything committed has to run once more."""

    async def work(session: Session) -> None:
        await session.run("UPDATE node_roles SET hash = NULL, unmet = 0, state = 0 WHERE state <> 1")
        await session.run(
            "UPDATE node_roles nr SET state = CASE WHEN n > 0 THEN 2 ELSE 3 END, unmet = n FROM ("
            " SELECT nr.id, count(e.parent_id) AS n FROM node_roles nr JOIN deployments d ON d.id = nr.deployment_id"
            " AND d.name = 'bench' LEFT JOIN node_role_edges e ON e.child_id = nr.id GROUP BY nr.id) counted"
            " WHERE nr.id = counted.id"
        )
        rows = await session.rows("SELECT DISTINCT node_id FROM node_roles")
        session.touch(row.node_id for row in rows)

    await store.change_graph(work)
    async with store.engine.connect() as connection:
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        await connection.exec_driver_sql("VACUUM ANALYZE")


async def latencies(store: Store, rounds: int) -> list[float]:
    """Milliseconds from the commit that makes something runnable to its jig's first call, on an idle system."""
    jig = CountingJig(1)
    annealer = Annealer(store, {"noop": jig}, Claimant("bench"))
    task = asyncio.create_task(annealer.run())
    async with store.read() as session:
        id: int = await session.value("SELECT max(id) FROM node_roles WHERE state = :active", active=int(ACTIVE))

    async def settled() -> bool:  # another process may be the one that settles
        return await _state(store, id) == int(ACTIVE)

    took = []
    for _ in range(rounds):
        await asyncio.sleep(0.05)
        jig.done.clear()
        await store.change(lambda session: retry_noderole(session, id))
        committed = time.perf_counter()
        await jig.done.wait()
        took.append(max(0.0, jig.last - committed) * 1000)
        await until(settled, "the noderole is ACTIVE again", HOUR, every=0.005)
    annealer.stop()
    await task
    return took


async def _state(store: Store, id: int) -> int:
    async with store.read() as session:
        state: int = await session.value("SELECT state FROM node_roles WHERE id = :id", id=id)
    return state


async def crowded(store: Store, cap: int | str, seconds: float) -> float:
    """Runs a second that end on something that bears 20 at once."""
    await rerun_all(store)
    await store.change(lambda session: write_setting(session, "cap", cap))
    jig: Jig = CrowdedJig(20, 0.05)
    annealer = Annealer(store, {"noop": jig}, Claimant("bench"))
    task = asyncio.create_task(annealer.run())
    await asyncio.sleep(seconds * 0.6)
    before, began = annealer.counters.settled, time.perf_counter()
    await asyncio.sleep(seconds * 0.4)
    found = (annealer.counters.settled - before) / (time.perf_counter() - began)
    async with store.read() as session:
        if not await session.value("SELECT count(*) FROM node_roles WHERE state = :todo", todo=int(TODO)):
            raise RuntimeError("there was not enough to do: give it more nodes or less time")
    annealer.stop()
    await task
    return found


def peer(url: str, jobs: int, concurrency: int, batch: int, folder: Path) -> float:
    python = environment(folder, "pgqueuer", "pgqueuer", "asyncpg")
    script = HERE / "peers" / "pgqueuer_noop.py"
    ended = subprocess.run(
        [python, script, url, str(jobs), str(concurrency), str(batch)], check=True, capture_output=True, text=True
    )
    return float(ended.stdout.split()[-1])


async def measure(options: argparse.Namespace, home: Path) -> tuple[dict[str, object], list[Goal]]:
    async with await open_database(None, home) as database:
        store = Store(database)
        await fill(store, options.nodes, options.roles)
        total = options.nodes * options.roles
        url = database.url.set(drivername="postgresql").render_as_string(hide_password=False)
        part = min(total, options.part)
        ours = await rate(store, options.cap, total)
        theirs = await asyncio.to_thread(peer, url, total, options.cap, THEIR_BATCH, options.venvs)
        # It wants room for two batches, so this is the largest; a bare queue is fastest with it.
        theirs_at_best = await asyncio.to_thread(peer, url, total, options.cap, options.cap // 2, options.venvs)
        took = await latencies(store, 30)
        await rerun_all(store)
        plain = await rate(store, options.cap, part)
        await more_waiting(store, 10, options.waiting // 10)
        await rerun_all(store)
        behind = await rate(store, options.cap, part)
        await more_active(store, options.many)
        await rerun_all(store)
        among = await rate(store, options.cap, part)
        figures: dict[str, object] = {
            "transitions": total,
            "per_second": round(ours),
            "pgqueuer_per_second": round(theirs),
            "pgqueuer_per_second_with_the_largest_batch": round(theirs_at_best),
            "times_pgqueuer_with_the_largest_batch": round(ours / theirs_at_best, 2),
            "part_per_second": round(plain),
            "behind_waiting_per_second": round(behind),
            "waiting": options.waiting,
            "among_many_per_second": round(among),
            "many": options.many,
            "latency_ms_median": round(statistics.median(took), 2),
        }
        goals = [
            at_least("times pgqueuer", ours / theirs, 5),
            at_least("share of the rate behind waiting rows of busy nodes", behind / plain, 0.8),
            at_least("share of the rate among many noderoles", among / plain, 0.8),
            at_most("ms from commit to first jig call", statistics.median(took), 20),
        ]
        return figures, goals


async def measure_cap(home: Path, seconds: float) -> tuple[dict[str, object], list[Goal]]:
    async with await open_database(None, home) as database:
        store = Store(database)
        await fill(store, 1000, 20)  # more than can end in that time, or it is measured on nothing to do
        fixed = {cap: await crowded(store, cap, seconds / 2) for cap in (5, 10, 20, 40, 80)}
        auto = await crowded(store, AUTO, seconds)
        best = max(fixed.values())
        figures: dict[str, object] = {
            "crowded_per_second": {str(cap): round(found) for cap, found in fixed.items()},
            "crowded_auto_per_second": round(auto),
        }
        return figures, [at_least("auto cap, share of the best fixed cap", auto / best, 0.8)]


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--roles", type=int, default=20)
    parser.add_argument("--cap", type=int, default=100)
    parser.add_argument("--part", type=int, default=10_000, help="transitions of each later measurement")
    parser.add_argument("--waiting", type=int, default=200_000, help="TODO rows of ten busy nodes")
    parser.add_argument("--many", type=int, default=1_000_000, help="noderoles besides")
    parser.add_argument("--venvs", type=Path, default=Path(tempfile.gettempdir()) / "rackwright-bench")
    parser.add_argument("--auto-seconds", type=float, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        figures, goals = await measure(options, Path(home))
    with tempfile.TemporaryDirectory() as home:
        more, further = await measure_cap(Path(home), options.auto_seconds)
    emit("annealer", {**figures, **more}, [*goals, *further])


if __name__ == "__main__":
    asyncio.run(main())
