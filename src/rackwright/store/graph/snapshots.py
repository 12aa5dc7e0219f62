"""The snapshots of a deployment: propose, edit, discard, recall, diff and rollback. Committing is in `commits.py`."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from psycopg.types.json import Jsonb

from rackwright.domain.attributes import check_role_data
from rackwright.domain.catalogue import JsonObject
from rackwright.domain.errors import Conflict, NotFound, Rule
from rackwright.domain.graph.snapshots import Difference, Intent, SnapshotState, diff_intents
from rackwright.domain.states import PROPOSED, TODO
from rackwright.store.catalogue.submitted_data import prepare_submitted_data
from rackwright.store.db.listing import Column, Filter, Listing
from rackwright.store.db.session import GraphSession, Session
from rackwright.store.db.visibility import EVERYTHING, Visibility
from rackwright.store.events.outbox import emit
from rackwright.store.graph.binding import add_deployment_roles, bind_proposed, bump_revision, lock_proposal
from rackwright.store.graph.deployments import DeploymentRecord, get_deployment
from rackwright.store.graph.noderole_views import NodeRoleView
from rackwright.store.graph.noderoles import NodeRoleRecord, delete_noderoles, plan_removal, select_noderoles
from rackwright.store.hooks.hook_calls import ask_deployment_roles


@dataclass(frozen=True)
class SnapshotRecord:
    id: int
    deployment_id: int
    deployment: str
    state: str
    base_id: int | None
    revision: int
    comment: str
    created_at: datetime
    committed_at: datetime | None


_SELECT = """
SELECT s.id, s.deployment_id, d.name AS deployment, s.state, s.base_id, s.revision, s.comment, s.created_at,
       s.committed_at
FROM snapshots s JOIN deployments d ON d.id = s.deployment_id
"""

SNAPSHOTS = Listing(
    "snapshots",
    {
        "id": Column("s.id", Filter.NUMBER, sort="bigint"),
        "deployment": Column("d.name", Filter.REFERENCE, "d.id", sort="text"),
        "state": Column("s.state", Filter.CHOICE, choices={state.value: state.value for state in SnapshotState}),
        "created_at": Column("s.created_at", Filter.TIME, sort="timestamptz"),
        "committed_at": Column("s.committed_at", Filter.TIME),
    },
    default="-id",
    id="s.id",
    seen="s.deployment_id = ANY (:sees)",
)


async def select_snapshots(session: Session, where: str, **values: object) -> list[SnapshotRecord]:
    return [SnapshotRecord(**row._mapping) for row in await session.rows(f"{_SELECT} {where}", **values)]


async def get_snapshot(session: Session, id: int, visible: Visibility) -> SnapshotRecord:
    where = f"WHERE s.id = :id AND {visible.condition(SNAPSHOTS.seen)}"
    records = await select_snapshots(session, where, id=id, **visible.values)
    if not records:
        raise NotFound("snapshot", id)
    return records[0]


async def select_source_deployments(session: Session, deployment: DeploymentRecord) -> list[int]:
    """Return the other deployments whose nodes are bound in the open proposal; a commit moves those nodes here."""
    rows = await session.rows(
        "SELECT DISTINCT n.deployment_id FROM snapshot_bindings b JOIN nodes n ON n.id = b.node_id"
        " WHERE b.snapshot_id = :proposed AND n.deployment_id <> :here",
        proposed=deployment.proposed_id,
        here=deployment.id,
    )
    return [row.deployment_id for row in rows]


async def propose(session: Session, deployment: DeploymentRecord) -> int:
    """Open a copy of head for editing, and return its id; what runs goes on."""
    # Of two at once, the second waits here, and then sees the proposal of the first.
    await session.run("SELECT FROM deployments WHERE id = :id FOR UPDATE", id=deployment.id)
    deployment = await get_deployment(session, deployment.id, EVERYTHING)
    _check_proposable(deployment)
    id: int = await session.value(
        "INSERT INTO snapshots (deployment_id, state, base_id, worked_out_at)"
        " VALUES (:deployment_id, 'proposed', :head, (SELECT version FROM graph)) RETURNING id",
        deployment_id=deployment.id,
        head=deployment.head_id,
    )
    await _copy_intent(session, deployment.head_id, id)
    await emit(session, "snapshot.proposed", id, deployment_id=deployment.id)
    return id


def _check_proposable(deployment: DeploymentRecord) -> None:
    if deployment.system:
        raise Conflict(
            Rule.SYSTEM,
            "The system deployment is always committed and never proposed. Create a deployment of your own below it.",
        )
    if deployment.proposed_id is not None:
        raise Conflict(
            Rule.PROPOSAL_EXISTS,
            f"Deployment {deployment.name!r} has an open proposal already (snapshot {deployment.proposed_id}). "
            "Edit, commit or discard that one.",
        )


async def _copy_intent(session: Session, source: int | None, target: int) -> None:
    """Copy what the source snapshot says of nodes and roles that are still bound."""
    if source is None:
        return
    await session.run(
        "INSERT INTO snapshot_roles (snapshot_id, role_id, role_name, data)"
        " SELECT :target, s.role_id, r.name, s.data FROM snapshot_roles s JOIN roles r ON r.id = s.role_id"
        " WHERE snapshot_id = :source",
        source=source,
        target=target,
    )
    await session.run(
        """
        INSERT INTO snapshot_bindings (snapshot_id, node_id, role_id, node_name, role_name, asked, data)
        SELECT :target, b.node_id, b.role_id, n.name, b.role_name, b.asked, b.data
        FROM snapshot_bindings b JOIN nodes n ON n.id = b.node_id
        JOIN node_roles nr ON nr.node_id = b.node_id AND nr.role_id = b.role_id AND NOT nr.doomed
        WHERE b.snapshot_id = :source
        """,
        source=source,
        target=target,
    )


async def recall(session: Session, deployment: DeploymentRecord) -> int:
    """Hold the deployment and open a copy of head, and return its id. Head stays as it is; what runs settles."""
    if deployment.head_id is None and not deployment.system:
        raise Conflict(Rule.NOTHING_COMMITTED, f"Deployment {deployment.name!r} has nothing committed to recall.")
    id = await propose(session, deployment)
    await session.run("UPDATE deployments SET held = true WHERE id = :id", id=deployment.id)
    await _touch_waiting_nodes(session, deployment.id)
    await emit(session, "deployment.held", deployment.id, deployment_id=deployment.id)
    return id


async def release(session: Session, deployment: DeploymentRecord) -> None:
    """End the hold of a deployment, if there is one."""
    if await session.run("UPDATE deployments SET held = false WHERE id = :id AND held", id=deployment.id):
        await _touch_waiting_nodes(session, deployment.id)
        await emit(session, "deployment.released", deployment.id, deployment_id=deployment.id)


async def _touch_waiting_nodes(session: Session, deployment_id: int) -> None:
    rows = await session.rows(
        "SELECT DISTINCT node_id FROM node_roles WHERE deployment_id = :id AND state = :todo",
        id=deployment_id,
        todo=int(TODO),
    )
    session.touch(row.node_id for row in rows)


async def discard(session: GraphSession, deployment: DeploymentRecord) -> None:
    """Delete the open proposal and its proposed noderoles."""
    snapshot_id = await lock_proposal(session, deployment)
    proposed = await session.rows(
        "SELECT id FROM node_roles WHERE deployment_id = :id AND state = :proposed",
        id=deployment.id,
        proposed=int(PROPOSED),
    )
    await delete_noderoles(session, [row.id for row in proposed])
    await session.run("DELETE FROM snapshots WHERE id = :id", id=snapshot_id)
    await drop_unused_roles(session, deployment.id)
    await release(session, deployment)
    await emit(session, "snapshot.discarded", snapshot_id, deployment_id=deployment.id)


async def drop_unused_roles(session: Session, deployment_id: int) -> None:
    """Delete deployment-roles that neither head, nor the proposal, nor a noderole refers to any more.

    A noderole that only waits for the end of its run does not keep its deployment-role: nothing would delete it then.
    """
    unused = await session.rows(
        """
        SELECT dr.id FROM deployment_roles dr WHERE dr.deployment_id = :id
          AND NOT EXISTS (SELECT FROM snapshots s JOIN snapshot_roles sr ON sr.snapshot_id = s.id
              WHERE s.deployment_id = :id AND s.state IN ('head', 'proposed') AND sr.role_id = dr.role_id)
          AND NOT EXISTS (SELECT FROM node_roles nr
              WHERE nr.deployment_id = :id AND nr.role_id = dr.role_id AND NOT nr.doomed)
        FOR UPDATE
        """,
        id=deployment_id,
    )
    if not unused:
        return
    ids = [row.id for row in unused]
    await ask_deployment_roles(session, "on_deployment_delete", ids)
    await session.run(
        """
        WITH gone AS (DELETE FROM deployment_roles WHERE id = ANY (:ids) RETURNING id, role_id)
        INSERT INTO events (kind, subject_id, deployment_id, data)
        SELECT 'deployment_role.deleted', gone.id, :id, jsonb_build_object('role', r.name)
        FROM gone JOIN roles r ON r.id = gone.role_id
        """,
        ids=ids,
        id=deployment_id,
    )


# --- editing a proposal


async def add_role(session: Session, deployment: DeploymentRecord, role: str) -> None:
    """Add a deployment-role to the deployment, so that its data can be set before anything is bound."""
    snapshot_id = await lock_proposal(session, deployment)
    stored = await session.catalogue()
    stored.catalogue.role(role)
    await session.run(
        "INSERT INTO snapshot_roles (snapshot_id, role_id, role_name) VALUES (:snapshot_id, :role_id, :role)"
        " ON CONFLICT DO NOTHING",
        snapshot_id=snapshot_id,
        role_id=stored.role_ids[role],
        role=role,
    )
    await add_deployment_roles(session, stored, deployment.id, [role])
    await bump_revision(session, snapshot_id)


async def remove_role(session: GraphSession, deployment: DeploymentRecord, role: str) -> list[NodeRoleRecord]:
    """Take a role out of the proposal, with its noderoles there and what stands on those.

    Returns those of them that are of this deployment, as they were.

    What was only proposed is deleted at once; what is committed is deleted when the proposal is committed, and its
    `on_deployment_delete` hook is asked then.
    """
    snapshot_id = await lock_proposal(session, deployment)
    bound_rows = await session.rows(
        "SELECT nr.id FROM node_roles nr JOIN roles r ON r.id = nr.role_id"
        " WHERE nr.deployment_id = :deployment AND r.name = :role AND NOT nr.doomed",
        deployment=deployment.id,
        role=role,
    )
    ids = [row.id for row in bound_rows]
    removed = await select_noderoles(
        session,
        "WHERE nr.id = ANY (:ids) AND nr.deployment_id = :here ORDER BY nr.cohort, nr.id",
        ids=list(await plan_removal(session, ids)),
        here=deployment.id,
    )
    await unbind(session, deployment, ids)
    deleted = await session.run(
        "DELETE FROM snapshot_roles WHERE snapshot_id = :id AND role_name = :role", id=snapshot_id, role=role
    )
    if not deleted:
        raise NotFound(f"role in the proposal of deployment {deployment.name!r}:", role)
    await bump_revision(session, snapshot_id)
    await drop_unused_roles(session, deployment.id)
    return removed


async def _check_and_seal(session: Session, role: str, data: JsonObject) -> JsonObject:
    """Check data that a person gave against the role's attribs, and return it with its secrets sealed, for storing."""
    catalogue = (await session.catalogue()).catalogue
    check_role_data(catalogue, role, data)
    return session.store.vault.seal_secrets(catalogue.attribs_of(role), data)


async def set_role_data(session: Session, deployment: DeploymentRecord, role: str, data: JsonObject) -> None:
    """Set the data that the deployment-role has once the proposal is committed."""
    snapshot_id = await lock_proposal(session, deployment)
    data = await _check_and_seal(session, role, data)
    changed = await session.run(
        "UPDATE snapshot_roles SET data = :data WHERE snapshot_id = :snapshot_id AND role_name = :role",
        data=Jsonb(data),
        snapshot_id=snapshot_id,
        role=role,
    )
    if not changed:
        raise NotFound(f"role in the proposal of deployment {deployment.name!r}:", role)
    await bump_revision(session, snapshot_id)


async def set_binding_data(
    session: Session, deployment: DeploymentRecord, node_id: int, role: str, data: JsonObject
) -> None:
    """Set the data that this noderole alone has once the proposal is committed."""
    snapshot_id = await lock_proposal(session, deployment)
    data = await _check_and_seal(session, role, data)
    changed = await session.run(
        "UPDATE snapshot_bindings SET data = :data"
        " WHERE snapshot_id = :snapshot_id AND node_id = :node_id AND role_name = :role",
        data=Jsonb(data),
        snapshot_id=snapshot_id,
        node_id=node_id,
        role=role,
    )
    if not changed:
        raise NotFound(f"binding in the proposal of deployment {deployment.name!r}:", f"{role} on node {node_id}")
    await bump_revision(session, snapshot_id)


async def edit_binding_data(
    session: Session, deployment: DeploymentRecord, noderole: NodeRoleView, data: JsonObject
) -> None:
    """As `set_binding_data`, for data that a person read and changed: secrets that came back masked stay the same."""
    attribs = (await session.catalogue()).catalogue.attribs_of(noderole.role)
    new_data = prepare_submitted_data(session.store.vault, attribs, noderole.user_data, data)
    await set_binding_data(session, deployment, noderole.node_id, noderole.role, new_data)


async def unbind(session: GraphSession, deployment: DeploymentRecord, noderole_ids: Sequence[int]) -> set[int]:
    """Take bindings out of the proposal, with all that stands on them, and return the ids of those noderoles.

    What was only proposed is deleted at once; what is committed is deleted when the proposal is committed.
    """
    snapshot_id = await lock_proposal(session, deployment)
    own_rows = await session.rows(
        "SELECT id FROM node_roles WHERE id = ANY (:ids) AND deployment_id = :deployment",
        ids=list(noderole_ids),
        deployment=deployment.id,
    )
    foreign_ids = set(noderole_ids) - {row.id for row in own_rows}
    if foreign_ids:
        raise NotFound(f"noderole in deployment {deployment.name!r}:", min(foreign_ids))
    removed_ids = await plan_removal(session, noderole_ids)
    proposed = await session.rows(
        "SELECT id FROM node_roles WHERE id = ANY (:ids) AND state = :proposed AND deployment_id = :deployment",
        ids=list(removed_ids),
        proposed=int(PROPOSED),
        deployment=deployment.id,
    )
    await session.run(
        """
        DELETE FROM snapshot_bindings b USING node_roles nr
        WHERE nr.id = ANY (:ids) AND b.snapshot_id = :snapshot_id
          AND b.node_id = nr.node_id AND b.role_id = nr.role_id
        """,
        ids=list(removed_ids),
        snapshot_id=snapshot_id,
    )
    await delete_noderoles(session, [row.id for row in proposed])
    await bump_revision(session, snapshot_id)
    return removed_ids


# --- diff and rollback


async def read_intent(session: Session, snapshot_id: int) -> Intent:
    roles = await session.rows("SELECT role_name, data FROM snapshot_roles WHERE snapshot_id = :id", id=snapshot_id)
    bindings = await session.rows(
        "SELECT coalesce(n.name, b.node_name) AS node_name, b.role_name, b.data FROM snapshot_bindings b"
        " LEFT JOIN nodes n ON n.id = b.node_id WHERE b.snapshot_id = :id",
        id=snapshot_id,
    )
    return Intent(
        roles={row.role_name: row.data for row in roles},
        bindings={(row.node_name, row.role_name): row.data for row in bindings},
    )


async def check_snapshot_owner(
    session: Session, deployment: DeploymentRecord, snapshot_id: int, visible: Visibility
) -> None:
    """Refuse a snapshot that belongs to another deployment."""
    if (await get_snapshot(session, snapshot_id, visible)).deployment_id != deployment.id:
        raise NotFound(f"snapshot of deployment {deployment.name!r}:", snapshot_id)


async def diff_snapshots(session: Session, old: int, new: int, visible: Visibility) -> Difference:
    await get_snapshot(session, old, visible)
    await get_snapshot(session, new, visible)
    return diff_intents(await read_intent(session, old), await read_intent(session, new))


@dataclass(frozen=True)
class Rollback:
    snapshot_id: int
    not_restorable: tuple[tuple[str, str], ...]
    """(node, role) bindings of nodes or roles that are gone."""


async def rollback(session: GraphSession, deployment: DeploymentRecord, snapshot_id: int) -> Rollback:
    """Open a proposal with the content of an earlier snapshot."""
    await check_snapshot_owner(session, deployment, snapshot_id, EVERYTHING)
    proposal_id = await propose(session, deployment)
    deployment = await get_deployment(session, deployment.id, EVERYTHING)
    bindings = await session.rows(
        """
        SELECT b.node_id, b.role_id, b.node_name, b.role_name, b.asked, b.data,
               n.id IS NOT NULL AND r.id IS NOT NULL AS restorable
        FROM snapshot_bindings b LEFT JOIN nodes n ON n.id = b.node_id
        LEFT JOIN roles r ON r.id = b.role_id WHERE b.snapshot_id = :id
        ORDER BY b.node_id, b.role_id
        """,
        id=snapshot_id,
    )
    wanted_pairs = {(row.node_id, row.role_id) for row in bindings}
    current = await session.rows(
        """
        SELECT nr.id, nr.node_id, nr.role_id FROM snapshot_bindings b
        JOIN node_roles nr ON nr.node_id = b.node_id AND nr.role_id = b.role_id WHERE b.snapshot_id = :id
        """,
        id=proposal_id,
    )
    dropped_ids = [row.id for row in current if (row.node_id, row.role_id) not in wanted_pairs]
    if dropped_ids:
        await unbind(session, deployment, dropped_ids)
    await bind_proposed(session, deployment, [(row.node_id, row.role_name) for row in bindings if row.restorable])
    await _restore_data(session, snapshot_id, proposal_id)
    stored = await session.catalogue()
    role_rows = await session.rows(
        "SELECT r.name FROM snapshot_roles s JOIN roles r ON r.id = s.role_id WHERE s.snapshot_id = :id", id=snapshot_id
    )
    await add_deployment_roles(session, stored, deployment.id, [row.name for row in role_rows])
    return Rollback(proposal_id, tuple((row.node_name, row.role_name) for row in bindings if not row.restorable))


async def _restore_data(session: Session, past_id: int, proposal_id: int) -> None:
    await session.run(
        """
        UPDATE snapshot_bindings b SET data = p.data, asked = p.asked FROM snapshot_bindings p
        WHERE b.snapshot_id = :proposal AND p.snapshot_id = :past AND p.node_id = b.node_id AND p.role_id = b.role_id
        """,
        past=past_id,
        proposal=proposal_id,
    )
    await session.run(
        """
        DELETE FROM snapshot_roles s WHERE s.snapshot_id = :proposal
          AND NOT EXISTS (SELECT FROM snapshot_roles p WHERE p.snapshot_id = :past AND p.role_id = s.role_id)
          AND NOT EXISTS (SELECT FROM snapshot_bindings b WHERE b.snapshot_id = :proposal AND b.role_id = s.role_id)
        """,
        past=past_id,
        proposal=proposal_id,
    )
    await session.run(
        """
        INSERT INTO snapshot_roles (snapshot_id, role_id, role_name, data)
        SELECT :proposal, p.role_id, r.name, p.data FROM snapshot_roles p JOIN roles r ON r.id = p.role_id
        WHERE p.snapshot_id = :past
        ON CONFLICT (snapshot_id, role_id) DO UPDATE SET data = excluded.data
        """,
        past=past_id,
        proposal=proposal_id,
    )
