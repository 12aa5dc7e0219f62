"""The rest of a run's life: leases, takeover, deadlines, cancelling, enqueued refreshes and history."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rackwright.domain.errors import Conflict, NotFound, Rule
from rackwright.domain.runs import DEFAULT_DEADLINE, RunState
from rackwright.domain.states import ACTIVE, ERROR, PROPOSED, Trigger
from rackwright.store.db.listing import Column, Filter, Listing
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import Visibility
from rackwright.store.graph.noderoles import NodeRoleRecord, erase_doomed, get_noderole
from rackwright.store.graph.transitions import dirty, move
from rackwright.store.machines.install_attempts import end_attempt
from rackwright.store.runs.settling import Finished, settle
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
    """Of the noderole; None once that is gone."""
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
    found = await select_runs(session, where, id=id, **visible.values)
    if not found:
        raise NotFound("run", id)
    return found[0]


async def open_runs(session: Session, visible: Visibility) -> dict[str, int]:
    """How many that are not over are in which state."""
    seen = visible.condition("node_role_id IN (SELECT nr.id FROM node_roles nr WHERE nr.deployment_id = ANY (:sees))")
    # In two: each has an index of its own.
    rows = await session.rows(
        f"SELECT state, count(*) AS n FROM runs WHERE state = 'queued' AND {seen} GROUP BY state"
        f" UNION ALL SELECT state, count(*) FROM runs WHERE state IN ('accepted', 'running') AND {seen} GROUP BY state",
        **visible.values,
    )
    return {row.state: row.n for row in rows}


# --- leases


async def renew_leases(session: Session, worker: str, lease: float) -> set[int]:
    """Keep the runs of a live worker, and say which it still has."""
    rows = await session.rows(
        "UPDATE runs SET lease_until = now() + :lease * interval '1 second'"
        " WHERE worker = :worker AND state IN ('accepted', 'running') AND state = 'running' RETURNING id",
        worker=worker,
        lease=lease,
    )
    return {row.id for row in rows}


async def take_over(session: Session) -> list[int]:
    """End runs whose worker died. They start again, but for destructive ones: a person decides about those."""
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
    await _tell(session, [row.id for row in lost])
    await _requeue(session, [row.id for row in lost if row.refresh])
    ids = [row.node_role_id for row in lost if not row.refresh]
    # An install does nothing to its machine before its run is accepted, and an accepted run has no worker to lose.
    destructive = await session.rows(
        "SELECT nr.id FROM node_roles nr JOIN roles r ON r.id = nr.role_id AND r.destructive"
        " JOIN jigs j ON j.name = r.jig AND j.kind <> :install WHERE nr.id = ANY (:ids)",
        ids=ids,
        install=INSTALL_JIG,
    )
    spoilt = {row.id for row in destructive}
    await move(
        session,
        Trigger.FAIL,
        spoilt,
        error="The server that ran it died in the middle. It is destructive, so it is not run again by itself: "
        "look at the machine, then retry.",
    )
    await move(session, Trigger.LOST, [id for id in ids if id not in spoilt])
    await erase_doomed(session, ids)
    return [row.id for row in lost]


async def give_up(session: Session, run_ids: Sequence[int]) -> None:
    """A worker that stops hands back what it did not finish: its lease ends now."""
    await session.run(
        "UPDATE runs SET lease_until = now() - interval '1 second' WHERE id = ANY (:ids) AND state = 'running'",
        ids=list(run_ids),
    )
    await take_over(session)


async def _requeue(session: Session, run_ids: Sequence[int]) -> None:
    if run_ids:
        await session.run(
            "INSERT INTO runs (node_role_id, node_id, slot, jig, state, refresh, attempt, deadline, trace)"
            " SELECT node_role_id, node_id, slot, jig, 'queued', true, attempt + 1, deadline, trace"
            " FROM runs WHERE id = ANY (:ids) ON CONFLICT DO NOTHING",
            ids=list(run_ids),
        )


async def _tell(session: Session, run_ids: Sequence[int]) -> None:
    await session.run(
        "INSERT INTO events (kind, subject_id, node_id)"
        " SELECT 'run.' || state, id, node_id FROM runs WHERE id = ANY (:ids)",
        ids=list(run_ids),
    )


# --- ending by time or by hand


async def end_overdue(session: Session) -> list[int]:
    """Fail accepted runs that are past their deadline.

    A worker ends those it executes by itself, and an install attempt its own: it knows how far it had come.
    """
    rows = await session.rows(
        "SELECT id, deadline FROM runs WHERE state = 'accepted' AND started_at + deadline * interval '1 second' < now()"
        " AND NOT EXISTS (SELECT FROM install_attempts a WHERE a.run_id = runs.id AND a.ended_at IS NULL)"
        " ORDER BY id FOR UPDATE SKIP LOCKED"
    )
    return await settle(
        session, [Finished(row.id, ok=False, error=f"not finished within {row.deadline:g} s") for row in rows]
    )


async def retry_due(session: Session) -> int:
    """Start again what failed and whose time for another try has come."""
    rows = await session.rows("SELECT id FROM node_roles WHERE retry_at <= now() AND state = :error", error=int(ERROR))
    moved = await move(session, Trigger.RETRY, [row.id for row in rows])
    await session.run("UPDATE node_roles SET retry_at = NULL WHERE id = ANY (:ids)", ids=[one.id for one in moved])
    return len(moved)


async def cancel_run(session: Session, id: int) -> None:
    """End a run by hand. Its noderole goes to ERROR; the worker that executes it stops."""
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
    await _tell(session, [id])
    await session.run(f"NOTIFY {CANCEL_CHANNEL}, '{int(id)}'")
    if not run.refresh:
        await move(session, Trigger.FAIL, [run.node_role_id], error=f"cancelled by {session.actor}")
        await end_attempt(session, id, f"Cancelled by {session.actor}")
        await erase_doomed(session, [run.node_role_id])


CANCEL_CHANNEL = "rackwright_cancel"


# --- refreshing


async def enqueue(session: Session, node_role_id: int) -> None:
    """Have a noderole run again with what it is given now. Requests that wait already are one.

    While it refreshes it stays ACTIVE for its children. What is not ACTIVE just runs again when its turn comes.
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
        await dirty(session, [node_role_id])


async def _queue_refresh(session: Session, noderole: NodeRoleRecord) -> None:
    made = await session.run(
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
    if made:
        await session.run(f"NOTIFY {WORK_CHANNEL}")


async def drop_moot_refreshes(session: Session) -> None:
    """Requests for a refresh of what is no longer ACTIVE: it runs anyway, or is gone."""
    await session.run(
        """
        UPDATE runs SET state = 'cancelled', ended_at = now(), error = 'its noderole runs anyway, or is gone'
        WHERE state = 'queued' AND NOT EXISTS (
            SELECT FROM node_roles nr WHERE nr.id = runs.node_role_id AND nr.state = :active AND NOT nr.doomed)
        """,
        active=int(ACTIVE),
    )
