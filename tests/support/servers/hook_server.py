"""A server process with annealer and hook dispatcher, to be killed.

Run it as `python -m tests.support.servers.hook_server URL LEASE`.

It prints a line when it works, and ends when its input does.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from rackwright.annealer.annealer import Annealer, Pace
from rackwright.annealer.hooks import HookDispatcher, HookPace
from rackwright.annealer.role_files import RoleFiles
from rackwright.annealer.role_transitions import RoleTransitions
from rackwright.annealer.role_workers import RoleWorkers
from rackwright.jigs.base import Jig
from rackwright.jigs.noop import NoopJig
from rackwright.jigs.registry import kinds_that_run_files
from rackwright.jigs.role_provided import RoleProvidedJig
from rackwright.store.db.database import open_database
from rackwright.store.runs.claims import Claimant
from rackwright.store.store import Store


async def main(url: str, lease: float) -> None:
    with tempfile.TemporaryDirectory() as home:
        await serve(url, lease, Path(home))


async def serve(url: str, lease: float, home: Path) -> None:
    async with await open_database(url, Path("/nonexistent")) as database:
        store = Store(database)
        workers = RoleWorkers()
        files = RoleFiles(store, home)
        transitions = RoleTransitions(store, workers, files)
        jigs: dict[str, Jig] = {"noop": NoopJig(), "role-provided": RoleProvidedJig(transitions)}
        name = f"chaos-{id(store):x}"
        hooks = HookDispatcher(
            store, workers, files, jigs, name, HookPace(tries=4, back_off=0.05, lease=lease, tick=0.5)
        )
        annealer = Annealer(store, jigs, Claimant(name, lease=lease, file_kinds=kinds_that_run_files()), Pace(tick=0.5))
        tasks = [asyncio.create_task(annealer.run()), asyncio.create_task(hooks.run())]
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)
        annealer.stop()
        hooks.stop()
        await asyncio.gather(*tasks)
        await workers.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
