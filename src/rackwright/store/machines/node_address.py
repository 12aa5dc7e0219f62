"""Where a node's machine is, who said so, and which host key it must show there.

The server logs in as root at this address, so a tenant must not be able to point it at somebody else's machine. A
machine that registered came from its address and left its key. Everything else is what a person said: it is believed
only with a host key that was given, or if an administrator said that the first one may be trusted, and never for an
address that is another node's, at whatever port.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from rackwright.domain.errors import Conflict, NotFound, Rule
from rackwright.domain.machines.ssh_login import Login, approval_text, login_of
from rackwright.domain.networks.networks import Category
from rackwright.domain.states import ERROR, Trigger
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.events.outbox import emit
from rackwright.store.graph.transitions import move_noderoles
from rackwright.store.machines.keys import line_fingerprint
from rackwright.store.machines.nodes import NodeRecord, get_node, update_node

ACCESS_ROLE = "ssh-access"
"""The role that shows whether the server reaches a node."""


class AddressSource(StrEnum):
    """Who said where the machine is, the strongest first."""

    PERSON = "a hint"
    REGISTRATION = "its registration"
    ALLOCATION = "its allocation"
    NAME = "its name"


@dataclass(frozen=True)
class NodeAddress:
    node: str
    host: str
    """An address, or a name that resolves to one."""
    source: AddressSource
    host_key: str | None
    login: Login
    approved: bool
    """An administrator said that the machine is there, so it may also be at an address that no operator may set."""
    first_use: bool
    """No host key is known, and an administrator said that the first one which the machine shows may be trusted."""


async def read_node_address(session: Session, node_id: int) -> NodeAddress:
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
    hosts = {
        AddressSource.PERSON: row.hinted,
        AddressSource.REGISTRATION: row.registered,
        AddressSource.ALLOCATION: row.allocated,
        AddressSource.NAME: row.name,
    }
    chosen_source = next(source for source, host in hosts.items() if host)
    host = hosts[chosen_source]
    login = login_of(row.hint)
    approved = row.approved_address == approval_text(host, login.port)
    first_use = approved and row.trust_first_key and row.host_key is None
    return NodeAddress(row.name, host, chosen_source, row.host_key, login, approved, first_use)


async def is_address_of_another_node(session: Session, node_id: int, addresses: Sequence[str]) -> bool:
    """Return whether one of these addresses is where another node's machine is.

    That is: it registered from there, has the address allocated, or was reached there with its key pinned.
    """
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
    """Record that an administrator said where the machine is, and whether its first host key may be trusted.

    An address that is set later is not approved with it.
    """
    address = await read_node_address(session, node_id)
    await session.run(
        "UPDATE nodes SET approved_address = :approved, trust_first_key = :trusted WHERE id = :id",
        approved=approval_text(address.host, address.login.port),
        trusted=trust_first_key,
        id=node_id,
    )
    if trust_first_key:
        await emit(session, "node.first_host_key_trusted", node_id, node_id=node_id, data={"address": address.host})
        await retry_access(session, node_id)


async def pin_host_key(session: Session, node: NodeRecord, key: str) -> None:
    """Pin the host key that a person says the node's machine has. `key` is as in an OpenSSH public key file.

    A node that was set aside for showing just this key is made available again.
    """
    key_line = " ".join(key.split()[:2])
    if await session.value("SELECT 1 FROM nodes WHERE id <> :id AND host_key = :key", id=node.id, key=key_line):
        raise Conflict(Rule.EXISTS, "Another node is known by this host key. A machine is one node only.")
    await session.run(
        "UPDATE nodes SET host_key = :key, offered_host_key = NULL WHERE id = :id", key=key_line, id=node.id
    )
    await emit(
        session, "node.host_key_pinned", node.id, node_id=node.id, data={"fingerprint": line_fingerprint(key_line)}
    )
    if node.offered_host_key == key_line and not node.available and not node.waiting:
        await update_node(session, node.id, {"available": True})
    await retry_access(session, node.id)


async def forget_host_key(session: Session, node: NodeRecord) -> None:
    """Forget the host key at an administrator's request: the next one that the machine shows is trusted."""
    if node.system:
        raise Conflict(Rule.PHANTOM, f"{node.name} is a phantom node; it has no host key.")
    await session.run("UPDATE nodes SET host_key = NULL, offered_host_key = NULL WHERE id = :id", id=node.id)
    await approve_address(session, node.id, trust_first_key=True)
    if node.offered_host_key is not None and not node.available and not node.waiting:
        await update_node(session, node.id, {"available": True})


async def pin_offered_key(session: Session, node: NodeRecord, fingerprint: str) -> None:
    """Pin the host key that the machine showed last, and was refused for, because a person says it is right."""
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
    await pin_host_key(session, node, offered)


async def record_refused_key(session: Session, node_id: int, offered: str) -> None:
    """Store a host key that was refused, for a person to pin or not.

    Where another key was pinned, the node is set aside: something else may answer at its address. The same key again is
    not recorded again.
    """
    key_line = " ".join(offered.split()[:2])
    row = await session.row("SELECT host_key, offered_host_key FROM nodes WHERE id = :id FOR NO KEY UPDATE", id=node_id)
    if row is None or row.offered_host_key == key_line or row.host_key == key_line:
        return
    await session.run("UPDATE nodes SET offered_host_key = :key WHERE id = :id", key=key_line, id=node_id)
    if row.host_key is not None:
        await update_node(session, node_id, {"available": False})
    data = {"offered": offered, "fingerprint": line_fingerprint(key_line)}
    await emit(session, "node.host_key_differs", node_id, node_id=node_id, data={**data})


async def record_found_address(session: Session, node_id: int, address: str) -> None:
    """Record where a node answered, with its pinned host key, as if it had registered from there.

    What a person says of its address stays what the server goes by.
    """
    node = await get_node(session, node_id, EVERYTHING)
    if node.discovery.get("address") != address:
        await update_node(session, node_id, {"discovery": {**node.discovery, "address": address}})


async def retry_access(session: Session, node_id: int) -> None:
    """Have `ssh-access` run again on a node where it failed: the cause of the failure may be gone."""
    rows = await session.rows(
        "SELECT nr.id FROM node_roles nr JOIN roles r ON r.id = nr.role_id AND r.name = :role"
        " WHERE nr.node_id = :id AND nr.state = :error AND NOT nr.doomed",
        id=node_id,
        role=ACCESS_ROLE,
        error=int(ERROR),
    )
    await move_noderoles(session, Trigger.RETRY, [row.id for row in rows])
