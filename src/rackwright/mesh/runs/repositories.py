"""State repositories of the cluster: when their branch moves, a run begins by itself.

What is to be run where is an operator's signed order; the datastore only keeps it. The run is signed with the key
`run-key` of the datastore server that sees the change, which an operator must have put into the list of trusted keys: a
cluster in which nobody has done so starts nothing by itself.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rackwright.mesh.bounded_json import read_object
from rackwright.mesh.datastore.datastore_settings import DatastoreConfig
from rackwright.mesh.datastore.etcd_client import Item
from rackwright.mesh.datastore.lock import Lock
from rackwright.mesh.errors import BadRequest, Fenced, MeshError, NoDatastore, Rejected
from rackwright.mesh.identity import trust
from rackwright.mesh.log import Log
from rackwright.mesh.refusals import Refusals
from rackwright.mesh.runs import run_model
from rackwright.mesh.runs.run_model import EXPIRES_SECONDS, Request
from rackwright.mesh.runs.run_store import RunStore, Signed
from rackwright.mesh.runs.run_trust import RunTrust
from rackwright.mesh.runs.standing_orders import Order, read_order
from rackwright.states.reading.sources import Repository, SourceRefused, pin_states
from rackwright.states.reading.tree import locate_tree
from rackwright.states.refusal import RunRefused

ORDERS = "/rackwright/repositories/"
SEEN = "/rackwright/repositories-seen/"
LOCK_KEY = "/rackwright/repositories-watcher"
RUN_KEY = "run-key"
EVERY_SECONDS = 2.0


def _signed(item: Item) -> Signed:
    content = read_object(item.value, item.key[:200])
    return Signed(str(content.get("request")), str(content.get("signature")))


def _commit(seen: Item | None) -> str:
    """The commit that was run last."""
    return seen.value.decode(errors="replace").partition(" ")[0] if seen else ""


@dataclass(frozen=True)
class RepositoryPorts:
    """What watching repositories uses of its agent."""

    name: str
    folder: Path
    config: DatastoreConfig
    store: RunStore
    trust: RunTrust
    is_voter: Callable[[], bool]
    """Whether this server is one of the healthy datastore servers, which take turns"""
    begin: Callable[[Signed, bytes], Awaitable[object]]
    """Begins a run with a packed tree"""
    refusals: Refusals
    log: Log


class Repositories:
    def __init__(self, ports: RepositoryPorts) -> None:
        self._ports, self.store, self.etcd, self._trust = ports, ports.store, ports.store.etcd, ports.trust
        self.lock = Lock(self.etcd, LOCK_KEY, ports.name, ports.config.lease_seconds)
        self._next: dict[str, float] = {}
        self._told: dict[str, str] = {}

    async def run(self) -> None:
        try:
            while True:
                await asyncio.sleep(EVERY_SECONDS)
                if self._ports.is_voter() and self.key.exists():
                    try:
                        await self._turn()
                    except (NoDatastore, Rejected, Fenced):
                        continue
        finally:
            await self.lock.release()

    @property
    def key(self) -> Path:
        return self._ports.folder / RUN_KEY

    async def add(self, signed: Signed) -> Order:
        order = await self._believed(signed)
        await self.etcd.put(f"{ORDERS}{order.name}", signed.dump())
        return order

    async def remove(self, name: str) -> None:
        if await self.etcd.get(f"{ORDERS}{name}") is None:
            raise BadRequest(f"there is no repository {name!r}; see: rackwright mesh repository list")
        await self.etcd.delete(f"{ORDERS}{name}")

    async def listed(self) -> list[dict[str, Any]]:
        found = []
        for item in (await self.etcd.page(ORDERS)).items:
            try:
                order = read_order(_signed(item).text)
            except MeshError as problem:
                self._ports.refusals.refuse_record(problem)
                continue
            seen = await self.etcd.get(f"{SEEN}{order.name}")
            found.append({**asdict(order), "seen": _commit(seen)})
        return found

    async def _believed(self, signed: Signed) -> Order:
        await self._trust.refresh_signers()
        await self._trust.verify(signed)
        order = read_order(signed.text)
        if order.cluster != self._trust.cluster:
            raise BadRequest("the order was signed for another cluster")
        return order

    async def _turn(self) -> None:
        if not await self.lock.hold():
            return
        for item in (await self.etcd.page(ORDERS)).items:
            name = item.key.removeprefix(ORDERS)
            if time.monotonic() < self._next.get(name, 0.0):
                continue
            try:
                order = await self._believed(_signed(item))
                self._next[name] = time.monotonic() + order.seconds
                await self._look(order)
                self._told.pop(name, None)
            except (MeshError, SourceRefused, RunRefused) as problem:
                if self._next.get(name, 0.0) <= time.monotonic():
                    self._next[name] = time.monotonic() + 60.0
                if self._told.get(name) != str(problem):
                    self._told[name] = str(problem)
                    self._ports.log.error("repository_failed", repository=name, why=str(problem))

    async def _look(self, order: Order) -> None:
        """Begin a run if the branch has moved since the last one; once a commit, whoever looks."""
        commit, packed, sls = await asyncio.to_thread(self._fetch, order)
        seen = await self.etcd.get(f"{SEEN}{order.name}")
        if _commit(seen) == commit:
            return
        now = int(time.time())
        run = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{secrets.token_hex(4)}"
        # Told before it is begun: after a crash in between, the commit is not run rather than run twice.
        await self.lock.check()
        if not await self.etcd.replace(f"{SEEN}{order.name}", f"{commit} {run}".encode(), seen):
            return
        pins = [{"url": order.url, "reference": order.branch, "commit": commit}]
        request = Request(
            run,
            order.cluster,
            now,
            now + EXPIRES_SECONDS,
            run_model.digest_of(packed),
            order.targets,
            sls,
            order.mode,
            modules=list(order.modules),
            pins=pins,
        )
        signature = await asyncio.to_thread(trust.sign, request.dump().encode(), self.key)
        await self.store.tell(self._ports.name, "repository_changed", repository=order.name, commit=commit, run=run)
        await self._ports.begin(Signed(request.dump(), signature), packed)

    def _fetch(self, order: Order) -> tuple[str, bytes, list[str] | None]:
        signers = self._trust.signers.allowed if order.signed_commits else None
        cache = self._ports.folder / "sources"
        with pin_states([Repository(order.url, signers=signers)], order.branch, cache) as held:
            tree, sls = locate_tree(held.path)
            return held.pins[0].commit, run_model.pack_tree(tree.root), sls
