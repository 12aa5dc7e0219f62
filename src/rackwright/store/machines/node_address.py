"""Where a node's machine is, who said so, and which host key it must show there.

The server logs in as root wherever this says, so a tenant must not be able to point it at somebody else's machine. A
machine that registered came from its address and left its key. Everything else is what a person said: it is believed
only with a host key that was given, or on the word of an administrator who said that the first one may be trusted, and
never for an address that is another node's, at whatever port.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from rackwright.domain.errors import Conflict, NotFound, Rule
from rackwright.domain.machines.ssh_login import Login, approval, login_of
from rackwright.domain.networks.networks import Category
from rackwright.domain.states import ERROR, Trigger
from rackwright.store.db.session import Session
from rackwright.store.events.outbox import emit
from rackwright.store.graph.transitions import move_noderoles
from rackwright.store.machines.keys import line_fingerprint
from rackwright.store.machines.nodes import NodeRecord, update_node

ACCESS_ROLE = "ssh-access"
"""The role that says whether the server reaches a node."""


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
    login: Login
    approved: bool
    """An administrator said that the machine is there, so it may also be where no operator may say."""
    first_use: bool
    """An administrator said that the first host key which it shows there may be trusted, and none is known."""


async def node_address(session: Session, node_id: int) -> NodeAddress:
    row = await session.row(
        """
        SELECT n.name, n.host_key, n.approved_address, n.trust_first_key, n.hint, n.hint ->> 'address' AS hinted,
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
    login = login_of(row.hint)
    approved = row.approved_address == approval(place, login.port)
    first_use = approved and row.trust_first_key and row.host_key is None
    return NodeAddress(row.name, place, said_by, row.host_key, login, approved, first_use)


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


async def approve_address(session: Session, node_id: int, *, trust_first_key: bool = False) -> None:
    """An administrator says where the machine is, and perhaps that the first host key which it shows may be trusted.

    Whatever else is said later is not approved with it.
    """
    where = await node_address(session, node_id)
    await session.run(
        "UPDATE nodes SET approved_address = :approved, trust_first_key = :trusted WHERE id = :id",
        approved=approval(where.place, where.login.port),
        trusted=trust_first_key,
        id=node_id,
    )
    if trust_first_key:
        await emit(session, "node.first_host_key_trusted", node_id, node_id=node_id, data={"address": where.place})
        await retry_access(session, node_id)


async def give_host_key(session: Session, node: NodeRecord, key: str) -> None:
    """A person says which host key the node's machine shows. `key` is as in an OpenSSH public key file.

    A node that was set aside for showing just this key is set aside no longer.
    """
    bare = " ".join(key.split()[:2])
    if await session.value("SELECT 1 FROM nodes WHERE id <> :id AND host_key = :key", id=node.id, key=bare):
        raise Conflict(Rule.EXISTS, "Another node is known by this host key. A machine is one node only.")
    await session.run("UPDATE nodes SET host_key = :key, offered_host_key = NULL WHERE id = :id", key=bare, id=node.id)
    await emit(session, "node.host_key_pinned", node.id, node_id=node.id, data={"fingerprint": line_fingerprint(bare)})
    if node.offered_host_key == bare and not node.available and not node.waiting:
        await update_node(session, node.id, {"available": True})
    await retry_access(session, node.id)


async def forget_host_key(session: Session, node: NodeRecord) -> None:
    """An administrator has the next host key trusted that the machine shows, whoever that is."""
    if node.system:
        raise Conflict(Rule.PHANTOM, f"{node.name} is a phantom node; it has no host key.")
    await session.run("UPDATE nodes SET host_key = NULL, offered_host_key = NULL WHERE id = :id", id=node.id)
    await approve_address(session, node.id, trust_first_key=True)
    if node.offered_host_key is not None and not node.available and not node.waiting:
        await update_node(session, node.id, {"available": True})


async def pin_offered_key(session: Session, node: NodeRecord, fingerprint: str) -> None:
    """A person says that the host key which the machine showed last, and was refused for, is the right one."""
    offered = node.offered_host_key
    if offered is None:
        raise Conflict(
            Rule.KEY_OFFERED,
            f"{node.name} has shown no host key that was refused. Have the server look: rackwright node reach "
            f"{node.name}; or give the key itself: rackwright node host-key {node.name} FILE.",
        )
    if line_fingerprint(offered) != fingerprint:
        raise Conflict(
            Rule.KEY_OFFERED,
            f"What {node.name} showed last is {line_fingerprint(offered)}, not {fingerprint[:64]}. Compare it with the "
            "machine's own, and pin it only if it is the same.",
        )
    await give_host_key(session, node, offered)


async def note_refused_key(session: Session, node_id: int, offered: str) -> None:
    """Remember a host key that was refused, for a person to pin or not. Where another was pinned, the node is set
    aside: something else may answer at its address. The same key again is no news."""
    bare = " ".join(offered.split()[:2])
    row = await session.row("SELECT host_key, offered_host_key FROM nodes WHERE id = :id FOR NO KEY UPDATE", id=node_id)
    if row is None or row.offered_host_key == bare or row.host_key == bare:
        return
    await session.run("UPDATE nodes SET offered_host_key = :key WHERE id = :id", key=bare, id=node_id)
    if row.host_key is not None:
        await update_node(session, node_id, {"available": False})
    data = {"offered": offered, "fingerprint": line_fingerprint(bare)}
    await emit(session, "node.host_key_differs", node_id, node_id=node_id, data={**data})


async def retry_access(session: Session, node_id: int) -> None:
    """Have `ssh-access` run again on a node where it failed: what it failed for may be gone."""
    rows = await session.rows(
        "SELECT nr.id FROM node_roles nr JOIN roles r ON r.id = nr.role_id AND r.name = :role"
        " WHERE nr.node_id = :id AND nr.state = :error AND NOT nr.doomed",
        id=node_id,
        role=ACCESS_ROLE,
        error=int(ERROR),
    )
    await move_noderoles(session, Trigger.RETRY, [row.id for row in rows])
