"""A thousand simulated machines switched on at once: seconds until all are discovered, and until all are installed and
everything on them is ACTIVE, and the most memory that the server and its PostgreSQL took on the way.

The server is a process of its own, as a person starts it; the machines are in this one and speak nothing but HTTP. A
tenth as many go first, on a server of their own: what a machine costs must not grow with how many there are.

    .venv/bin/python bench/thousand.py [--machines 1000] [--patience SECONDS]
"""

import argparse
import asyncio
import contextlib
import math
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rackwright.client.access import Access, access_of_home
from rackwright.client.awaited import AsyncApiClient
from rackwright.lab.lab import running_lab
from rackwright.lab.operator import Operator, patient
from report import at_most, emit
from waiting import until

RACKWRIGHT = Path(sys.executable).with_name("rackwright")
STARTING_SECONDS = 300.0
FLAT = 1.5
"""What a machine of many may cost, in seconds of one among a tenth as many."""


class Progress:
    """Lines for whoever waits, not more than one in two seconds."""

    def __init__(self) -> None:
        self._began = self._last = time.monotonic()

    def __call__(self, text: str, *, now: bool = False) -> None:
        if now or time.monotonic() - self._last > 2:
            self._last = time.monotonic()
            print(f"{self._last - self._began:7.1f} s  {text}", file=sys.stderr, flush=True)


# --- memory


def _descendants(pid: int) -> list[int]:
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{one}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
    return found


def _megabytes(pids: set[int]) -> float:
    """What processes have in memory, each shared page counted once among those who share it."""
    total = 0
    for one in pids:
        with contextlib.suppress(OSError):
            found = re.search(r"^Pss: +(\d+) kB", Path(f"/proc/{one}/smaps_rollup").read_text(), re.MULTILINE)
            total += int(found[1]) if found else 0
    return total / 1024


@dataclass
class Memory:
    """The most that was seen, in megabytes."""

    server: int
    database: int
    peak: dict[str, float] = field(default_factory=dict)

    def look(self) -> None:
        database = set(_descendants(self.database))
        server = set(_descendants(self.server)) - database
        for name, pids in (("server", server), ("postgresql", database)):
            self.peak[name] = max(self.peak.get(name, 0.0), _megabytes(pids))

    async def watch(self) -> None:
        while True:
            await asyncio.to_thread(self.look)
            await asyncio.sleep(2)


# --- the server


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def _process(home: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    with (home / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [RACKWRIGHT, "server", "--lab", "--home", home, "--port", str(port)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield server
    finally:
        server.terminate()
        server.wait()


@contextlib.asynccontextmanager
async def _server(home: Path) -> AsyncIterator[tuple[str, Memory]]:
    """A server with a database of its own: its address, and who takes memory."""
    port = _free_port()
    address = f"http://127.0.0.1:{port}"
    with _process(home, port) as process:
        async with AsyncApiClient(Access(address)) as api:

            async def ready() -> bool:
                if process.poll() is not None:
                    raise SystemExit(f"the server ended: {(home / 'server.log').read_text()[-2000:]}")
                return await api.is_ready()

            await until(ready, "the server is ready", STARTING_SECONDS, every=0.2)
        yield address, Memory(process.pid, _postmaster(home))


def _postmaster(home: Path) -> int:
    [file] = home.rglob("postmaster.pid")
    return int(file.read_text().split()[0])


# --- a trial


async def _trial(home: Path, machines: int, patience: float) -> dict[str, float]:
    tell = Progress()
    async with _server(home) as (address, memory), running_lab([address], machines) as lab:
        async with AsyncApiClient(access_of_home(address, home), timeout=120, retry=patient(tell)) as api:
            watching = asyncio.create_task(memory.watch())
            try:
                async with asyncio.timeout(patience):
                    seconds = await _converge(Operator(api, tell), lab.power_on, machines, tell)
            finally:
                watching.cancel()
        if lab.overlaps():
            raise SystemExit(f"two runs at once on one machine: {lab.overlaps()}")
    peak = {f"{name}_megabytes": round(value) for name, value in memory.peak.items()}
    return {**{name: round(value, 1) for name, value in seconds.items()}, **peak}


async def _converge(person: Operator, power_on: Any, machines: int, tell: Progress) -> dict[str, float]:
    """Seconds since power-on until each step was done."""
    began = time.monotonic()
    seconds: dict[str, float] = {}

    def done(what: str) -> None:
        seconds[what] = time.monotonic() - began
        tell(f"{machines} machines: {what}", now=True)

    power_on()
    nodes = await person.wait_for_machines(machines)
    done("discovered")
    await person.accept(nodes)
    done("accepted")
    plan = await person.bind_workload(nodes)
    done("planned")
    await person.commit(plan)
    done("committed")

    async def all_active() -> bool:
        states = await person.count_states()
        tell(", ".join(f"{count} {state}" for state, count in states.items()))
        return states.keys() == {"active"}

    await until(all_active, "everything is ACTIVE", math.inf, every=1)
    done("active")
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, default=1000)
    parser.add_argument("--patience", type=float, default=3600.0, help="seconds for each trial")
    given = parser.parse_args()
    figures: dict[str, Any] = {"load": os.getloadavg()[0]}
    few = max(given.machines // 10, 1)
    for machines in (few, given.machines):
        with tempfile.TemporaryDirectory(prefix="rackwright-bench-") as home:
            figures[f"{machines}_machines"] = asyncio.run(_trial(Path(home), machines, given.patience))
    costs = {machines: figures[f"{machines}_machines"]["active"] / machines for machines in (few, given.machines)}
    goal = at_most(f"seconds a machine: {given.machines} / {few}", costs[given.machines] / costs[few], FLAT)
    emit("thousand", figures, [goal])


if __name__ == "__main__":
    main()
