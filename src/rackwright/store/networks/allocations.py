"""Addresses of nodes: which node has which, given and freed in the transaction of what they follow from.

All that touches one network's addresses is done one after the other, under that network's lock; that no address is
ever given twice is a unique constraint besides. Networks themselves are in `networks.py`.
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
from rackwright.store.machines.boot_generation import next_generation
from rackwright.store.networks.free_ranges import give_back, take, take_lowest
from rackwright.store.networks.network_rows import NetworkRecord, lock_network, select_networks


@dataclass(frozen=True)
class AllocationRecord:
    id: int
    network_id: int
    network: str
    node_id: int
    node: str
    node_role_id: int | None
    """The noderole it goes with; None: a person made it."""
    range_id: int | None
    range: str | None
    address: Address

    @property
    def view(self) -> JsonObject:
        """As hooks see it."""
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
        "address": Column("a.address", Filter.NONE, sort="inet", key=lambda one: str(one.address)),
        "node": Column("n.name", Filter.REFERENCE, "a.node_id", sort="text"),
        "range": Column("r.name"),
    },
    default="address",
    id="a.id",
    seen="n.deployment_id = ANY (:sees)",
)


def _record(row: Row[Any]) -> AllocationRecord:
    return AllocationRecord(**{**row._mapping, "address": ip_address(row.address)})


async def select_allocations(session: Session, where: str, **values: object) -> list[AllocationRecord]:
    return [_record(row) for row in await session.rows(f"{_SELECT} {where}", **values)]


async def fits_allocation(session: Session, node_id: int, source: str) -> bool:
    """Whether a request from `source` can be of this node: it has no address of ours, or this is one of them."""
    rows = await session.rows("SELECT host(address) AS address FROM allocations WHERE node_id = :id", id=node_id)
    if not rows:
        return True
    try:
        asking = ip_address(source.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(asking, "ipv4_mapped", None)
    return (mapped or asking) in {ip_address(row.address) for row in rows}


@dataclass(frozen=True)
class _Taker:
    """Who is to get addresses."""

    node_id: int
    node: str
    admin: bool
    hint: JsonObject


async def _taker(session: Session, node_id: int) -> _Taker:
    # Locked before the network: whoever deletes a node has it first too.
    row = await session.row("SELECT id, name, admin, system, hint FROM nodes WHERE id = :id FOR KEY SHARE", id=node_id)
    if row is None:
        raise NotFound("node", node_id)
    if row.system:
        raise Conflict(Rule.PHANTOM, f"{row.name} is a phantom node and has no addresses.")
    return _Taker(row.id, row.name, row.admin, row.hint)


# --- giving


async def ensure_addresses(
    session: Session, network: str, node_id: int, node_role_id: int | None = None, has: Sequence[Address] = ()
) -> list[AllocationRecord]:
    """Have the node hold one address of each family of the network: the one it should have, or any that fits.

    In this order: a person's hint, what it holds already, one that it was found to have (`has`), the host part of its
    admin address, the lowest that is free. A hint that cannot be granted is a conflict: nobody gets another address
    than the one asked for without being told.
    """
    taker = await _taker(session, node_id)
    record = await lock_network(session, network)
    held = await select_allocations(
        session, "WHERE a.network_id = :network AND a.node_id = :node", network=record.id, node=node_id
    )
    for subnet in record.network.subnets:
        now = next((one for one in held if one.address.version == subnet.version), None)
        wish = _hinted(record.network, taker.hint, subnet.version)
        if now is not None and wish in (None, now.address):
            await _adopt(session, now, node_role_id)
        elif wish is not None:
            if now is not None:
                await free(session, [now])
            await _give(session, record, taker, wish, node_role_id)
        else:
            await _give_some(session, record, taker, subnet.version, node_role_id, has)
    return await select_allocations(
        session,
        "WHERE a.network_id = :network AND a.node_id = :node ORDER BY a.family",
        network=record.id,
        node=node_id,
    )


async def allocate(session: Session, network: str, node_id: int, address: Address | None) -> list[AllocationRecord]:
    """A person gives a node an address, a certain one or whichever comes first of each family."""
    if address is None:
        return await ensure_addresses(session, network, node_id)
    taker = await _taker(session, node_id)
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
            f"{taker.node} has {held[0].address} on network {network!r} already. Free that first.",
        )
    return held or [await _give(session, record, taker, address, None)]


def _hinted(network: Network, hint: JsonObject, family: int) -> Address | None:
    wish = read_at_path(hint, hint_path(network.name, family))
    if not isinstance(wish, str) or not wish:
        return None
    name = hint_name(network.name, family)
    address = parse_address(wish)
    if address.version != family:
        raise Invalid(f"{name} is {wish!r}, which is no IPv{family} address.")
    return address


async def _give_some(
    session: Session,
    record: NetworkRecord,
    taker: _Taker,
    family: int,
    node_role_id: int | None,
    has: Sequence[Address],
) -> None:
    network = record.network
    subnet = network.subnet(family)
    assert subnet is not None
    # What the host is found to have counts more than any range: it answers there already.
    for address in has:
        if address in subnet:
            await _give(session, record, taker, address, node_role_id, router=True)
            return
    ranges = network.ranges_for(family, admin=taker.admin)
    like_admin = await _like_admin(session, record, taker, family)
    for one in ranges:
        range_id = record.range_ids[one.name]
        if like_admin is not None and like_admin in one and await take(session, range_id, like_admin):
            await _write(session, record, taker, like_admin, range_id, node_role_id)
            return
    for one in ranges:
        range_id = record.range_ids[one.name]
        lowest = await take_lowest(session, range_id)
        if lowest is not None:
            await _write(session, record, taker, lowest, range_id, node_role_id)
            return
    if ranges:
        names = ", ".join(f"{one.name} ({one.first} to {one.last})" for one in ranges)
        raise Conflict(
            Rule.EXISTS,
            f"Network {network.name!r} has no free IPv{family} address for {taker.node}: full are {names}. "
            "Make a range longer, or add one.",
        )


async def _like_admin(session: Session, record: NetworkRecord, taker: _Taker, family: int) -> Address | None:
    """The address here with the host part that the node has on the admin network."""
    row = await session.row(
        "SELECT host(a.address) AS address, w.v4_subnet::text AS v4, w.v6_subnet::text AS v6 FROM allocations a"
        " JOIN networks w ON w.id = a.network_id WHERE a.node_id = :node AND a.family = :family"
        " AND w.category = :admin AND w.id <> :here ORDER BY w.id LIMIT 1",
        node=taker.node_id,
        family=family,
        admin=Category.ADMIN.value,
        here=record.id,
    )
    if row is None:
        return None
    return same_host_part(record.network, ip_address(row.address), ip_network(row.v4 if family == 4 else row.v6))


async def _give(
    session: Session,
    record: NetworkRecord,
    taker: _Taker,
    address: Address,
    node_role_id: int | None,
    *,
    router: bool = False,
) -> AllocationRecord:
    """Give just this address, or say who has it."""
    check_requested_address(record.network, address, router=router)
    holder = await select_allocations(session, "WHERE a.address = CAST(:address AS inet)", address=str(address))
    if holder:
        raise Conflict(
            Rule.EXISTS, f"{address} is taken: {holder[0].node} has it. Choose another address for {taker.node}."
        )
    inside = record.network.range_of(address)
    range_id = None if inside is None else record.range_ids[inside.name]
    if range_id is not None:
        taken = await take(session, range_id, address)
        assert taken, "what nobody has is in a gap"
    return await _write(session, record, taker, address, range_id, node_role_id)


async def _write(
    session: Session,
    record: NetworkRecord,
    taker: _Taker,
    address: Address,
    range_id: int | None,
    node_role_id: int | None,
) -> AllocationRecord:
    id: int = await session.value(
        "INSERT INTO allocations (network_id, node_id, node_role_id, range_id, address, family)"
        " VALUES (:network, :node, :node_role, :range, CAST(:address AS inet), :family) RETURNING id",
        network=record.id,
        node=taker.node_id,
        node_role=node_role_id,
        range=range_id,
        address=str(address),
        family=address.version,
    )
    [made] = await select_allocations(session, "WHERE a.id = :id", id=id)
    await _tell(session, "create", made)
    return made


async def _adopt(session: Session, held: AllocationRecord, node_role_id: int | None) -> None:
    """An address that a person gave goes with the noderole from now on."""
    if node_role_id is not None and held.node_role_id != node_role_id:
        await session.run(
            "UPDATE allocations SET node_role_id = :node_role WHERE id = :id", node_role=node_role_id, id=held.id
        )


# --- freeing


async def free(session: Session, allocations: Collection[AllocationRecord]) -> None:
    """Take addresses back. Locks their networks, so that nobody looks for one meanwhile."""
    if not allocations:
        return
    await session.run(
        "SELECT FROM networks WHERE id = ANY (:ids) ORDER BY id FOR UPDATE",
        ids=sorted({one.network_id for one in allocations}),
    )
    for one in allocations:
        if not await session.run("DELETE FROM allocations WHERE id = :id", id=one.id):
            continue  # somebody else was faster, and gave it back too
        # Asked again: the range may have been changed before we had the lock.
        range_id = await session.value(
            "SELECT id FROM ranges WHERE network_id = :network AND CAST(:address AS inet) BETWEEN first AND last",
            network=one.network_id,
            address=str(one.address),
        )
        if range_id is not None:
            await give_back(session, range_id, one.address)
        await _tell(session, "delete", one)


async def free_noderoles(session: Session, node_role_ids: Collection[int]) -> None:
    """The noderoles go, and their addresses with them."""
    await free(session, await select_allocations(session, "WHERE a.node_role_id = ANY (:ids)", ids=list(node_role_ids)))


async def free_node(session: Session, node_id: int) -> None:
    """The node goes, and every address it has."""
    await free(session, await select_allocations(session, "WHERE a.node_id = :id ORDER BY a.id", id=node_id))


async def free_by_hand(
    session: Session, network: str, address: Address, check: Callable[[AllocationRecord], None] = lambda _: None
) -> None:
    """A person takes an address back; one that a noderole holds goes only with that. `check` may refuse it, once
    nobody else can change it any more."""
    record = await lock_network(session, network)
    found = await select_allocations(
        session,
        "WHERE a.network_id = :network AND a.address = CAST(:address AS inet)",
        network=record.id,
        address=str(address),
    )
    if not found:
        raise NotFound(f"allocation on network {network} of", str(address))
    check(found[0])
    if found[0].node_role_id is not None:
        raise Conflict(
            Rule.BOUND,
            f"{address} belongs to {role_name(network)} on {found[0].node}. Unbind that, or give the node another "
            f"address with {hint_name(network, address.version)}.",
        )
    await free(session, found)


async def _tell(session: Session, what: str, one: AllocationRecord) -> None:
    await next_generation(session)
    past = {"create": "created", "delete": "deleted"}[what]
    await emit(session, f"allocation.{past}", one.id, node_id=one.node_id, data=one.view)
    await queue_network(session, f"allocation_{what}", one.id, one.view)


# --- before the first boot


async def allocate_bound(session: Session) -> None:
    """Give every node that is bound to a network, and has never run there, its addresses.

    A machine that was never seen is not alive, so its noderole cannot run yet; but its very first boot should find the
    address that it is to keep. What cannot be granted here is told by the noderole when it runs.
    """
    records = {role_name(one.name): one for one in await select_networks(session)}
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
