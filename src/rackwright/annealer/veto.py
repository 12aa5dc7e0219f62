"""Changes that hooks may refuse: tried, judged, then made.

The change is tried in its transaction. If hooks that may refuse have a say in it, it is rolled back, they are asked
(with nothing locked), and it is tried again with what they said. A verdict holds for just what the hook was shown: if
that changed meanwhile, the hook is asked again. Without such hooks it is one transaction, as always.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from rackwright.annealer.hooks import BUDGET, origin
from rackwright.annealer.role_files import FilesMissing, RoleFiles
from rackwright.annealer.role_workers import CallFailed, RoleCall, RoleWorkers
from rackwright.domain.effects import effects_from_json
from rackwright.domain.errors import Conflict, Invalid, Rule
from rackwright.domain.hooks import Effect, Refuse
from rackwright.store.catalogue.stored_catalogue import StoredCatalogue
from rackwright.store.db.hook_context import HookContext, HookVerdicts, PendingCall
from rackwright.store.db.session import GraphSession, Session
from rackwright.store.hooks.hook_effects import apply_effects, refusal_text
from rackwright.store.settings import read_setting
from rackwright.store.store import Store

T = TypeVar("T")
S = TypeVar("S", bound=Session)
Given = Mapping[str, Sequence[Effect]]
"""Verdicts: what each hook asked for, by the key of its call."""

ATTEMPTS = 6
AT_ONCE = 4


class Unjudged(Exception):
    """The change must not be made yet: hooks that may refuse it were not asked."""

    def __init__(self, calls: Sequence[PendingCall]) -> None:
        super().__init__(f"{len(calls)} hooks were not asked")
        self.calls = calls


class Judge:
    """Asks hooks for their verdicts."""

    def __init__(self, store: Store, workers: RoleWorkers, files: RoleFiles) -> None:
        self.store = store
        self.workers = workers
        self.files = files

    async def change(
        self,
        work: Callable[[Session], Awaitable[T]],
        *,
        actor: str = "system",
        trace: str | None = None,
    ) -> T:
        """As `Store.change`, but hooks may refuse it: a conflict, and nothing has changed."""
        return await self._judged(
            lambda given: self.store.change(_with_verdicts(work, given), actor=actor, trace=trace)
        )

    async def change_graph(
        self,
        work: Callable[[GraphSession], Awaitable[T]],
        *,
        actor: str = "system",
        trace: str | None = None,
    ) -> T:
        """As `Store.change_graph`, but hooks may refuse it: a conflict, and nothing has changed."""
        return await self._judged(
            lambda given: self.store.change_graph(_with_verdicts(work, given), actor=actor, trace=trace)
        )

    async def _judged(self, attempt: Callable[[Given], Awaitable[T]]) -> T:
        given: dict[str, Sequence[Effect]] = {}
        for _ in range(ATTEMPTS):
            try:
                return await attempt(given)
            except Unjudged as unjudged:
                given |= await self._ask(unjudged.calls)
        raise Conflict(
            Rule.PLAN_CHANGED,
            "What this would change kept changing while hooks were asked about it. Look at it again, then repeat it.",
        )

    async def _ask(self, calls: Sequence[PendingCall]) -> dict[str, Sequence[Effect]]:
        async with self.store.read() as session:
            budget = float(await read_setting(session, "hook_budget", BUDGET))
            stored = await session.catalogue()
        places = asyncio.Semaphore(AT_ONCE)

        async def one(call: PendingCall) -> Sequence[Effect]:
            async with places:
                return await self._verdict(call, stored, budget)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(call)) for call in calls]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None  # one refusal is enough, the others are not asked any more
        return {call.key: task.result() for call, task in zip(calls, tasks, strict=True)}

    async def _verdict(self, call: PendingCall, stored: StoredCatalogue, budget: float) -> Sequence[Effect]:
        try:
            folder = await self.files.of_role(stored, call.role)
            asked = RoleCall(str(folder), stored.version, call.role, call.hook, call.view)
            answer = await self.workers.call(asked, budget)
            effects = effects_from_json(answer)
        except (CallFailed, FilesMissing, Invalid) as error:
            raise Conflict(
                Rule.REFUSED,
                f"Role {call.role!r} could not be asked whether it agrees ({call.hook}): {error}",
            ) from None
        for effect in effects:
            if isinstance(effect, Refuse):
                raise Conflict(Rule.REFUSED, refusal_text(call.role, call.hook, effect))
        return effects


def _with_verdicts(work: Callable[[S], Awaitable[T]], given: Given) -> Callable[[S], Awaitable[T]]:
    """The work, with the verdicts that were given; it is undone if it takes others."""

    async def judged(session: S) -> T:
        verdicts = HookVerdicts(_apply, given)
        session.hooks = HookContext(verdicts)
        result = await work(session)
        if verdicts.missing:
            raise Unjudged(verdicts.missing)
        return result

    return judged


async def _apply(session: Session, call: PendingCall, effects: Sequence[Effect]) -> None:
    await apply_effects(session, origin(call.role, call.hook, call.subject, call.subject_id, call.view), effects)
