"""Addresses of nodes: allocated and freed in the transaction of the change that they follow from.

All that touches one network's addresses is done one after the other, under that network's lock; a unique constraint
makes sure besides that no address is ever given twice. Networks themselves are in `networks.py`.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Any

from sqlalchemy import Row

from rackwright.domain.attributes import read_at_path
from rackwright.domain.catalogue import JsonObject
from rackwright.domain.errors import Conflict, Invalid, NotFound, Rule
from rackwright.domain.networks.networks import (
    Address,
    Category,
    Network,
    check_requested_address,
    hint_name,
    hint_path,
    parse_address,
    role_name,
    same_host_part,
)
from rackwright.domain.states import PROPOSED
from rackwright.store.db.listing import Column, Filter, Listing
from rackwright.store.db.session import Session
from rackwright.store.events.outbox import emit
from rackwright.store.hooks.hook_calls import queue_network
from rackwright.store.machines.boot_generation import raise_boot_generation
from rackwright.store.networks.free_ranges import return_address, take_address, take_lowest_address
from rackwright.store.networks.network_rows import NetworkRecord, lock_network, select_networks


@dataclass(frozen=True)
class AllocationRecord:
    id: int
    network_id: int
    network: str
    node_id: int
    node: str
    node_role_id: int | None
    """The noderole that the allocation belongs to; None: a person made it."""
    range_id: int | None
    range: str | None
    address: Address

    @property
    def hook_view(self) -> JsonObject:
        """Return the allocation as hooks see it."""
        return {
            "id": self.id,
            "network": self.network,
            "node_id": self.node_id,
            "node": self.node,
            "address": str(self.address),
        }


_SELECT = """
SELECT a.id, a.network_id, w.name AS network, a.node_id, n.name AS node, a.node_role_id, a.range_id, r.name AS range,
       host(a.address) AS address
FROM allocations a JOIN networks w ON w.id = a.network_id JOIN nodes n ON n.id = a.node_id
LEFT JOIN ranges r ON r.id = a.range_id
"""


ALLOCATIONS = Listing(
    "allocations",
    {
        "id": Column("a.id", Filter.NUMBER, sort="bigint"),
        "address": Column("a.address", Filter.NONE, sort="inet", key=lambda allocation: str(allocation.address)),
        "node": Column("n.name", Filter.REFERENCE, "a.node_id", sort="text"),
        "range": Column("r.name"),
    },
    default="address",
    id="a.id",
    seen="n.deployment_id = ANY (:sees)",
)


def _build_record(row: Row[Any]) -> AllocationRecord:
    return AllocationRecord(**{**row._mapping, "address": ip_address(row.address)})


async def select_allocations(session: Session, where: str, **values: object) -> list[AllocationRecord]:
    return [_build_record(row) for row in await session.rows(f"{_SELECT} {where}", **values)]


async def is_plausible_source(session: Session, node_id: int, source: str) -> bool:
    """Return whether a request from `source` can be of this node: it has no address of ours, or this is one of them."""
    rows = await session.rows("SELECT host(address) AS address FROM allocations WHERE node_id = :id", id=node_id)
    if not rows:
        return True
    try:
        source_address = ip_address(source.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(source_address, "ipv4_mapped", None)
    return (mapped or source_address) in {ip_address(row.address) for row in rows}


@dataclass(frozen=True)
class _Recipient:
    """The node that is to get addresses."""

    node_id: int
    node: str
    admin: bool
    hint: JsonObject


async def _lock_recipient(session: Session, node_id: int) -> _Recipient:
    # The node is locked before the network: a transaction that deletes a node locks it first too.
    row = await session.row("SELECT id, name, admin, system, hint FROM nodes WHERE id = :id FOR KEY SHARE", id=node_id)
    if row is None:
        raise NotFound("node", node_id)
    if row.system:
        raise Conflict(Rule.PHANTOM, f"{row.name} is a phantom node and has no addresses.")
    return _Recipient(row.id, row.name, row.admin, row.hint)


# --- allocating


async def ensure_addresses(
    session: Session,
    network: str,
    node_id: int,
    node_role_id: int | None = None,
    host_addresses: Sequence[Address] = (),
) -> list[AllocationRecord]:
    """Have the node hold one address of each family of the network, and return its allocations there.

    It is the address that the node should have, or any that fits, in this order: a person's hint, what it holds
    already, one that its host was found to have (`host_addresses`), the host part of its admin address, the lowest that
    is free. A hint that cannot be granted is a conflict: nobody gets another address than the requested one without
    being told.
    """
    recipient = await _lock_recipient(session, node_id)
    record = await lock_network(session, network)
    held = await select_allocations(
        session, "WHERE a.network_id = :network AND a.node_id = :node", network=record.id, node=node_id
    )
    for subnet in record.network.subnets:
        current = next((allocation for allocation in held if allocation.address.version == subnet.version), None)
        hinted = _read_hinted_address(record.network, recipient.hint, subnet.version)
        if current is not None and hinted in (None, current.address):
            await _assign_to_noderole(session, current, node_role_id)
        elif hinted is not None:
            if current is not None:
                await free_allocations(session, [current])
            await _allocate_exactly(session, record, recipient, hinted, node_role_id)
        else:
            await _allocate_any(session, record, recipient, subnet.version, node_role_id, host_addresses)
    return await select_allocations(
        session,
        "WHERE a.network_id = :network AND a.node_id = :node ORDER BY a.family",
        network=record.id,
        node=node_id,
    )


async def allocate_address(
    session: Session, network: str, node_id: int, address: Address | None
) -> list[AllocationRecord]:
    """Give a node an address at a person's request: this one, or the first free one of each family."""
    if address is None:
        return await ensure_addresses(session, network, node_id)
    recipient = await _lock_recipient(session, node_id)
    record = await lock_network(session, network)
    held = await select_allocations(
        session,
        "WHERE a.network_id = :network AND a.node_id = :node AND a.family = :family",
        network=record.id,
        node=node_id,
        family=address.version,
    )
    if held and held[0].address != address:
        raise Conflict(
            Rule.EXISTS,
            f"{recipient.node} has {held[0].address} on network {network!r} already. Free that first.",
        )
    return held or [await _allocate_exactly(session, record, recipient, address, None)]


def _read_hinted_address(network: Network, hint: JsonObject, family: int) -> Address | None:
    hinted = read_at_path(hint, hint_path(network.name, family))
    if not isinstance(hinted, str) or not hinted:
        return None
    name = hint_name(network.name, family)
    address = parse_address(hinted)
    if address.version != family:
        raise Invalid(f"{name} is {hinted!r}, which is no IPv{family} address.")
    return address


async def _allocate_any(
    session: Session,
    record: NetworkRecord,
    recipient: _Recipient,
    family: int,
    node_role_id: int | None,
    host_addresses: Sequence[Address],
) -> None:
    network = record.network
    subnet = network.subnet(family)
    assert subnet is not None
    # An address that the host is found to have counts more than any range: the host answers there already.
    for address in host_addresses:
        if address in subnet:
            await _allocate_exactly(session, record, recipient, address, node_role_id, router=True)
            return
    ranges = network.ranges_for(family, admin=recipient.admin)
    like_admin = await _find_address_like_admin(session, record, recipient, family)
    for range in ranges:
        range_id = record.range_ids[range.name]
        if like_admin is not None and like_admin in range and await take_address(session, range_id, like_admin):
            await _insert_allocation(session, record, recipient, like_admin, range_id, node_role_id)
            return
    for range in ranges:
        range_id = record.range_ids[range.name]
        lowest_address = await take_lowest_address(session, range_id)
        if lowest_address is not None:
            await _insert_allocation(session, record, recipient, lowest_address, range_id, node_role_id)
            return
    if ranges:
        names = ", ".join(f"{range.name} ({range.first} to {range.last})" for range in ranges)
        raise Conflict(
            Rule.EXISTS,
            f"Network {network.name!r} has no free IPv{family} address for {recipient.node}: full are {names}. "
            "Make a range longer, or add one.",
        )


async def _find_address_like_admin(
    session: Session, record: NetworkRecord, recipient: _Recipient, family: int
) -> Address | None:
    """Return the address on this network with the host part that the node has on the admin network."""
    row = await session.row(
        "SELECT host(a.address) AS address, w.v4_subnet::text AS v4, w.v6_subnet::text AS v6 FROM allocations a"
        " JOIN networks w ON w.id = a.network_id WHERE a.node_id = :node AND a.family = :family"
        " AND w.category = :admin AND w.id <> :here ORDER BY w.id LIMIT 1",
        node=recipient.node_id,
        family=family,
        admin=Category.ADMIN.value,
        here=record.id,
    )
    if row is None:
        return None
    return same_host_part(record.network, ip_address(row.address), ip_network(row.v4 if family == 4 else row.v6))


async def _allocate_exactly(
    session: Session,
    record: NetworkRecord,
    recipient: _Recipient,
    address: Address,
    node_role_id: int | None,
    *,
    router: bool = False,
) -> AllocationRecord:
    """Allocate just this address, or refuse with the name of the node that has it."""
    check_requested_address(record.network, address, router=router)
    holders = await select_allocations(session, "WHERE a.address = CAST(:address AS inet)", address=str(address))
    if holders:
        raise Conflict(
            Rule.EXISTS, f"{address} is taken: {holders[0].node} has it. Choose another address for {recipient.node}."
        )
    range = record.network.range_of(address)
    range_id = None if range is None else record.range_ids[range.name]
    if range_id is not None:
        taken = await take_address(session, range_id, address)
        assert taken, "what nobody has is in a gap"
    return await _insert_allocation(session, record, recipient, address, range_id, node_role_id)


async def _insert_allocation(
    session: Session,
    record: NetworkRecord,
    recipient: _Recipient,
    address: Address,
    range_id: int | None,
    node_role_id: int | None,
) -> AllocationRecord:
    id: int = await session.value(
        "INSERT INTO allocations (network_id, node_id, node_role_id, range_id, address, family)"
        " VALUES (:network, :node, :node_role, :range, CAST(:address AS inet), :family) RETURNING id",
        network=record.id,
        node=recipient.node_id,
        node_role=node_role_id,
        range=range_id,
        address=str(address),
        family=address.version,
    )
    [allocation] = await select_allocations(session, "WHERE a.id = :id", id=id)
    await _emit_change(session, "create", allocation)
    return allocation


async def _assign_to_noderole(session: Session, allocation: AllocationRecord, node_role_id: int | None) -> None:
    """Make an allocation that a person made belong to the noderole from now on."""
    if node_role_id is not None and allocation.node_role_id != node_role_id:
        await session.run(
            "UPDATE allocations SET node_role_id = :node_role WHERE id = :id", node_role=node_role_id, id=allocation.id
        )


# --- freeing


async def free_allocations(session: Session, allocations: Collection[AllocationRecord]) -> None:
    """Free addresses. Locks their networks, so that no other transaction looks for an address meanwhile."""
    if not allocations:
        return
    await session.run(
        "SELECT FROM networks WHERE id = ANY (:ids) ORDER BY id FOR UPDATE",
        ids=sorted({allocation.network_id for allocation in allocations}),
    )
    for allocation in allocations:
        if not await session.run("DELETE FROM allocations WHERE id = :id", id=allocation.id):
            continue  # another transaction was faster, and freed the address too
        # The range is read again: it may have been changed before this transaction had the lock.
        range_id = await session.value(
            "SELECT id FROM ranges WHERE network_id = :network AND CAST(:address AS inet) BETWEEN first AND last",
            network=allocation.network_id,
            address=str(allocation.address),
        )
        if range_id is not None:
            await return_address(session, range_id, allocation.address)
        await _emit_change(session, "delete", allocation)


async def free_noderole_addresses(session: Session, node_role_ids: Collection[int]) -> None:
    """Free the addresses of noderoles that are deleted."""
    await free_allocations(
        session, await select_allocations(session, "WHERE a.node_role_id = ANY (:ids)", ids=list(node_role_ids))
    )


async def free_node_addresses(session: Session, node_id: int) -> None:
    """Free every address of a node that is deleted."""
    await free_allocations(
        session, await select_allocations(session, "WHERE a.node_id = :id ORDER BY a.id", id=node_id)
    )


async def free_address(
    session: Session, network: str, address: Address, check: Callable[[AllocationRecord], None] = lambda _: None
) -> None:
    """Free an address at a person's request; one that a noderole holds goes only with the noderole.

    `check` may refuse it, once no other transaction can change it any more.
    """
    record = await lock_network(session, network)
    allocations = await select_allocations(
        session,
        "WHERE a.network_id = :network AND a.address = CAST(:address AS inet)",
        network=record.id,
        address=str(address),
    )
    if not allocations:
        raise NotFound(f"allocation on network {network} of", str(address))
    check(allocations[0])
    if allocations[0].node_role_id is not None:
        raise Conflict(
            Rule.BOUND,
            f"{address} belongs to {role_name(network)} on {allocations[0].node}. "
            f"Unbind that, or give the node another address with {hint_name(network, address.version)}.",
        )
    await free_allocations(session, allocations)


async def _emit_change(session: Session, change: str, allocation: AllocationRecord) -> None:
    await raise_boot_generation(session)
    participle = {"create": "created", "delete": "deleted"}[change]
    await emit(
        session, f"allocation.{participle}", allocation.id, node_id=allocation.node_id, data=allocation.hook_view
    )
    await queue_network(session, f"allocation_{change}", allocation.id, allocation.hook_view)


# --- before the first boot


async def allocate_for_bound_nodes(session: Session) -> None:
    """Allocate addresses for every node that is bound to a network and has never run there.

    A machine that was never seen is not alive, so its noderole cannot run yet; but its very first boot should find the
    address that it is to keep. What cannot be granted here is reported by the noderole when it runs.
    """
    records = {role_name(record.name): record for record in await select_networks(session)}
    rows = await session.rows(
        """
        SELECT nr.id, nr.node_id, r.name AS role FROM node_roles nr
        JOIN roles r ON r.id = nr.role_id AND r.name = ANY (:roles) JOIN nodes n ON n.id = nr.node_id AND NOT n.admin
        WHERE nr.state <> :proposed AND NOT nr.doomed AND n.available
          AND NOT EXISTS (SELECT FROM allocations a WHERE a.node_role_id = nr.id)
        ORDER BY nr.cohort, nr.id
        """,
        roles=list(records),
        proposed=int(PROPOSED),
    )
    for row in rows:
        try:
            async with session.connection.begin_nested():
                await ensure_addresses(session, records[row.role].name, row.node_id, row.id)
        except (Conflict, Invalid):
            continue
