"""One pass of the annealer, made by hand: waiting hook calls, then runs that can start, then the calls these led to.

A server without annealer (`--manual`) works so. The report tells what was done, and what waits for what.
"""

import asyncio
import logging
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rackwright.annealer.hooks import DeliveredCall, HookDispatcher
from rackwright.annealer.logs import RunLogs, settle_with_logs
from rackwright.annealer.masked_log import masked_log
from rackwright.domain.errors import RackwrightError
from rackwright.domain.foreign import LONGEST_ERROR, check_foreign_document, storable_text
from rackwright.domain.graph.why import Reason
from rackwright.domain.masking import Mask, masked_wall, secret_texts
from rackwright.domain.runs import Answer, Outcome, Run
from rackwright.domain.sealed import masked
from rackwright.jigs.base import Jig
from rackwright.reach.run_log import Log
from rackwright.store.db.locks import CAP_LOCK
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph.why import explain_waiting, select_waiting
from rackwright.store.hooks.hook_queue import count_waiting_calls
from rackwright.store.runs import run_lifecycle
from rackwright.store.runs.claims import Claimant, ClaimResult, claim_runs
from rackwright.store.runs.settling import FinishedRun
from rackwright.store.store import Store

log = logging.getLogger(__name__)

SHOWN_WAITING = 20
MASKED_IN_WALL = (
    "[What the run wrote has a secret where none is declared; it is masked there. To have it kept, declare an attrib of"
    " the role with `secret: true` at that place.]\n"
)
LOG_FLUSH_SECONDS = 0.2
"""Seconds between two flushes of the logs of runs."""


@dataclass(frozen=True)
class FinishedStep:
    """A run of a pass, and its outcome."""

    run: Run
    outcome: Outcome


@dataclass(frozen=True)
class StepReport:
    """What a pass by hand did, and what is left to do."""

    ran: list[FinishedStep]
    unchanged: list[int]
    hooks: list[DeliveredCall] = field(default_factory=list)
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
    """Make one pass, or run just noderole `only`. A run that fails is settled as failed; none is left in TRANSITION."""
    delivered = await hooks.deliver_all() if hooks else []
    # Leases are not renewed here: they are long instead, and however this pass ends, it settles its runs.
    long_claimant = replace(claimant, lease=30 * 86400.0)

    async def start(session: Session) -> ClaimResult:
        await run_lifecycle.take_over_lost_runs(session)
        return await claim_runs(session, long_claimant, cap, only)

    claimed = await store.change(start, actor=actor, lock=CAP_LOCK)
    logs = RunLogs(store)
    writing = asyncio.create_task(logs.flush_for_ever(LOG_FLUSH_SECONDS))
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
            list(ran), claimed.unchanged, delivered, await count_waiting_calls(session), await _waiting(session, cap)
        )


async def _run(store: Store, jigs: Mapping[str, Jig], run: Run, logs: RunLogs, actor: str) -> FinishedStep:
    outcome = Outcome.failure("the pass by hand was ended in the middle")
    try:
        with logs.writer(run.id) as run_log:
            outcome = await execute_run(store, jigs, run, run_log)
    finally:
        results = [finished_run(run, outcome)]
        async with logs.rest_of([run.id]) as texts:
            await store.change(lambda session: settle_with_logs(session, results, texts), actor=actor, lock=CAP_LOCK)
    return FinishedStep(run, outcome)


async def _waiting(session: Session, cap: int) -> list[Reason]:
    ids = await select_waiting(session, None, None, SHOWN_WAITING, EVERYTHING)
    return [(await explain_waiting(session, id, EVERYTHING, cap))[0] for id in ids]


async def execute_run(store: Store, jigs: Mapping[str, Jig], run: Run, write: Log) -> Outcome:
    """Execute a run by its jig, and return an outcome fit to be stored.

    A jig that raises has failed, and never breaks the annealer.
    """
    jig = jigs.get(run.kind)
    if jig is None:
        return Outcome.failure(f"This server has no jig of kind {run.kind!r}.")
    opened = run
    try:
        opened = await _with_secrets(store, run)
        with masked_log(opened.mask, write) as masked_write:
            outcome = await _run_jig(jig, opened, masked_write)
            if outcome.wall:
                check_foreign_document(outcome.wall)
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
    """Return the outcome with the run's secrets masked, except at secret attribs of its role, which are sealed."""
    if not run.mask:
        return outcome
    assert store.known_catalogue is not None  # it was read to know which secrets there are
    attribs = store.known_catalogue.catalogue.attribs_of(run.role)
    wall = masked_wall(run.mask, outcome.wall, [attrib.map for attrib in attribs if attrib.secret])
    if wall != outcome.wall:
        write(MASKED_IN_WALL)
    return replace(outcome, wall=wall)


async def _with_secrets(store: Store, run: Run) -> Run:
    """Return the run with the secrets in its input opened: the values of attribs that are declared secret."""
    stored = store.known_catalogue
    if stored is not None and not stored.catalogue.has_secrets:
        return run
    secret_keys = frozenset(key for key, value in run.input.items() if masked(value) != value)
    if not secret_keys:
        return run
    if stored is None:
        async with store.read() as session:
            stored = await session.catalogue()
    opened = store.vault.open_secrets(stored.catalogue.secret_attribs, run.input)
    mask = Mask(secret_texts(run.input, opened))
    return replace(run, input=opened, secrets=secret_keys, mask=mask)


async def _run_jig(jig: Jig, run: Run, write: Log) -> Outcome:
    if jig.instant:
        return await jig.run(run, write)
    if run.trace and not jig.own_log:  # so that the log itself tells the request it belongs to
        write(f"[trace {run.trace}]\n")
    async with asyncio.timeout(run.deadline):
        return await jig.run(run, write)


def finished_run(run: Run, outcome: Outcome) -> FinishedRun:
    """Return the result of a run as the store settles it."""
    return FinishedRun(
        run.id,
        ok=outcome.answer is Answer.SUCCEEDED,
        error=outcome.error,
        wall=outcome.wall,
        accepted=outcome.answer is Answer.ACCEPTED,
        role=run.role,
    )
