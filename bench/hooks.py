"""How late the event loop of a server is while hooks spin, against how late it is while as many other programs do: the
processes that hooks run in must cost the server no more than any other process on the machine."""

import asyncio
import sys
import tempfile
from collections.abc import Awaitable
from pathlib import Path

from rackwright.annealer.role_workers import CallFailed, RoleCall, RoleWorkers
from rackwright.domain.catalogue import JsonObject
from report import at_most, emit

HOOKS = 4
SECONDS = 5.0
STEP = 0.005
CODE = """
from rackwright.domain.hooks import *

class Spinning(RoleHooks):
    role = "spinning"
    def on_node_create(self, node):
        while True:
            if node.name < "s2":
                print("spinning", "x" * 1000)
"""


async def lateness(work: Awaitable[object]) -> list[float]:
    """How late the loop came back from each of many short sleeps while the work was under way, in order of size."""
    loop, late = asyncio.get_running_loop(), list[float]()

    async def probe() -> None:
        while True:
            due = loop.time() + STEP
            await asyncio.sleep(STEP)
            late.append(loop.time() - due)

    watching = asyncio.create_task(probe())
    await work
    watching.cancel()
    return sorted(late)


async def spin_hooks(workers: RoleWorkers, folder: Path) -> None:
    """Half of them print as fast as they can."""
    views: list[JsonObject] = [{"id": number, "name": f"s{number}"} for number in range(HOOKS)]
    calls = [RoleCall(str(folder), 1, "spinning", "on_node_create", view) for view in views]
    ended = await asyncio.gather(*(workers.call(call, SECONDS) for call in calls), return_exceptions=True)
    assert all(isinstance(end, CallFailed) and "not finished within" in str(end) for end in ended), ended


async def spin_programs() -> None:
    spinning = [await asyncio.create_subprocess_exec(sys.executable, "-c", "while True: pass") for _ in range(HOOKS)]
    await asyncio.sleep(SECONDS)
    for program in spinning:
        program.kill()
        await program.wait()


async def measure() -> None:
    workers = RoleWorkers()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "roles.py").write_text(CODE)
        hooks = await lateness(spin_hooks(workers, Path(folder)))
        await workers.close()
    programs = await lateness(spin_programs())
    p99 = [late[int(len(late) * 0.99)] for late in (hooks, programs)]
    emit(
        "hooks",
        {"spinning": HOOKS, "p99_ms_with_hooks": p99[0] * 1000, "p99_ms_with_programs": p99[1] * 1000},
        [at_most("p99 of the loop's lateness with hooks, times that with programs", p99[0] / p99[1], 3)],
    )


if __name__ == "__main__":
    asyncio.run(measure())
