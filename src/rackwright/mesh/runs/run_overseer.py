"""Sees to it that every run ends: tasks of servers that died are reported as lost, finished runs are closed, and what
is older than the retention is forgotten. It also has the deaths of servers and failing software told as events
(`member_events.py`). Done by one datastore server at a time.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from rackwright.mesh.datastore import cluster_config
from rackwright.mesh.datastore.cluster_config import apply_overrides
from rackwright.mesh.datastore.datastore_settings import DatastoreConfig
from rackwright.mesh.datastore.lock import Lock
from rackwright.mesh.errors import Fenced, NoDatastore, Rejected
from rackwright.mesh.identity.revocation import RevocationFile
from rackwright.mesh.log import Log
from rackwright.mesh.membership.member import LIVE
from rackwright.mesh.membership.member_view import MemberView
from rackwright.mesh.runs.member_events import MemberEvents
from rackwright.mesh.runs.run_model import FINAL, Task, TaskState
from rackwright.mesh.runs.run_store import RunStore

LOCK_KEY = "/rackwright/overseer"
EVERY_SECONDS = 1.0
FORGET_SECONDS = 600.0
GONE_SECONDS = 5.0
"""How long a server must be dead before a task it never began is lost: its agent may just be starting again."""


@dataclass(frozen=True)
class OverseerPorts:
    """What the overseer uses of its agent."""

    name: str
    config: DatastoreConfig
    store: RunStore
    is_voter: Callable[[], bool]
    """Whether this server is one of the healthy datastore servers, which take turns"""
    members: MemberView
    revocations: RevocationFile
    log: Log


class Overseer:
    def __init__(self, ports: OverseerPorts) -> None:
        self._ports, self.store, self._members, self._log = ports, ports.store, ports.members, ports.log
        self.lock = Lock(self.store.etcd, LOCK_KEY, ports.name, ports.config.lease_seconds)
        self.events = MemberEvents(self.store, ports.name, self._members.members, self._revoked)
        self._gone: dict[str, float] = {}
        self._forgotten = 0.0

    async def run(self) -> None:
        try:
            while True:
                if self._ports.is_voter():
                    try:
                        await self._turn()
                    except (NoDatastore, Rejected, Fenced) as problem:
                        self._log.info("overseer_waits", why=str(problem))
                await asyncio.sleep(EVERY_SECONDS)
        finally:
            await self.lock.release()

    async def _turn(self) -> None:
        if not await self.lock.hold():
            return
        self._remember()
        await self.events.tell(self.lock.condition())
        for run in await self.store.open_runs():
            await self._look_after(run)
        if time.monotonic() - self._forgotten > FORGET_SECONDS:
            self._forgotten = time.monotonic()
            config = apply_overrides(self._ports.config, await cluster_config.read_settings(self.store.etcd))
            before = time.time() - config.event_hours * 3600
            await self.events.forget(before)
            if count := await self.store.forget(before):
                self._log.info("runs_forgotten", count=count)

    def _revoked(self) -> dict[str, int]:
        return {name: entry.number for name, entry in self._ports.revocations.current.names.items()}

    def _remember(self) -> None:
        live = {entry.name for entry in self._members.members() if entry.state in LIVE}
        known = {entry.name for entry in self._members.members()}
        self._gone = {name: self._gone.get(name, time.monotonic()) for name in known - live}

    async def _look_after(self, run: str) -> None:
        tasks = await self.store.tasks(run)
        alive = await self.store.alive(run)
        for task in tasks:
            if task.state in FINAL:
                continue
            why = self._lost(task, alive)
            if why and (found := await self.store.task(run, task.target)) and found[0] == task:
                self._log.warning("task_lost", run=run, member=task.target, why=why)
                await self.store.lose(task, found[1], why)
        if tasks and all(task.state in FINAL for task in tasks):
            await self.store.close(run)
            counts = {state.value: sum(task.state is state for task in tasks) for state in TaskState}
            await self.store.tell(self._ports.name, "run_finished", run=run, tasks=counts)

    def _lost(self, task: Task, alive: set[str]) -> str:
        if task.state is TaskState.RUNNING and task.target not in alive:
            return f"{task.target} was lost while it ran; what it had done by then is in its events"
        if task.state is TaskState.PENDING:
            unknown = self._members.member(task.target) is None
            gone = time.monotonic() - self._gone.get(task.target, time.monotonic())
            if unknown or gone > GONE_SECONDS:
                return f"{task.target} was gone before it began; nothing was done there"
        return ""
