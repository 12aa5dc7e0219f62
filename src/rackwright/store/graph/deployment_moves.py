"""Renaming a deployment, and moving it in the tree of deployments.

A move is refused while something in the deployment depends on the deployments that it was below.
"""

from collections.abc import Collection

from rackwright.domain.errors import Conflict, Invalid, Rule
from rackwright.domain.names import check_name
from rackwright.store.db.session import GraphSession, Session
from rackwright.store.events.outbox import emit
from rackwright.store.graph.deployments import MAX_DEPTH, DeploymentRecord, phantom_name
from rackwright.store.graph.subgraph import bump_graph
from rackwright.store.hooks.hook_calls import queue_node_updated
from rackwright.store.networks.dns_refresh import refresh_dns_servers
from rackwright.store.people.users import deployment_and_ancestors, deployment_subtrees


async def rename_deployment(session: GraphSession, deployment: DeploymentRecord, name: str) -> None:
    """Rename a deployment, and its phantom node with it."""
    if name == deployment.name:
        return
    _check_not_system(deployment, "renamed")
    check_name("deployment", name)
    if await session.value("SELECT 1 FROM deployments WHERE name = :name", name=name):
        raise Conflict(Rule.EXISTS, f"There is a deployment {name!r} already. Choose another name.")
    await session.run("UPDATE deployments SET name = :name WHERE id = :id", name=name, id=deployment.id)
    await session.run(
        "UPDATE nodes SET name = :name, description = :description WHERE id = :id",
        name=phantom_name(name),
        description=f"The services of deployment {name}",
        id=deployment.phantom_id,
    )
    nodes = await session.rows("SELECT id FROM nodes WHERE deployment_id = :id AND NOT system", id=deployment.id)
    await queue_node_updated(session, {row.id: {"deployment": deployment.name} for row in nodes})
    await _emit_updated(session, deployment, {"name": name, "was": deployment.name})


async def move_deployment(session: GraphSession, deployment: DeploymentRecord, parent: DeploymentRecord) -> None:
    """Put a deployment, with all below it, under another parent."""
    if parent.id == deployment.parent_id:
        return
    _check_not_system(deployment, "moved")
    tree = await deployment_subtrees(session, [deployment.id])
    if parent.id in tree:
        raise Conflict(
            Rule.CYCLE, f"{parent.name!r} is {deployment.name!r} or below it, so {deployment.name!r} cannot go there."
        )
    new_lineage = await deployment_and_ancestors(session, parent.id)
    await _check_depth(session, deployment, len(new_lineage))
    lost_ancestors = set(await deployment_and_ancestors(session, deployment.id)) - tree - set(new_lineage)
    for query, rule, problem in _DEPENDENCIES:
        await _check_dependencies(session, query, rule, problem.format(name=deployment.name), tree, lost_ancestors)
    await session.run("UPDATE deployments SET parent_id = :parent WHERE id = :id", parent=parent.id, id=deployment.id)
    await bump_graph(session)
    await refresh_dns_servers(session)
    await _emit_updated(session, deployment, {"parent": parent.name, "was": deployment.parent or ""})


def _check_not_system(deployment: DeploymentRecord, action: str) -> None:
    if deployment.system:
        raise Conflict(Rule.SYSTEM, f"The system deployment is the root of all others and cannot be {action}.")


async def _check_depth(session: Session, deployment: DeploymentRecord, above: int) -> None:
    height: int = await session.value(
        "WITH RECURSIVE tree (id, level) AS (SELECT CAST(:id AS bigint), 1"
        " UNION ALL SELECT d.id, level + 1 FROM tree JOIN deployments d ON d.parent_id = tree.id)"
        " SELECT max(level) FROM tree",
        id=deployment.id,
    )
    if above + height > MAX_DEPTH:
        raise Invalid(f"Deployments lie at most {MAX_DEPTH} deep. Choose one further up as the parent.", "/parent")


_DEPENDENCIES = (
    (
        """
        SELECT DISTINCT cr.name || ' on ' || cn.name AS title, pr.name || ' on ' || pn.name AS held
        FROM node_role_edges e
        JOIN node_roles c ON c.id = e.child_id JOIN roles cr ON cr.id = c.role_id JOIN nodes cn ON cn.id = c.node_id
        JOIN node_roles p ON p.id = e.parent_id JOIN roles pr ON pr.id = p.role_id JOIN nodes pn ON pn.id = p.node_id
        WHERE c.deployment_id = ANY (:tree) AND p.deployment_id = ANY (:lost) ORDER BY 1 LIMIT 5
        """,
        Rule.ORPHANS,
        "would stand on what is no longer above {name!r}: {{}}",
    ),
    (
        """
        SELECT DISTINCT n.name AS title, r.name || ' in ' || d.name AS held
        FROM node_roles nr JOIN nodes n ON n.id = nr.node_id JOIN roles r ON r.id = nr.role_id
        JOIN deployments d ON d.id = nr.deployment_id
        WHERE n.deployment_id = ANY (:tree) AND nr.deployment_id = ANY (:lost)
           OR nr.deployment_id = ANY (:tree) AND n.deployment_id = ANY (:lost) ORDER BY 1 LIMIT 5
        """,
        Rule.NODE_ELSEWHERE,
        "has something bound in a deployment that is no longer above or below its own: {{}}",
    ),
    (
        """
        SELECT DISTINCT n.name AS title, m.name AS held FROM nodes n
        JOIN domains m ON n.name = m.name OR right(n.name, length(m.name) + 1) = '.' || m.name
        WHERE n.deployment_id = ANY (:tree) AND NOT n.system AND m.deployment_id = ANY (:lost) ORDER BY 1 LIMIT 5
        """,
        Rule.BOUND,
        "would no longer be served by DNS, because its domain stays behind: {{}}",
    ),
)
"""What may depend on the deployments that would no longer be above: (query, rule, text of the problem)"""


async def _check_dependencies(
    session: Session, query: str, rule: Rule, problem: str, tree: Collection[int], lost_ancestors: Collection[int]
) -> None:
    rows = await session.rows(query, tree=list(tree), lost=list(lost_ancestors)) if lost_ancestors else []
    if rows:
        problems = "; ".join(f"{row.title} {problem.format(row.held)}" for row in rows)
        raise Conflict(rule, f"It cannot go there: {problems}.")


async def _emit_updated(session: Session, deployment: DeploymentRecord, data: dict[str, str]) -> None:
    await emit(session, "deployment.updated", deployment.id, deployment_id=deployment.id, data={**data})
