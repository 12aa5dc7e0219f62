"""The noderole graph as people look at it: vertices with names and states, and edges; all of it or one deployment."""

from dataclasses import dataclass

from rackwright.domain.states import NodeRoleState
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import Visibility
from rackwright.store.graph.noderole_views import NODE_ROLES, edge_end_condition


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
    complete: bool
    """False: there are more vertices than the limit; the ones here are those furthest up."""


_CHOSEN_IDS = """
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


async def read_graph_view(session: Session, deployment_id: int | None, limit: int, visible: Visibility) -> GraphView:
    """Return the noderoles of a deployment (None: of all), and those of other deployments directly above them."""
    seen = visible.condition(NODE_ROLES.seen)
    rows = await session.rows(
        _CHOSEN_IDS.format(seen=seen), deployment=deployment_id, limit=limit + 1, **visible.values
    )
    chosen_ids = [row.id for row in rows[:limit]]
    seen_parent = visible.condition(edge_end_condition("parent_id"))
    edges = await session.rows(_EDGES.format(seen=seen_parent), ids=chosen_ids, **visible.values)
    shown_ids = {*chosen_ids, *(row.parent_id for row in edges)}
    vertices = await session.rows(_VERTICES, ids=sorted(shown_ids))
    return GraphView(
        [Vertex(row.id, row.node, row.role, row.deployment, NodeRoleState(row.state), row.cohort) for row in vertices],
        [(row.parent_id, row.child_id) for row in edges],
        len(rows) <= limit,
    )
