"""How long the datastore is away when its leader's server is killed, and how fast runs across servers are.

Real agents, real etcd, real TLS, a network namespace for each server (needs root). Seconds to the next write are those
of a client that writes all the time; full strength is when etcd has all its voters again, less the grace period.
Run: `.venv/bin/python bench/takeover.py --rounds 5`.
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rackwright.lab.mesh_fleet import Fleet
from rackwright.lab.namespaces import Network, sweep
from rackwright.mesh.datastore.datastore_settings import DatastoreConfig
from rackwright.mesh.datastore.etcd_client import Etcd
from rackwright.mesh.errors import MeshError, NoDatastore
from rackwright.mesh.identity.server_identity import IdentityFiles
from rackwright.mesh.transport.tls import Contexts
from report import Goal, at_most, emit

GRACE = 5.0
WRITE_TARGET, STRENGTH_TARGET, RATIO_TARGET = 2.0, 10.0, 3.0
PATIENCE = 120.0
"""Seconds after which a wait is given up."""
MEGABYTE = 1_000_000
STATES = 1000
RUNS = 5


@contextlib.contextmanager
def cluster(size: int, count: int) -> Iterator[Fleet]:
    servers = [f"s{number}" for number in range(1, size + 1)]
    with tempfile.TemporaryDirectory(prefix="takeover-") as folder, contextlib.ExitStack() as stack:
        sweep()
        network = Network(servers)
        stack.callback(network.down)
        network.up()
        config = DatastoreConfig(count=count, grace=GRACE)
        fleet = Fleet(Path(folder), servers, network, die_with_me=True, datastore=config, patience=PATIENCE)
        stack.callback(fleet.end)
        for server in servers:
            fleet.home(server).mkdir()
        fleet.create_cluster()
        fleet.start_all()
        fleet.wait_agree(dict.fromkeys(servers, "alive"))
        fleet.wait_until(lambda: strength(fleet, servers[-1]) == count, "the datastore does not grow", every=0.2)
        yield fleet


def strength(fleet: Fleet, asked: str) -> int:
    try:
        told = fleet.ask(asked, "datastore")
    except MeshError:
        return 0
    well = [member for member in told["members"] if member["healthy"] and not member["learner"]]
    return len(well) if len(well) == len(told["members"]) else 0


def part(fleet: Fleet, server: str) -> str:
    return str(fleet.ask(server, "datastore")["here"])


def urls(fleet: Fleet) -> list[str]:
    assert fleet.network is not None
    return [f"https://{fleet.network.address(server)}:2379" for server in fleet.servers]


def inside(fleet: Fleet, server: str, *arguments: str) -> "subprocess.Popen[bytes]":
    """This file, run on a server of the fleet."""
    assert fleet.network is not None
    command = [sys.executable, __file__, *arguments, str(fleet.home(server)), *urls(fleet)]
    return subprocess.Popen(fleet.network.command(server, ["setpriv", "--pdeathsig", "KILL", *command]))


def measure(fleet: Fleet, count: int, rounds: int) -> dict[str, list[float]]:
    """Kill the leader's server again and again; each comes back as a plain one, and is eligible the next time."""
    found: dict[str, list[float]] = {"write": [], "strength": []}
    for number in range(rounds):
        write_seconds, strength_seconds = one_round(fleet, count, fleet.folder / f"writes-{number}")
        found["write"].append(write_seconds)
        found["strength"].append(strength_seconds)
    return found


def one_round(fleet: Fleet, count: int, record: Path) -> tuple[float, float]:
    told = fleet.ask(fleet.servers[0], "datastore")
    victim = next(member["server"] for member in told["members"] if member["leader"])
    asked = next(server for server in fleet.servers if server != victim)
    writer = inside(fleet, asked, "--write", str(record))
    try:
        fleet.wait_until(lambda: lines(record) > 20, "nothing is written")
        killed = time.monotonic()
        fleet.kill(victim)
        first = next_write(fleet, record, killed)
        fleet.wait_until(lambda: strength(fleet, asked) == count, "it does not heal", every=0.1)
        healed = time.monotonic()
    finally:
        writer.terminate()
        writer.wait(PATIENCE)
    fleet.start(victim)
    fleet.wait_agree(dict.fromkeys(fleet.servers, "alive"))
    fleet.wait_until(lambda: part(fleet, victim) == "none", "it is no plain server", every=0.2)
    return first - killed, healed - killed - GRACE


def lines(record: Path) -> int:
    return len(record.read_text().splitlines()) if record.exists() else 0


def next_write(fleet: Fleet, record: Path, killed: float) -> float:
    """When the first write that was begun after the kill was acknowledged."""
    found: list[float] = []

    def there() -> bool:
        pairs = [line.split() for line in record.read_text().splitlines()]
        found[:] = [float(end) for begin, end in (pair for pair in pairs if len(pair) == 2) if float(begin) >= killed]
        return bool(found)

    fleet.wait_until(there, "no write was acknowledged after the kill")
    return found[0]


async def write(record: Path, folder: Path, endpoints: list[str]) -> None:
    etcd = Etcd(lambda: endpoints, Contexts(IdentityFiles(folder)).client)
    with record.open("a", buffering=1) as file:
        for number in range(10_000_000):
            begin = time.monotonic()
            with contextlib.suppress(NoDatastore):
                await etcd.put("/bench/write", str(number).encode())
                file.write(f"{begin} {time.monotonic()}\n")
            await asyncio.sleep(0.02)


async def fill(megabytes: int, folder: Path, endpoints: list[str]) -> None:
    etcd = Etcd(lambda: endpoints, Contexts(IdentityFiles(folder)).client)
    for number in range(megabytes):
        await etcd.put(f"/bench/fill/{number:04d}", os.urandom(MEGABYTE), deadline=30.0)
    await etcd.close()


def takeover(count: int, megabytes: int, rounds: int) -> dict[str, Any]:
    with cluster(count + 2, count) as fleet:
        if megabytes:
            filler = inside(fleet, fleet.servers[-1], "--fill", str(megabytes))
            if filler.wait(600):
                raise SystemExit("the datastore could not be filled")
        found = measure(fleet, count, rounds)
    return {
        "rounds": rounds,
        **{f"{name}_median": round(statistics.median(values), 3) for name, values in found.items()},
        **{f"{name}_worst": round(max(values), 3) for name, values in found.items()},
    }


def runs() -> dict[str, Any]:
    """A thousand states that do nothing, on five servers at once, and the same on one machine alone.

    Beside the seconds that passed stand those that processors were busy: five agents and three etcds share with the
    command what the run on one machine has to itself, so the same work five times over is the least it can take.
    """
    with cluster(5, 3) as fleet:
        tree = fleet.folder / "tree"
        tree.mkdir()
        (tree / "init.sls").write_text("".join(f"s{number}:\n  test.nop: []\n" for number in range(STATES)))
        key = fleet.folder / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        fleet.rackwright("s1", "mesh", "trust", "add", "bench", f"{key}.pub")
        local, mesh, events = [], [], 0
        busy: dict[str, list[float]] = {"local": [], "command": [], "agents": [], "engines": [], "etcd": []}
        for _ in range(RUNS):
            fleet.wait_until(lambda: at_rest(fleet), "the engines do not come to rest", every=0.1)
            before, began = own_busy(), time.monotonic()
            command = [sys.executable, "-m", "rackwright", "state", "apply", str(tree), "--json"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            local.append(time.monotonic() - began)
            busy["local"].append(own_busy() - before)
            before, fleets, began = own_busy(), fleet_busy(fleet), time.monotonic()
            told = fleet.rackwright("s5", "mesh", "run", str(tree), "--on", "s*", "--key", str(key), "--json")
            mesh.append(time.monotonic() - began)
            busy["command"].append(own_busy() - before)
            for part, seconds in fleet_busy(fleet).items():
                busy[part].append(seconds - fleets[part])
            events = sum('"kind": "state"' in line for line in told.splitlines())
    wall = statistics.median(mesh)
    return {
        "states": STATES,
        "servers": 5,
        "local_seconds": round(statistics.median(local), 3),
        "mesh_seconds": round(wall, 3),
        "events": events,
        "events_per_second": round(events / wall, 1),
        "ratio": round(wall / statistics.median(local), 2),
        "ratio_of_the_same_work": round(wall / (5 * statistics.median(local) / (os.cpu_count() or 1)), 2),
        "busy_seconds": {part: round(statistics.median(values), 3) for part, values in busy.items()},
    }


def own_busy() -> float:
    """Seconds that processors were busy with what was started here and has ended."""
    times = os.times()
    return times.children_user + times.children_system


def fleet_busy(fleet: Fleet) -> dict[str, float]:
    """The same for what the servers run; engines count when they have ended, with what they loaded beforehand."""
    found = dict.fromkeys(("agents", "engines", "etcd"), 0.0)
    for server in fleet.servers:
        agent, *children = fleet.processes(server)
        own, ended = spent(agent)
        found["agents"] += own
        found["engines"] += ended
        found["etcd"] += sum(spent(child)[0] for child in children if "etcd" in words_of(child))
    return found


def at_rest(fleet: Fleet) -> bool:
    """Whether every agent has an engine at hand that has nothing left to load."""
    engines = [
        [child for child in fleet.processes(server)[1:] if "rackwright.mesh.runs.engine_process" in words_of(child)]
        for server in fleet.servers
    ]
    before = [spent(engine) for each in engines for engine in each]
    time.sleep(0.3)
    return all(engines) and before == [spent(engine) for each in engines for engine in each]


def spent(process: int) -> tuple[float, float]:
    """Seconds that a process was busy, and that its children were that have ended; none for one that is gone."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        tick = os.sysconf("SC_CLK_TCK")
        return (int(fields[11]) + int(fields[12])) / tick, (int(fields[13]) + int(fields[14])) / tick
    return 0.0, 0.0


def words_of(process: int) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace").split("\0")
    return []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", default="3,5")
    parser.add_argument("--megabytes", default="0,100")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--fill", type=int, help=argparse.SUPPRESS)
    parser.add_argument("rest", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write or options.fill:
        folder, endpoints = Path(options.rest[0]), options.rest[1:]
        work = write(options.write, folder, endpoints) if options.write else fill(options.fill, folder, endpoints)
        asyncio.run(work)
        return
    figures: dict[str, Any] = {"grace_seconds": GRACE, "load": os.getloadavg()[0]}
    goals: list[Goal] = []
    for count in (int(size) for size in options.sizes.split(",") if size):
        for megabytes in (int(size) for size in options.megabytes.split(",")):
            name = f"{count} voters, {megabytes} MB"
            figures[name] = takeover(count, megabytes, options.rounds)
            print(json.dumps({name: figures[name]}), file=sys.stderr)
            goals.append(at_most(f"{name}: seconds to the next write", figures[name]["write_median"], WRITE_TARGET))
            goals.append(
                at_most(f"{name}: seconds to full strength", figures[name]["strength_median"], STRENGTH_TARGET)
            )
    figures["runs"] = runs()
    goals.append(at_most("1000 states on five servers, times one local run", figures["runs"]["ratio"], RATIO_TARGET))
    emit("takeover", figures, goals)


if __name__ == "__main__":
    main()
