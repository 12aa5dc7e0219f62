"""Claims runs: starts what can start, many at once, in the caller's transaction.

The results of runs are written by `settling.py`; the rest of a run's life (leases, deadlines, cancelling, refreshing)
is in `run_lifecycle.py`.
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
from rackwright.store.graph.run_attribs import StagedNodeRole, stage_candidates, stage_noderoles
from rackwright.store.graph.transition_sql import event_kind, fixed_target, target_sql
from rackwright.store.graph.transitions import TRACE_OF, move_noderoles
from rackwright.store.runs.claim_candidates import CandidateQuery, read_candidates
from rackwright.store.runs.instant_runs import InstantJigs, execute_instant_runs
from rackwright.store.runs.slots import refresh_statements
from rackwright.store.runs.transaction_end import queue_hooks_of_moves

DEFAULT_LEASE = 30.0
EXTRA_REFRESHES = 2
"""Enqueued runs that may run beyond the cap: else installs that fill the cap would wait for a DHCP run for ever."""


@dataclass(frozen=True)
class Claimant:
    """The server that claims, and its terms."""

    worker: str
    """The name of the server process, which its leases bear."""
    node_id: int | None = None
    """The admin node that the server runs on: only this server may run what is bound there."""
    lease: float = DEFAULT_LEASE
    file_kinds: Collection[str] = ()
    """The kinds of jigs that run files of the role's barclamp: such a run carries the digest of those files."""


@dataclass(frozen=True)
class ClaimResult:
    """The result of one claim."""

    started: list[Run]
    unchanged: list[int]
    """Noderoles whose inputs are those of their last success: they became ACTIVE without a run."""
    ended: int = 0
    """Instant runs that were executed."""
    more: bool = False
    """There may be more noderoles that could start now."""


# A claim sends the same queries over and over: to plan them again for each set of values takes longer than to run them.
_SAME_PLANS = "SELECT set_config('plan_cache_mode', 'force_generic_plan', true)"

# The first condition is that of the index; only what a worker executes counts against the cap.
_COUNT_LOAD = """
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

_STAGED_ROWS = """
WITH staged_rows AS (
    SELECT id, staged, decode(hash, 'hex') AS hash, content
    FROM jsonb_to_recordset(:staged_rows) AS staged_rows (id bigint, staged jsonb, hash text, content text)
)
"""

_STARTED = "SELECT id, node_role_id, attempt, deadline, refresh, trace FROM started ORDER BY id"

_START = f"""
{_STAGED_ROWS}, started AS (
    INSERT INTO runs (node_role_id, node_id, slot, jig, state, attempt, inputs_rev, staged, hash, worker, started_at,
                      lease_until, deadline, trace, content)
    SELECT nr.id, nr.node_id, CASE WHEN n.system THEN -nr.id ELSE n.id END, r.jig, 'running', nr.attempts + 1,
           nr.inputs_rev, staged_rows.staged, staged_rows.hash, :worker, now(), now() + :lease * interval '1 second',
           coalesce(r.deadline, {DEFAULT_DEADLINE}), {TRACE_OF}, staged_rows.content
    FROM staged_rows JOIN node_roles nr ON nr.id = staged_rows.id JOIN nodes n ON n.id = nr.node_id
    JOIN roles r ON r.id = nr.role_id
    ORDER BY nr.cohort, nr.id
    RETURNING id, node_role_id, node_id, slot, attempt, deadline, refresh, trace
), marked AS (
    UPDATE node_roles nr SET run_id = started.id, state = {target_sql(Trigger.CLAIM)},
        attempts = started.attempt, retry_at = NULL
    FROM started WHERE nr.id = started.node_role_id RETURNING nr.id, nr.node_id, nr.deployment_id, nr.trace
), taken AS (
    UPDATE slots s SET candidate_id = NULL, cohort = NULL FROM started WHERE s.slot = started.slot
), emitted AS (
    INSERT INTO events (kind, subject_id, node_id, deployment_id, trace)
    SELECT '{event_kind(Trigger.CLAIM)}', id, node_id, deployment_id, trace FROM marked
)
{_STARTED}
"""

_START_REFRESHES = f"""
{_STAGED_ROWS}, started AS (
    UPDATE runs run SET state = 'running', staged = staged_rows.staged, hash = staged_rows.hash, worker = :worker,
        started_at = now(), lease_until = now() + :lease * interval '1 second', inputs_rev = nr.inputs_rev,
        content = staged_rows.content
    FROM staged_rows JOIN node_roles nr ON nr.id = staged_rows.id
    WHERE run.node_role_id = nr.id AND run.state = 'queued'
    RETURNING run.id, run.node_role_id, run.slot, run.attempt, run.deadline, run.refresh, run.trace
), taken AS (
    UPDATE slots s SET candidate_id = NULL, cohort = NULL FROM started WHERE s.slot = started.slot
)
{_STARTED}
"""


async def claim_runs(
    session: Session, claimant: Claimant, cap: int, only: int | None = None, instant: InstantJigs | None = None
) -> ClaimResult:
    """Start what can start, enqueued runs first, at most one run a slot, under the cap. Needs the cap lock.

    With `instant`, instant runs are over when this returns.
    """
    _, [(running, has_queued)] = await _query_after_slot_refresh(session, (_SAME_PLANS, {}), (_COUNT_LOAD, {}))
    refreshed: list[Run] = []
    if has_queued and only is None:
        refreshed = await _claim_refreshes(session, claimant, cap + EXTRA_REFRESHES - running)
    room = cap - running - len(refreshed)
    if room <= 0:
        return ClaimResult(refreshed, [])
    ended = 0
    if instant and only is None:
        progress = await execute_instant_runs(session, instant, claimant.worker, claimant.node_id)
        ended = progress.ended
        if not progress.met_other:
            return ClaimResult(refreshed, [], ended, more=bool(ended))
    claimed = await _claim_ordinary(session, claimant, CandidateQuery(claimant.node_id, room, only))
    return ClaimResult(refreshed + claimed.started, claimed.unchanged, ended, more=bool(ended or claimed.unchanged))


async def _claim_ordinary(session: Session, claimant: Claimant, query: CandidateQuery) -> ClaimResult:
    candidates = read_candidates(
        *await _query_after_slot_refresh(session, *query.statements(await session.catalogue()))
    )
    if not candidates:
        return ClaimResult([], [])
    staged = await stage_candidates(session, candidates)
    unchanged = {
        candidate.id
        for candidate in candidates
        if not candidate.forced and candidate.hash == staged[candidate.id].staged.hash
    }
    await move_noderoles(session, Trigger.UNCHANGED, unchanged)
    starting = {candidate.id: staged[candidate.id] for candidate in candidates if candidate.id not in unchanged}
    started = await _start(session, _START, claimant, starting)
    session.state_changes.extend((id, int(fixed_target(Trigger.CLAIM))) for id in starting)
    return ClaimResult(started, sorted(unchanged))


async def _query_after_slot_refresh(session: Session, *statements: Statement) -> list[Rows]:
    """Refresh the slots of touched nodes, then run these statements, without waiting in between."""
    await queue_hooks_of_moves(session)
    refreshes = refresh_statements(session.touched) if session.touched else ()
    results = await session.batch(*refreshes, *statements)
    session.touched.clear()
    return results[len(refreshes) :]


async def _claim_refreshes(session: Session, claimant: Claimant, room: int) -> list[Run]:
    queued = await session.rows(_PICK_REFRESHES, here=claimant.node_id)
    first_of_slot = {row.slot: row.node_role_id for row in reversed(queued)}
    ids = [row.node_role_id for row in queued if first_of_slot[row.slot] == row.node_role_id][: max(room, 0)]
    if not ids:
        return []
    return await _start(session, _START_REFRESHES, claimant, await stage_noderoles(session, ids))


async def _start(session: Session, query: str, claimant: Claimant, starting: Mapping[int, StagedNodeRole]) -> list[Run]:
    if not starting:
        return []
    stored = await session.catalogue()
    contents = {id: stored.content_digest(noderole.role, claimant.file_kinds) for id, noderole in starting.items()}
    rows = await session.rows(
        query,
        staged_rows=Jsonb(
            [
                {"id": id, "staged": noderole.staged.input, "hash": noderole.staged.hash.hex(), "content": contents[id]}
                for id, noderole in starting.items()
            ]
        ),
        worker=claimant.worker,
        lease=claimant.lease,
    )
    jigs = stored.catalogue.jigs
    return [_build_run(row, starting[row.node_role_id], jigs, contents[row.node_role_id]) for row in rows]


def _build_run(row: Row[Any], noderole: StagedNodeRole, jigs: Mapping[str, Jig], content: str) -> Run:
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
