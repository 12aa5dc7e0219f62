"""Deployments: reading, creating, describing and deleting them, in their tree and each with its phantom node."""

from dataclasses import dataclass

from rackwright.domain.errors import Conflict, Invalid, NotFound, Rule
from rackwright.domain.graph.snapshots import ShownState, shown_state
from rackwright.domain.names import PHANTOM_SUFFIX, check_name
from rackwright.domain.states import TRANSITION, NodeRoleState
from rackwright.store.db.listing import Column, Filter, Listing, key_id
from rackwright.store.db.session import GraphSession, Session
from rackwright.store.db.visibility import EVERYTHING, Visibility
from rackwright.store.events.outbox import emit
from rackwright.store.graph.noderoles import delete_noderoles
from rackwright.store.graph.subgraph import bump_graph
from rackwright.store.hooks.hook_calls import ask_deployment_roles, queue_node_updated
from rackwright.store.people.users import deployment_and_ancestors

SYSTEM = "system"
MAX_DEPTH = 32
"""Levels that the tree of deployments may have.

People are shown the complete tree, and a deeper one could not be written as JSON.
"""


@dataclass(frozen=True)
class DeploymentRecord:
    id: int
    name: str
    description: str
    parent_id: int | None
    phantom_id: int
    held: bool
    head_id: int | None
    proposed_id: int | None
    counts: dict[NodeRoleState, int]
    parent: str | None = None
    upgrade_due: bool = False
    """A barclamp was imported again, and noderoles bound here do not have the parents that its roles now ask for."""

    @property
    def system(self) -> bool:
        return self.parent_id is None

    @property
    def state(self) -> ShownState:
        head, proposal = self.head_id is not None, self.proposed_id is not None
        return shown_state(self.counts, held=self.held, committed=head, proposed=proposal)


_SELECT = """
SELECT d.id, d.name, d.description, d.parent_id, d.phantom_id, d.held, d.upgrade_due,
       (SELECT name FROM deployments p WHERE p.id = d.parent_id) AS parent,
       (SELECT id FROM snapshots s WHERE s.deployment_id = d.id AND s.state = 'head') AS head_id,
       (SELECT id FROM snapshots s WHERE s.deployment_id = d.id AND s.state = 'proposed') AS proposed_id,
       (SELECT coalesce(jsonb_object_agg(state, n), '{}') FROM (
            SELECT state, count(*) AS n FROM node_roles nr WHERE nr.deployment_id = d.id GROUP BY state) c) AS counts
FROM deployments d
"""


DEPLOYMENTS = Listing(
    "deployments",
    {
        "id": Column("d.id", Filter.NUMBER, sort="bigint"),
        "name": Column("d.name", sort="text"),
        "parent": Column(
            "(SELECT name FROM deployments p WHERE p.id = d.parent_id)",
            Filter.REFERENCE,
            "d.parent_id",
            says="The deployment it is directly below",
        ),
        "held": Column("d.held", Filter.FLAG, sort="boolean"),
        "proposed": Column(
            "EXISTS (SELECT FROM snapshots s WHERE s.deployment_id = d.id AND s.state = 'proposed')",
            Filter.FLAG,
            says="Whether it has an open proposal",
        ),
    },
    default="name",
    id="d.id",
    seen="d.id = ANY (:sees)",
)


async def get_deployment(session: Session, name_or_id: str | int, visible: Visibility) -> DeploymentRecord:
    records = await select_deployments(
        session,
        f"WHERE (d.name = :key OR d.id = :id) AND {visible.condition(DEPLOYMENTS.seen)}",
        key=str(name_or_id),
        id=key_id(name_or_id),
        **visible.values,
    )
    if not records:
        raise NotFound("deployment", name_or_id)
    return records[0]


async def select_deployments(session: Session, where: str, **values: object) -> list[DeploymentRecord]:
    return [
        DeploymentRecord(
            row.id,
            row.name,
            row.description,
            row.parent_id,
            row.phantom_id,
            row.held,
            row.head_id,
            row.proposed_id,
            {NodeRoleState(int(state)): count for state, count in row.counts.items()},
            row.parent,
            row.upgrade_due,
        )
        for row in await session.rows(f"{_SELECT} {where}", **values)
    ]


async def lock_deployment(session: Session, name_or_id: str | int) -> DeploymentRecord:
    """Lock the deployment against edits by others until this transaction ends, and return it."""
    deployment = await get_deployment(session, name_or_id, EVERYTHING)
    await session.run("SELECT FROM deployments WHERE id = :id FOR NO KEY UPDATE", id=deployment.id)
    return await get_deployment(session, deployment.id, EVERYTHING)


async def describe_deployment(session: Session, deployment: DeploymentRecord, description: str) -> None:
    if description != deployment.description:
        await session.run(
            "UPDATE deployments SET description = :description WHERE id = :id",
            description=description,
            id=deployment.id,
        )
        await emit(session, "deployment.updated", deployment.id, deployment_id=deployment.id)


async def read_root_id(session: Session) -> int:
    """Return the id of the system deployment.

    A person who may change the system deployment may change everything that belongs to no other deployment.
    """
    id: int = await session.value("SELECT id FROM deployments WHERE parent_id IS NULL")
    return id


async def create_deployment(session: GraphSession, name: str, parent: str | int | None, description: str = "") -> int:
    """Create a deployment under `parent` with its phantom node and an empty proposal, and return its id.

    Without `parent` it is put under the system deployment.
    """
    check_name("deployment", name)
    if await session.value("SELECT 1 FROM deployments WHERE name = :name", name=name):
        raise Conflict(Rule.EXISTS, f"There is a deployment {name!r} already. Choose another name.")
    parent_id = (await get_deployment(session, SYSTEM if parent is None else parent, EVERYTHING)).id
    if len(await deployment_and_ancestors(session, parent_id)) >= MAX_DEPTH:
        raise Invalid(f"Deployments lie at most {MAX_DEPTH} deep. Choose one further up as the parent.", "/parent")
    id = await insert_deployment(session, name, parent_id, description)
    await session.run("INSERT INTO snapshots (deployment_id, state) VALUES (:id, 'proposed')", id=id)
    return id


async def insert_deployment(session: GraphSession, name: str, parent_id: int | None, description: str = "") -> int:
    """Insert the rows of a deployment and its phantom node, and return the deployment's id.

    The two rows refer to each other, which PostgreSQL checks at commit.
    """
    [id] = await session.new_ids("deployments", 1)
    [phantom_id] = await session.new_ids("nodes", 1)
    await session.run(
        "INSERT INTO nodes (id, name, description, system, alive, available, deployment_id) OVERRIDING SYSTEM VALUE"
        " VALUES (:phantom_id, :name, :description, true, true, true, :id)",
        phantom_id=phantom_id,
        name=phantom_name(name),
        description=f"The services of deployment {name}",
        id=id,
    )
    await session.run(
        "INSERT INTO deployments (id, name, description, parent_id, phantom_id) OVERRIDING SYSTEM VALUE"
        " VALUES (:id, :name, :description, :parent_id, :phantom_id)",
        id=id,
        name=name,
        description=description,
        parent_id=parent_id,
        phantom_id=phantom_id,
    )
    await bump_graph(session)
    await emit(session, "deployment.created", id, deployment_id=id, data={"name": name})
    return id


def phantom_name(deployment: str) -> str:
    return f"{deployment}{PHANTOM_SUFFIX}"


async def delete_deployment(session: GraphSession, name_or_id: str | int) -> None:
    """Delete a deployment from the tree. Its nodes go to its parent."""
    deployment = await get_deployment(session, name_or_id, EVERYTHING)
    if deployment.parent_id is None:
        raise Conflict(Rule.SYSTEM, "The system deployment is the root of all others and cannot be deleted.")
    child = await session.value(
        "SELECT name FROM deployments WHERE parent_id = :id ORDER BY name LIMIT 1", id=deployment.id
    )
    if child is not None:
        raise Conflict(
            Rule.HAS_CHILDREN, f"Deployment {deployment.name!r} has deployment {child!r} below it. Delete that first."
        )
    if deployment.counts.get(TRANSITION):
        raise Conflict(
            Rule.BUSY,
            f"Deployment {deployment.name!r} has {deployment.counts[TRANSITION]} noderoles in transition. "
            "Wait for their runs to end, or cancel them.",
        )
    roles = await session.rows("SELECT id FROM deployment_roles WHERE deployment_id = :id", id=deployment.id)
    await ask_deployment_roles(session, "on_deployment_delete", [row.id for row in roles])
    noderoles = await session.rows("SELECT id FROM node_roles WHERE deployment_id = :id", id=deployment.id)
    await delete_noderoles(session, [row.id for row in noderoles])
    moved = await session.rows(
        "UPDATE nodes SET deployment_id = :parent WHERE deployment_id = :id AND NOT system RETURNING id",
        parent=deployment.parent_id,
        id=deployment.id,
    )
    await queue_node_updated(session, {row.id: {"deployment": deployment.name} for row in moved})
    await emit(
        session, "deployment.deleted", deployment.id, deployment_id=deployment.id, data={"name": deployment.name}
    )
    await session.run("DELETE FROM deployments WHERE id = :id", id=deployment.id)
    await session.run("DELETE FROM nodes WHERE id = :id", id=deployment.phantom_id)
    await bump_graph(session)
