"""The life of a run between claim and settling: leases, takeover, deadlines, cancelling, refreshes and history."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rackwright.domain.errors import Conflict, NotFound, Rule
from rackwright.domain.runs import DEFAULT_DEADLINE, RunState
from rackwright.domain.states import ACTIVE, ERROR, PROPOSED, Trigger
from rackwright.store.db.listing import Column, Filter, Listing
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import Visibility
from rackwright.store.graph.noderoles import NodeRoleRecord, delete_doomed, get_noderole
from rackwright.store.graph.transitions import mark_dirty, move_noderoles
from rackwright.store.machines.install_attempts import end_attempt
from rackwright.store.runs.settling import FinishedRun, settle_runs
from rackwright.store.runs.slots import WORK_CHANNEL

INSTALL_JIG = "os-install"
"""The kind of jig whose runs become install attempts."""


@dataclass(frozen=True)
class RunRecord:
    id: int
    node_role_id: int
    node: str | None
    role: str | None
    deployment: str | None
    deployment_id: int | None
    """The deployment of the noderole; None once the noderole is gone."""
    jig: str
    state: str
    attempt: int
    refresh: bool
    worker: str | None
    error: str
    queued_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    trace: str
    content: str


_SELECT = """
SELECT run.id, run.node_role_id, n.name AS node, r.name AS role, d.name AS deployment, d.id AS deployment_id,
       run.jig, run.state, run.attempt, run.refresh, run.worker, run.error, run.queued_at,
       run.started_at, run.ended_at, run.trace, run.content
FROM runs run LEFT JOIN node_roles nr ON nr.id = run.node_role_id LEFT JOIN nodes n ON n.id = run.node_id
LEFT JOIN roles r ON r.id = nr.role_id LEFT JOIN deployments d ON d.id = nr.deployment_id
"""


RUNS = Listing(
    "runs",
    {
        "id": Column("run.id", Filter.NUMBER, sort="bigint"),
        "state": Column("run.state", Filter.CHOICE, choices={state.value: state.value for state in RunState}),
        "node": Column("n.name", Filter.REFERENCE, "run.node_id"),
        "role": Column("r.name"),
        "deployment": Column("d.name", Filter.REFERENCE, "d.id"),
        "jig": Column("run.jig"),
        "node_role_id": Column("run.node_role_id", Filter.NUMBER),
        "refresh": Column("run.refresh", Filter.FLAG),
        "worker": Column("run.worker"),
        "trace": Column("run.trace"),
        "queued_at": Column("run.queued_at", Filter.TIME, sort="timestamptz"),
        "ended_at": Column("run.ended_at", Filter.TIME),
    },
    default="-id",
    id="run.id",
    seen="nr.deployment_id = ANY (:sees)",
    listed="run.node_role_id = ANY (ARRAY(SELECT m.id FROM node_roles m WHERE m.deployment_id = ANY (:sees)))",
)


async def select_runs(session: Session, where: str, **values: object) -> list[RunRecord]:
    return [RunRecord(**row._mapping) for row in await session.rows(f"{_SELECT} {where}", **values)]


async def get_run(session: Session, id: int, visible: Visibility) -> RunRecord:
    where = f"WHERE run.id = :id AND {visible.condition(RUNS.seen)}"
    records = await select_runs(session, where, id=id, **visible.values)
    if not records:
        raise NotFound("run", id)
    return records[0]


async def count_open_runs(session: Session, visible: Visibility) -> dict[str, int]:
    """Return how many of the runs that are not over are in which state."""
    seen = visible.condition("node_role_id IN (SELECT nr.id FROM node_roles nr WHERE nr.deployment_id = ANY (:sees))")
    # Two selects: each has an index of its own.
    rows = await session.rows(
        f"SELECT state, count(*) AS n FROM runs WHERE state = 'queued' AND {seen} GROUP BY state"
        f" UNION ALL SELECT state, count(*) FROM runs WHERE state IN ('accepted', 'running') AND {seen} GROUP BY state",
        **visible.values,
    )
    return {row.state: row.n for row in rows}


# --- leases


async def renew_leases(session: Session, worker: str, lease: float) -> set[int]:
    """Renew the leases of a live worker's runs, and return the runs that it still has."""
    rows = await session.rows(
        "UPDATE runs SET lease_until = now() + :lease * interval '1 second'"
        " WHERE worker = :worker AND state IN ('accepted', 'running') AND state = 'running' RETURNING id",
        worker=worker,
        lease=lease,
    )
    return {row.id for row in rows}


async def take_over_lost_runs(session: Session) -> list[int]:
    """End runs whose worker died. Their noderoles run again, but for destructive ones: a person decides about those."""
    lost = await session.rows(
        """
        UPDATE runs SET state = 'lost', ended_at = now(), error = 'its worker ' || coalesce(worker, '?') || ' died'
        WHERE id IN (SELECT id FROM runs WHERE state IN ('accepted', 'running') AND state = 'running'
                     AND lease_until < now() ORDER BY id FOR UPDATE SKIP LOCKED)
        RETURNING id, node_role_id, node_id, refresh
        """
    )
    if not lost:
        return []
    session.touch(row.node_id for row in lost)
    await _emit_run_events(session, [row.id for row in lost])
    await _requeue(session, [row.id for row in lost if row.refresh])
    ids = [row.node_role_id for row in lost if not row.refresh]
    # An install does nothing to its machine before its run is accepted, and an accepted run has no worker to lose.
    destructive = await session.rows(
        "SELECT nr.id FROM node_roles nr JOIN roles r ON r.id = nr.role_id AND r.destructive"
        " JOIN jigs j ON j.name = r.jig AND j.kind <> :install WHERE nr.id = ANY (:ids)",
        ids=ids,
        install=INSTALL_JIG,
    )
    destructive_ids = {row.id for row in destructive}
    await move_noderoles(
        session,
        Trigger.FAIL,
        destructive_ids,
        error="The server that ran it died in the middle. It is destructive, so it is not run again by itself: "
        "look at the machine, then retry.",
    )
    await move_noderoles(session, Trigger.LOST, [id for id in ids if id not in destructive_ids])
    await delete_doomed(session, ids)
    return [row.id for row in lost]


async def release_runs(session: Session, run_ids: Sequence[int]) -> None:
    """Hand back the runs that a worker which stops did not finish: their lease ends now."""
    await session.run(
        "UPDATE runs SET lease_until = now() - interval '1 second' WHERE id = ANY (:ids) AND state = 'running'",
        ids=list(run_ids),
    )
    await take_over_lost_runs(session)


async def _requeue(session: Session, run_ids: Sequence[int]) -> None:
    if run_ids:
        await session.run(
            "INSERT INTO runs (node_role_id, node_id, slot, jig, state, refresh, attempt, deadline, trace)"
            " SELECT node_role_id, node_id, slot, jig, 'queued', true, attempt + 1, deadline, trace"
            " FROM runs WHERE id = ANY (:ids) ON CONFLICT DO NOTHING",
            ids=list(run_ids),
        )


async def _emit_run_events(session: Session, run_ids: Sequence[int]) -> None:
    await session.run(
        "INSERT INTO events (kind, subject_id, node_id)"
        " SELECT 'run.' || state, id, node_id FROM runs WHERE id = ANY (:ids)",
        ids=list(run_ids),
    )


# --- deadlines, retries and cancelling


async def fail_overdue_runs(session: Session) -> list[int]:
    """Fail accepted runs that are past their deadline, and return those that failed.

    A worker ends the runs that it executes by itself, and an install attempt ends its own run: it knows how far it had
    come.
    """
    rows = await session.rows(
        "SELECT id, deadline FROM runs WHERE state = 'accepted' AND started_at + deadline * interval '1 second' < now()"
        " AND NOT EXISTS (SELECT FROM install_attempts a WHERE a.run_id = runs.id AND a.ended_at IS NULL)"
        " ORDER BY id FOR UPDATE SKIP LOCKED"
    )
    return await settle_runs(
        session, [FinishedRun(row.id, ok=False, error=f"not finished within {row.deadline:g} s") for row in rows]
    )


async def retry_due_noderoles(session: Session) -> int:
    """Retry failed noderoles whose time for another try has come, and return how many."""
    rows = await session.rows("SELECT id FROM node_roles WHERE retry_at <= now() AND state = :error", error=int(ERROR))
    moves = await move_noderoles(session, Trigger.RETRY, [row.id for row in rows])
    await session.run("UPDATE node_roles SET retry_at = NULL WHERE id = ANY (:ids)", ids=[move.id for move in moves])
    return len(moves)


async def cancel_run(session: Session, id: int) -> None:
    """Cancel a run at a person's request. Its noderole goes to ERROR; the worker that executes it stops."""
    run = await session.row(
        "SELECT id, state, node_id, node_role_id, refresh FROM runs WHERE id = :id FOR NO KEY UPDATE", id=id
    )
    if run is None:
        raise NotFound("run", id)
    if run.state not in ("queued", "running", "accepted"):
        raise Conflict(Rule.NOT_RETRYABLE, f"Run {id} is over already: it {run.state}.")
    await session.run(
        "UPDATE runs SET state = 'cancelled', ended_at = now(), error = :error WHERE id = :id",
        id=id,
        error=f"cancelled by {session.actor}",
    )
    session.touch([run.node_id])
    await _emit_run_events(session, [id])
    await session.run(f"NOTIFY {CANCEL_CHANNEL}, '{int(id)}'")
    if not run.refresh:
        await move_noderoles(session, Trigger.FAIL, [run.node_role_id], error=f"cancelled by {session.actor}")
        await end_attempt(session, id, f"Cancelled by {session.actor}")
        await delete_doomed(session, [run.node_role_id])


CANCEL_CHANNEL = "rackwright_cancel"


# --- refreshing


async def enqueue_refresh(session: Session, node_role_id: int) -> None:
    """Have a noderole run again with the inputs it has now. A request that waits already is not repeated.

    While a noderole refreshes it stays ACTIVE for its children. One that is not ACTIVE just runs again when its turn
    comes.
    """
    noderole = await get_noderole(session, node_role_id)
    if noderole.destructive and noderole.state is ACTIVE:
        return
    if noderole.state is PROPOSED:
        raise Conflict(Rule.NOT_RETRYABLE, f"{noderole.role} on {noderole.node} is only proposed.")
    if noderole.state is ACTIVE:
        await _queue_refresh(session, noderole)
    else:
        await session.run("UPDATE node_roles SET forced = true WHERE id = :id", id=node_role_id)
        await mark_dirty(session, [node_role_id])


async def _queue_refresh(session: Session, noderole: NodeRoleRecord) -> None:
    inserted = await session.run(
        """
        INSERT INTO runs (node_role_id, node_id, slot, jig, state, refresh, deadline, trace)
        SELECT nr.id, nr.node_id, CASE WHEN n.system THEN -nr.id ELSE n.id END, r.jig, 'queued', true,
               coalesce(r.deadline, :deadline), coalesce(current_setting('rackwright.trace', true), '')
        FROM node_roles nr JOIN nodes n ON n.id = nr.node_id JOIN roles r ON r.id = nr.role_id WHERE nr.id = :id
        ON CONFLICT DO NOTHING
        """,
        id=noderole.id,
        deadline=DEFAULT_DEADLINE,
    )
    if inserted:
        await session.run(f"NOTIFY {WORK_CHANNEL}")


async def drop_moot_refreshes(session: Session) -> None:
    """Cancel requests for a refresh of noderoles that are no longer ACTIVE: those run anyway, or are gone."""
    await session.run(
        """
        UPDATE runs SET state = 'cancelled', ended_at = now(), error = 'its noderole runs anyway, or is gone'
        WHERE state = 'queued' AND NOT EXISTS (
            SELECT FROM node_roles nr WHERE nr.id = runs.node_role_id AND nr.state = :active AND NOT nr.doomed)
        """,
        active=int(ACTIVE),
    )
