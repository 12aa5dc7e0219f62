"""Settles runs: writes their results, many at once, in the caller's transaction.

Runs are started by `claims.py`; the rest of a run's life (leases, deadlines, cancelling, refreshing) is in
`run_lifecycle.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from psycopg.types.json import Jsonb

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.runs import Answer
from rackwright.domain.states import NodeRoleState, Trigger
from rackwright.store.db.session import Session
from rackwright.store.graph.noderoles import delete_noderoles
from rackwright.store.graph.transition_sql import fixed_target, hash_sql, target_sql
from rackwright.store.graph.transitions import EVENT_KINDS, Move, mark_takers_dirty, update_children
from rackwright.store.runs.node_findings import write_findings


@dataclass(frozen=True)
class FinishedRun:
    """The result of a run."""

    run_id: int
    ok: bool = True
    error: str = ""
    wall: JsonObject = field(default_factory=dict)
    accepted: bool = False
    role: str = ""
    """The role whose secrets, if any, are in the wall."""

    @property
    def answer(self) -> Answer:
        if self.accepted:
            return Answer.ACCEPTED
        return Answer.SUCCEEDED if self.ok else Answer.FAILED


# A noderole that has this run as its own is in TRANSITION, by a constraint of the table: the source of all three
# triggers. A destructive one that succeeded is ACTIVE even if its inputs changed in the meantime: it never runs twice
# by itself.
_SETTLE = f"""
WITH results AS (
    SELECT * FROM jsonb_to_recordset(:results) AS results (id bigint, answer text, error text, wall jsonb)
), ended AS (
    UPDATE runs SET state = results.answer, error = results.error, lease_until = NULL,
        ended_at = CASE WHEN results.answer = 'accepted' THEN NULL ELSE now() END
    FROM results WHERE runs.id = results.id
      AND (runs.state = 'running' OR runs.state = 'accepted' AND results.answer <> 'accepted')
    RETURNING runs.id, runs.node_role_id, runs.node_id, runs.hash, runs.inputs_rev, runs.refresh, runs.state,
              runs.attempt, results.wall, results.error
), before AS (
    SELECT nr.id, nr.state AS was, nr.wall AS old_wall, ended.id AS run_id, ended.hash, ended.wall, ended.error,
        ended.refresh, ended.state AS run_state, ended.inputs_rev, r.destructive
    FROM ended JOIN node_roles nr ON nr.id = ended.node_role_id AND (nr.run_id = ended.id OR ended.refresh)
    JOIN roles r ON r.id = nr.role_id
    WHERE ended.state <> 'accepted'
    ORDER BY nr.id FOR UPDATE OF nr
), moved AS (
    UPDATE node_roles nr
    SET state = CASE WHEN before.refresh THEN nr.state
                     WHEN before.run_state = 'failed' THEN {target_sql(Trigger.FAIL)}
                     WHEN nr.inputs_rev = before.inputs_rev OR before.destructive THEN {target_sql(Trigger.SUCCEED)}
                     ELSE {target_sql(Trigger.STALE)} END,
        run_id = CASE WHEN before.refresh THEN nr.run_id END,
        error = CASE WHEN before.refresh THEN nr.error ELSE before.error END,
        hash = CASE WHEN before.run_state = 'succeeded' THEN before.hash WHEN before.refresh THEN nr.hash
                    ELSE {hash_sql(Trigger.FAIL)} END,
        wall = CASE WHEN before.run_state = 'succeeded' THEN before.wall ELSE nr.wall END,
        forced = nr.forced AND before.run_state <> 'succeeded',
        attempts = CASE WHEN before.run_state = 'succeeded' THEN 0 ELSE nr.attempts END
    FROM before WHERE nr.id = before.id
    RETURNING nr.id, before.was, nr.state AS now, nr.node_id, nr.deployment_id, nr.doomed, nr.trace,
              before.old_wall <> nr.wall AS wall_changed
), emitted AS (
    INSERT INTO events (kind, subject_id, node_id, deployment_id, trace)
    SELECT {EVENT_KINDS}[now + 1], id, node_id, deployment_id, trace FROM moved WHERE was <> now
), emitted_for_runs AS (
    INSERT INTO events (kind, subject_id, node_id)
    SELECT 'run.' || ended.state, ended.id, ended.node_id FROM ended WHERE ended.refresh OR ended.state = 'accepted'
)
SELECT id AS run_id, node_id, state AS run_state, NULL AS id, NULL AS was, NULL AS now, NULL AS doomed,
       NULL AS wall_changed FROM ended
UNION ALL SELECT NULL, node_id, NULL, id, was, now, doomed, wall_changed FROM moved
"""


async def settle_runs(session: Session, finished: Sequence[FinishedRun]) -> list[int]:
    """Write the results of runs, and return the ids of the runs that took theirs.

    A result for a run that is over changes nothing: its worker lost the lease, its node rebooted, or it was cancelled.
    """
    if not finished:
        return []
    walls = await _seal_walls(session, finished)
    rows = await session.rows(
        _SETTLE,
        results=Jsonb(
            [
                {"id": run.run_id, "answer": run.answer, "error": run.error, "wall": wall}
                for run, wall in zip(finished, walls, strict=True)
            ]
        ),
    )
    moved = [row for row in rows if row.id is not None]
    ended = [row for row in rows if row.run_id is not None]
    session.touch(row.node_id for row in rows)
    session.state_changes.extend((row.id, row.now) for row in moved if row.was != row.now)
    await update_children(session, [Move(row.id, NodeRoleState(row.was), NodeRoleState(row.now)) for row in moved])
    await delete_noderoles(session, [row.id for row in moved if row.doomed])
    await mark_takers_dirty(session, [row.id for row in moved if row.wall_changed and not row.doomed])
    succeeded = {row.run_id for row in ended if row.run_state == "succeeded"}
    results = zip(finished, walls, strict=True)
    await write_findings(session, {run.run_id: wall for run, wall in results if wall and run.run_id in succeeded})
    failed = [row.run_id for row in ended if row.run_state == "failed"]
    if failed:
        await _schedule_retries(session, failed)
    return [row.run_id for row in ended]


async def _seal_walls(session: Session, finished: Sequence[FinishedRun]) -> list[JsonObject]:
    catalogue = (await session.catalogue()).catalogue
    vault = session.store.vault
    return [
        vault.seal_secrets(catalogue.attribs_of(run.role), run.wall) if run.wall and run.role else run.wall
        for run in finished
    ]


async def _schedule_retries(session: Session, run_ids: Sequence[int]) -> None:
    """Schedule another try of a failed refresh, ever later; of a failed noderole only as often as the settings say."""
    await session.run(
        """
        INSERT INTO runs (node_role_id, node_id, slot, jig, state, refresh, attempt, deadline, not_before, trace)
        SELECT node_role_id, node_id, slot, jig, 'queued', true, attempt + 1, deadline,
               now() + least(300, power(2, least(attempt, 10))) * interval '1 second', trace
        FROM runs WHERE id = ANY (:ids) AND refresh ON CONFLICT DO NOTHING
        """,
        ids=list(run_ids),
    )
    await session.run(
        """
        UPDATE node_roles nr SET retry_at = now() + least(3600, power(2, least(nr.attempts, 12))) * interval '1 second'
        FROM runs r, settings s
        WHERE r.id = ANY (:ids) AND nr.id = r.node_role_id AND nr.state = :error AND s.name = 'retries'
          AND nr.attempts <= CAST(s.value AS int)
          AND NOT EXISTS (SELECT FROM roles WHERE roles.id = nr.role_id AND roles.destructive)
        """,
        ids=list(run_ids),
        error=int(fixed_target(Trigger.FAIL)),
    )
