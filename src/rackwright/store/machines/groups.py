"""Groups of nodes, by category: racks, rooms, owners. A group is addressed as category:name, or by id."""

from dataclasses import dataclass

from rackwright.domain.errors import Conflict, NotFound, Rule
from rackwright.domain.names import check_name
from rackwright.store.db.listing import Column, Filter, Listing, key_id
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import EVERYTHING, Visibility
from rackwright.store.events.outbox import emit
from rackwright.store.machines.nodes import NODES, NodeRecord


@dataclass(frozen=True)
class GroupRecord:
    id: int
    category: str
    name: str
    description: str
    nodes: list[str]

    @property
    def title(self) -> str:
        return f"{self.category}:{self.name}"


# A group lies in no deployment, but its nodes do: a person who may see some of its nodes sees the group with only
# these.
_SELECT = """
SELECT g.id, g.category, g.name, g.description, m.nodes
FROM groups g CROSS JOIN LATERAL (
    SELECT ARRAY(SELECT n.name FROM node_groups ng JOIN nodes n ON n.id = ng.node_id
                 WHERE ng.group_id = g.id AND {seen} ORDER BY 1) AS nodes) m
"""

GROUPS = Listing(
    "groups",
    {
        "id": Column("g.id", Filter.NUMBER, sort="bigint"),
        "category": Column("g.category", sort="text"),
        "name": Column("g.name", sort="text"),
        "node": Column("m.nodes", Filter.WORDS, says="Nodes that are in it"),
    },
    default="category",
    id="g.id",
    seen="m.nodes <> '{}'",
)


async def select_groups(session: Session, where: str, visible: Visibility, **values: object) -> list[GroupRecord]:
    select = _SELECT.format(seen=visible.condition(NODES.seen))
    rows = await session.rows(f"{select} {where}", **{**values, **visible.values})
    return [GroupRecord(**row._mapping) for row in rows]


async def get_group(session: Session, key: str | int, visible: Visibility) -> GroupRecord:
    category, _, name = str(key).partition(":")
    records = await select_groups(
        session,
        f"WHERE (g.category = :category AND g.name = :name OR g.id = :id) AND {visible.condition(GROUPS.seen)}",
        visible,
        category=category,
        name=name,
        id=key_id(key),
    )
    if not records:
        raise NotFound("group", key)
    return records[0]


async def lock_group(session: Session, key: str) -> GroupRecord:
    """Lock the group against edits by others until this transaction ends, and return it."""
    group = await get_group(session, key, EVERYTHING)
    await session.run("SELECT FROM groups WHERE id = :id FOR NO KEY UPDATE", id=group.id)
    return await get_group(session, group.id, EVERYTHING)


async def create_group(session: Session, category: str, name: str, description: str) -> GroupRecord:
    check_name("category", category)
    check_name("group", name)
    id = await session.value(
        "INSERT INTO groups (category, name, description) VALUES (:category, :name, :description)"
        " ON CONFLICT DO NOTHING RETURNING id",
        category=category,
        name=name,
        description=description,
    )
    if id is None:
        raise Conflict(Rule.EXISTS, f"There is a group {category}:{name} already. Choose another name.")
    await emit(session, "group.created", id, data={"category": category, "name": name})
    return await get_group(session, id, EVERYTHING)


async def describe_group(session: Session, group: GroupRecord, description: str) -> GroupRecord:
    if description != group.description:
        await session.run(
            "UPDATE groups SET description = :description WHERE id = :id", description=description, id=group.id
        )
        await emit(session, "group.updated", group.id)
    return await get_group(session, group.id, EVERYTHING)


async def delete_group(session: Session, group: GroupRecord) -> None:
    """Delete a group. Its nodes stay."""
    await session.run("DELETE FROM groups WHERE id = :id", id=group.id)
    await emit(session, "group.deleted", group.id, data={"category": group.category, "name": group.name})


async def add_node(session: Session, group: GroupRecord, node: NodeRecord) -> None:
    if node.system:
        raise Conflict(Rule.PHANTOM, f"{node.name} is a phantom node and is in no group.")
    added = await session.run(
        "INSERT INTO node_groups (node_id, group_id) VALUES (:node, :group) ON CONFLICT DO NOTHING",
        node=node.id,
        group=group.id,
    )
    if added:
        await emit(session, "group.node_added", group.id, node_id=node.id)


async def remove_node(session: Session, group: GroupRecord, node: NodeRecord) -> None:
    deleted = await session.run(
        "DELETE FROM node_groups WHERE node_id = :node AND group_id = :group", node=node.id, group=group.id
    )
    if not deleted:
        raise NotFound(f"node in group {group.title}:", node.name)
    await emit(session, "group.node_removed", group.id, node_id=node.id)
