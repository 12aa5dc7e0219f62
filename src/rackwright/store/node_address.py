"""Where a node's machine is, who said so, and which host key it must show there.

The server logs in as root wherever this says, so a tenant must not be able to point it at somebody else's machine. A
machine that registered came from its address and left its key. Everything else is what a person said: it is believed
only with a host key that was given, or from an administrator, and never for an address that is another node's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from rackwright.domain.errors import Conflict, NotFound, Rule
from rackwright.domain.networks import Category
from rackwright.store.events import emit
from rackwright.store.nodes import NodeRecord
from rackwright.store.session import Session


class SaidBy(StrEnum):
    """Who said where the machine is, the strongest first."""

    PERSON = "a hint"
    REGISTRATION = "its registration"
    ALLOCATION = "its allocation"
    NAME = "its name"


@dataclass(frozen=True)
class NodeAddress:
    node: str
    place: str
    """An address, or a name that stands for one."""
    said_by: SaidBy
    host_key: str | None
    approved: bool
    """An administrator said that the machine is there, so its first host key may be believed."""


async def node_address(session: Session, node_id: int) -> NodeAddress:
    row = await session.row(
        """
        SELECT n.name, n.host_key, n.approved_address, n.hint ->> 'address' AS hinted,
               n.discovery ->> 'address' AS registered,
               (SELECT host(a.address) FROM allocations a JOIN networks w ON w.id = a.network_id
                WHERE a.node_id = n.id AND w.category = :admin ORDER BY a.address LIMIT 1) AS allocated
        FROM nodes n WHERE n.id = :id
        """,
        id=node_id,
        admin=Category.ADMIN.value,
    )
    if row is None:
        raise NotFound("node", node_id)
    said = {
        SaidBy.PERSON: row.hinted,
        SaidBy.REGISTRATION: row.registered,
        SaidBy.ALLOCATION: row.allocated,
        SaidBy.NAME: row.name,
    }
    said_by = next(source for source, place in said.items() if place)
    place = said[said_by]
    return NodeAddress(row.name, place, said_by, row.host_key, approved=row.approved_address == place)


async def is_held_by_another(session: Session, node_id: int, addresses: Sequence[str]) -> bool:
    """Whether one of these is where another node's machine is: it registered from there, has it allocated, or was
    reached there with its key pinned."""
    return bool(
        await session.value(
            """
            SELECT 1 FROM nodes n WHERE n.id <> :id AND (n.discovery ->> 'address' = ANY (:addresses)
                OR n.hint ->> 'address' = ANY (:addresses) AND n.host_key IS NOT NULL)
            UNION ALL
            SELECT 1 FROM allocations a WHERE a.node_id <> :id AND a.address = ANY (CAST(:addresses AS inet[]))
            LIMIT 1
            """,
            id=node_id,
            addresses=list(addresses),
        )
    )


async def approve_address(session: Session, node_id: int) -> None:
    """An administrator says where the machine is. Whatever else is said later is not approved with it."""
    where = await node_address(session, node_id)
    await session.run("UPDATE nodes SET approved_address = :place WHERE id = :id", place=where.place, id=node_id)


async def give_host_key(session: Session, node: NodeRecord, key: str) -> None:
    """A person says which host key the node's machine shows. `key` is as in an OpenSSH public key file."""
    bare = " ".join(key.split()[:2])
    if await session.value("SELECT 1 FROM nodes WHERE id <> :id AND host_key = :key", id=node.id, key=bare):
        raise Conflict(Rule.EXISTS, "Another node is known by this host key. A machine is one node only.")
    await session.run("UPDATE nodes SET host_key = :key WHERE id = :id", key=bare, id=node.id)
    await emit(session, "node.host_key_pinned", node.id, node_id=node.id)
