"""Monitors all runs so that each ends: marks tasks of dead servers as lost, closes finished runs, deletes old ones.

It also publishes the deaths of servers and failing software as events (`member_events.py`). The datastore servers take
turns: the holder of the lock works, the others wait.
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
"""The key, the part and its log word keep the name that running clusters know."""
EVERY_SECONDS = 1.0
DELETE_SECONDS = 600.0
GONE_SECONDS = 5.0
"""How long a server must be dead before a task that it never began is lost: its agent may be about to start again."""


@dataclass(frozen=True)
class RunMonitorPorts:
    """What the run monitor uses of its agent."""

    name: str
    config: DatastoreConfig
    store: RunStore
    is_voter: Callable[[], bool]
    """Whether this server is one of the healthy datastore servers, which take turns"""
    members: MemberView
    revocations: RevocationFile
    log: Log


class RunMonitor:
    """The part of a datastore server's agent that ends, closes and deletes runs while it holds the lock."""

    def __init__(self, ports: RunMonitorPorts) -> None:
        self._ports, self.store, self._members, self._log = ports, ports.store, ports.members, ports.log
        self.lock = Lock(self.store.etcd, LOCK_KEY, ports.name, ports.config.lease_seconds)
        self.events = MemberEvents(self.store, ports.name, self._members.members, self._revoked_numbers)
        self._gone_since: dict[str, float] = {}
        self._last_deletion = 0.0

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
        self._note_gone_members()
        await self.events.publish(self.lock.condition())
        for run in await self.store.list_open_runs():
            await self._check_run(run)
        if time.monotonic() - self._last_deletion > DELETE_SECONDS:
            self._last_deletion = time.monotonic()
            config = apply_overrides(self._ports.config, await cluster_config.read_settings(self.store.etcd))
            before = time.time() - config.event_hours * 3600
            await self.events.delete_old(before)
            if count := await self.store.delete_old_runs(before):
                self._log.info("runs_forgotten", count=count)

    def _revoked_numbers(self) -> dict[str, int]:
        return {name: entry.number for name, entry in self._ports.revocations.current.names.items()}

    def _note_gone_members(self) -> None:
        live = {entry.name for entry in self._members.members() if entry.state in LIVE}
        known = {entry.name for entry in self._members.members()}
        self._gone_since = {name: self._gone_since.get(name, time.monotonic()) for name in known - live}

    async def _check_run(self, run: str) -> None:
        tasks = await self.store.read_tasks(run)
        alive = await self.store.live_targets(run)
        for task in tasks:
            if task.state in FINAL:
                continue
            why = self._loss_reason(task, alive)
            if why and (stored := await self.store.read_task(run, task.target)) and stored[0] == task:
                self._log.warning("task_lost", run=run, member=task.target, why=why)
                await self.store.mark_lost(task, stored[1], why)
        if tasks and all(task.state in FINAL for task in tasks):
            await self.store.close(run)
            counts = {state.value: sum(task.state is state for task in tasks) for state in TaskState}
            await self.store.publish_cluster_event(self._ports.name, "run_finished", run=run, tasks=counts)

    def _loss_reason(self, task: Task, alive: set[str]) -> str:
        """Return why a task is lost; empty if it is not."""
        if task.state is TaskState.RUNNING and task.target not in alive:
            return f"{task.target} was lost while it ran; what it had done by then is in its events"
        if task.state is TaskState.PENDING:
            unknown = self._members.member(task.target) is None
            gone = time.monotonic() - self._gone_since.get(task.target, time.monotonic())
            if unknown or gone > GONE_SECONDS:
                return f"{task.target} was gone before it began; nothing was done there"
        return ""
