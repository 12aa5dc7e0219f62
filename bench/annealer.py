"""How fast the annealer works: transitions a second, beside a queue that has neither graph nor per-node lock."""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from graph import fill
from rackwright.annealer.annealer import Annealer
from rackwright.domain.states import ACTIVE
from rackwright.jigs.noop import NoopJig
from rackwright.store.database import Database, open_database
from rackwright.store.runs import Claimant
from rackwright.store.session import Store
from rackwright.store.settings import write_setting
from report import emit


async def anneal_all(store: Store, cap: int) -> dict[str, float]:
    """Let one annealer work until nothing is left to do."""
    await store.change(lambda session: write_setting(session, "cap", cap))
    async with store.read() as session:
        waiting: int = await session.value("SELECT count(*) FROM node_roles WHERE state <> :active", active=int(ACTIVE))
    annealer = Annealer(store, {"noop": NoopJig()}, Claimant("bench"))
    began = time.perf_counter()
    task = asyncio.create_task(annealer.run())
    while annealer.counters.settled < waiting - 1:
        await asyncio.sleep(0.01)
    seconds = time.perf_counter() - began
    annealer.stop()
    await task
    return {
        "transitions": waiting,
        "seconds": seconds,
        "per_second": waiting / seconds,
        "passes": annealer.counters.passes,
    }


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--roles", type=int, default=20)
    parser.add_argument("--cap", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        database: Database = await open_database(None, Path(home))
        async with database:
            store = Store(database.engine)
            began = time.perf_counter()
            await fill(store, options.nodes, options.roles)
            figures = {"fill_seconds": time.perf_counter() - began, **await anneal_all(store, options.cap)}
    emit("annealer", figures, [])


if __name__ == "__main__":
    asyncio.run(main())
