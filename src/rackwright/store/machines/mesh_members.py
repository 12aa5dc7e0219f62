"""Members of the mesh as nodes: a node for each, marked with what the mesh says of it, and the roles that show it.

All of it is level, not edge: whatever the view says is made so, and a view that says nothing new changes nothing. No
node is ever deleted here. Who looks at the mesh is the annealer's `mesh_follower.py`.
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
    Directory,
    KnownNode,
    Member,
    MeshView,
    failing_checks,
    mark_of,
    member_events,
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

SCOPE = "mesh.scope"


@dataclass
class Followed:
    """What became of a view."""

    changes: list[str] = field(default_factory=list)
    """One sentence each, for the log."""
    refused: list[str] = field(default_factory=list)
    """What could not be done, and why."""


async def marked_members(session: Session, cluster: str) -> set[str]:
    """Members of this mesh that have a node."""
    rows = await session.rows(
        "SELECT discovery -> :mark ->> 'member' AS member FROM nodes WHERE discovery -> :mark ->> 'cluster' = :cluster",
        mark=MARK,
        cluster=cluster,
    )
    return {row.member for row in rows}


async def mark_on(session: Session, node_id: int) -> JsonObject | None:
    """What the mesh says of a node; None: it never was a member."""
    found: JsonObject | None = await session.value(
        "SELECT discovery -> :mark FROM nodes WHERE id = :id", mark=MARK, id=node_id
    )
    return found


async def fence_scope(session: Session) -> str:
    """What tells this database's runs in a mesh from those of another database; drawn once."""
    await session.run(
        "INSERT INTO settings (name, value) VALUES (:name, :value) ON CONFLICT (name) DO NOTHING",
        name=SCOPE,
        value=Jsonb(secrets.token_hex(8)),
    )
    return str(await read_setting(session, SCOPE, ""))


async def follow_mesh(session: GraphSession, view: MeshView) -> Followed:
    """Make nodes and roles say what the mesh says."""
    followed = Followed()
    nodes = await _known_nodes(session)
    directory = Directory(nodes, view.cluster)
    ids: dict[str, int] = {}
    for member in view.members:
        node = directory.find(member.name)
        try:
            ids[member.name] = await _one(session, view, member, node, followed)
        except (Conflict, Invalid) as error:
            followed.refused.append(f"{member.name} of the mesh is shown as no node: {error.message}")
    members = {ids[one.name] for one in view.members if one.name in ids and one.state in BELONGS}
    others = {node.id for node in directory.marked.values()} - members
    await _hold(session, MEMBER_ROLE, members, others & set(ids.values()), followed)
    if view.voters is not None:
        voters = {ids[name] for name in view.voters if name in ids}
        await _hold(session, DATASTORE_ROLE, voters, {node.id for node in nodes} - voters, followed)
    return followed


async def _known_nodes(session: Session) -> list[KnownNode]:
    rows = await session.rows(
        "SELECT id, name, discovery -> :mark AS mark FROM nodes WHERE NOT system ORDER BY id", mark=MARK
    )
    return [KnownNode(row.id, row.name, row.mark if isinstance(row.mark, dict) else {}) for row in rows]


# --- nodes


async def _one(
    session: GraphSession, view: MeshView, member: Member, node: KnownNode | None, followed: Followed
) -> int:
    if node is None:
        return await _made(session, view, member, followed)
    made = node.mark.get("made") is True
    mark = {**node.mark, **_mark_of(view, member, node.mark, made=made)}
    if mark != node.mark:
        await _mark(session, node.id, mark)
        await _tell(session, node.id, node.mark, mark)
        was = node.mark.get("state", "no member")
        if was != member.state:
            followed.changes.append(f"{node.name} was {was} in the mesh and is {member.state} as {member.name}")
    if made:
        await _live_or_die(session, node.id, alive=member.state in LIVE)
    return node.id


async def _made(session: GraphSession, view: MeshView, member: Member, followed: Followed) -> int:
    mark = _mark_of(view, member, {}, made=True)
    new = NewNode(
        new_node_name(member.name),
        description=f"{member.name} of the mesh",
        alive=member.state in LIVE,
        discovery={MARK: mark, "address": member.host},
    )
    id = await create_node(session, new)
    await _tell(session, id, {}, mark)
    await approve_address(session, id, trust_first_key=True)  # the mesh's authority let it in under this address
    followed.changes.append(f"{member.name} of the mesh is the new node {new.name}")
    return id


def _mark_of(view: MeshView, member: Member, before: JsonObject, *, made: bool) -> JsonObject:
    return {**mark_of(view, member, made=made), "failing": {**failing_checks(before, member)}}


async def _tell(session: Session, id: int, before: JsonObject, mark: JsonObject) -> None:
    """Tell what has become of a member as events of its node: once, for the mark changes in the same transaction."""
    for kind, data in member_events(before, mark):
        await emit(session, kind, id, node_id=id, data=data)


async def _mark(session: Session, id: int, mark: JsonObject) -> None:
    """Say it of the node. It is no input but of what wants just this: a death must not make all of a node run again."""
    row = await session.row("SELECT discovery FROM nodes WHERE id = :id FOR NO KEY UPDATE", id=id)
    assert row is not None
    await session.run(
        "UPDATE nodes SET discovery = :discovery WHERE id = :id",
        id=id,
        discovery=Jsonb({**row.discovery, MARK: mark}),
    )
    await emit(session, "node.updated", id, node_id=id, data={"changed": ["discovery"]})
    await queue_node_updated(session, {id: {"discovery": row.discovery}})
    if not _says_more_than_software(row.discovery.get(MARK), mark):
        return
    stored = await session.catalogue()
    wanting = [stored.role_ids[name] for name, role in stored.catalogue.roles.items() if ATTRIBS & set(role.wants)]
    rows = await session.rows(
        "SELECT nr.id, nr.state, r.name FROM node_roles nr JOIN roles r ON r.id = nr.role_id WHERE nr.node_id = :id"
        " AND nr.state <> :proposed AND (nr.role_id = ANY (:wanting) OR r.name = :member)",
        id=id,
        proposed=int(PROPOSED),
        wanting=wanting,
        member=MEMBER_ROLE,
    )
    await mark_dirty(session, [row.id for row in rows if row.name != MEMBER_ROLE])
    # Somebody bound it before the node was let in.
    await move_noderoles(
        session, Trigger.RETRY, [row.id for row in rows if row.name == MEMBER_ROLE and row.state == int(ERROR)]
    )


def _says_more_than_software(before: object, mark: JsonObject) -> bool:
    """Whether something else than failing checks has changed: those are no attrib, so nothing has to run for them."""
    return not isinstance(before, dict) or {**before, "failing": mark["failing"]} != mark


async def _live_or_die(session: Session, id: int, *, alive: bool) -> None:
    """Of a node that nobody but the mesh knows of. One that has been heard of otherwise has its own heartbeats."""
    row = await session.row("SELECT alive, seen_at FROM nodes WHERE id = :id", id=id)
    if row is not None and row.seen_at is None and row.alive != alive:
        await update_node(session, id, {"alive": alive})


# --- roles


async def _hold(
    session: GraphSession, role: str, wanted: Collection[int], unwanted: Collection[int], followed: Followed
) -> None:
    """Have the role bound to `wanted` and to none of `unwanted`: in the system deployment, as discovery does."""
    held = await _held(session, role)
    system = await get_deployment(session, SYSTEM, EVERYTHING)
    missing = sorted(set(wanted) - held.keys())
    if missing:
        plan = await bind_committed(session, system.id, [(id, role) for id in missing])
        fresh = [noderole.node_id for noderole in plan.created if noderole.role == role]
        followed.changes.extend(f"{name} has {role} now" for name in await _names(session, fresh))
    surplus = [id for id in sorted(set(unwanted) & held.keys()) if held[id].deployment_id == system.id]
    for id in surplus:
        try:
            going = await plan_removal(session, [held[id].node_role_id])
        except Conflict as error:
            followed.refused.append(f"The mesh took {role} from a node, but: {error.message}")
            continue
        await rerun_cluster_peers(session, going)
        await remove_noderoles(session, going)
        followed.changes.extend(f"{name} has {role} no longer" for name in await _names(session, [id]))


@dataclass(frozen=True)
class _Held:
    node_role_id: int
    deployment_id: int


async def _held(session: Session, role: str) -> Mapping[int, _Held]:
    """By node. What only waits for its run to end is held no longer."""
    rows = await session.rows(
        "SELECT nr.id, nr.node_id, nr.deployment_id FROM node_roles nr JOIN roles r ON r.id = nr.role_id"
        " WHERE r.name = :role AND NOT nr.doomed AND nr.state <> :proposed",
        role=role,
        proposed=int(PROPOSED),
    )
    return {row.node_id: _Held(row.id, row.deployment_id) for row in rows}


async def _names(session: Session, ids: Iterable[int]) -> list[str]:
    rows = await session.rows("SELECT name FROM nodes WHERE id = ANY (:ids) ORDER BY id", ids=list(ids))
    return [row.name for row in rows]
