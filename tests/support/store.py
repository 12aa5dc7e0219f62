"""The datastore of a fleet in tests: its leader, its strength, ways to hurt it, and clients that record their work."""

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.linearizable import Kind, Operation

from rackwright.mesh.errors import MeshError
from rackwright.mesh.fleet import Fleet, wait_until
from rackwright.mesh.namespaces import Network


def wires(fleet: Fleet) -> Network:
    assert fleet.network is not None
    return fleet.network


def datastore(fleet: Fleet, server: str) -> dict[str, Any]:
    return fleet.ask(server, "datastore")


def voters(fleet: Fleet, asked: str) -> set[str]:
    """The healthy voters, as this server sees them."""
    try:
        told = datastore(fleet, asked)
    except MeshError:
        return set()
    return {member["server"] for member in told["members"] if member["healthy"] and not member["learner"]}


def complete(fleet: Fleet, asked: str, without: Sequence[str] = ()) -> bool:
    """Exactly three members, all of them healthy voters, and none of `without`."""
    try:
        told = datastore(fleet, asked)
    except MeshError:
        return False
    held = {member["server"] for member in told["members"] if member["healthy"] and not member["learner"]}
    return len(told["members"]) == 3 == len(held) and told["quorum"] and not held & set(without)


def wait_complete(fleet: Fleet, asked: str, without: Sequence[str] = (), seconds: float = 120.0) -> None:
    try:
        wait_until(lambda: complete(fleet, asked, without), seconds, "", every=0.2)
    except MeshError as problem:
        told = json.dumps(datastore(fleet, asked))
        raise AssertionError(f"after {seconds:g} s the datastore without {without} is {told}") from problem


def leader(fleet: Fleet, asked: str) -> str:
    found: list[str] = []

    def known() -> bool:
        found[:] = [member["server"] for member in datastore(fleet, asked)["members"] if member["leader"]]
        return len(found) == 1

    wait_until(known, 30, "etcd has no leader")
    return found[0]


def freeze(fleet: Fleet, server: str) -> list[int]:
    """Stop everything on a server, as a suspended virtual machine would. `thaw` takes what it returns."""
    frozen = fleet.processes(server)
    for process in frozen:
        with suppress(ProcessLookupError):  # some live for a moment only, such as checks
            os.kill(process, signal.SIGSTOP)
    return frozen


def thaw(frozen: Sequence[int]) -> None:
    for process in reversed(frozen):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)


def block_peers(fleet: Fleet, server: str) -> None:
    """etcd's peers do not get through to this server any more; everything else does."""
    rules = "add table inet block\nadd chain inet block input { type filter hook input priority 0; }\n"
    rules += "add chain inet block output { type filter hook output priority 0; }\n"
    rules += "add rule inet block input tcp dport 2380 drop\nadd rule inet block output tcp dport 2380 drop\n"
    _nft(fleet, server, rules)


def unblock_peers(fleet: Fleet, server: str) -> None:
    _nft(fleet, server, "add table inet block\ndelete table inet block\n")


def _nft(fleet: Fleet, server: str, rules: str) -> None:
    command = wires(fleet).command(server, ["nft", "-f", "-"])
    subprocess.run(command, input=rules, text=True, check=True, timeout=30)


class Client:
    """A process that uses the datastore from one server and records what it did."""

    def __init__(self, fleet: Fleet, server: str, history: Path) -> None:
        self.history = history
        urls = [f"https://{wires(fleet).address(name)}:2379" for name in fleet.servers]
        program = [sys.executable, "-m", "tests.support.store_client", str(fleet.home(server)), str(history), *urls]
        command = wires(fleet).command(server, ["setpriv", "--pdeathsig", "KILL", *program])
        self.process = subprocess.Popen(command, cwd=Path(__file__).parents[2])

    def operations(self) -> list[Operation]:
        if not self.history.exists():
            return []
        return [_operation(json.loads(line)) for line in self.history.read_text().splitlines()]

    def writes(self, since: float = 0.0) -> int:
        """How many writes that began after `since` were acknowledged."""
        return sum(
            operation.known and operation.kind is Kind.WRITE and operation.start > since
            for operation in self.operations()
        )

    def wait_writes(self, count: int, since: float = 0.0, seconds: float = 60.0) -> None:
        wait_until(lambda: self.writes(since) >= count, seconds, f"no {count} writes were acknowledged", every=0.1)

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def client(fleet: Fleet, server: str, history: Path) -> Iterator[Client]:
    made = Client(fleet, server, history)
    try:
        yield made
    finally:
        made.end()


def _operation(line: dict[str, Any]) -> Operation:
    return Operation(
        line["key"],
        Kind(line["kind"]),
        line["value"],
        line["start"],
        math.inf if line["end"] is None else line["end"],
        line.get("expected"),
        line.get("swapped", True),
    )
