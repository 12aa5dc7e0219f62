"""Slots: for each place where one run at a time may be, the noderole that would run there next.

Whatever may change the answer marks the node as touched; once at the end of the transaction the slots of touched
nodes are worked out again. So the annealer's claim never looks at work that cannot start.
"""

from collections.abc import Collection, Mapping
from functools import cache

from rackwright.domain.runs import HOLDS_SLOT
from rackwright.domain.states import Trigger
from rackwright.store.db.session import GraphSession, Session
from rackwright.store.graph.transition_sql import sources_sql

WORK_CHANNEL = "rackwright_work"
"""Notified when a slot got something to run."""

TOUCHED = "rackwright.touched"
"""A setting of the transaction: the nodes that its last statement touched, for the statement after it."""

_HOLDS = ", ".join(f"'{state}'" for state in sorted(HOLDS_SLOT))

# Looked up once a statement, first: mostly there is none, and then nothing else about hooks is looked at.
_NO_HOOK = "NOT EXISTS (SELECT FROM hook_calls WHERE blocks)"
_NO_HOOK_HERE = f"({_NO_HOOK} OR NOT EXISTS (SELECT FROM hook_calls h WHERE h.blocks AND h.node_id = s.node_id))"
_NO_HOOK_ABOVE = f"""
    ({_NO_HOOK} OR NOT EXISTS (
        SELECT FROM node_role_edges e JOIN hook_calls h ON h.blocks AND h.subject_id = e.parent_id
        WHERE e.child_id = nr.id))
"""

# What is about the slot alone stands within: then it is looked at once, and the work of a busy node not at all.
_CANDIDATES = f"""
    SELECT s.slot, first.id, first.cohort
    FROM slots s
    JOIN nodes n ON n.id = s.node_id
    LEFT JOIN LATERAL (
        SELECT nr.id, nr.cohort
        FROM node_roles nr
        JOIN deployments d ON d.id = nr.deployment_id AND NOT d.held
        JOIN roles r ON r.id = nr.role_id
        JOIN jigs j ON j.name = r.jig AND j.active
        WHERE n.alive AND n.available AND {_NO_HOOK_HERE}
          AND NOT EXISTS (SELECT FROM runs WHERE runs.slot = s.slot AND runs.state IN ({_HOLDS}))
          AND nr.node_id = s.node_id AND {sources_sql(Trigger.CLAIM)} AND NOT nr.doomed
          AND (s.node_role_id IS NULL OR nr.id = s.node_role_id) AND {_NO_HOOK_ABOVE}
        ORDER BY nr.cohort, nr.id LIMIT 1
    ) first ON true
"""

_GIVEN = "CAST(:nodes AS bigint[])"
_TOUCHED = f"(SELECT CAST(current_setting('{TOUCHED}') AS bigint[]))::bigint[]"
"""Selected: so it is read once, and not again for each row."""


@cache
def _lock(nodes: str) -> str:
    return f"SELECT slot FROM slots WHERE node_id = ANY ({nodes}) ORDER BY slot FOR UPDATE"


@cache
def _refresh(nodes: str) -> str:
    return f"""
        WITH wanted AS ({_CANDIDATES} WHERE s.node_id = ANY ({nodes}))
        UPDATE slots s SET candidate_id = wanted.id, cohort = wanted.cohort
        FROM wanted WHERE s.slot = wanted.slot
          AND (s.candidate_id IS DISTINCT FROM wanted.id OR s.cohort IS DISTINCT FROM wanted.cohort)
        RETURNING s.candidate_id
    """


_DRIFT = f"""
WITH wanted AS ({_CANDIDATES} WHERE s.slot > :after ORDER BY s.slot LIMIT :limit)
SELECT s.slot, s.node_id,
       s.candidate_id IS DISTINCT FROM wanted.id OR s.cohort IS DISTINCT FROM wanted.cohort AS wrong
FROM slots s JOIN wanted ON wanted.slot = s.slot ORDER BY s.slot
"""


async def refresh_slots(session: Session, nodes: Collection[int]) -> bool:
    """Work out anew what would run next on these nodes; whether something can start now."""
    if not nodes:
        return False
    _, changed = await session.batch(*refreshing(nodes))
    return any(candidate is not None for (candidate,) in changed)


def refreshing(nodes: Collection[int]) -> tuple[tuple[str, Mapping[str, object]], ...]:
    """The statements that do it, for those who send more with them."""
    # Locked in a statement of its own: of two transactions that each bring half of what it takes, the second then sees
    # what the first did, and one of them finds the candidate.
    given = {"nodes": "{" + ",".join(map(str, nodes)) + "}"}
    return (_lock(_GIVEN), given), (_refresh(_GIVEN), given)


def refreshing_touched() -> tuple[tuple[str, Mapping[str, object]], ...]:
    """The same for the nodes in `TOUCHED`."""
    return (_lock(_TOUCHED), {}), (_refresh(_TOUCHED), {})


async def add_slots(session: GraphSession, *, nodes: Collection[int] = (), node_roles: Collection[int] = ()) -> None:
    """Slots of new machines, and of those of the new noderoles that live on a phantom node."""
    if nodes:
        await session.run(
            "INSERT INTO slots (slot, node_id) SELECT n, n FROM unnest(CAST(:ids AS bigint[])) n", ids=list(nodes)
        )
    if node_roles:
        await session.run(
            "INSERT INTO slots (slot, node_id, node_role_id) SELECT -nr.id, nr.node_id, nr.id"
            " FROM node_roles nr JOIN nodes n ON n.id = nr.node_id AND n.system WHERE nr.id = ANY (:ids)",
            ids=list(node_roles),
        )


async def check_slots(session: Session, after: int, limit: int) -> tuple[int | None, list[int]]:
    """Look at a slice of slots: where the next one begins (None: it was the last), and nodes whose slots are wrong."""
    rows = await session.rows(_DRIFT, after=after, limit=limit)
    last = rows[-1].slot if len(rows) == limit else None
    return last, [row.node_id for row in rows if row.wrong]
