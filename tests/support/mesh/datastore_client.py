"""A client of the datastore, to be run on one server of a fleet: reads, writes and swaps, and records each operation.

`python -m tests.support.mesh.datastore_client FOLDER HISTORY ENDPOINT...` uses the identity in FOLDER until SIGTERM.
One line of JSON an operation goes to HISTORY when it ends; `end` is null where the outcome is not known.
"""

import asyncio
import json
import random
import signal
import sys
import time
from collections.abc import Awaitable
from pathlib import Path

from tests.support.mesh.linearizable import Kind

from rackwright.mesh.datastore.etcd_client import Etcd
from rackwright.mesh.errors import NoDatastore
from rackwright.mesh.identity.server_identity import IdentityFiles
from rackwright.mesh.transport.tls import Contexts

WORKERS = 3
PAUSE_SECONDS = 0.04
DEADLINE_SECONDS = 3.0


class Worker:
    def __init__(self, etcd: Etcd, history: Path, number: int) -> None:
        self.etcd, self.history = etcd, history
        self.name = f"{history.stem}-{number}"
        # Clients of one test share their keys, and no other test's.
        self.keys = [f"/test/{history.parent.name}/{letter}" for letter in "ab"]
        self.chance = random.Random(self.name)
        self.count = 0

    async def run(self, ending: asyncio.Event) -> None:
        with self.history.open("a", buffering=1) as file:
            while not ending.is_set():
                operation = await self.operation()
                if operation is not None:
                    file.write(json.dumps(operation) + "\n")
                await asyncio.sleep(PAUSE_SECONDS)

    async def operation(self) -> dict[str, object] | None:
        """One operation, as it is recorded; None if there is nothing to tell."""
        self.count += 1
        key, kind = self.chance.choice(self.keys), self.chance.choice(list(Kind))
        value = f"{self.name}-{self.count}"
        if kind is Kind.READ:
            return await self.read(key)
        if kind is Kind.WRITE:
            began = time.monotonic()
            done = await self.known(self.etcd.put(key, value.encode(), deadline=DEADLINE_SECONDS))
            return self.told(key, kind, value, began, done is not Unknown)
        try:
            before = await self.etcd.get(key, DEADLINE_SECONDS)
        except NoDatastore:
            return None
        began = time.monotonic()
        done = await self.known(self.etcd.replace(key, value.encode(), before, deadline=DEADLINE_SECONDS))
        told = self.told(key, kind, value, began, done is not Unknown)
        return {**told, "expected": before.value.decode() if before else None, "swapped": done is True}

    async def read(self, key: str) -> dict[str, object] | None:
        began = time.monotonic()
        try:
            item = await self.etcd.get(key, DEADLINE_SECONDS)
        except NoDatastore:
            return None
        return self.told(key, Kind.READ, item.value.decode() if item else None, began, True)

    async def known(self, work: Awaitable[object]) -> object:
        try:
            return await work
        except NoDatastore:
            return Unknown

    @staticmethod
    def told(key: str, kind: Kind, value: str | None, began: float, known: bool) -> dict[str, object]:
        end = time.monotonic() if known else None
        return {"key": key, "kind": kind.value, "value": value, "start": began, "end": end}


class Unknown:
    """The outcome of an operation that was not answered."""


async def main(folder: Path, history: Path, endpoints: list[str]) -> None:
    etcd = Etcd(lambda: endpoints, Contexts(IdentityFiles(folder)).client)
    ending = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
    await asyncio.gather(*(Worker(etcd, history, number).run(ending) for number in range(WORKERS)))
    await etcd.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
