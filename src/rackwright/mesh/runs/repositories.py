"""Watches the cluster's state repositories, and begins a run when the branch of a repository moves.

Which branch to run on which servers is an operator's signed order; the datastore only stores it. The run is signed with
the key `run-key` of the datastore server that sees the change. An operator must have put that key into the list of
trusted keys: a cluster in which nobody has done so begins no runs by itself.
"""

import asyncio
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
from rackwright.mesh.runs.repository_orders import RepositoryOrder, read_order
from rackwright.mesh.runs.run_request import new_request
from rackwright.mesh.runs.run_store import RunStore, SignedText
from rackwright.mesh.runs.run_trust import RunTrust
from rackwright.states.reading.sources import Repository, SourceRefused, pin_states
from rackwright.states.reading.tree import locate_tree
from rackwright.states.refusal import RunRefused

ORDERS = "/rackwright/repositories/"
SEEN = "/rackwright/repositories-seen/"
LOCK_KEY = "/rackwright/repositories-watcher"
RUN_KEY = "run-key"
EVERY_SECONDS = 2.0


def _read_signed(item: Item) -> SignedText:
    content = read_object(item.value, item.key[:200])
    return SignedText(str(content.get("request")), str(content.get("signature")))


def _read_commit(seen: Item | None) -> str:
    """Return the commit that was run last."""
    return seen.value.decode(errors="replace").partition(" ")[0] if seen else ""


@dataclass(frozen=True)
class RepositoryPorts:
    """What the repository watcher uses of its agent."""

    name: str
    folder: Path
    config: DatastoreConfig
    store: RunStore
    trust: RunTrust
    is_voter: Callable[[], bool]
    """Whether this server is one of the healthy datastore servers, which take turns"""
    begin: Callable[[SignedText, bytes], Awaitable[object]]
    """Begins a run with a packed tree"""
    refusals: Refusals
    log: Log


class RepositoryWatcher:
    """The orders of the cluster, and the part of a datastore server's agent that acts on them."""

    def __init__(self, ports: RepositoryPorts) -> None:
        self._ports, self.store, self.etcd, self._trust = ports, ports.store, ports.store.etcd, ports.trust
        self.lock = Lock(self.etcd, LOCK_KEY, ports.name, ports.config.lease_seconds)
        self._next_check: dict[str, float] = {}
        self._reported: dict[str, str] = {}

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

    async def add(self, signed: SignedText) -> RepositoryOrder:
        order = await self._verify(signed)
        await self.etcd.put(f"{ORDERS}{order.name}", signed.dump())
        return order

    async def remove(self, name: str) -> None:
        if await self.etcd.get(f"{ORDERS}{name}") is None:
            raise BadRequest(f"there is no repository {name!r}; see: rackwright mesh repository list")
        await self.etcd.delete(f"{ORDERS}{name}")

    async def list_orders(self) -> list[dict[str, Any]]:
        orders = []
        for item in (await self.etcd.page(ORDERS)).items:
            try:
                order = read_order(_read_signed(item).text)
            except MeshError as problem:
                self._ports.refusals.refuse_record(problem)
                continue
            seen = await self.etcd.get(f"{SEEN}{order.name}")
            orders.append({**asdict(order), "seen": _read_commit(seen)})
        return orders

    async def _verify(self, signed: SignedText) -> RepositoryOrder:
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
            if time.monotonic() < self._next_check.get(name, 0.0):
                continue
            try:
                order = await self._verify(_read_signed(item))
                self._next_check[name] = time.monotonic() + order.seconds
                await self._check_branch(order)
                self._reported.pop(name, None)
            except (MeshError, SourceRefused, RunRefused) as problem:
                if self._next_check.get(name, 0.0) <= time.monotonic():
                    self._next_check[name] = time.monotonic() + 60.0
                if self._reported.get(name) != str(problem):
                    self._reported[name] = str(problem)
                    self._ports.log.error("repository_failed", repository=name, why=str(problem))

    async def _check_branch(self, order: RepositoryOrder) -> None:
        """Begin a run if the branch has moved since the last run; once for each commit, whichever server checks."""
        commit, packed, sls = await asyncio.to_thread(self._fetch, order)
        seen = await self.etcd.get(f"{SEEN}{order.name}")
        if _read_commit(seen) == commit:
            return
        pins = [{"url": order.url, "reference": order.branch, "commit": commit}]
        request = new_request(
            order.cluster, packed, order.targets, sls=sls, mode=order.mode, modules=list(order.modules), pins=pins
        )
        # Noted before the run begins: after a crash in between, the commit is not run rather than run twice.
        await self.lock.check()
        if not await self.etcd.replace(f"{SEEN}{order.name}", f"{commit} {request.id}".encode(), seen):
            return
        signature = await asyncio.to_thread(trust.sign, request.dump().encode(), self.key)
        await self.store.publish_cluster_event(
            self._ports.name, "repository_changed", repository=order.name, commit=commit, run=request.id
        )
        await self._ports.begin(SignedText(request.dump(), signature), packed)

    def _fetch(self, order: RepositoryOrder) -> tuple[str, bytes, list[str] | None]:
        signers = self._trust.signers.allowed if order.signed_commits else None
        cache = self._ports.folder / "sources"
        with pin_states([Repository(order.url, signers=signers)], order.branch, cache) as checkout:
            tree, sls = locate_tree(checkout.path)
            return checkout.pins[0].commit, run_model.pack_tree(tree.root), sls
