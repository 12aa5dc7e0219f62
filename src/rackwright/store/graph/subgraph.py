"""Reads the part of the noderole graph that a rule needs into memory, and keeps the version of the graph."""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Row

from rackwright.domain.catalogue import Catalogue, Flag
from rackwright.domain.graph.noderole_graph import Deployment, Graph, GraphNode, NodeRole
from rackwright.domain.states import ACTIVE, PROPOSED, NodeRoleState
from rackwright.store.catalogue.stored_catalogue import StoredCatalogue
from rackwright.store.db.session import GraphSession, Session


async def read_graph_version(session: Session) -> int:
    version: int = await session.value("SELECT version FROM graph")
    return version


async def bump_graph(session: GraphSession) -> None:
    """Raise the graph's version: the committed graph, or what it may be made of, changed.

    Proposals must be bound again then.
    """
    await session.run("UPDATE graph SET version = version + 1")


def role_closure(catalogue: Catalogue, roles: Collection[str]) -> set[str]:
    """Return the roles, all that they may pull in, and the roles that could provide any of those."""
    seen: set[str] = set()
    stack = list(roles)
    while stack:
        name = stack.pop()
        if name not in seen:
            seen.add(name)
            stack.extend(catalogue.needed_roles(name))
            stack.extend(catalogue.providers(name))
    return seen


async def load_for_binding(
    session: Session,
    stored: StoredCatalogue,
    deployment_id: int,
    node_ids: Collection[int],
    roles: Collection[str],
    changing: Collection[int] = (),
) -> Graph:
    """Read all noderoles that binding `roles` to these nodes in this deployment can look at.

    That is: everything on the nodes; of every role that may be needed, the first noderole in each deployment up to the
    root, or all of them where the role is a cluster; what stands on those clusters; and all of their ancestors. Also
    what stands on the noderoles in `changing`, which are bound and get other parents.
    """
    deployments = await load_path(session, deployment_id)
    all_node_ids = {*node_ids, *(deployment.phantom_id for deployment in deployments)}
    closure = role_closure(stored.catalogue, roles)
    shared_roles = [name for name in closure if name in stored.role_ids and stored.catalogue.may_be_elsewhere(name)]
    cluster_roles = [name for name in shared_roles if stored.catalogue.role(name).has(Flag.CLUSTER)]
    rows = await session.rows(
        """
        SELECT id FROM node_roles WHERE node_id = ANY (:nodes)
        UNION
        SELECT first.id FROM unnest(CAST(:path AS bigint[])) AS d (id)
        CROSS JOIN unnest(CAST(:shared AS bigint[])) AS r (id)
        CROSS JOIN LATERAL (
            SELECT nr.id FROM node_roles nr
            WHERE nr.deployment_id = d.id AND nr.role_id = r.id
              AND (nr.state <> :proposed OR nr.deployment_id = :deployment) AND NOT nr.doomed
            ORDER BY nr.cohort, nr.id LIMIT 1
        ) first
        UNION
        SELECT nr.id FROM node_roles nr WHERE nr.deployment_id = ANY (:path) AND nr.role_id = ANY (:clusters)
        """,
        nodes=list(all_node_ids),
        path=[deployment.id for deployment in deployments],
        deployment=deployment_id,
        proposed=int(PROPOSED),
        shared=[stored.role_ids[name] for name in shared_roles],
        clusters=[stored.role_ids[name] for name in cluster_roles],
    )
    ids = [row.id for row in rows]
    if cluster_roles or changing:
        ids = await _with_descendants(session, ids, [stored.role_ids[name] for name in cluster_roles], changing)
    return await load_with_ancestors(session, stored, ids, deployments, all_node_ids)


async def _with_descendants(session: Session, ids: list[int], roles: list[int], changing: Collection[int]) -> list[int]:
    rows = await session.rows(
        """
        WITH RECURSIVE below (id) AS (
            SELECT id FROM node_roles WHERE id = ANY (:ids) AND role_id = ANY (:roles) OR id = ANY (:changing)
            UNION SELECT e.child_id FROM below JOIN node_role_edges e ON e.parent_id = below.id
        ) SELECT id FROM below
        """,
        ids=ids,
        roles=roles,
        changing=list(changing),
    )
    return sorted({*ids, *(row.id for row in rows)})


async def load_with_ancestors(
    session: Session,
    stored: StoredCatalogue,
    ids: Sequence[int],
    deployments: Sequence[Deployment],
    nodes: Collection[int] = (),
) -> Graph:
    """Read the graph of `ids` and everything above them, with all edges among those."""
    noderoles = await session.rows(
        """
        WITH RECURSIVE above (id) AS (
            SELECT unnest(CAST(:ids AS bigint[]))
            UNION SELECT e.parent_id FROM above JOIN node_role_edges e ON e.child_id = above.id
        ) SELECT nr.id, nr.node_id, nr.role_id, nr.deployment_id, nr.state, nr.cohort, nr.doomed
        FROM above JOIN node_roles nr ON nr.id = above.id
        """,
        ids=list(ids),
    )
    return await _build_graph(session, stored, noderoles, deployments, nodes)


async def load_with_descendants(session: Session, stored: StoredCatalogue, ids: Collection[int]) -> Graph:
    """Read the graph of `ids`, everything below them, and the direct parents of all of those."""
    noderoles = await session.rows(
        """
        WITH RECURSIVE below (id) AS (
            SELECT unnest(CAST(:ids AS bigint[]))
            UNION SELECT e.child_id FROM below JOIN node_role_edges e ON e.parent_id = below.id
        ), seen (id) AS (
            SELECT id FROM below UNION SELECT e.parent_id FROM below JOIN node_role_edges e ON e.child_id = below.id
        ) SELECT nr.id, nr.node_id, nr.role_id, nr.deployment_id, nr.state, nr.cohort, nr.doomed
        FROM seen JOIN node_roles nr ON nr.id = seen.id
        """,
        ids=list(ids),
    )
    return await _build_graph(session, stored, noderoles, [], ())


async def load_nodes(session: Session, graph: Graph, ids: set[int]) -> None:
    """Add these nodes to a graph, so that it knows their names."""
    rows = await session.rows(
        "SELECT id, name, deployment_id, admin, system FROM nodes WHERE id = ANY (:ids)",
        ids=list(ids - graph.nodes.keys()),
    )
    graph.nodes.update({row.id: GraphNode(row.id, row.name, row.deployment_id, row.admin, row.system) for row in rows})


async def load_path(session: Session, deployment_id: int) -> list[Deployment]:
    """Read the deployment and those above it, up to the root."""
    rows = await session.rows(
        """
        WITH RECURSIVE path (id, name, parent_id, phantom_id, depth) AS (
            SELECT id, name, parent_id, phantom_id, 0 FROM deployments WHERE id = :id
            UNION ALL
            SELECT d.id, d.name, d.parent_id, d.phantom_id, depth + 1
            FROM path JOIN deployments d ON d.id = path.parent_id
        ) SELECT id, name, parent_id, phantom_id FROM path ORDER BY depth
        """,
        id=deployment_id,
    )
    return [Deployment(row.id, row.name, row.parent_id, row.phantom_id) for row in rows]


async def _build_graph(
    session: Session,
    stored: StoredCatalogue,
    noderoles: Sequence[Row[Any]],
    deployments: Sequence[Deployment],
    node_ids: Collection[int],
) -> Graph:
    ids = [row.id for row in noderoles]
    edges = await session.rows(
        "SELECT parent_id, child_id FROM node_role_edges WHERE child_id = ANY (:ids) AND parent_id = ANY (:ids)"
        " ORDER BY child_id, parent_id",
        ids=ids,
    )
    nodes = await session.rows(
        "SELECT id, name, deployment_id, admin, system FROM nodes WHERE id = ANY (:ids)",
        ids=list({*node_ids, *(row.node_id for row in noderoles)}),
    )
    known_ids = {deployment.id for deployment in deployments}
    other_ids = {row.deployment_id for row in [*noderoles, *nodes]} - known_ids
    other_deployments = await session.rows(
        "SELECT id, name, parent_id, phantom_id FROM deployments WHERE id = ANY (:ids)", ids=list(other_ids)
    )
    return Graph(
        nodes=[GraphNode(row.id, row.name, row.deployment_id, row.admin, row.system) for row in nodes],
        deployments=[
            *deployments,
            *(Deployment(row.id, row.name, row.parent_id, row.phantom_id) for row in other_deployments),
        ],
        noderoles=[
            NodeRole(
                row.id,
                row.node_id,
                stored.role_names[row.role_id],
                row.deployment_id,
                NodeRoleState(row.state),
                row.cohort,
                row.doomed,
            )
            for row in noderoles
        ],
        edges=[(row.parent_id, row.child_id) for row in edges],
    )


async def lock_parents(session: GraphSession, ids: Collection[int]) -> set[int]:
    """Lock noderoles that are about to get children, in the order of their ids, and return those that are ACTIVE.

    Without the lock, a settle that does not see the new edge yet could leave the child BLOCKED for ever.
    """
    rows = await session.rows(
        "SELECT id, state FROM node_roles WHERE id = ANY (:ids) ORDER BY id FOR SHARE", ids=sorted(ids)
    )
    return {row.id for row in rows if row.state == int(ACTIVE)}
