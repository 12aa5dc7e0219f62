"""How fast real agents notice a dead process, a silent server and failing software, and whether they ever declare a
living server dead.

Real processes and real TLS. A killed process is killed on loopback; a silent server loses its cable, so its servers
have network namespaces of their own, which needs root. Times are from the act to each survivor's "dead", read from
their logs. Each round begins with a cluster at rest: all agree, and none doubts itself after the round before.
Run: `.venv/bin/python bench/detect.py --rounds 9 --minutes 10`.
"""

import argparse
import contextlib
import json
import multiprocessing
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from rackwright.lab.mesh_fleet import Fleet
from rackwright.lab.namespaces import Network, sweep
from report import Goal, at_most, emit

KILLED_TARGET = 1.0
SILENT_TARGET = 5.5
CHECK_SECONDS = 3.0
PATIENCE = 120.0
"""Seconds after which a cluster is given up."""
MEMBERLIST = {3: 5.8, 5: 5.7, 10: 5.6}
"""hashicorp/memberlist's medians to first detection on this kind of machine, for comparison."""


@contextlib.contextmanager
def cluster(size: int, wires: bool) -> Iterator[Fleet]:
    servers = [f"s{number}" for number in range(1, size + 1)]
    with tempfile.TemporaryDirectory(prefix="detect-") as folder, contextlib.ExitStack() as stack:
        network = None
        if wires:
            sweep()
            network = Network(servers)
            stack.callback(network.down)
            network.up()
        fleet = Fleet(Path(folder), servers, network, die_with_me=True, patience=PATIENCE)
        stack.callback(fleet.end)
        for server in servers:
            fleet.home(server).mkdir()
        fleet.create_cluster()
        fleet.start_all()
        fleet.wait_agree(dict.fromkeys(servers, "alive"))
        yield fleet


def measure(
    fleet: Fleet, rounds: int, hurt: Callable[[str], None], mend: Callable[[str], None]
) -> tuple[list[float], list[float]]:
    """Seconds to the first survivor's and to the last survivor's "dead", a round each."""
    first, last = [], []
    for _ in range(rounds):
        # At any moment of the probe round, not always right after a join.
        time.sleep(random.uniform(1.0, 1.0 + len(fleet.servers)))
        victim = random.choice(fleet.servers)
        survivors = [server for server in fleet.servers if server != victim]
        began = time.time()
        hurt(victim)
        wanted = {**dict.fromkeys(fleet.servers, "alive"), victim: "dead"}
        fleet.wait_agree(wanted, survivors)
        heard = [logged(fleet, server, "member_dead", victim, began) for server in survivors]
        first.append(min(heard) - began)
        last.append(max(heard) - began)
        mend(victim)
        fleet.wait_agree(dict.fromkeys(fleet.servers, "alive"))
        fleet.wait_until(lambda: at_rest(fleet), "the cluster does not come to rest")
    return first, last


def at_rest(fleet: Fleet) -> bool:
    return all(fleet.ask(server, "status")["awareness"] == 0 for server in fleet.servers)


def logged(fleet: Fleet, server: str, event: str, member: str, since: float) -> float:
    """When a server first said so of a member in its log."""
    times = [
        datetime.fromisoformat(line["time"]).timestamp()
        for line in fleet.log(server)
        if line["event"] == event and line["member"] == member
    ]
    return min(at for at in times if at >= since - 0.001)


def killed(size: int, rounds: int) -> dict[str, Any]:
    with cluster(size, wires=False) as fleet:
        first, last = measure(fleet, rounds, fleet.kill, lambda server: void(fleet.start(server)))
        return figures(first, last)


def silent(size: int, rounds: int) -> dict[str, Any]:
    with cluster(size, wires=True) as fleet:
        assert fleet.network is not None
        network = fleet.network

        def mend(server: str) -> None:
            # A new process: one that was cut off doubts itself for half a minute, and the next round would wait for it.
            fleet.kill(server)
            network.mend(server)
            fleet.start(server)

        first, last = measure(fleet, rounds, network.cut, mend)
        return figures(first, last)


def software(size: int, rounds: int) -> dict[str, Any]:
    """Seconds until every server knows that the web server on one of them was killed, or hangs."""
    with cluster(size, wires=False) as fleet:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = str(probe.getsockname()[1])
        url = f"http://127.0.0.1:{port}/"
        check = {"name": "web", "kind": "http", "url": url, "interval": CHECK_SECONDS, "timeout": CHECK_SECONDS / 4}
        fleet.configure("s1", checks=(check,))
        fleet.stop("s1")
        fleet.start("s1")
        found: dict[str, list[float]] = {"killed": [], "hanging": []}
        for _ in range(rounds):
            for name, number in (("killed", signal.SIGKILL), ("hanging", signal.SIGSTOP)):
                found[name].append(known_after(fleet, port, number))
    return {
        "interval": CHECK_SECONDS,
        "rounds": rounds,
        **{f"{name}_worst": round(max(values), 3) for name, values in found.items()},
    }


def known_after(fleet: Fleet, port: str, number: signal.Signals) -> float:
    """Seconds from the signal to a web server until the last server says in its log that its check fails."""
    command = [sys.executable, "-m", "http.server", port, "--bind", "127.0.0.1"]
    service = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        fleet.wait_until(lambda: all_hold(fleet, "passing"), "the web server is not known to be well")
        time.sleep(random.uniform(0.0, CHECK_SECONDS))  # at any moment between two checks
        began = time.time()
        service.send_signal(number)
        fleet.wait_until(lambda: all_hold(fleet, "failing"), "the web server is not known to fail")
    finally:
        service.kill()
        service.wait()
    return max(logged(fleet, server, "check_failing", "s1", began) for server in fleet.servers) - began


def all_hold(fleet: Fleet, status: str) -> bool:
    """Whether all servers say so of the web server on the first."""
    members = [fleet.ask(server, "members")["members"] for server in fleet.servers]
    return all(member["checks"].get("web") == status for told in members for member in told if member["name"] == "s1")


def figures(first: list[float], last: list[float]) -> dict[str, Any]:
    return {
        "rounds": len(first),
        "first_median": round(statistics.median(first), 3),
        "first_worst": round(max(first), 3),
        "all_median": round(statistics.median(last), 3),
        "all_worst": round(max(last), 3),
    }


def false_deaths(size: int, minutes: float) -> dict[str, Any]:
    """Deaths declared while nobody died and every core is kept busy by others."""
    load = [multiprocessing.Process(target=burn, daemon=True) for _ in range(multiprocessing.cpu_count())]
    with cluster(size, wires=False) as fleet:
        for process in load:
            process.start()
        try:
            time.sleep(minutes * 60)
        finally:
            for process in load:
                process.kill()
        counted = {name: count(fleet, name) for name in ("deaths", "suspicions", "refutations", "pauses")}
        return {"minutes": minutes, "cores_loaded": len(load), **counted}


def count(fleet: Fleet, name: str) -> int:
    return sum(int(fleet.metric(server, f"rackwright_mesh_swim_{name}_total")) for server in fleet.servers)


def burn() -> None:
    while True:
        sum(range(10_000))


def void(_: object) -> None:
    """For a call whose result nobody wants."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="3,5,10")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    random.seed(options.seed)
    sizes = [int(size) for size in options.sizes.split(",")]
    found: dict[str, Any] = {"memberlist_first_median": MEMBERLIST}
    goals: list[Goal] = []
    for size in sizes:
        for name, run, target in (("killed", killed, KILLED_TARGET), ("silent", silent, SILENT_TARGET)):
            found[f"{name}_{size}"] = run(size, options.rounds)
            print(json.dumps({f"{name}_{size}": found[f"{name}_{size}"]}), file=sys.stderr)
            goals.append(
                at_most(f"{name}, {size} servers: median to first", found[f"{name}_{size}"]["first_median"], target)
            )
    found["software"] = software(5, options.rounds)
    for name in ("killed", "hanging"):
        worst = found["software"][f"{name}_worst"]
        goals.append(at_most(f"{name} software: worst to all, 5 servers", worst, 2 * CHECK_SECONDS))
    if options.minutes:
        found["loaded"] = false_deaths(5, options.minutes)
        goals.append(at_most("false deaths with every core loaded", found["loaded"]["deaths"], 0))
    emit("detect", found, goals)


if __name__ == "__main__":
    main()
