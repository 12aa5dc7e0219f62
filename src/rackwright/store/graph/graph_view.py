"""The noderole graph as people look at it: vertices with names and states, and edges; the whole, or one deployment."""

from dataclasses import dataclass

from rackwright.domain.states import NodeRoleState
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import Visibility
from rackwright.store.graph.noderole_views import NODE_ROLES, seen_end


@dataclass(frozen=True)
class Vertex:
    id: int
    node: str
    role: str
    deployment: str
    state: NodeRoleState
    cohort: int


@dataclass(frozen=True)
class GraphView:
    vertices: list[Vertex]
    edges: list[tuple[int, int]]
    """(parent, child)"""
    whole: bool
    """False: there are more than were asked for; those are the ones furthest up."""


_CHOSEN = """
SELECT nr.id FROM node_roles nr WHERE (CAST(:deployment AS bigint) IS NULL OR nr.deployment_id = :deployment) AND {seen}
ORDER BY nr.cohort, nr.id LIMIT :limit
"""

_EDGES = """
SELECT parent_id, child_id FROM node_role_edges WHERE child_id = ANY (:ids) AND {seen} ORDER BY 2, 1
"""

_VERTICES = """
SELECT nr.id, n.name AS node, r.name AS role, d.name AS deployment, nr.state, nr.cohort
FROM node_roles nr JOIN nodes n ON n.id = nr.node_id JOIN roles r ON r.id = nr.role_id
JOIN deployments d ON d.id = nr.deployment_id WHERE nr.id = ANY (:ids) ORDER BY nr.cohort, nr.id
"""


async def graph_view(session: Session, deployment_id: int | None, limit: int, visible: Visibility) -> GraphView:
    """What stands in a deployment, and what of others it stands on directly."""
    seen = visible.condition(NODE_ROLES.seen)
    rows = await session.rows(_CHOSEN.format(seen=seen), deployment=deployment_id, limit=limit + 1, **visible.values)
    chosen = [row.id for row in rows[:limit]]
    seen_parent = visible.condition(seen_end("parent_id"))
    edges = await session.rows(_EDGES.format(seen=seen_parent), ids=chosen, **visible.values)
    shown = {*chosen, *(row.parent_id for row in edges)}
    found = await session.rows(_VERTICES, ids=sorted(shown))
    return GraphView(
        [Vertex(row.id, row.node, row.role, row.deployment, NodeRoleState(row.state), row.cohort) for row in found],
        [(row.parent_id, row.child_id) for row in edges],
        len(rows) <= limit,
    )
