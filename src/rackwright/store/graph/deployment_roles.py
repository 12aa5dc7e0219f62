"""Deployment-roles as people see and edit them: in the open proposal, or at once in the system deployment."""

from dataclasses import dataclass

from psycopg.types.json import Jsonb

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.errors import NotFound
from rackwright.domain.graph.snapshots import PlannedNodeRole, Proposal, plan_commit
from rackwright.domain.states import PROPOSED, Trigger
from rackwright.store.catalogue.submitted_data import prepare_submitted_data
from rackwright.store.db.listing import Column, Filter, Listing
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import EVERYTHING, Visibility
from rackwright.store.events.outbox import emit
from rackwright.store.graph import snapshots
from rackwright.store.graph.deployments import get_deployment
from rackwright.store.graph.subgraph import load_with_descendants
from rackwright.store.graph.transitions import find_takers, mark_dirty


@dataclass(frozen=True)
class DeploymentRoleRecord:
    id: int
    deployment_id: int
    deployment: str
    role_id: int
    role: str
    template: JsonObject
    wall: JsonObject
    committed_data: JsonObject
    proposed_data: JsonObject | None
    """None: there is no open proposal, or the open proposal does not have the role."""
    leaving: bool
    """The open proposal does not have the role."""

    @property
    def data(self) -> JsonObject:
        """Return the data of the open proposal, or the committed data if there is none."""
        return self.committed_data if self.proposed_data is None else self.proposed_data


_SELECT = """
SELECT dr.id, dr.deployment_id, d.name AS deployment, dr.role_id, r.name AS role, r.template, dr.wall,
       dr.data AS committed_data,
       (SELECT sr.data FROM snapshots s JOIN snapshot_roles sr ON sr.snapshot_id = s.id AND sr.role_id = dr.role_id
        WHERE s.deployment_id = dr.deployment_id AND s.state = 'proposed') AS proposed_data,
       EXISTS (SELECT FROM snapshots s WHERE s.deployment_id = dr.deployment_id AND s.state = 'proposed'
               AND NOT EXISTS (SELECT FROM snapshot_roles sr
                               WHERE sr.snapshot_id = s.id AND sr.role_id = dr.role_id)) AS leaving
FROM deployment_roles dr JOIN deployments d ON d.id = dr.deployment_id JOIN roles r ON r.id = dr.role_id
"""

DEPLOYMENT_ROLES = Listing(
    "deployment_roles",
    {
        "id": Column("dr.id", Filter.NUMBER, sort="bigint"),
        "deployment": Column("d.name", Filter.REFERENCE, "d.id", sort="text"),
        "role": Column("r.name", Filter.REFERENCE, "r.id", sort="text"),
    },
    default="id",
    id="dr.id",
    seen="dr.deployment_id = ANY (:sees)",
)


async def select_deployment_roles(session: Session, where: str, **values: object) -> list[DeploymentRoleRecord]:
    return [DeploymentRoleRecord(**row._mapping) for row in await session.rows(f"{_SELECT} {where}", **values)]


async def get_deployment_role(session: Session, id: int, visible: Visibility) -> DeploymentRoleRecord:
    records = await select_deployment_roles(
        session, f"WHERE dr.id = :id AND {visible.condition(DEPLOYMENT_ROLES.seen)}", id=id, **visible.values
    )
    if not records:
        raise NotFound("deployment role", id)
    return records[0]


async def find_deployment_role(session: Session, deployment_id: int, role: str) -> DeploymentRoleRecord:
    records = await select_deployment_roles(
        session, "WHERE dr.deployment_id = :id AND r.name = :role", id=deployment_id, role=role
    )
    if not records:
        raise NotFound("role in this deployment:", role)
    return records[0]


async def edit_deployment_role_data(
    session: Session, record: DeploymentRoleRecord, data: JsonObject
) -> DeploymentRoleRecord:
    """Set the data that people want a role to have in a deployment.

    The caller has locked the deployment, and `record` is the deployment-role as it is now.
    """
    attribs = (await session.catalogue()).catalogue.attribs_of(record.role)
    new_data = prepare_submitted_data(session.store.vault, attribs, record.data, data)
    deployment = await get_deployment(session, record.deployment_id, EVERYTHING)
    if deployment.system:
        await _set_in_place(session, record, new_data)
    else:
        await snapshots.set_role_data(session, deployment, record.role, new_data)
    return await get_deployment_role(session, record.id, EVERYTHING)


async def plan_reruns(session: Session, record: DeploymentRoleRecord) -> tuple[PlannedNodeRole, ...]:
    """Return the noderoles that would run again if other data of this role came in force.

    The code that plans commits computes it.
    """
    own_ids = await _select_own_noderoles(session, record)
    takers = await find_takers(session, own_ids)
    involved = own_ids.union(*takers.values())
    if not involved:
        return ()
    stored = await session.catalogue()
    graph = await load_with_descendants(session, stored, involved)
    proposal = Proposal(record.deployment_id, 0, changed_roles=frozenset({record.role}), takers=takers)
    return plan_commit(stored.catalogue, graph, proposal).rerun


async def _set_in_place(session: Session, record: DeploymentRoleRecord, data: JsonObject) -> None:
    """Put data in force at once, since the system deployment has no proposals; noderoles that take it run again."""
    if data == record.committed_data:
        return
    await session.run("UPDATE deployment_roles SET data = :data WHERE id = :id", data=Jsonb(data), id=record.id)
    own_ids = await _select_own_noderoles(session, record)
    taker_ids = {id for ids in (await find_takers(session, own_ids)).values() for id in ids}
    await mark_dirty(session, own_ids, Trigger.CHANGE)
    await mark_dirty(session, taker_ids - own_ids, Trigger.INPUT_CHANGE)
    await emit(session, "deployment_role.changed", record.id, deployment_id=record.deployment_id)


async def _select_own_noderoles(session: Session, record: DeploymentRoleRecord) -> set[int]:
    """Return the ids of the committed noderoles of the role in the deployment."""
    rows = await session.rows(
        "SELECT id FROM node_roles WHERE deployment_id = :deployment AND role_id = :role AND state <> :proposed",
        deployment=record.deployment_id,
        role=record.role_id,
        proposed=int(PROPOSED),
    )
    return {row.id for row in rows}
