"""Slots: for each place where one run at a time may be, the noderole that would run there next.

Whatever may change the candidate of a slot marks the node as touched; once, at the end of the transaction, the slots of
touched nodes are computed again. So the annealer's claim never looks at work that cannot start.
"""

from collections.abc import Collection, Mapping
from functools import cache

from rackwright.domain.runs import HOLDS_SLOT
from rackwright.domain.states import Trigger
from rackwright.store.db.session import GraphSession, Session
from rackwright.store.graph.transition_sql import sources_sql

WORK_CHANNEL = "rackwright_work"
"""The channel that is notified when a slot got something to run."""

TOUCHED_SETTING = "rackwright.touched"
"""A setting of the transaction that hands the nodes touched by one statement to the next statement."""

_SLOT_HOLDING_STATES = ", ".join(f"'{state}'" for state in sorted(HOLDS_SLOT))

# This is looked up first, once a statement: mostly there is no such call, and then nothing else about hooks is read.
_NO_HOOK = "NOT EXISTS (SELECT FROM hook_calls WHERE blocks)"
_NO_HOOK_HERE = f"({_NO_HOOK} OR NOT EXISTS (SELECT FROM hook_calls h WHERE h.blocks AND h.node_id = s.node_id))"
_NO_HOOK_ABOVE = f"""
    ({_NO_HOOK} OR NOT EXISTS (
        SELECT FROM node_role_edges e JOIN hook_calls h ON h.blocks AND h.subject_id = e.parent_id
        WHERE e.child_id = nr.id))
"""

# Conditions on the slot alone stand within the lateral query: so they are checked once, and the work of a busy node is
# not read at all.
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
          AND NOT EXISTS (SELECT FROM runs WHERE runs.slot = s.slot AND runs.state IN ({_SLOT_HOLDING_STATES}))
          AND nr.node_id = s.node_id AND {sources_sql(Trigger.CLAIM)} AND NOT nr.doomed
          AND (s.node_role_id IS NULL OR nr.id = s.node_role_id) AND {_NO_HOOK_ABOVE}
        ORDER BY nr.cohort, nr.id LIMIT 1
    ) first ON true
"""

_GIVEN_NODES = "CAST(:nodes AS bigint[])"
_TOUCHED_NODES = f"(SELECT CAST(current_setting('{TOUCHED_SETTING}') AS bigint[]))::bigint[]"
"""It is a sub-select, so that the setting is read once, and not again for each row."""


@cache
def _lock_statement(nodes: str) -> str:
    return f"SELECT slot FROM slots WHERE node_id = ANY ({nodes}) ORDER BY slot FOR UPDATE"


@cache
def _refresh_statement(nodes: str) -> str:
    return f"""
        WITH computed AS ({_CANDIDATES} WHERE s.node_id = ANY ({nodes}))
        UPDATE slots s SET candidate_id = computed.id, cohort = computed.cohort
        FROM computed WHERE s.slot = computed.slot
          AND (s.candidate_id IS DISTINCT FROM computed.id OR s.cohort IS DISTINCT FROM computed.cohort)
        RETURNING s.candidate_id
    """


_COMPARE_SLOTS = f"""
WITH computed AS ({_CANDIDATES} WHERE s.slot > :after ORDER BY s.slot LIMIT :limit)
SELECT s.slot, s.node_id,
       s.candidate_id IS DISTINCT FROM computed.id OR s.cohort IS DISTINCT FROM computed.cohort AS wrong
FROM slots s JOIN computed ON computed.slot = s.slot ORDER BY s.slot
"""


async def refresh_slots(session: Session, nodes: Collection[int]) -> bool:
    """Compute again what would run next on these nodes, and return whether something can start now."""
    if not nodes:
        return False
    _, changed = await session.batch(*refresh_statements(nodes))
    return any(candidate is not None for (candidate,) in changed)


def refresh_statements(nodes: Collection[int]) -> tuple[tuple[str, Mapping[str, object]], ...]:
    """Return the statements that refresh the slots of these nodes, for callers that send more with them."""
    # The lock is a statement of its own: of two transactions that each bring half of what a candidate needs, the second
    # then sees what the first did, and one of them finds the candidate.
    values = {"nodes": "{" + ",".join(map(str, nodes)) + "}"}
    return (_lock_statement(_GIVEN_NODES), values), (_refresh_statement(_GIVEN_NODES), values)


def refresh_touched_statements() -> tuple[tuple[str, Mapping[str, object]], ...]:
    """Return the same statements for the nodes in `TOUCHED_SETTING`."""
    return (_lock_statement(_TOUCHED_NODES), {}), (_refresh_statement(_TOUCHED_NODES), {})


async def add_slots(session: GraphSession, *, nodes: Collection[int] = (), node_roles: Collection[int] = ()) -> None:
    """Add the slots of new machines, and of those of the new noderoles that are on a phantom node."""
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


async def find_wrong_slots(session: Session, after: int, limit: int) -> tuple[int | None, list[int]]:
    """Check a slice of slots; return where the next slice begins (None: this was the last) and nodes of wrong slots."""
    rows = await session.rows(_COMPARE_SLOTS, after=after, limit=limit)
    last = rows[-1].slot if len(rows) == limit else None
    return last, [row.node_id for row in rows if row.wrong]
