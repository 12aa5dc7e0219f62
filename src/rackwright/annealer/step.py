"""One pass of the annealer, by hand: the hooks that wait, then what is runnable, then the hooks that this led to.

It is how a server without annealer works (`--manual`), and says what it did and what waits for what.
"""

import asyncio
import logging
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from rackwright.annealer.hooks import Delivered, HookDispatcher
from rackwright.annealer.logs import RunLogs
from rackwright.annealer.masked_log import masked_log
from rackwright.domain.errors import RackwrightError
from rackwright.domain.foreign import LONGEST_ERROR, check_foreign, storable_text
from rackwright.domain.graph.why import Reason
from rackwright.domain.masking import Mask, masked_wall, secret_texts
from rackwright.domain.runs import Answer, Outcome, Run
from rackwright.domain.sealed import masked
from rackwright.jigs.base import Jig
from rackwright.reach.run_log import Log
from rackwright.store.db.locks import CAP_LOCK
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph.why import waiting, why
from rackwright.store.hooks.hook_queue import waiting_calls
from rackwright.store.runs import run_lifecycle
from rackwright.store.runs.claims import Claimant, Pass, claim
from rackwright.store.runs.settling import Finished, settle
from rackwright.store.store import Store

log = logging.getLogger(__name__)

SHOWN_WAITING = 20
MASKED_IN_WALL = (
    "[What the run wrote has a secret where none is declared; it is masked there. To have it kept, declare an attrib of"
    " the role with `secret: true` at that place.]\n"
)
LOG_FLUSH = 0.2
"""Seconds between two writings of the logs of runs."""


@dataclass(frozen=True)
class Stepped:
    """What one run of a pass came to."""

    run: Run
    outcome: Outcome


@dataclass(frozen=True)
class StepReport:
    ran: list[Stepped]
    unchanged: list[int]
    hooks: list[Delivered] = field(default_factory=list)
    """The calls of hooks that were made."""
    hooks_waiting: int = 0
    """Calls that failed and are made again later, by the next pass."""
    waiting: list[Reason] = field(default_factory=list)
    """The first noderoles that are not ACTIVE, and why."""


async def step(
    store: Store,
    jigs: Mapping[str, Jig],
    claimant: Claimant,
    cap: int,
    actor: str,
    only: int | None = None,
    hooks: HookDispatcher | None = None,
) -> StepReport:
    """Run one pass, or just noderole `only`. What fails is settled as failed; nothing is left in TRANSITION."""
    delivered = await hooks.deliver_all() if hooks else []
    # No lease is renewed here: it is long instead, and whatever ends this pass settles its runs.
    patient = replace(claimant, lease=30 * 86400.0)

    async def start(session: Session) -> Pass:
        await run_lifecycle.take_over(session)
        return await claim(session, patient, cap, only)

    claimed = await store.change(start, actor=actor, lock=CAP_LOCK)
    logs = RunLogs(store)
    writing = asyncio.create_task(logs.flush_for_ever(LOG_FLUSH))
    try:
        ran = await asyncio.gather(*(_run(store, jigs, run, logs, actor) for run in claimed.started))
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        await logs.flush()
    if hooks:
        delivered += await hooks.deliver_all()
    async with store.read() as session:
        return StepReport(
            list(ran), claimed.unchanged, delivered, await waiting_calls(session), await _waiting(session, cap)
        )


async def _run(store: Store, jigs: Mapping[str, Jig], run: Run, logs: RunLogs, actor: str) -> Stepped:
    outcome = Outcome.failure("the pass by hand was ended in the middle")
    try:
        with logs.writer(run.id) as run_log:
            outcome = await outcome_of(store, jigs, run, run_log)
    finally:
        await store.change(partial(settle, finished=[finished(run, outcome)]), actor=actor, lock=CAP_LOCK)
    return Stepped(run, outcome)


async def _waiting(session: Session, cap: int) -> list[Reason]:
    ids = await waiting(session, None, None, SHOWN_WAITING, EVERYTHING)
    return [(await why(session, id, EVERYTHING, cap))[0] for id in ids]


async def outcome_of(store: Store, jigs: Mapping[str, Jig], run: Run, write: Log) -> Outcome:
    """What the jig says, fit to be stored; a jig that breaks has failed, and never takes the annealer with it."""
    jig = jigs.get(run.kind)
    if jig is None:
        return Outcome.failure(f"This server has no jig of kind {run.kind!r}.")
    opened = run
    try:
        opened = await _with_secrets(store, run)
        with masked_log(opened.mask, write) as masked_write:
            outcome = await _run_jig(jig, opened, masked_write)
            if outcome.wall:
                check_foreign(outcome.wall)
                outcome = _without_secrets(store, opened, outcome, masked_write)
    except TimeoutError:
        outcome = Outcome.failure(f"not finished within {run.deadline:g} s")
    except RackwrightError as error:
        outcome = Outcome.failure(f"The run of {run.role} on {run.node} was refused: {error.message}")
    except Exception as error:  # noqa: BLE001  # a jig's own fault becomes the run's error, which people see
        log.error("jig %s broke on run %s\n%s", run.jig, run.id, opened.mask.text(traceback.format_exc()))
        outcome = Outcome.failure(f"jig {run.jig} broke: {type(error).__name__}: {error}")
    if not outcome.error:
        return outcome
    return replace(outcome, error=storable_text(opened.mask.text(outcome.error), LONGEST_ERROR))


def _without_secrets(store: Store, run: Run, outcome: Outcome, write: Log) -> Outcome:
    """The outcome without the secrets that the run was given, but where its role declares one: there it is sealed."""
    if not run.mask:
        return outcome
    assert store.known_catalogue is not None  # it was asked which secrets there are
    attribs = store.known_catalogue.catalogue.attribs_of(run.role)
    wall = masked_wall(run.mask, outcome.wall, [attrib.map for attrib in attribs if attrib.secret])
    if wall != outcome.wall:
        write(MASKED_IN_WALL)
    return replace(outcome, wall=wall)


async def _with_secrets(store: Store, run: Run) -> Run:
    """The run with the secrets in its input opened: those that lie where an attrib is declared secret."""
    known = store.known_catalogue
    if known is not None and not known.catalogue.has_secrets:
        return run
    hidden = frozenset(key for key, value in run.input.items() if masked(value) != value)
    if not hidden:
        return run
    if known is None:
        async with store.read() as session:
            known = await session.catalogue()
    opened = store.vault.open_secrets(known.catalogue.secret_attribs, run.input)
    mask = Mask(secret_texts(run.input, opened))
    return replace(run, input=opened, secrets=hidden, mask=mask)


async def _run_jig(jig: Jig, run: Run, write: Log) -> Outcome:
    if jig.instant:
        return await jig.run(run, write)
    if run.trace and not jig.own_log:  # so that a log says by itself which request it is part of
        write(f"[trace {run.trace}]\n")
    async with asyncio.timeout(run.deadline):
        return await jig.run(run, write)


def finished(run: Run, outcome: Outcome) -> Finished:
    """What the store is told of a run."""
    return Finished(
        run.id,
        ok=outcome.answer is Answer.SUCCEEDED,
        error=outcome.error,
        wall=outcome.wall,
        accepted=outcome.answer is Answer.ACCEPTED,
        role=run.role,
    )
