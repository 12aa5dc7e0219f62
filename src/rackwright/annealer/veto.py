"""Changes that hooks may refuse (veto): each is tried, the hooks are asked, then it is made or refused.

The change is tried in its transaction. If hooks that may refuse it are concerned, it is rolled back, they are asked
(with nothing locked), and it is tried again with their verdicts. A verdict holds for just what the hook was shown: if
that changed meanwhile, the hook is asked again. Without such hooks the change is one transaction, as always.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from rackwright.annealer.hooks import HOOK_BUDGET_SECONDS, effect_origin
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
VerdictsByKey = Mapping[str, Sequence[Effect]]
"""The verdicts of hooks: the effects that each returned, by the key of its call."""

ATTEMPTS = 6
MAX_CONCURRENT_CALLS = 4


class VerdictsMissing(Exception):
    """The change must not be made yet: hooks that may refuse it were not asked."""

    def __init__(self, calls: Sequence[PendingCall]) -> None:
        super().__init__(f"{len(calls)} hooks were not asked")
        self.calls = calls


class VetoedChanges:
    """Makes changes in the store that hooks may refuse, after it has asked them."""

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
        """Do as `Store.change`, but hooks may refuse the change: then it is a conflict, and nothing changes."""
        return await self._try_with_verdicts(
            lambda verdicts_by_key: self.store.change(_with_verdicts(work, verdicts_by_key), actor=actor, trace=trace)
        )

    async def change_graph(
        self,
        work: Callable[[GraphSession], Awaitable[T]],
        *,
        actor: str = "system",
        trace: str | None = None,
    ) -> T:
        """Do as `Store.change_graph`, but hooks may refuse the change: then it is a conflict, and nothing changes."""
        return await self._try_with_verdicts(
            lambda verdicts_by_key: self.store.change_graph(
                _with_verdicts(work, verdicts_by_key), actor=actor, trace=trace
            )
        )

    async def _try_with_verdicts(self, attempt: Callable[[VerdictsByKey], Awaitable[T]]) -> T:
        verdicts_by_key: dict[str, Sequence[Effect]] = {}
        for _ in range(ATTEMPTS):
            try:
                return await attempt(verdicts_by_key)
            except VerdictsMissing as missing:
                verdicts_by_key |= await self._ask_hooks(missing.calls)
        raise Conflict(
            Rule.PLAN_CHANGED,
            "What this would change kept changing while hooks were asked about it. Look at it again, then repeat it.",
        )

    async def _ask_hooks(self, calls: Sequence[PendingCall]) -> dict[str, Sequence[Effect]]:
        async with self.store.read() as session:
            budget = float(await read_setting(session, "hook_budget", HOOK_BUDGET_SECONDS))
            stored = await session.catalogue()
        permits = asyncio.Semaphore(MAX_CONCURRENT_CALLS)

        async def ask_within_limit(call: PendingCall) -> Sequence[Effect]:
            async with permits:
                return await self._ask_hook(call, stored, budget)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(ask_within_limit(call)) for call in calls]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None  # one refusal is enough, the others are not asked any more
        return {call.key: task.result() for call, task in zip(calls, tasks, strict=True)}

    async def _ask_hook(self, call: PendingCall, stored: StoredCatalogue, budget: float) -> Sequence[Effect]:
        try:
            folder = await self.files.role_folder(stored, call.role)
            role_call = RoleCall(str(folder), stored.version, call.role, call.hook, call.view)
            response = await self.workers.call(role_call, budget)
            effects = effects_from_json(response)
        except (CallFailed, FilesMissing, Invalid) as error:
            raise Conflict(
                Rule.REFUSED,
                f"Role {call.role!r} could not be asked whether it agrees ({call.hook}): {error}",
            ) from None
        for effect in effects:
            if isinstance(effect, Refuse):
                raise Conflict(Rule.REFUSED, refusal_text(call.role, call.hook, effect))
        return effects


def _with_verdicts(work: Callable[[S], Awaitable[T]], verdicts_by_key: VerdictsByKey) -> Callable[[S], Awaitable[T]]:
    """Return the work with the verdicts of hooks set on its transaction, which is undone if it needs other verdicts."""

    async def work_with_verdicts(session: S) -> T:
        verdicts = HookVerdicts(_apply, verdicts_by_key)
        session.hooks = HookContext(verdicts)
        result = await work(session)
        if verdicts.missing:
            raise VerdictsMissing(verdicts.missing)
        return result

    return work_with_verdicts


async def _apply(session: Session, call: PendingCall, effects: Sequence[Effect]) -> None:
    await apply_effects(session, effect_origin(call.role, call.hook, call.subject, call.subject_id, call.view), effects)
