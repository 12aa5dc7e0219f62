"""Claiming: start what can start, many at once, in the caller's transaction.

What became of the runs is written by `settling.py`; the rest of a run's life (leases, deadlines, cancelling,
refreshing) is in `run_lifecycle.py`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from psycopg.types.json import Jsonb
from sqlalchemy import Row

from rackwright.domain.catalogue import Jig
from rackwright.domain.runs import DEFAULT_DEADLINE, Run
from rackwright.domain.states import ACTIVE, Trigger
from rackwright.store.db.pipeline import Rows, Statement
from rackwright.store.db.session import Session
from rackwright.store.graph.run_attribs import StagedNodeRole, stage_glanced, stage_noderoles
from rackwright.store.graph.transition_sql import event_kind, fixed_target, target_sql
from rackwright.store.graph.transitions import TRACE_OF, move
from rackwright.store.runs.claim_candidates import Picking, picked
from rackwright.store.runs.instant_runs import AtOnce, run_ahead
from rackwright.store.runs.slots import refreshing
from rackwright.store.runs.transaction_end import queue_hooks

DEFAULT_LEASE = 30.0
REFRESH_PLACES = 2
"""Places beyond the cap for enqueued runs: else installs under a full cap would wait for a DHCP run that finds none."""


@dataclass(frozen=True)
class Claimant:
    """Who claims, and on what terms."""

    worker: str
    """Names a server process; its leases are in this name."""
    node_id: int | None = None
    """The admin node it runs on: what is bound there only it may run."""
    lease: float = DEFAULT_LEASE
    file_kinds: Collection[str] = ()
    """The kinds of jigs that run files of the role's barclamp: such a run says by their digest which."""


@dataclass(frozen=True)
class Pass:
    """What one claim did."""

    started: list[Run]
    unchanged: list[int]
    """Noderoles whose inputs are those of their last success: ACTIVE without a run."""
    ended: int = 0
    """Runs that were over at once."""
    more: bool = False
    """There may be more that could start now."""


# A pass asks the same over and over: to plan it anew for each set of values takes longer than to do it.
_SAME_PLANS = "SELECT set_config('plan_cache_mode', 'force_generic_plan', true)"

# The first condition is that of the index; only what a worker executes counts against the cap.
_LOAD = """
SELECT (SELECT count(*) FROM runs WHERE state IN ('accepted', 'running') AND state = 'running') AS running,
       EXISTS (SELECT FROM runs WHERE state = 'queued') AS queued
"""

_PICK_REFRESHES = f"""
SELECT run.id, run.node_role_id, run.slot FROM runs run JOIN nodes n ON n.id = run.node_id
JOIN node_roles nr ON nr.id = run.node_role_id AND nr.state = {int(ACTIVE)} AND NOT nr.doomed
JOIN deployments d ON d.id = nr.deployment_id AND NOT d.held
JOIN jigs j ON j.name = run.jig AND j.active
WHERE run.state = 'queued' AND coalesce(run.not_before <= now(), true)
  AND n.alive AND n.available AND (NOT n.admin OR n.id = :here OR CAST(:here AS bigint) IS NULL)
  AND NOT EXISTS (SELECT FROM runs other WHERE other.slot = run.slot AND other.state IN ('accepted', 'running'))
ORDER BY run.queued_at, run.id FOR UPDATE OF nr SKIP LOCKED
"""

_GIVEN = """
WITH given AS (
    SELECT id, staged, decode(hash, 'hex') AS hash, content
    FROM jsonb_to_recordset(:given) AS given (id bigint, staged jsonb, hash text, content text)
)
"""

_STARTED = "SELECT id, node_role_id, attempt, deadline, refresh, trace FROM started ORDER BY id"

_START = f"""
{_GIVEN}, started AS (
    INSERT INTO runs (node_role_id, node_id, slot, jig, state, attempt, inputs_rev, staged, hash, worker, started_at,
                      lease_until, deadline, trace, content)
    SELECT nr.id, nr.node_id, CASE WHEN n.system THEN -nr.id ELSE n.id END, r.jig, 'running', nr.attempts + 1,
           nr.inputs_rev, given.staged, given.hash, :worker, now(), now() + :lease * interval '1 second',
           coalesce(r.deadline, {DEFAULT_DEADLINE}), {TRACE_OF}, given.content
    FROM given JOIN node_roles nr ON nr.id = given.id JOIN nodes n ON n.id = nr.node_id
    JOIN roles r ON r.id = nr.role_id
    ORDER BY nr.cohort, nr.id
    RETURNING id, node_role_id, node_id, slot, attempt, deadline, refresh, trace
), marked AS (
    UPDATE node_roles nr SET run_id = started.id, state = {target_sql(Trigger.CLAIM)},
        attempts = started.attempt, retry_at = NULL
    FROM started WHERE nr.id = started.node_role_id RETURNING nr.id, nr.node_id, nr.deployment_id, nr.trace
), taken AS (
    UPDATE slots s SET candidate_id = NULL, cohort = NULL FROM started WHERE s.slot = started.slot
), told AS (
    INSERT INTO events (kind, subject_id, node_id, deployment_id, trace)
    SELECT '{event_kind(Trigger.CLAIM)}', id, node_id, deployment_id, trace FROM marked
)
{_STARTED}
"""

_START_REFRESHES = f"""
{_GIVEN}, started AS (
    UPDATE runs run SET state = 'running', staged = given.staged, hash = given.hash, worker = :worker,
        started_at = now(), lease_until = now() + :lease * interval '1 second', inputs_rev = nr.inputs_rev,
        content = given.content
    FROM given JOIN node_roles nr ON nr.id = given.id
    WHERE run.node_role_id = nr.id AND run.state = 'queued'
    RETURNING run.id, run.node_role_id, run.slot, run.attempt, run.deadline, run.refresh, run.trace
), taken AS (
    UPDATE slots s SET candidate_id = NULL, cohort = NULL FROM started WHERE s.slot = started.slot
)
{_STARTED}
"""


async def claim(
    session: Session, claimant: Claimant, cap: int, only: int | None = None, at_once: AtOnce | None = None
) -> Pass:
    """Start what can start, enqueued runs first, at most one a slot, under the cap. Needs the cap lock.

    With `at_once`, runs that need no time are over when this returns.
    """
    _, [(running, queued)] = await _with_slots(session, (_SAME_PLANS, {}), (_LOAD, {}))
    refreshed: list[Run] = []
    if queued and only is None:
        refreshed = await _claim_refreshes(session, claimant, cap + REFRESH_PLACES - running)
    room = cap - running - len(refreshed)
    if room <= 0:
        return Pass(refreshed, [])
    ended = 0
    if at_once and only is None:
        ahead = await run_ahead(session, at_once, claimant.worker, claimant.node_id)
        ended = ahead.ended
        if not ahead.met_other:
            return Pass(refreshed, [], ended, more=bool(ended))
    found = await _claim_ordinary(session, claimant, Picking(claimant.node_id, room, only))
    return Pass(refreshed + found.started, found.unchanged, ended, more=bool(ended or found.unchanged))


async def _claim_ordinary(session: Session, claimant: Claimant, picking: Picking) -> Pass:
    picks = picked(*await _with_slots(session, *picking.statements(await session.catalogue())))
    if not picks:
        return Pass([], [])
    staged = await stage_glanced(session, picks)
    same = {row.id for row in picks if not row.forced and row.hash == staged[row.id].staged.hash}
    await move(session, Trigger.UNCHANGED, same)
    starting = {row.id: staged[row.id] for row in picks if row.id not in same}
    started = await _start(session, _START, claimant, starting)
    session.moved.extend((id, int(fixed_target(Trigger.CLAIM))) for id in starting)
    return Pass(started, sorted(same))


async def _with_slots(session: Session, *asked: Statement) -> list[Rows]:
    """Ask once it is worked out what would run next, without waiting for that in between."""
    await queue_hooks(session)
    fresh = refreshing(session.touched) if session.touched else ()
    answers = await session.batch(*fresh, *asked)
    session.touched.clear()
    return answers[len(fresh) :]


async def _claim_refreshes(session: Session, claimant: Claimant, room: int) -> list[Run]:
    picked = await session.rows(_PICK_REFRESHES, here=claimant.node_id)
    first = {row.slot: row.node_role_id for row in reversed(picked)}
    ids = [row.node_role_id for row in picked if first[row.slot] == row.node_role_id][: max(room, 0)]
    if not ids:
        return []
    return await _start(session, _START_REFRESHES, claimant, await stage_noderoles(session, ids))


async def _start(session: Session, query: str, claimant: Claimant, starting: Mapping[int, StagedNodeRole]) -> list[Run]:
    if not starting:
        return []
    stored = await session.catalogue()
    contents = {id: stored.content_digest(one.role, claimant.file_kinds) for id, one in starting.items()}
    rows = await session.rows(
        query,
        given=Jsonb(
            [
                {"id": id, "staged": one.staged.input, "hash": one.staged.hash.hex(), "content": contents[id]}
                for id, one in starting.items()
            ]
        ),
        worker=claimant.worker,
        lease=claimant.lease,
    )
    jigs = stored.catalogue.jigs
    return [_run(row, starting[row.node_role_id], jigs, contents[row.node_role_id]) for row in rows]


def _run(row: Row[Any], noderole: StagedNodeRole, jigs: Mapping[str, Jig], content: str) -> Run:
    return Run(
        id=row.id,
        node_role_id=row.node_role_id,
        node_id=noderole.node_id,
        node=noderole.node,
        role=noderole.role.name,
        jig=noderole.role.jig,
        kind=jigs[noderole.role.jig].kind,
        input=noderole.staged.input,
        deadline=row.deadline,
        attempt=row.attempt,
        refresh=row.refresh,
        trace=row.trace,
        barclamp=noderole.role.barclamp,
        content=content,
    )
