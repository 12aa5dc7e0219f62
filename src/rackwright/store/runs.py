"""Runs: claiming noderoles for work, and settling what became of them. One transaction each, many noderoles at once."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from psycopg.types.json import Jsonb

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.runs import DEFAULT_DEADLINE, Run
from rackwright.domain.states import TODO, TRANSITION, Trigger
from rackwright.store.locks import CAP_LOCK
from rackwright.store.noderoles import erase
from rackwright.store.session import Session
from rackwright.store.staging import stage_noderoles
from rackwright.store.transitions import dirty, move, takers


@dataclass(frozen=True)
class Finished:
    """What became of a run."""

    run_id: int
    token: int
    ok: bool
    error: str = ""
    wall: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class Pass:
    """What one claim did."""

    started: list[Run]
    unchanged: list[int]
    """Noderoles whose inputs are those of their last success: ACTIVE without a run."""


_RUNNABLE = f"""
SELECT nr.id FROM node_roles nr
JOIN nodes n ON n.id = nr.node_id AND n.alive AND n.available
JOIN deployments d ON d.id = nr.deployment_id AND NOT d.held
JOIN roles r ON r.id = nr.role_id
JOIN jigs j ON j.name = r.jig AND j.active
WHERE nr.state = {int(TODO)} AND NOT nr.doomed AND (CAST(:only AS bigint) IS NULL OR nr.id = :only)
  AND NOT EXISTS (SELECT FROM runs WHERE runs.slot = {{slot}} AND runs.state IN ('running', 'accepted'))
ORDER BY nr.cohort, nr.id
"""

_SLOT = "CASE WHEN n.system THEN -nr.id ELSE n.id END"
"""One run at a time: of a machine, or, on a phantom node, of the noderole."""

_START = f"""
WITH picked AS (
    SELECT nr.id, nr.node_id, nr.inputs_rev, {_SLOT} AS slot, r.jig, n.name AS node, r.name AS role, j.kind,
           coalesce(r.deadline, {DEFAULT_DEADLINE}) AS deadline, given.staged, given.hash
    FROM unnest(CAST(:ids AS bigint[]), CAST(:staged AS jsonb[]), CAST(:hashes AS bytea[])) AS given (id, staged, hash)
    JOIN node_roles nr ON nr.id = given.id JOIN nodes n ON n.id = nr.node_id
    JOIN roles r ON r.id = nr.role_id JOIN jigs j ON j.name = r.jig
), started AS (
    INSERT INTO runs (node_role_id, node_id, slot, jig, state, token, inputs_rev, staged, hash, worker, started_at,
                      deadline, trace)
    SELECT id, node_id, slot, jig, 'running', 1, inputs_rev, staged, hash, :worker, now(),
           now() + deadline * interval '1 second', coalesce(current_setting('rackwright.trace', true), '')
    FROM picked RETURNING id, node_role_id, token
), marked AS (
    UPDATE node_roles nr SET run_id = started.id, state = {int(TRANSITION)}
    FROM started WHERE nr.id = started.node_role_id RETURNING nr.id, nr.node_id, nr.deployment_id
), told AS (
    INSERT INTO events (kind, subject_id, node_id, deployment_id)
    SELECT 'noderole.transition', id, node_id, deployment_id FROM marked
)
SELECT started.id, started.node_role_id, started.token, picked.node_id, picked.node, picked.role, picked.jig,
       picked.kind,
       picked.staged AS input
FROM started JOIN picked ON picked.id = started.node_role_id ORDER BY started.id
"""


async def claim(session: Session, worker: str, limit: int, only: int | None = None) -> Pass:
    """Hand up to `limit` runnable noderoles to `worker`, at most one a slot."""
    await session.run("SELECT pg_advisory_xact_lock(:lock)", lock=CAP_LOCK)
    candidates = await session.rows(_RUNNABLE.replace("{slot}", _SLOT), only=only)
    ids = await _first_of_each_slot(session, [row.id for row in candidates], limit)
    if not ids:
        return Pass([], [])
    staged = await stage_noderoles(session, ids)
    before = await session.rows(
        "SELECT id, hash, forced FROM node_roles WHERE id = ANY (:ids) AND state = :todo ORDER BY id FOR UPDATE",
        ids=ids,
        todo=int(TODO),
    )
    same = [row.id for row in before if not row.forced and row.hash == staged[row.id].hash]
    await move(session, Trigger.UNCHANGED, same)
    starting = [row.id for row in before if row.id not in same]
    rows = await session.rows(
        _START,
        ids=starting,
        staged=[Jsonb(staged[id].input) for id in starting],
        hashes=[staged[id].hash for id in starting],
        worker=worker,
    )
    started = [
        Run(row.id, row.node_role_id, row.node_id, row.node, row.role, row.jig, row.kind, row.token, row.input)
        for row in rows
    ]
    return Pass(started, same)


async def _first_of_each_slot(session: Session, ids: Sequence[int], limit: int) -> list[int]:
    found = await session.rows(
        f"SELECT nr.id, {_SLOT} AS slot FROM node_roles nr JOIN nodes n ON n.id = nr.node_id"
        " WHERE nr.id = ANY (:ids) ORDER BY nr.cohort, nr.id",
        ids=list(ids),
    )
    first: dict[int, int] = {}
    for row in found:
        first.setdefault(row.slot, row.id)
    return list(first.values())[:limit]


async def settle(session: Session, finished: Sequence[Finished]) -> None:
    """Write what became of runs. A result that comes with an old token, or for a run that is over, changes nothing."""
    for one in finished:
        await _settle(session, one)


async def _settle(session: Session, finished: Finished) -> None:
    run = await session.row(
        "UPDATE runs SET state = CASE WHEN :ok THEN 'succeeded' ELSE 'failed' END, ended_at = now(), error = :error"
        " WHERE id = :id AND token = :token AND state IN ('running', 'accepted')"
        " RETURNING node_role_id, hash, inputs_rev",
        ok=finished.ok,
        error=finished.error,
        id=finished.run_id,
        token=finished.token,
    )
    if run is None:
        return
    noderole = await session.row(
        "SELECT id, doomed, inputs_rev, wall FROM node_roles WHERE id = :id AND run_id = :run FOR UPDATE",
        id=run.node_role_id,
        run=finished.run_id,
    )
    if noderole is None:
        return
    if noderole.doomed:
        await move(session, Trigger.FAIL, [noderole.id])
        await erase(session, [noderole.id])
        return
    if not finished.ok:
        await move(session, Trigger.FAIL, [noderole.id], error=finished.error)
        return
    await session.run(
        "UPDATE node_roles SET hash = :hash, wall = :wall, forced = false WHERE id = :id",
        hash=run.hash,
        wall=Jsonb(finished.wall),
        id=noderole.id,
    )
    trigger = Trigger.SUCCEED if noderole.inputs_rev == run.inputs_rev else Trigger.STALE
    await move(session, trigger, [noderole.id])
    if noderole.wall != finished.wall:
        await dirty(session, (await takers(session, [noderole.id])).get(noderole.id, []))
