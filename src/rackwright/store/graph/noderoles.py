"""Noderoles: reading, retrying, and removing them from the graph."""

from collections.abc import Collection
from dataclasses import dataclass

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.errors import Conflict, NotFound, Rule
from rackwright.domain.graph.removal import find_removed_noderoles
from rackwright.domain.states import ACTIVE, ERROR, TRANSITION, NodeRoleState, Trigger
from rackwright.store.db.session import GraphSession, Session
from rackwright.store.db.visibility import Visibility
from rackwright.store.graph.subgraph import bump_graph, load_with_descendants
from rackwright.store.graph.transitions import change_unmet_counts, mark_dirty, move_noderoles
from rackwright.store.networks.allocations import free_noderole_addresses


@dataclass(frozen=True)
class NodeRoleRecord:
    id: int
    node_id: int
    node: str
    role_id: int
    role: str
    deployment_id: int
    deployment: str
    state: NodeRoleState
    cohort: int
    unmet: int
    run_id: int | None
    doomed: bool
    error: str
    user_data: JsonObject
    wall: JsonObject
    sysdata: JsonObject
    destructive: bool


_SELECT = """
SELECT nr.id, nr.node_id, n.name AS node, nr.role_id, r.name AS role, nr.deployment_id, d.name AS deployment,
       nr.state, nr.cohort, nr.unmet, nr.run_id, nr.doomed, nr.error, nr.user_data, nr.wall, nr.sysdata, r.destructive
FROM node_roles nr JOIN nodes n ON n.id = nr.node_id JOIN roles r ON r.id = nr.role_id
JOIN deployments d ON d.id = nr.deployment_id
"""


async def select_noderoles(session: Session, where: str, **values: object) -> list[NodeRoleRecord]:
    rows = await session.rows(f"{_SELECT} {where}", **values)
    return [NodeRoleRecord(**{**row._mapping, "state": NodeRoleState(row.state)}) for row in rows]


async def get_noderole(session: Session, id: int) -> NodeRoleRecord:
    records = await select_noderoles(session, "WHERE nr.id = :id", id=id)
    if not records:
        raise NotFound("noderole", id)
    return records[0]


async def select_parents(session: Session, id: int) -> list[NodeRoleRecord]:
    return await select_noderoles(
        session,
        "WHERE nr.id IN (SELECT parent_id FROM node_role_edges WHERE child_id = :id) ORDER BY nr.cohort, nr.id",
        id=id,
    )


async def retry_noderole(session: Session, id: int, trigger: Trigger = Trigger.RETRY) -> None:
    """Have a noderole that failed or is active run again.

    `Trigger.REINSTALL` is for a destructive noderole that is active.
    """
    noderole = await get_noderole(session, id)
    title = f"{noderole.role} on {noderole.node}"
    if noderole.destructive and noderole.state is ACTIVE and trigger is Trigger.RETRY:
        raise Conflict(
            Rule.DESTRUCTIVE, f"{title} is destructive and has run: it never runs again by itself. Use reinstall."
        )
    if noderole.state not in (ERROR, ACTIVE):
        raise Conflict(
            Rule.NOT_RETRYABLE, f"{title} is {noderole.state.label}; only what failed or is active can be retried."
        )
    waiting = [parent for parent in await select_parents(session, id) if parent.state is not ACTIVE]
    if waiting:
        parent = waiting[0]
        raise Conflict(
            Rule.NOT_RETRYABLE,
            f"{title} stands on {parent.role} on {parent.node}, which is {parent.state.label}. Mend that first.",
        )
    if not await move_noderoles(session, trigger, [id]):
        raise Conflict(Rule.NOT_RETRYABLE, f"{title} changed in the meantime. Look again.")


async def plan_removal(session: Session, ids: Collection[int]) -> set[int]:
    """Return all noderoles that go when `ids` do; raise a conflict if that would orphan any."""
    stored = await session.catalogue()
    graph = await load_with_descendants(session, stored, ids)
    return find_removed_noderoles(graph, stored.catalogue, ids)


async def remove_noderoles(session: GraphSession, ids: Collection[int]) -> None:
    """Remove noderoles from the graph; one that has an open run is marked, and goes when the run ends.

    The caller has made sure that no noderole is orphaned.
    """
    if not ids:
        return
    rows = await session.rows(
        "SELECT id, state FROM node_roles WHERE id = ANY (:ids) ORDER BY id FOR UPDATE",
        ids=sorted(ids),
    )
    running_ids = [row.id for row in rows if row.state == int(TRANSITION)]
    if running_ids:
        await session.run("UPDATE node_roles SET doomed = true WHERE id = ANY (:ids)", ids=running_ids)
    idle = [row for row in rows if row.state != int(TRANSITION)]
    await delete_noderoles(session, [row.id for row in idle])
    await bump_graph(session)


async def delete_noderoles(session: Session, ids: Collection[int]) -> None:
    """Delete the rows of noderoles, also from proposals. Children that stay (of a cluster) no longer wait for them.

    It takes any session: a doomed noderole goes when its run ends, without the graph lock.
    """
    if not ids:
        return
    waiting_children = await session.rows(
        "SELECT e.child_id FROM node_role_edges e JOIN node_roles p ON p.id = e.parent_id"
        " WHERE e.parent_id = ANY (:ids) AND p.state <> :active"
        " AND e.child_id NOT IN (SELECT unnest(CAST(:ids AS bigint[])))",
        ids=list(ids),
        active=int(ACTIVE),
    )
    child_rows = await session.rows(
        "DELETE FROM node_role_edges WHERE parent_id = ANY (:ids) RETURNING child_id", ids=list(ids)
    )
    staying_ids = {row.child_id for row in child_rows} - set(ids)
    await change_unmet_counts(session, ((row.child_id, -1) for row in waiting_children))
    await recompute_cohorts(session, staying_ids)
    relinked = await session.rows(_RELINK, ids=list(ids))  # which peer comes first depends on the new cohorts
    await mark_dirty(session, {row.child_id for row in relinked})
    await session.run(
        """
        INSERT INTO events (kind, subject_id, node_id, deployment_id, data)
        SELECT 'noderole.removed', nr.id, nr.node_id, nr.deployment_id,
               jsonb_build_object('role', r.name, 'node', n.name)
        FROM node_roles nr JOIN roles r ON r.id = nr.role_id JOIN nodes n ON n.id = nr.node_id WHERE nr.id = ANY (:ids)
        """,
        ids=list(ids),
    )
    await session.run(
        """
        DELETE FROM snapshot_bindings b USING snapshots s, node_roles nr
        WHERE nr.id = ANY (:ids) AND s.deployment_id = nr.deployment_id AND s.state = 'proposed'
          AND b.snapshot_id = s.id AND b.node_id = nr.node_id AND b.role_id = nr.role_id
        """,
        ids=list(ids),
    )
    await free_noderole_addresses(session, ids)
    deleted = await session.rows("DELETE FROM node_roles WHERE id = ANY (:ids) RETURNING node_id", ids=list(ids))
    session.touch(row.node_id for row in deleted)


# A noderole that took an attrib from a removed member of a cluster takes it from the first member that stays.
_RELINK = """
WITH chosen AS (
    SELECT DISTINCT ON (l.child_id, l.attrib_id) l.child_id, l.attrib_id, peer.id AS peer_id
    FROM node_role_links l JOIN node_roles gone ON gone.id = l.parent_id
    JOIN node_role_edges e ON e.child_id = l.child_id
    JOIN node_roles peer ON peer.id = e.parent_id AND peer.role_id = gone.role_id
        AND peer.deployment_id = gone.deployment_id AND NOT peer.doomed
    WHERE l.parent_id = ANY (:ids) AND peer.id NOT IN (SELECT unnest(CAST(:ids AS bigint[])))
      AND l.child_id NOT IN (SELECT unnest(CAST(:ids AS bigint[])))
    ORDER BY l.child_id, l.attrib_id, peer.cohort, peer.id
)
UPDATE node_role_links l SET parent_id = chosen.peer_id
FROM chosen WHERE l.child_id = chosen.child_id AND l.attrib_id = chosen.attrib_id RETURNING l.child_id
"""


async def recompute_cohorts(session: Session, ids: Collection[int]) -> None:
    """Compute the cohorts of noderoles that lost a parent again, and those of what stands on them."""
    while ids:
        lowered = await session.rows(
            """
            UPDATE node_roles nr SET cohort = new.cohort FROM (
                SELECT child.id, coalesce(max(p.cohort) + 1, 0) AS cohort
                FROM unnest(CAST(:ids AS bigint[])) AS child (id)
                LEFT JOIN node_role_edges e ON e.child_id = child.id LEFT JOIN node_roles p ON p.id = e.parent_id
                GROUP BY child.id) new
            WHERE nr.id = new.id AND nr.cohort <> new.cohort RETURNING nr.id, nr.node_id
            """,
            ids=list(ids),
        )
        session.touch(row.node_id for row in lowered)
        children = await session.rows(
            "SELECT DISTINCT child_id FROM node_role_edges WHERE parent_id = ANY (:ids)",
            ids=[row.id for row in lowered],
        )
        ids = [row.child_id for row in children]


async def delete_doomed(session: Session, ids: Collection[int]) -> None:
    """Delete those of `ids` that were only waiting for their run to end, and whose run has ended."""
    doomed = await session.rows(
        "SELECT id FROM node_roles WHERE id = ANY (:ids) AND doomed AND run_id IS NULL", ids=list(ids)
    )
    await delete_noderoles(session, [row.id for row in doomed])


async def count_by_state(session: Session, visible: Visibility) -> dict[NodeRoleState, int]:
    seen = visible.condition("deployment_id = ANY (:sees)")
    rows = await session.rows(
        f"SELECT state, count(*) AS n FROM node_roles WHERE {seen} GROUP BY state", **visible.values
    )
    return {NodeRoleState(row.state): row.n for row in rows}
