"""Giving a deployment another name, or another place in the tree. Nothing that it has may depend on the old place."""

from collections.abc import Collection

from rackwright.domain.errors import Conflict, Invalid, Rule
from rackwright.domain.names import check_name
from rackwright.store.db.session import GraphSession, Session
from rackwright.store.events.outbox import emit
from rackwright.store.graph.deployments import DEEPEST, DeploymentRecord, phantom_name
from rackwright.store.graph.subgraph import bump_graph
from rackwright.store.hooks.hook_calls import queue_node_updated
from rackwright.store.networks.dns_refresh import refresh_names
from rackwright.store.people.users import deployment_and_ancestors, deployment_subtrees


async def rename_deployment(session: GraphSession, deployment: DeploymentRecord, name: str) -> None:
    """Give a deployment another name, and its phantom node with it."""
    if name == deployment.name:
        return
    _check_own(deployment, "renamed")
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
    await _tell(session, deployment, {"name": name, "was": deployment.name})


async def move_deployment(session: GraphSession, deployment: DeploymentRecord, parent: DeploymentRecord) -> None:
    """Put a deployment, with all below it, under another one."""
    if parent.id == deployment.parent_id:
        return
    _check_own(deployment, "moved")
    tree = await deployment_subtrees(session, [deployment.id])
    if parent.id in tree:
        raise Conflict(
            Rule.CYCLE, f"{parent.name!r} is {deployment.name!r} or below it, so {deployment.name!r} cannot go there."
        )
    line = await deployment_and_ancestors(session, parent.id)
    await _check_depth(session, deployment, len(line))
    lost = set(await deployment_and_ancestors(session, deployment.id)) - tree - set(line)
    for query, rule, words in _LEFT_BEHIND:
        await _check_left_behind(session, query, rule, words.format(name=deployment.name), tree, lost)
    await session.run("UPDATE deployments SET parent_id = :parent WHERE id = :id", parent=parent.id, id=deployment.id)
    await bump_graph(session)
    await refresh_names(session)
    await _tell(session, deployment, {"parent": parent.name, "was": deployment.parent or ""})


def _check_own(deployment: DeploymentRecord, done: str) -> None:
    if deployment.system:
        raise Conflict(Rule.SYSTEM, f"The system deployment is the root of all others and cannot be {done}.")


async def _check_depth(session: Session, deployment: DeploymentRecord, above: int) -> None:
    height: int = await session.value(
        "WITH RECURSIVE tree (id, level) AS (SELECT CAST(:id AS bigint), 1"
        " UNION ALL SELECT d.id, level + 1 FROM tree JOIN deployments d ON d.parent_id = tree.id)"
        " SELECT max(level) FROM tree",
        id=deployment.id,
    )
    if above + height > DEEPEST:
        raise Invalid(f"Deployments lie at most {DEEPEST} deep. Choose one further up as the parent.", "/parent")


_LEFT_BEHIND = (
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
"""What depends on the deployments that would no longer be above: (query, rule, what is said of it)"""


async def _check_left_behind(
    session: Session, query: str, rule: Rule, words: str, tree: Collection[int], lost: Collection[int]
) -> None:
    found = await session.rows(query, tree=list(tree), lost=list(lost)) if lost else []
    if found:
        named = "; ".join(f"{row.title} {words.format(row.held)}" for row in found)
        raise Conflict(rule, f"It cannot go there: {named}.")


async def _tell(session: Session, deployment: DeploymentRecord, data: dict[str, str]) -> None:
    await emit(session, "deployment.updated", deployment.id, deployment_id=deployment.id, data={**data})
