"""The hook dispatcher: it claims calls from the queue, makes them, and applies the effects that hooks return.

There is one a server; several servers share the queue. A role's hook runs in a worker process with a time budget; a
jig's node method is a coroutine of this process with the same budget. Ending a call and its effects are one
transaction, so a call is made at least once, and its effects are there exactly when the call is gone.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from rackwright.annealer.loop import Loop
from rackwright.annealer.role_files import RoleFiles
from rackwright.annealer.role_workers import CallFailed, RoleCall, RoleWorkers
from rackwright.domain.effects import effects_from_json
from rackwright.domain.errors import RackwrightError
from rackwright.domain.hooks import Effect
from rackwright.jigs.base import Jig, JigNode
from rackwright.store.catalogue.stored_catalogue import StoredCatalogue
from rackwright.store.db.hook_context import HookContext
from rackwright.store.db.locks import CAP_LOCK
from rackwright.store.db.session import DATABASE_TROUBLE, Session, first_line
from rackwright.store.hooks.hook_calls import HOOK_CHANNEL
from rackwright.store.hooks.hook_effects import Origin, apply_effects
from rackwright.store.hooks.hook_queue import (
    HookCall,
    claim_calls,
    emit_oscillating,
    end_call,
    fail_call,
    hand_back_calls,
    seconds_until_due,
)
from rackwright.store.hooks.hook_views import read_shown_view
from rackwright.store.settings import read_setting
from rackwright.store.store import Store

log = logging.getLogger(__name__)

ACTOR = "hooks"
HOOK_BUDGET_SECONDS = 1.0
"""Seconds a hook may take; the setting `hook_budget` changes it."""


@dataclass(frozen=True)
class HookPace:
    """How calls are made; times in seconds."""

    at_once: int = 4
    tries: int = 5
    back_off: float = 0.5
    """Before the second try; doubled each time."""
    lease: float = 60.0
    """Longer than any call can take. After it another server makes the call."""
    tick: float = 5.0
    pause: float = 0.5
    """After the database did not answer."""


@dataclass(frozen=True)
class DeliveredCall:
    """A call that was made; with the error if it failed."""

    call: HookCall
    error: str = ""


class HookDispatcher:
    """Makes calls until `stop`; or once, by hand, with `deliver_all`."""

    def __init__(
        self,
        store: Store,
        workers: RoleWorkers,
        files: RoleFiles,
        jigs: Mapping[str, Jig],
        worker: str,
        pace: HookPace | None = None,
    ) -> None:
        self.store = store
        self.workers = workers
        self.files = files
        self.jigs = jigs
        self.worker = worker
        self.pace = pace or HookPace()
        self._tasks: dict[int, asyncio.Task[DeliveredCall]] = {}
        self._loop = Loop(
            store, (HOOK_CHANNEL,), self.pace.tick, purpose="deliver calls of hooks", back_off=self.pace.pause
        )

    # --- until stopped

    async def run(self) -> None:
        """Make calls until stopped; calls that are under way then are given back."""
        try:
            await self._loop.run(self._reconcile)
        finally:
            await self._hand_back()

    def stop(self) -> None:
        self._loop.stop()

    async def _reconcile(self) -> float:
        """Start the calls that are due, and return the seconds until the next one is."""
        await self._start_due()
        return await self._until_due()

    async def _start_due(self) -> None:
        room = self.pace.at_once - len(self._tasks)
        if room <= 0:
            return
        for call in await self._claim(room):
            task = asyncio.create_task(self._deliver(call), name=f"hook call {call.id}")
            self._tasks[call.id] = task
            task.add_done_callback(partial(self._call_ended, call.id))

    def _call_ended(self, id: int, task: asyncio.Task[DeliveredCall]) -> None:
        # A call that outlived its lease on a busy machine may be claimed here again: the second task is not over.
        if self._tasks.get(id) is task:
            del self._tasks[id]
        error = None if task.cancelled() else task.exception()
        if isinstance(error, DATABASE_TROUBLE):
            log.warning("hook call %s is made again after its lease: %s", id, first_line(error))
        elif error is not None:
            log.error("hook call %s was lost; it is made again after its lease", id, exc_info=error)
        self._loop.wake()

    async def _until_due(self) -> float:
        if len(self._tasks) >= self.pace.at_once:
            return self.pace.tick
        async with self.store.read() as session:
            due = await seconds_until_due(session)
        # A call that is due but cannot be claimed (its turn has not come) must not make this loop spin.
        return self.pace.tick if due is None else min(max(due, 0.05), self.pace.tick)

    async def _hand_back(self) -> None:
        tasks = dict(self._tasks)
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        if tasks:
            with contextlib.suppress(*DATABASE_TROUBLE):
                await self.store.change(lambda session: hand_back_calls(session, tasks, self.worker), actor=ACTOR)

    # --- by hand

    async def deliver_all(self) -> list[DeliveredCall]:
        """Make every call whose turn it is, and those that follow, until none is left that can be made now."""
        delivered: list[DeliveredCall] = []
        while calls := await self._claim(self.pace.at_once):
            delivered += await asyncio.gather(*(self._deliver(call) for call in calls))
        return delivered

    # --- one call

    async def _claim(self, limit: int) -> list[HookCall]:
        return await self.store.change(
            lambda session: claim_calls(session, self.worker, self.pace.lease, limit), actor=ACTOR
        )

    async def _deliver(self, call: HookCall) -> DeliveredCall:
        lock = CAP_LOCK if call.blocks else None
        try:
            prepared = await self._prepare(call)
            effects = [] if prepared is None else await self._make_call(prepared)

            async def settle(session: Session) -> None:
                session.hooks = HookContext(chain=call.chain)
                if await end_call(session, call, self.worker) and prepared is not None:
                    await apply_effects(session, _origin_of_call(prepared.call), effects)
                    await emit_oscillating(session)

            await self.store.change(settle, actor=f"{ACTOR}: {call.handler}", lock=lock)
            return DeliveredCall(call)
        except (CallFailed, RackwrightError) as error:
            reason = str(error)
        given_up = await self.store.change(
            lambda session: fail_call(
                session, call, self.worker, reason, tries=self.pace.tries, back_off=self.pace.back_off
            ),
            actor=ACTOR,
            lock=lock,
        )
        log.log(
            logging.ERROR if given_up else logging.WARNING,
            "%s failed (try %d of %d): %s",
            call.title,
            call.attempt,
            self.pace.tries,
            reason,
        )
        return DeliveredCall(call, reason)

    async def _prepare(self, call: HookCall) -> "_PreparedCall | None":
        """Read all that is needed to make a call, as of now; None: its subject is gone, so the call is not made.

        Handlers are told of the deletion of a node by calls of its own.
        """
        async with self.store.read() as session:
            view = await read_shown_view(session, call.id, call.subject, call.subject_id, call.view)
            if view is None:
                return None
            budget: float = await read_setting(session, "hook_budget", HOOK_BUDGET_SECONDS)
            return _PreparedCall(replace(call, view=view), float(budget), await session.catalogue())

    async def _make_call(self, prepared: "_PreparedCall") -> list[Effect]:
        """Make the call, and return its effects."""
        call, stored = prepared.call, prepared.stored
        if call.kind == "jig":
            jig = stored.catalogue.jigs.get(call.handler)
            await self._tell_jig(call, jig.kind if jig else "", prepared.budget)
            return []
        folder = await self.files.role_folder(stored, call.handler)
        response = await self.workers.call(
            RoleCall(str(folder), stored.version, call.handler, call.hook, call.view), prepared.budget
        )
        return effects_from_json(response)

    async def _tell_jig(self, call: HookCall, kind: str, budget: float) -> None:
        jig = self.jigs.get(kind)
        if jig is None:  # this server has no jig of this kind to tell
            return
        node = to_jig_node(call)
        method = {"node_create": jig.node_create, "node_update": jig.node_update, "node_delete": jig.node_delete}
        try:
            async with asyncio.timeout(budget):
                await method[call.hook](node)
        except TimeoutError:
            raise CallFailed(f"not finished within {budget:g} s") from None
        except Exception as error:
            log.exception("jig %s broke in %s", call.handler, call.hook)
            raise CallFailed(f"{type(error).__name__}: {error}") from None


@dataclass(frozen=True)
class _PreparedCall:
    call: HookCall
    """The call, with the view that its handler is shown."""
    budget: float
    """Seconds that the call may take."""
    stored: StoredCatalogue


def to_jig_node(call: HookCall) -> JigNode:
    discovery = call.view.get("discovery")
    address = discovery.get("address") if isinstance(discovery, dict) else None
    return JigNode(call.subject_id, str(call.view["name"]), address if isinstance(address, str) else None)


def _origin_of_call(call: HookCall) -> Origin:
    return effect_origin(call.handler, call.hook, call.subject, call.subject_id, call.view)


def effect_origin(role: str, hook: str, subject: str, subject_id: int, view: Mapping[str, object]) -> Origin:
    """Return the origin of a call's effects: the target of those that name none."""
    if subject == "node":
        return Origin(role, hook, node_id=subject_id)
    if subject == "deployment":
        return Origin(role, hook, deployment_id=subject_id)
    if subject in ("network", "allocation"):
        node_id = view.get("node_id")
        return Origin(role, hook, node_id=node_id if isinstance(node_id, int) else None)
    node, deployment = view.get("node"), view.get("deployment")
    assert isinstance(node, dict)
    assert isinstance(deployment, dict)
    return Origin(role, hook, node_id=node["id"], node_role_id=subject_id, deployment_id=deployment["id"])
