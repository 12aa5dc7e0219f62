"""Moves noderoles from state to state, many at once, in SQL that is built from the domain's table of transitions.

Each move also updates the children (their count of unmet parents, and with it TODO or BLOCKED) and writes the outbox,
all in the caller's transaction. Children are locked in the order of their ids, so that two moves cannot deadlock.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from rackwright.domain.states import ACTIVE, BLOCKED, PROPOSED, TODO, TRANSITION, TRANSITIONS, NodeRoleState, Trigger
from rackwright.store.db.session import Session
from rackwright.store.graph.transition_sql import TODO_OR_BLOCKED, sources_sql, target_sql

EVENT_KINDS = "(ARRAY[" + ", ".join(f"'noderole.{state.label}'" for state in NodeRoleState) + "])"
"""SQL array of the kinds of events for the states: index it by state + 1."""

TRACE_OF = "coalesce(nullif(current_setting('rackwright.trace', true), ''), nr.trace, '')"
"""SQL for the trace of a run: that of the request that starts it, or else of the request that asked for the work."""


@dataclass(frozen=True)
class Move:
    """The change of one noderole's state."""

    id: int
    was: NodeRoleState
    now: NodeRoleState


async def move_noderoles(session: Session, trigger: Trigger, ids: Collection[int], *, error: str = "") -> list[Move]:
    """Apply `trigger` to those of `ids` that it moves, and return their moves."""
    if not ids:
        return []
    transition = TRANSITIONS[trigger]
    rows = await session.rows(
        _MOVE,
        ids=sorted(ids),
        sources=[int(source) for source in sorted(transition.sources)],
        target=None if transition.target is None else int(transition.target),
        spares=[int(state) for state in sorted(transition.spares_destructive)],
        forces=transition.forces,
        forgets=transition.forgets,
        error=error,
    )
    session.touch(row.node_id for row in rows if TODO in (row.was, row.now) or row.was == TRANSITION)
    session.state_changes.extend((row.id, row.now) for row in rows if row.was != row.now)
    moves = [Move(row.id, NodeRoleState(row.was), NodeRoleState(row.now)) for row in rows]
    await update_children(session, moves)
    return moves


async def update_children(session: Session, moves: Iterable[Move]) -> None:
    """Update the children of noderoles that became ACTIVE or left that state."""
    steps = [
        (move.id, -1 if move.now is ACTIVE else 1) for move in moves if (move.was is ACTIVE) != (move.now is ACTIVE)
    ]
    if steps:
        rows = await session.rows(UPDATE_CHILDREN, parents=[id for id, _ in steps], steps=[step for _, step in steps])
        session.touch(row.node_id for row in rows)
        session.state_changes.extend((row.id, row.now) for row in rows)


_MOVE = f"""
WITH before AS (
    SELECT nr.id, nr.state FROM node_roles nr JOIN roles r ON r.id = nr.role_id
    WHERE nr.id = ANY (:ids) AND nr.state = ANY (CAST(:sources AS smallint[]))
      AND NOT (r.destructive AND nr.state = ANY (CAST(:spares AS smallint[])))
      AND (CAST(:target AS smallint) IS DISTINCT FROM {int(TODO)} OR nr.unmet = 0)
      AND (CAST(:target AS smallint) IS DISTINCT FROM {int(BLOCKED)} OR nr.unmet > 0)
    ORDER BY nr.id FOR UPDATE OF nr
), moved AS (
    UPDATE node_roles nr
    SET state = coalesce(CAST(:target AS smallint), {TODO_OR_BLOCKED}),
        forced = nr.forced OR :forces,
        hash = CASE WHEN NOT :forgets THEN nr.hash END,
        run_id = CASE WHEN CAST(:target AS smallint) = {int(TRANSITION)} THEN nr.run_id END,
        error = :error
    FROM before WHERE nr.id = before.id
    RETURNING nr.id, before.state AS was, nr.state AS now, nr.node_id, nr.deployment_id, nr.trace
), emitted AS (
    INSERT INTO events (kind, subject_id, node_id, deployment_id, trace)
    SELECT {EVENT_KINDS}[now + 1], id, node_id, deployment_id, trace FROM moved WHERE was <> now
)
SELECT id, was, now, node_id FROM moved
"""

CHANGE_UNMET = f"""
before AS (
    SELECT nr.id, nr.state, steps.step
    FROM node_roles nr JOIN steps ON steps.id = nr.id
    ORDER BY nr.id FOR UPDATE OF nr
), moved AS (
    UPDATE node_roles nr
    SET unmet = nr.unmet + before.step,
        state = CASE
            WHEN {sources_sql(Trigger.PARENTS_MET)} AND nr.unmet + before.step = 0
            THEN {target_sql(Trigger.PARENTS_MET)}
            WHEN {sources_sql(Trigger.PARENT_LOST)} AND nr.unmet + before.step > 0
            THEN {target_sql(Trigger.PARENT_LOST)}
            ELSE nr.state END
    FROM before WHERE nr.id = before.id
    RETURNING nr.id, before.state AS was, nr.state AS now, nr.node_id, nr.deployment_id, nr.trace
)"""
"""Parts of a statement: they add `steps` (id, step) to the counts of unmet parents, and block or unblock noderoles."""

_CHANGE_UNMET_AND_TELL = f"""
{CHANGE_UNMET}, emitted AS (
    INSERT INTO events (kind, subject_id, node_id, deployment_id, trace)
    SELECT {EVENT_KINDS}[now + 1], id, node_id, deployment_id, trace FROM moved WHERE was <> now
)
SELECT id, now, node_id FROM moved WHERE was <> now
"""

UPDATE_CHILDREN = f"""
WITH steps AS (
    SELECT e.child_id AS id, sum(changed.step)::int AS step
    FROM unnest(CAST(:parents AS bigint[]), CAST(:steps AS int[])) AS changed (id, step)
    JOIN node_role_edges e ON e.parent_id = changed.id
    GROUP BY e.child_id
), {_CHANGE_UNMET_AND_TELL}"""

_CHANGE_UNMET_COUNTS = f"""
WITH steps AS (
    SELECT id, sum(step)::int AS step
    FROM unnest(CAST(:children AS bigint[]), CAST(:steps AS int[])) AS changes (id, step) GROUP BY id
), {_CHANGE_UNMET_AND_TELL}"""


async def change_unmet_counts(session: Session, steps: Iterable[tuple[int, int]]) -> None:
    """Change the children's counts of unmet parents: each got (+1) or lost (-1) a parent that is not ACTIVE."""
    listed_steps = list(steps)
    if listed_steps:
        rows = await session.rows(
            _CHANGE_UNMET_COUNTS, children=[id for id, _ in listed_steps], steps=[step for _, step in listed_steps]
        )
        session.touch(row.node_id for row in rows)
        session.state_changes.extend((row.id, row.now) for row in rows)


# --- inputs


async def mark_roles_dirty(session: Session, role_ids: Collection[int]) -> None:
    """Mark every noderole of these roles and its takers: they may be handed, and hand on, other values than before."""
    if role_ids:
        rows = await session.rows("SELECT id FROM node_roles WHERE role_id = ANY (:ids)", ids=list(role_ids))
        ids = {row.id for row in rows}
        takers = await find_takers(session, ids)
        await mark_dirty(session, ids.union(*takers.values()))


async def mark_dirty(session: Session, ids: Collection[int], trigger: Trigger = Trigger.DIRTY) -> list[Move]:
    """Note that an input of these noderoles changed, and return their moves.

    A run that is under way has old inputs, and a noderole that is ACTIVE may have to run again.
    """
    if not ids:
        return []
    await session.run(
        "WITH locked AS (SELECT id FROM node_roles WHERE id = ANY (:ids) ORDER BY id FOR UPDATE)"
        " UPDATE node_roles nr SET inputs_rev = inputs_rev + 1 FROM locked WHERE nr.id = locked.id",
        ids=sorted(ids),
    )
    return await move_noderoles(session, trigger, ids)


async def mark_takers_dirty(session: Session, sources: Collection[int]) -> None:
    """Note that the data of these noderoles changed: those that take inputs from one of them may have to run again."""
    for source, taker_ids in (await find_takers(session, sources)).items():
        await mark_dirty_by_run(session, source, taker_ids)


async def mark_dirty_by_run(session: Session, source: int, ids: Collection[int]) -> None:
    """Note that a run of the noderole `source` changed an input of these noderoles.

    More than `MAX_RERUNS_BY_ONE_CAUSE` re-runs from one cause within ten minutes end in ERROR: two noderoles would else
    make each other run for ever.
    """
    if not ids:
        return
    moves = await mark_dirty(session, ids)
    oscillating = await session.rows(
        _COUNT_CAUSE,
        ids=sorted(ids),
        moved=[move.id for move in moves],
        running=int(TRANSITION),
        source=source,
        limit=MAX_RERUNS_BY_ONE_CAUSE,
    )
    if oscillating:
        oscillating_ids = [row.id for row in oscillating]
        error = f"oscillates: {oscillating[0].title} keeps changing its inputs"
        await move_noderoles(session, Trigger.OSCILLATE, oscillating_ids, error=error)


MAX_RERUNS_BY_ONE_CAUSE = 5

_COUNT_CAUSE = """
WITH counted AS (
    UPDATE node_roles nr SET dirtied_by = :source,
        dirtied_times = CASE WHEN recent THEN dirtied_times + 1 ELSE 1 END,
        dirtied_since = CASE WHEN recent THEN dirtied_since ELSE now() END
    FROM (SELECT id, dirtied_by = :source AND dirtied_since > now() - interval '10 minutes' IS TRUE AS recent
          FROM node_roles WHERE id = ANY (:ids) AND (id = ANY (:moved) OR state = :running)
          ORDER BY id FOR UPDATE) before
    WHERE nr.id = before.id RETURNING nr.id, nr.dirtied_times
)
SELECT counted.id, r.name || ' on ' || n.name AS title FROM counted
JOIN node_roles s ON s.id = :source JOIN roles r ON r.id = s.role_id JOIN nodes n ON n.id = s.node_id
WHERE counted.dirtied_times > :limit
"""


async def find_takers(session: Session, ids: Collection[int]) -> dict[int, list[int]]:
    """Return for each noderole those that take inputs from its data: linked ones, and descendants on its own node."""
    if not ids:
        return {}
    rows = await session.rows(
        """
        WITH RECURSIVE above (source, taker, id) AS (
            SELECT s.id, t.id, e.parent_id
            FROM node_roles s JOIN node_roles t ON t.node_id = s.node_id AND t.cohort > s.cohort
            JOIN node_role_edges e ON e.child_id = t.id
            WHERE s.id = ANY (:ids)
            UNION
            SELECT above.source, above.taker, e.parent_id
            FROM above JOIN node_roles s ON s.id = above.source JOIN node_roles p ON p.id = above.id
            JOIN node_role_edges e ON e.child_id = above.id
            WHERE above.id <> above.source AND p.cohort > s.cohort
        )
        SELECT source, taker FROM above WHERE id = source
        UNION
        SELECT parent_id, child_id FROM node_role_links WHERE parent_id = ANY (:ids)
        """,
        ids=list(ids),
    )
    takers: dict[int, list[int]] = {}
    for row in rows:
        takers.setdefault(row.source, []).append(row.taker)
    return takers


# --- clusters


async def mark_peers_dirty(session: Session, node_id: int) -> None:
    """Note that the address of a node changed: it is an input of the peers of every cluster member on the node."""
    peers = await session.rows(
        """
        SELECT DISTINCT peer.id FROM node_roles member JOIN roles r ON r.id = member.role_id AND r.cluster
        JOIN node_roles peer ON peer.role_id = member.role_id AND peer.deployment_id = member.deployment_id
        WHERE member.node_id = :node_id AND member.state <> :proposed AND peer.state <> :proposed
        """,
        node_id=node_id,
        proposed=int(PROPOSED),
    )
    await mark_dirty(session, [row.id for row in peers])


async def rerun_cluster_peers(session: Session, members: Collection[int]) -> None:
    """Have the peers of these members of clusters, which came or are about to go, run again; their children wait.

    Noderoles of other roles among `members` are ignored.
    """
    peers = await session.rows(
        """
        SELECT DISTINCT peer.id FROM node_roles member JOIN roles r ON r.id = member.role_id AND r.cluster
        JOIN node_roles peer ON peer.role_id = member.role_id AND peer.deployment_id = member.deployment_id
        WHERE member.id = ANY (:ids) AND member.state <> :proposed AND peer.state <> :proposed
          AND peer.id NOT IN (SELECT unnest(CAST(:ids AS bigint[])))
        """,
        ids=list(members),
        proposed=int(PROPOSED),
    )
    ids = [row.id for row in peers]
    if not ids:
        return
    await mark_dirty(session, ids, Trigger.CHANGE)
    children = await session.rows("SELECT DISTINCT child_id FROM node_role_edges WHERE parent_id = ANY (:ids)", ids=ids)
    await move_noderoles(session, Trigger.REGROUP, [row.child_id for row in children])
    # A member that comes or goes changes the inputs of all its descendants on its own node, however far below they are.
    takers = await find_takers(session, members)
    await mark_dirty(session, {taker for taker_ids in takers.values() for taker in taker_ids} - set(members))
