"""Nodes: reading, creating, editing and deleting them, and what happens when one boots or moves.

A machine is found again by any MAC, UUID or key, so that no node is created twice.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb
from sqlalchemy import Row

from rackwright.domain.attributes import merge
from rackwright.domain.catalogue import Flag, Json, JsonObject
from rackwright.domain.errors import Conflict, Invalid, NotFound, Rule
from rackwright.domain.names import check_mac, check_node_name, check_uuid
from rackwright.domain.states import COMMITTED, PROPOSED, TRANSITION, NodeRoleState, Trigger, worst_state
from rackwright.store.db.listing import Column, Filter, Listing, key_id
from rackwright.store.db.session import GraphSession, Session
from rackwright.store.db.visibility import EVERYTHING, Visibility
from rackwright.store.events.outbox import emit
from rackwright.store.graph.binding import bind_committed
from rackwright.store.graph.deployments import SYSTEM, get_deployment
from rackwright.store.graph.noderoles import delete_doomed, plan_removal, remove_noderoles
from rackwright.store.graph.subgraph import bump_graph, load_path
from rackwright.store.graph.transitions import mark_dirty, mark_peers_dirty, move_noderoles, rerun_cluster_peers
from rackwright.store.hooks.hook_calls import queue_node_created, queue_node_deleted, queue_node_updated
from rackwright.store.networks.allocations import free_node_addresses
from rackwright.store.runs.slots import add_slots


@dataclass(frozen=True)
class NewNode:
    """What is known of a machine when it is added."""

    name: str
    description: str = ""
    admin: bool = False
    alive: bool = False
    available: bool = True
    deployment: str | None = None
    macs: Sequence[str] = ()
    uuid: str | None = None
    key: str | None = None
    discovery: JsonObject = field(default_factory=dict)
    hint: JsonObject = field(default_factory=dict)
    registered_from: str | None = None
    """The address that a machine came from that nobody announced. It waits to be accepted."""
    identity_confirmed: bool = True
    """The person who adds the node may say which machine it is. If not, its MACs and UUID are only a claim."""


@dataclass(frozen=True)
class NodeRecord:
    id: int
    name: str
    description: str
    admin: bool
    system: bool
    alive: bool
    available: bool
    bootenv: str
    observed_bootenv: str
    boot_id: str | None
    deployment_id: int
    deployment: str
    uuid: str | None
    discovery: JsonObject
    hint: JsonObject
    quirks: list[str]
    stay_on: bool
    macs: list[str]
    states: list[int]
    waiting: bool = False
    """The machine came by itself, and was never accepted."""
    identity_confirmed: bool = True
    offered_key: str | None = None
    """The key of a machine that claims to be this node, and that nobody accepted."""
    offered_from: str | None = None
    host_key: str | None = None
    """The key that the machine must show over SSH, as OpenSSH writes it."""
    offered_host_key: str | None = None
    """Another host key that the machine showed, and was refused for."""
    sleep: str | None = None
    """The stage of the node on its way to sleep and back (`Sleep`); None: it is awake."""
    shutdown_at: datetime | None = None
    """The time at which its system was asked to shut down."""
    groups: list[str] = field(default_factory=list)
    """The groups of the node, each as category:name."""

    @property
    def state(self) -> NodeRoleState:
        return worst_state(NodeRoleState(state) for state in self.states)


def _node_query(discovery: str) -> str:
    """Return the query for nodes, with this expression for what machines found out about themselves."""
    return f"""
SELECT n.id, n.name, n.description, n.admin, n.system, n.alive, n.available, n.bootenv, n.observed_bootenv, n.boot_id,
       n.deployment_id, d.name AS deployment, n.uuid::text AS uuid, {discovery} AS discovery, n.hint, n.quirks,
       n.stay_on, n.waiting_since IS NOT NULL AS waiting, n.identity_confirmed, n.offered_key, n.offered_from,
       n.host_key, n.offered_host_key, n.sleep, n.shutdown_at,
       ARRAY(SELECT mac::text FROM node_macs m WHERE m.node_id = n.id ORDER BY mac) AS macs,
       ARRAY(SELECT DISTINCT state FROM node_roles nr WHERE nr.node_id = n.id) AS states,
       ARRAY(SELECT g.category || ':' || g.name FROM node_groups ng JOIN groups g ON g.id = ng.group_id
             WHERE ng.node_id = n.id ORDER BY 1) AS groups
FROM nodes n JOIN deployments d ON d.id = n.deployment_id
"""


_SELECT = _node_query("n.discovery")

# In a list nobody reads all that every machine found out about itself, and it is most of a node's data.
_SELECT_WITHOUT_DISCOVERY = _node_query("CAST('{}' AS jsonb)")

NODES = Listing(
    "nodes",
    {
        "id": Column("n.id", Filter.NUMBER, sort="bigint"),
        "name": Column("n.name", sort="text"),
        "deployment": Column("d.name", Filter.REFERENCE, "d.id", sort="text", says="Deployment the node is in"),
        "state": Column(
            "coalesce((SELECT max(nr.state) FROM node_roles nr WHERE nr.node_id = n.id), 0)",
            Filter.CHOICE,
            choices={state.label: int(state) for state in NodeRoleState},
            sort="smallint",
            key=lambda node: max(node.states, default=0),
            says="The worst state of its noderoles",
        ),
        "alive": Column("n.alive", Filter.FLAG, sort="boolean"),
        "available": Column("n.available", Filter.FLAG, sort="boolean"),
        "waiting": Column("n.waiting_since IS NOT NULL", Filter.FLAG, says="Machines that came by themselves"),
        "admin": Column("n.admin", Filter.FLAG),
        "system": Column("n.system", Filter.FLAG, says="Phantom nodes, which carry the services of a deployment"),
        "stay_on": Column("n.stay_on", Filter.FLAG),
        "bootenv": Column("n.bootenv", sort="text"),
        "mac": Column("(SELECT array_agg(mac::text) FROM node_macs m WHERE m.node_id = n.id)", Filter.WORDS),
        "uuid": Column("n.uuid::text"),
        "quirk": Column("n.quirks", Filter.WORDS),
        "group": Column(
            "ARRAY(SELECT g.category || ':' || g.name FROM node_groups ng JOIN groups g ON g.id = ng.group_id"
            " WHERE ng.node_id = n.id)",
            Filter.WORDS,
            says="Groups it is in, as category:name",
        ),
    },
    default="name",
    id="n.id",
    seen="n.deployment_id = ANY (:sees)",
)


async def select_nodes_for_list(session: Session, where: str, **values: object) -> Sequence[Row[Any]]:
    """As `select_nodes`, but as rows, for long lists, and without what machines found out about themselves."""
    return await session.rows(f"{_SELECT_WITHOUT_DISCOVERY} {where}", **values)


async def lock_node(session: Session, name_or_id: str | int) -> NodeRecord:
    """Lock the node against edits by others until this transaction ends, and return it."""
    node = await get_node(session, name_or_id, EVERYTHING)
    await session.run("SELECT FROM nodes WHERE id = :id FOR NO KEY UPDATE", id=node.id)
    return await get_node(session, node.id, EVERYTHING)


async def select_nodes(session: Session, where: str, **values: object) -> list[NodeRecord]:
    return [NodeRecord(**row._mapping) for row in await session.rows(f"{_SELECT} {where}", **values)]


async def get_node(session: Session, name_or_id: str | int, visible: Visibility) -> NodeRecord:
    records = await select_nodes(
        session,
        f"WHERE (n.name = :name OR n.id = :id) AND {visible.condition(NODES.seen)}",
        name=str(name_or_id).lower(),
        id=key_id(name_or_id),
        **visible.values,
    )
    if not records:
        raise NotFound("node", name_or_id)
    return records[0]


@dataclass(frozen=True)
class NodeLocation:
    """A node, and the deployment that it is in."""

    id: int
    deployment_id: int


async def find_node_locations(
    session: Session, names_or_ids: Collection[str], visible: Visibility
) -> dict[str, NodeLocation]:
    """Return those of these nodes that exist, by the name or id that was given; one query reads all of them."""
    rows = await session.rows(
        "SELECT n.id, n.name, n.deployment_id FROM nodes n"
        f" WHERE (n.name = ANY (:names) OR n.id = ANY (:ids)) AND {visible.condition(NODES.seen)}",
        names=[key.lower() for key in names_or_ids],
        ids=[key_id(key) for key in names_or_ids],
        **visible.values,
    )
    by_name = {row.name: NodeLocation(row.id, row.deployment_id) for row in rows}
    by_id = {location.id: location for location in by_name.values()}
    locations = {key: by_name.get(key.lower()) or by_id.get(key_id(key)) for key in names_or_ids}
    return {key: location for key, location in locations.items() if location is not None}


async def find_node(
    session: Session, macs: Collection[str], uuid: str | None = None, key: str | None = None
) -> int | None:
    """Return the node that any of these belongs to. They find a machine; they never authenticate it."""
    rows = await session.rows(
        "SELECT node_id AS id FROM node_macs WHERE mac = ANY (CAST(:macs AS macaddr[]))"
        " UNION SELECT id FROM nodes WHERE uuid = CAST(:uuid AS uuid) OR key = :key",
        macs=[check_mac(mac) for mac in macs],
        uuid=None if uuid is None else check_uuid(uuid),
        key=key,
    )
    if len(rows) > 1:
        name_rows = await session.rows("SELECT name FROM nodes WHERE id = ANY (:ids)", ids=[row.id for row in rows])
        node_names = ", ".join(sorted(row.name for row in name_rows))
        raise Conflict(
            Rule.EXISTS, f"These MACs, UUID or key belong to several nodes: {node_names}. Remove the wrong ones."
        )
    return rows[0].id if rows else None


async def create_node(session: GraphSession, new: NewNode) -> int:
    """Add a machine, bind its discovery roles, and return the node's id."""
    name = check_node_name(new.name)
    taken = await session.value("SELECT 1 FROM nodes WHERE name = :name", name=name)
    if taken:
        raise Conflict(Rule.EXISTS, f"There is a node {name!r} already. Choose another name.")
    other_id = await find_node(session, new.macs, new.uuid, new.key)
    if other_id is not None:
        other_node = await get_node(session, other_id, EVERYTHING)
        raise Conflict(Rule.EXISTS, f"This machine is known already, as node {other_node.name!r}.")
    system = await get_deployment(session, SYSTEM, EVERYTHING)
    id: int = await session.value(
        """
        INSERT INTO nodes (name, description, admin, alive, available, deployment_id, uuid, key, discovery, hint,
                           registered_from, waiting_since, identity_confirmed)
        VALUES (:name, :description, :admin, :alive, :available, :deployment_id, CAST(:uuid AS uuid), :key,
                :discovery, :hint, :registered_from,
                CASE WHEN CAST(:registered_from AS text) IS NOT NULL THEN now() END, :identity_confirmed)
        RETURNING id
        """,
        name=name,
        description=new.description,
        admin=new.admin,
        alive=new.alive,
        available=new.available,
        deployment_id=system.id,
        uuid=None if new.uuid is None else check_uuid(new.uuid),
        key=new.key,
        discovery=Jsonb(new.discovery),
        hint=Jsonb(new.hint),
        registered_from=new.registered_from,
        identity_confirmed=new.identity_confirmed,
    )
    await add_slots(session, nodes=[id])
    for mac in dict.fromkeys(check_mac(mac) for mac in new.macs):
        await session.run("INSERT INTO node_macs (mac, node_id) VALUES (CAST(:mac AS macaddr), :id)", mac=mac, id=id)
    await emit(session, "node.created", id, node_id=id, deployment_id=system.id, data={"name": name})
    await queue_node_created(session, id)
    stored = await session.catalogue()
    flag = Flag.BOOTSTRAP if new.admin else Flag.DISCOVERY
    await bind_committed(session, system.id, [(id, role) for role in stored.catalogue.roles_with_flag(flag)])
    if new.deployment is not None and new.deployment != SYSTEM:
        await move_node(session, id, new.deployment)
    await bump_graph(session)
    return id


EDITABLE = (
    "description",
    "alive",
    "available",
    "bootenv",
    "observed_bootenv",
    "stay_on",
    "quirks",
    "hint",
    "discovery",
)


async def update_node(session: Session, name_or_id: str | int, changes: dict[str, Json]) -> NodeRecord:
    """Set columns of a node, and return it. Changed facts and hints are inputs of the noderoles that want them."""
    node = await get_node(session, name_or_id, EVERYTHING)
    unknown = sorted(changes.keys() - set(EDITABLE))
    if unknown:
        raise Invalid(f"A node has no field {unknown[0]!r} that can be set. Those that can: {', '.join(EDITABLE)}.")
    changed = {name: value for name, value in changes.items() if getattr(node, name) != value}
    if not changed:
        return node
    if node.system:
        raise Conflict(Rule.PHANTOM, f"{node.name} is a phantom node; nothing of it can be changed.")
    values: dict[str, object] = {
        name: Jsonb(value) if isinstance(value, dict) else value for name, value in changed.items()
    }
    assignments = ", ".join(f"{name} = :{name}" for name in changed)
    if changed.get("available") is True:
        assignments += ", waiting_since = NULL"  # a machine that was let in once never waits to be accepted again
    await session.run(f"UPDATE nodes SET {assignments} WHERE id = :id", id=node.id, **values)
    await emit(session, "node.updated", node.id, node_id=node.id, data={"changed": [*sorted(changed)]})
    await queue_node_updated(session, {node.id: {name: getattr(node, name) for name in changed}})
    if changed.keys() & {"alive", "available"}:
        session.touch([node.id])
    if changed.keys() & {"hint", "discovery", "quirks"}:
        await mark_dirty(session, await select_noderole_ids(session, node.id))
    edited_node = await get_node(session, node.id, EVERYTHING)
    if _read_address(node) != _read_address(edited_node):
        await mark_peers_dirty(session, node.id)
    return edited_node


def _read_address(node: NodeRecord) -> Json:
    """Return the node's address that cluster peers are given: what a person set counts more than the machine's."""
    return merge(node.discovery, node.hint).get("address")


async def rename_node(session: Session, node: NodeRecord, name: str) -> NodeRecord:
    """Rename a node. What DNS and DHCP serve of it, and what its cluster peers are given, follows."""
    new_name = check_node_name(name, "/name")
    if new_name == node.name:
        return node
    if node.system:
        raise Conflict(Rule.PHANTOM, f"{node.name} is a phantom node; it is named after its deployment.")
    if node.admin:
        raise Conflict(
            Rule.ADMIN_NAME,
            f"{node.name} is a server, which finds its node by the name of its host: it stays so.",
        )
    if await session.value("SELECT 1 FROM nodes WHERE name = :name", name=new_name):
        raise Conflict(Rule.EXISTS, f"There is a node {new_name!r} already. Choose another name.")
    await session.run("UPDATE nodes SET name = :name WHERE id = :id", name=new_name, id=node.id)
    data: JsonObject = {"changed": ["name"], "before": node.name, "name": new_name}
    await emit(session, "node.updated", node.id, node_id=node.id, data=data)
    await queue_node_updated(session, {node.id: {"name": node.name}})
    await mark_peers_dirty(session, node.id)
    return await get_node(session, node.id, EVERYTHING)


async def confirm_identity(session: Session, node: NodeRecord, *, confirmed: bool) -> None:
    """Record whether the machine with this node's MACs and UUID is agreed to be this node.

    While it is not, a machine that comes with them boots sledgehammer, and is kept out until it is accepted.
    """
    if node.identity_confirmed == confirmed:
        return
    await session.run("UPDATE nodes SET identity_confirmed = :it WHERE id = :id", it=confirmed, id=node.id)
    await emit(session, "node.updated", node.id, node_id=node.id, data={"changed": ["identity_confirmed"]})
    await queue_node_updated(session, {node.id: {"identity_confirmed": node.identity_confirmed}})


async def select_noderole_ids(
    session: Session, node_id: int, states: Collection[NodeRoleState] = COMMITTED
) -> list[int]:
    rows = await session.rows(
        "SELECT id FROM node_roles WHERE node_id = :id AND state = ANY (:states)",
        id=node_id,
        states=[int(state) for state in states],
    )
    return [row.id for row in rows]


MAX_PAST_BOOTS = 8
"""Boots of a node that are remembered, so that a message that was long on its way is seen to be of the past."""


async def record_boot(
    session: Session, node_id: int, boot_id: str, observed_bootenv: str = "", *, installing: bool = False
) -> bool:
    """Record a boot that a machine reported, and return whether it is new.

    A new boot id makes the node's noderoles run again; one it had before changes nothing. While the node is being
    installed the boot is only noted: the install says when the node is alive again.
    """
    node = await session.row(
        "SELECT id, boot_id, past_boot_ids, observed_bootenv, alive, system FROM nodes WHERE id = :id FOR UPDATE",
        id=node_id,
    )
    if node is None or node.system:
        raise NotFound("node", node_id)
    if boot_id in (node.boot_id, *node.past_boot_ids):
        return False
    await session.run(
        "UPDATE nodes SET boot_id = :boot_id, observed_bootenv = :bootenv, alive = :alive, past_boot_ids = :past"
        " WHERE id = :id",
        boot_id=boot_id,
        bootenv=observed_bootenv,
        alive=node.alive if installing else True,
        past=[id for id in (node.boot_id, *node.past_boot_ids) if id is not None][:MAX_PAST_BOOTS],
        id=node_id,
    )
    await emit(session, "node.booted", node_id, node_id=node_id, data={"boot_id": boot_id, "bootenv": observed_bootenv})
    new_values = {"boot_id": boot_id, "observed_bootenv": observed_bootenv, "alive": node.alive if installing else True}
    await queue_node_updated(
        session, {node_id: {name: old for name, value in new_values.items() if (old := getattr(node, name)) != value}}
    )
    if installing:
        return True
    session.touch([node_id])
    # Runs are locked: one that is being accepted just now owns the reboot, and is not seen to be accepted before it is.
    open_runs = await session.rows(
        "SELECT node_role_id, state FROM runs WHERE slot = :id AND state IN ('accepted', 'running') FOR UPDATE",
        id=node_id,
    )
    accepted_ids = {row.node_role_id for row in open_runs if row.state == "accepted"}
    failed_ids = await _fail_running(session, node_id)
    ids = [id for id in await select_noderole_ids(session, node_id) if id not in accepted_ids and id not in failed_ids]
    await move_noderoles(session, Trigger.REBOOT, ids)
    await delete_doomed(session, ids)
    return True


async def _fail_running(session: Session, node_id: int) -> set[int]:
    """Fail the runs that died with the machine; return destructive noderoles, which must not rerun by themselves."""
    failed_runs = await session.rows(
        """
        UPDATE runs SET state = 'failed', ended_at = now(), error = 'node rebooted'
        WHERE slot = :id AND state IN ('accepted', 'running') AND state = 'running' RETURNING node_role_id
        """,
        id=node_id,
    )
    destructive = await session.rows(
        "SELECT nr.id FROM node_roles nr JOIN roles r ON r.id = nr.role_id WHERE nr.id = ANY (:ids) AND r.destructive",
        ids=[row.node_role_id for row in failed_runs],
    )
    destructive_ids = {row.id for row in destructive}
    await move_noderoles(session, Trigger.FAIL, destructive_ids, error="node rebooted")
    await delete_doomed(session, destructive_ids)
    return destructive_ids


async def move_node(session: GraphSession, name_or_id: str | int, deployment: str | int) -> None:
    """Put a node into another deployment."""
    node = await get_node(session, name_or_id, EVERYTHING)
    target = await get_deployment(session, deployment, EVERYTHING)
    if node.deployment_id == target.id:
        return
    if node.system:
        raise Conflict(Rule.PHANTOM, f"{node.name} belongs to its deployment and cannot be moved.")
    path = [ancestor.id for ancestor in await load_path(session, target.id)]
    bound = await session.row(
        "SELECT r.name AS role, d.name AS deployment FROM node_roles nr JOIN roles r ON r.id = nr.role_id"
        " JOIN deployments d ON d.id = nr.deployment_id WHERE nr.node_id = :id AND nr.deployment_id <> ALL (:path)"
        " AND (nr.state <> :proposed OR nr.deployment_id = :old) ORDER BY r.name LIMIT 1",
        id=node.id,
        path=path,
        old=node.deployment_id,
        proposed=int(PROPOSED),
    )
    if bound is not None:
        raise Conflict(
            Rule.BOUND,
            f"{node.name} has {bound.role!r} bound in {bound.deployment!r}, and {target.name!r} is not below that. "
            "Unbind it first.",
        )
    await session.run("UPDATE nodes SET deployment_id = :to WHERE id = :id", to=target.id, id=node.id)
    await bump_graph(session)
    await emit(session, "node.updated", node.id, node_id=node.id, data={"changed": ["deployment"]})
    await queue_node_updated(session, {node.id: {"deployment": node.deployment}})


async def delete_node(session: GraphSession, name_or_id: str | int) -> None:
    """Delete a machine's node, with its noderoles."""
    node = await get_node(session, name_or_id, EVERYTHING)
    if node.system:
        raise Conflict(Rule.PHANTOM, f"{node.name} goes with its deployment. Delete that.")
    admins = await session.value("SELECT count(*) FROM nodes WHERE admin")
    if node.admin and admins == 1:
        raise Conflict(Rule.LAST_ADMIN, f"{node.name} is the last admin node and cannot be deleted.")
    if int(TRANSITION) in node.states:
        raise Conflict(Rule.BUSY, f"{node.name} has a run under way. Wait for it to end, or cancel it.")
    await session.run("SELECT FROM nodes WHERE id = :id FOR UPDATE", id=node.id)
    await queue_node_deleted(session, node.id)
    own_ids = await select_noderole_ids(session, node.id, list(NodeRoleState))
    removed_ids = await plan_removal(session, own_ids)
    await rerun_cluster_peers(session, removed_ids)
    await remove_noderoles(session, removed_ids)
    await free_node_addresses(session, node.id)
    await emit(session, "node.deleted", node.id, node_id=node.id, data={"name": node.name})
    await session.run("DELETE FROM nodes WHERE id = :id", id=node.id)
    await bump_graph(session)
