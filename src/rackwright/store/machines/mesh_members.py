"""Members of the mesh as nodes: a node for each, marked with what the mesh says of it, and the roles that show it.

It works by level, not by edge: nodes and roles are made to match the view, and a view that has nothing new changes
nothing. No node is ever deleted here. The annealer's `mesh_follower.py` reads the mesh.
"""

import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from psycopg.types.json import Jsonb

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.errors import Conflict, Invalid
from rackwright.domain.machines.mesh_members import (
    ATTRIBS,
    BELONGS,
    DATASTORE_ROLE,
    LIVE,
    MARK,
    MEMBER_ROLE,
    KnownNode,
    Member,
    MemberDirectory,
    MeshView,
    failing_checks,
    member_events,
    member_mark,
    new_node_name,
)
from rackwright.domain.states import ERROR, PROPOSED, Trigger
from rackwright.store.db.session import GraphSession, Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.events.outbox import emit
from rackwright.store.graph.binding import bind_committed
from rackwright.store.graph.deployments import SYSTEM, get_deployment
from rackwright.store.graph.noderoles import plan_removal, remove_noderoles
from rackwright.store.graph.transitions import mark_dirty, move_noderoles, rerun_cluster_peers
from rackwright.store.hooks.hook_calls import queue_node_updated
from rackwright.store.machines.node_address import approve_address
from rackwright.store.machines.nodes import NewNode, create_node, update_node
from rackwright.store.settings import read_setting

SCOPE_SETTING = "mesh.scope"


@dataclass
class MeshChanges:
    """What following a view of the mesh changed, and what it could not change."""

    changes: list[str] = field(default_factory=list)
    """One sentence each, for the log."""
    refused: list[str] = field(default_factory=list)
    """What could not be done, and why; one sentence each."""


async def select_marked_members(session: Session, cluster: str) -> set[str]:
    """Return the members of this mesh that have a node."""
    rows = await session.rows(
        "SELECT discovery -> :mark ->> 'member' AS member FROM nodes WHERE discovery -> :mark ->> 'cluster' = :cluster",
        mark=MARK,
        cluster=cluster,
    )
    return {row.member for row in rows}


async def read_mark(session: Session, node_id: int) -> JsonObject | None:
    """Return what the mesh says of a node; None: the node never was a member."""
    mark: JsonObject | None = await session.value(
        "SELECT discovery -> :mark FROM nodes WHERE id = :id", mark=MARK, id=node_id
    )
    return mark


async def read_fence_scope(session: Session) -> str:
    """Return what tells this database's runs in a mesh from those of another database; it is drawn once."""
    await session.run(
        "INSERT INTO settings (name, value) VALUES (:name, :value) ON CONFLICT (name) DO NOTHING",
        name=SCOPE_SETTING,
        value=Jsonb(secrets.token_hex(8)),
    )
    return str(await read_setting(session, SCOPE_SETTING, ""))


async def follow_mesh(session: GraphSession, view: MeshView) -> MeshChanges:
    """Make nodes and roles match the view of the mesh, and return what changed."""
    changes = MeshChanges()
    nodes = await _select_known_nodes(session)
    directory = MemberDirectory(nodes, view.cluster)
    ids: dict[str, int] = {}
    for member in view.members:
        node = directory.find(member.name)
        try:
            ids[member.name] = await _follow_member(session, view, member, node, changes)
        except (Conflict, Invalid) as error:
            changes.refused.append(f"{member.name} of the mesh is shown as no node: {error.message}")
    members = {ids[member.name] for member in view.members if member.name in ids and member.state in BELONGS}
    others = {node.id for node in directory.marked.values()} - members
    await _bind_role(session, MEMBER_ROLE, members, others & set(ids.values()), changes)
    if view.voters is not None:
        voters = {ids[name] for name in view.voters if name in ids}
        await _bind_role(session, DATASTORE_ROLE, voters, {node.id for node in nodes} - voters, changes)
    return changes


async def _select_known_nodes(session: Session) -> list[KnownNode]:
    rows = await session.rows(
        "SELECT id, name, discovery -> :mark AS mark FROM nodes WHERE NOT system ORDER BY id", mark=MARK
    )
    return [KnownNode(row.id, row.name, row.mark if isinstance(row.mark, dict) else {}) for row in rows]


# --- nodes


async def _follow_member(
    session: GraphSession, view: MeshView, member: Member, node: KnownNode | None, changes: MeshChanges
) -> int:
    if node is None:
        return await _create_member_node(session, view, member, changes)
    made_by_mesh = node.mark.get("made") is True
    mark = {**node.mark, **_build_mark(view, member, node.mark, made=made_by_mesh)}
    if mark != node.mark:
        await _write_mark(session, node.id, mark)
        await _emit_member_events(session, node.id, node.mark, mark)
        old_state = node.mark.get("state", "no member")
        if old_state != member.state:
            changes.changes.append(f"{node.name} was {old_state} in the mesh and is {member.state} as {member.name}")
    if made_by_mesh:
        await _set_alive(session, node.id, alive=member.state in LIVE)
    return node.id


async def _create_member_node(session: GraphSession, view: MeshView, member: Member, changes: MeshChanges) -> int:
    mark = _build_mark(view, member, {}, made=True)
    new_node = NewNode(
        new_node_name(member.name),
        description=f"{member.name} of the mesh",
        alive=member.state in LIVE,
        discovery={MARK: mark, "address": member.host},
    )
    id = await create_node(session, new_node)
    await _emit_member_events(session, id, {}, mark)
    # The mesh's authority let the member in under this address.
    await approve_address(session, id, trust_first_key=True)
    changes.changes.append(f"{member.name} of the mesh is the new node {new_node.name}")
    return id


def _build_mark(view: MeshView, member: Member, before: JsonObject, *, made: bool) -> JsonObject:
    return {**member_mark(view, member, made=made), "failing": {**failing_checks(before, member)}}


async def _emit_member_events(session: Session, id: int, before: JsonObject, mark: JsonObject) -> None:
    """Emit the changes of a member as events of its node: once, for the mark changes in the same transaction."""
    for kind, data in member_events(before, mark):
        await emit(session, kind, id, node_id=id, data=data)


async def _write_mark(session: Session, id: int, mark: JsonObject) -> None:
    """Write the mark to the node.

    It is an input only of roles that want its attribs: a death must not make all of a node run again.
    """
    row = await session.row("SELECT discovery FROM nodes WHERE id = :id FOR NO KEY UPDATE", id=id)
    assert row is not None
    await session.run(
        "UPDATE nodes SET discovery = :discovery WHERE id = :id",
        id=id,
        discovery=Jsonb({**row.discovery, MARK: mark}),
    )
    await emit(session, "node.updated", id, node_id=id, data={"changed": ["discovery"]})
    await queue_node_updated(session, {id: {"discovery": row.discovery}})
    if not _has_other_changes_than_checks(row.discovery.get(MARK), mark):
        return
    stored = await session.catalogue()
    wanting_role_ids = [
        stored.role_ids[name] for name, role in stored.catalogue.roles.items() if ATTRIBS & set(role.wants)
    ]
    rows = await session.rows(
        "SELECT nr.id, nr.state, r.name FROM node_roles nr JOIN roles r ON r.id = nr.role_id WHERE nr.node_id = :id"
        " AND nr.state <> :proposed AND (nr.role_id = ANY (:wanting) OR r.name = :member)",
        id=id,
        proposed=int(PROPOSED),
        wanting=wanting_role_ids,
        member=MEMBER_ROLE,
    )
    await mark_dirty(session, [row.id for row in rows if row.name != MEMBER_ROLE])
    # The member role failed if a person bound it before the node was let in.
    await move_noderoles(
        session, Trigger.RETRY, [row.id for row in rows if row.name == MEMBER_ROLE and row.state == int(ERROR)]
    )


def _has_other_changes_than_checks(before: object, mark: JsonObject) -> bool:
    """Return whether anything but failing checks has changed: those are no attrib, so nothing has to run for them."""
    return not isinstance(before, dict) or {**before, "failing": mark["failing"]} != mark


async def _set_alive(session: Session, id: int, *, alive: bool) -> None:
    """Set whether a node is alive that only the mesh knows of; one that was seen otherwise has its own heartbeats."""
    row = await session.row("SELECT alive, seen_at FROM nodes WHERE id = :id", id=id)
    if row is not None and row.seen_at is None and row.alive != alive:
        await update_node(session, id, {"alive": alive})


# --- roles


async def _bind_role(
    session: GraphSession, role: str, wanted_ids: Collection[int], unwanted_ids: Collection[int], changes: MeshChanges
) -> None:
    """Bind the role to `wanted_ids`, and to none of `unwanted_ids`, in the system deployment, as discovery does."""
    bindings = await _select_bindings(session, role)
    system = await get_deployment(session, SYSTEM, EVERYTHING)
    missing_ids = sorted(set(wanted_ids) - bindings.keys())
    if missing_ids:
        plan = await bind_committed(session, system.id, [(id, role) for id in missing_ids])
        new_ids = [noderole.node_id for noderole in plan.created if noderole.role == role]
        changes.changes.extend(f"{name} has {role} now" for name in await _select_names(session, new_ids))
    surplus_ids = [id for id in sorted(set(unwanted_ids) & bindings.keys()) if bindings[id].deployment_id == system.id]
    for id in surplus_ids:
        try:
            removed_ids = await plan_removal(session, [bindings[id].node_role_id])
        except Conflict as error:
            changes.refused.append(f"The mesh took {role} from a node, but: {error.message}")
            continue
        await rerun_cluster_peers(session, removed_ids)
        await remove_noderoles(session, removed_ids)
        changes.changes.extend(f"{name} has {role} no longer" for name in await _select_names(session, [id]))


@dataclass(frozen=True)
class _Binding:
    node_role_id: int
    deployment_id: int


async def _select_bindings(session: Session, role: str) -> Mapping[int, _Binding]:
    """Return the bindings of a role by node, without those that only wait for their run to end."""
    rows = await session.rows(
        "SELECT nr.id, nr.node_id, nr.deployment_id FROM node_roles nr JOIN roles r ON r.id = nr.role_id"
        " WHERE r.name = :role AND NOT nr.doomed AND nr.state <> :proposed",
        role=role,
        proposed=int(PROPOSED),
    )
    return {row.node_id: _Binding(row.id, row.deployment_id) for row in rows}


async def _select_names(session: Session, ids: Iterable[int]) -> list[str]:
    rows = await session.rows("SELECT name FROM nodes WHERE id = ANY (:ids) ORDER BY id", ids=list(ids))
    return [row.name for row in rows]
