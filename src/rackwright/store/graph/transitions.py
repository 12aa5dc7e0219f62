"""Moving noderoles from state to state, many at once: the domain's table turned into SQL.

Each move also tells the children (their count of unmet parents, and with it TODO or BLOCKED) and writes the outbox,
all in the caller's transaction. Children are locked in the order of their ids, so that two moves cannot deadlock.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from rackwright.domain.states import ACTIVE, BLOCKED, PROPOSED, TODO, TRANSITION, TRANSITIONS, NodeRoleState, Trigger
from rackwright.store.db.session import Session
from rackwright.store.graph.transition_sql import WAITS, sources_sql, target_sql

LABELS = "(ARRAY[" + ", ".join(f"'noderole.{state.label}'" for state in NodeRoleState) + "])"
"""The kind of event for a state: index it by state + 1."""

TRACE_OF = "coalesce(nullif(current_setting('rackwright.trace', true), ''), nr.trace, '')"
"""Of a run: that of the request it is started by, or else of the one that asked for the work."""


@dataclass(frozen=True)
class Move:
    """What became of one noderole."""

    id: int
    was: NodeRoleState
    now: NodeRoleState


async def move(session: Session, trigger: Trigger, ids: Collection[int], *, error: str = "") -> list[Move]:
    """Apply `trigger` to those of `ids` that it moves, and say which those were."""
    if not ids:
        return []
    transition = TRANSITIONS[trigger]
    moved = await session.rows(
        _MOVE,
        ids=sorted(ids),
        sources=[int(source) for source in sorted(transition.sources)],
        target=None if transition.target is None else int(transition.target),
        spares=[int(state) for state in sorted(transition.spares_destructive)],
        forces=transition.forces,
        forgets=transition.forgets,
        error=error,
    )
    session.touch(row.node_id for row in moved if TODO in (row.was, row.now) or row.was == TRANSITION)
    session.moved.extend((row.id, row.now) for row in moved if row.was != row.now)
    moves = [Move(row.id, NodeRoleState(row.was), NodeRoleState(row.now)) for row in moved]
    await tell_children(session, moves)
    return moves


async def tell_children(session: Session, moves: Iterable[Move]) -> None:
    """Let the children of those that became ACTIVE, or left it, know."""
    turned = [(one.id, -1 if one.now is ACTIVE else 1) for one in moves if (one.was is ACTIVE) != (one.now is ACTIVE)]
    if turned:
        rows = await session.rows(TELL_CHILDREN, parents=[id for id, _ in turned], steps=[step for _, step in turned])
        session.touch(row.node_id for row in rows)
        session.moved.extend((row.id, row.now) for row in rows)


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
    SET state = coalesce(CAST(:target AS smallint), {WAITS}),
        forced = nr.forced OR :forces,
        hash = CASE WHEN NOT :forgets THEN nr.hash END,
        run_id = CASE WHEN CAST(:target AS smallint) = {int(TRANSITION)} THEN nr.run_id END,
        error = :error
    FROM before WHERE nr.id = before.id
    RETURNING nr.id, before.state AS was, nr.state AS now, nr.node_id, nr.deployment_id, nr.trace
), told AS (
    INSERT INTO events (kind, subject_id, node_id, deployment_id, trace)
    SELECT {LABELS}[now + 1], id, node_id, deployment_id, trace FROM moved WHERE was <> now
)
SELECT id, was, now, node_id FROM moved
"""

STEPPED = f"""
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
"""Parts of a statement: add `steps` (id, step) to the counts of unmet parents, and move what this unblocks or blocks.
"""

_STEP = f"""
{STEPPED}, told AS (
    INSERT INTO events (kind, subject_id, node_id, deployment_id, trace)
    SELECT {LABELS}[now + 1], id, node_id, deployment_id, trace FROM moved WHERE was <> now
)
SELECT id, now, node_id FROM moved WHERE was <> now
"""

TELL_CHILDREN = f"""
WITH steps AS (
    SELECT e.child_id AS id, sum(turned.step)::int AS step
    FROM unnest(CAST(:parents AS bigint[]), CAST(:steps AS int[])) AS turned (id, step)
    JOIN node_role_edges e ON e.parent_id = turned.id
    GROUP BY e.child_id
), {_STEP}"""

_STEP_CHILDREN = f"""
WITH steps AS (
    SELECT id, sum(step)::int AS step
    FROM unnest(CAST(:children AS bigint[]), CAST(:steps AS int[])) AS given (id, step) GROUP BY id
), {_STEP}"""


async def step_children(session: Session, steps: Iterable[tuple[int, int]]) -> None:
    """Children got (+1) or lost (-1) a parent that is not ACTIVE."""
    listed = list(steps)
    if listed:
        rows = await session.rows(_STEP_CHILDREN, children=[id for id, _ in listed], steps=[step for _, step in listed])
        session.touch(row.node_id for row in rows)
        session.moved.extend((row.id, row.now) for row in rows)


# --- inputs


async def dirty_roles(session: Session, role_ids: Collection[int]) -> None:
    """Every noderole of these roles may be handed, and hand on, other values than before."""
    if role_ids:
        found = await session.rows("SELECT id FROM node_roles WHERE role_id = ANY (:ids)", ids=list(role_ids))
        ids = {row.id for row in found}
        taking = await takers(session, ids)
        await dirty(session, ids.union(*taking.values()))


async def dirty(session: Session, ids: Collection[int], trigger: Trigger = Trigger.DIRTY) -> list[Move]:
    """An input of these noderoles changed: whatever runs now runs with old ones, and what is ACTIVE may have to run."""
    if not ids:
        return []
    await session.run(
        "WITH locked AS (SELECT id FROM node_roles WHERE id = ANY (:ids) ORDER BY id FOR UPDATE)"
        " UPDATE node_roles nr SET inputs_rev = inputs_rev + 1 FROM locked WHERE nr.id = locked.id",
        ids=sorted(ids),
    )
    return await move(session, trigger, ids)


async def dirty_takers(session: Session, sources: Collection[int]) -> None:
    """The data of these noderoles changed: whoever takes inputs from one of them may have to run again."""
    for source, taking in (await takers(session, sources)).items():
        await dirty_because_of(session, source, taking)


async def dirty_because_of(session: Session, source: int, ids: Collection[int]) -> None:
    """A run of the noderole `source` changed an input of these.

    More than `OSCILLATION` re-runs from one cause within ten minutes end in ERROR: two noderoles would else chase
    each other for ever.
    """
    if not ids:
        return
    moves = await dirty(session, ids)
    restless = await session.rows(
        _COUNT_CAUSE,
        ids=sorted(ids),
        moved=[one.id for one in moves],
        running=int(TRANSITION),
        source=source,
        limit=OSCILLATION,
    )
    if restless:
        restless_ids = [row.id for row in restless]
        error = f"oscillates: {restless[0].title} keeps changing its inputs"
        await move(session, Trigger.OSCILLATE, restless_ids, error=error)


OSCILLATION = 5

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


async def takers(session: Session, ids: Collection[int]) -> dict[int, list[int]]:
    """For each noderole, those that take inputs from its data: linked ones, and its descendants on its own node."""
    if not ids:
        return {}
    found = await session.rows(
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
    taking: dict[int, list[int]] = {}
    for row in found:
        taking.setdefault(row.source, []).append(row.taker)
    return taking


# --- clusters


async def dirty_peers(session: Session, node_id: int) -> None:
    """The address of a node changed, which is an input of the peers of every cluster member on it."""
    peers = await session.rows(
        """
        SELECT DISTINCT peer.id FROM node_roles member JOIN roles r ON r.id = member.role_id AND r.cluster
        JOIN node_roles peer ON peer.role_id = member.role_id AND peer.deployment_id = member.deployment_id
        WHERE member.node_id = :node_id AND member.state <> :proposed AND peer.state <> :proposed
        """,
        node_id=node_id,
        proposed=int(PROPOSED),
    )
    await dirty(session, [row.id for row in peers])


async def regroup(session: Session, members: Collection[int]) -> None:
    """These members of clusters came or are about to go: their peers run again, and whoever stands on them waits.

    Noderoles of other roles among `members` are passed over.
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
    await dirty(session, ids, Trigger.CHANGE)
    children = await session.rows("SELECT DISTINCT child_id FROM node_role_edges WHERE parent_id = ANY (:ids)", ids=ids)
    await move(session, Trigger.REGROUP, [row.child_id for row in children])
    # What comes or goes above others on its own node changes their inputs, however far below they stand.
    taking = await takers(session, members)
    await dirty(session, {taker for found in taking.values() for taker in found} - set(members))
