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

from tests.support.mesh.linearizable import Kind, Operation
from tests.support.waiting import PATIENCE, wait_until

from rackwright.lab.mesh_fleet import Fleet
from rackwright.lab.namespaces import Network
from rackwright.mesh.datastore.datastore_settings import DatastoreConfig
from rackwright.mesh.errors import MeshError

UNHURRIED_STORE = DatastoreConfig(grace=40.0, learner_seconds=PATIENCE)
"""A datastore in which nobody is replaced because the machine of the test is busy. What must be replaced is replaced
soon within `takeover_soon`."""


def wires(fleet: Fleet) -> Network:
    assert fleet.network is not None
    return fleet.network


def datastore(fleet: Fleet, server: str) -> dict[str, Any]:
    return fleet.ask(server, "datastore")


def complete(fleet: Fleet, asked: str, without: Sequence[str] = ()) -> set[str]:
    """The servers of exactly three members, all of them healthy voters and none of `without`; nobody otherwise."""
    try:
        told = datastore(fleet, asked)
    except MeshError:
        return set()
    held = {member["server"] for member in told["members"] if member["healthy"] and not member["learner"]}
    is_complete = len(told["members"]) == 3 == len(held) and told["quorum"] and not held & set(without)
    return held if is_complete else set()


def wait_complete(fleet: Fleet, asked: str, without: Sequence[str] = ()) -> set[str]:
    """The three voters, once they are three."""

    def missing() -> str:
        return f"the datastore is complete without {list(without)}; it is {json.dumps(datastore(fleet, asked))}"

    return wait_until(lambda: complete(fleet, asked, without), missing, every=0.2)


@contextmanager
def takeover_soon(fleet: Fleet, asked: str) -> Iterator[None]:
    """Within the block a datastore server that is gone is replaced after a second.

    A busy machine may make one that lives look gone: it is then replaced too, and comes back as one that may take over.
    Kill nothing in the block, so that this never leaves the datastore without a quorum.
    """
    configure_store(fleet, asked, "datastore.grace=1")
    yield
    configure_store(fleet, asked, "datastore.grace=")


def configure_store(fleet: Fleet, asked: str, *settings: str) -> None:
    """Set something for the datastores of all servers, as soon as the datastore answers."""

    def is_set() -> bool:
        try:
            fleet.rackwright(asked, "mesh", "config", *settings)
        except MeshError:
            return False  # an election goes on
        return True

    wait_until(is_set, f"the datastore takes {' '.join(settings)}", every=1.0)


def leader(fleet: Fleet, asked: str) -> str:
    def leaders() -> list[str]:
        found = [member["server"] for member in datastore(fleet, asked)["members"] if member["leader"]]
        return found if len(found) == 1 else []

    return wait_until(leaders, "etcd has a leader", every=0.2)[0]


def freeze(fleet: Fleet, server: str) -> list[int]:
    """Stop everything on a server, as a suspended virtual machine would. `thaw` takes what it returns."""
    frozen = fleet.processes(server)
    for process in frozen:
        with suppress(ProcessLookupError):  # some live for a moment only, such as checks
            os.kill(process, signal.SIGSTOP)
    wait_until(lambda: all(map(_stands_still, frozen)), f"all processes of {server} stand still")
    return frozen


def _stands_still(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "TZ"
    except OSError:
        return True


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
    subprocess.run(command, input=rules, text=True, check=True, timeout=PATIENCE)


class Client:
    """A process that uses the datastore from one server and records what it did."""

    def __init__(self, fleet: Fleet, server: str, history: Path) -> None:
        self.history = history
        urls = [f"https://{wires(fleet).address(name)}:2379" for name in fleet.servers]
        program = [
            sys.executable,
            "-m",
            "tests.support.mesh.datastore_client",
            str(fleet.home(server)),
            str(history),
            *urls,
        ]
        command = wires(fleet).command(server, ["setpriv", "--pdeathsig", "KILL", *program])
        self.process = subprocess.Popen(command, cwd=Path(__file__).parents[3])

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

    def wait_writes(self, count: int, since: float = 0.0) -> None:
        wait_until(lambda: self.writes(since) >= count, f"{count} writes were acknowledged", every=0.2)

    def tries(self, since: float) -> int:
        """How many operations that began after `since` have no known outcome."""
        return sum(not operation.known and operation.start > since for operation in self.operations())

    def end(self) -> None:
        """It ends by itself once the operations that it has begun are over."""
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        finally:
            self.process.kill()


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
