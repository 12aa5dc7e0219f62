"""Creates, changes and deletes networks with their ranges and routers, and the roles that follow from them.

Every change takes a `GraphSession`, because it changes the catalogue. Which node has which address is in
`allocations.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from ipaddress import IPv4Network, IPv6Network

from rackwright.domain.errors import Conflict, Invalid, NotFound, Rule
from rackwright.domain.networks.networks import (
    Category,
    Network,
    Range,
    Router,
    Use,
    check_network,
    check_overlap,
    networks_barclamp,
    role_name,
    with_changes,
)
from rackwright.store.barclamp_import import import_barclamps
from rackwright.store.db.session import GraphSession, Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.events.outbox import emit
from rackwright.store.graph.binding import bind_committed
from rackwright.store.graph.deployments import SYSTEM, get_deployment
from rackwright.store.graph.noderoles import remove_noderoles
from rackwright.store.hooks.hook_calls import queue_network
from rackwright.store.machines.boot_generation import raise_boot_generation
from rackwright.store.networks.allocations import free_allocations, select_allocations
from rackwright.store.networks.free_ranges import rebuild_gaps
from rackwright.store.networks.network_rows import (
    NetworkRecord,
    build_hook_view,
    get_network,
    lock_network,
    network_as_json,
    select_networks,
)

ADMIN_NETWORK_ROLES = ("crowbar-admin-node", "crowbar-managed-node")
"""A node that has one of these roles is on the admin network."""


async def create_network(session: GraphSession, network: Network) -> NetworkRecord:
    check_network(network)
    if await session.value("SELECT 1 FROM networks WHERE name = :name", name=network.name):
        raise Conflict(Rule.EXISTS, f"There is a network {network.name!r} already. Choose another name.")
    await _check_no_overlap(session, network)
    id: int = await session.value(
        "INSERT INTO networks (name, description, category, vlan, v4_subnet, v6_subnet)"
        " VALUES (:name, :description, :category, :vlan, CAST(:v4 AS cidr), CAST(:v6 AS cidr)) RETURNING id",
        name=network.name,
        description=network.description,
        category=network.category.value,
        vlan=network.vlan,
        v4=_subnet_text(network.v4_subnet),
        v6=_subnet_text(network.v6_subnet),
    )
    for range in network.ranges:
        await _insert_range(session, id, range)
    for router in network.routers:
        await _insert_router(session, id, router)
    await _import_network_roles(session)
    record = await get_network(session, network.name)
    await _emit_change(session, "create", record)
    if network.category is Category.ADMIN:
        await _bind_existing_machines(session, network.name)
    return record


async def update_network(session: GraphSession, name: str, changes: Mapping[str, object]) -> NetworkRecord:
    """Set the description, the VLAN or the subnets. Addresses that nodes have must still be in the network."""
    before = await lock_network(session, name)
    after = with_changes(before.network, changes)
    if after == before.network:
        return before
    await _check_no_overlap(session, after)
    for allocation in await select_allocations(session, "WHERE a.network_id = :id ORDER BY a.address", id=before.id):
        subnet = after.subnet(allocation.address.version)
        if subnet is None or allocation.address not in subnet:
            raise Conflict(
                Rule.BOUND,
                f"{allocation.node} has {allocation.address} on network {name!r}, which would no longer be in it.",
            )
    await session.run(
        "UPDATE networks SET description = :description, vlan = :vlan, v4_subnet = CAST(:v4 AS cidr),"
        " v6_subnet = CAST(:v6 AS cidr) WHERE id = :id",
        id=before.id,
        description=after.description,
        vlan=after.vlan,
        v4=_subnet_text(after.v4_subnet),
        v6=_subnet_text(after.v6_subnet),
    )
    return await _finish_change(session, before)


async def delete_network(session: GraphSession, name: str) -> None:
    """Delete a network; no node may still need it but the admin nodes, which are on it by themselves."""
    record = await lock_network(session, name)
    allocations = await select_allocations(session, "WHERE a.network_id = :id ORDER BY a.address", id=record.id)
    admin_ids = await _select_admin_ids(session)
    for allocation in allocations:
        if allocation.node_id not in admin_ids:
            raise Conflict(
                Rule.BOUND,
                f"{allocation.node} has {allocation.address} on network {name!r}. "
                f"Free it first: unbind {role_name(name)}.",
            )
    system = await get_deployment(session, SYSTEM, EVERYTHING)
    bound = await session.rows(
        "SELECT nr.id FROM node_roles nr JOIN roles r ON r.id = nr.role_id"
        " WHERE r.name = :role AND nr.deployment_id = :system",
        role=role_name(name),
        system=system.id,
    )
    # In the system deployment only the network itself bound its role, so the role is also removed with the network.
    await remove_noderoles(session, [row.id for row in bound])
    await free_allocations(session, await select_allocations(session, "WHERE a.network_id = :id", id=record.id))
    await session.run(
        "DELETE FROM deployment_roles dr USING roles r"
        " WHERE r.id = dr.role_id AND r.name = :role AND dr.deployment_id = :system"
        " AND NOT EXISTS (SELECT FROM node_roles nr WHERE nr.role_id = r.id)",
        role=role_name(name),
        system=system.id,
    )
    await session.run("DELETE FROM networks WHERE id = :id", id=record.id)
    await _import_network_roles(session)
    await _emit_change(session, "delete", record)


# --- ranges and routers


async def add_range(session: GraphSession, network: str, new: Range) -> NetworkRecord:
    before = await lock_network(session, network)
    if new.name in before.range_ids:
        raise Conflict(Rule.EXISTS, f"Network {network!r} has a range {new.name!r} already.")
    _check_range(before.network, new)
    await _insert_range(session, before.id, new)
    return await _finish_change(session, before)


async def change_range(session: GraphSession, network: str, name: str, changes: Mapping[str, object]) -> NetworkRecord:
    """Give a range other ends or another use. Addresses that are outside of it then stay with their nodes."""
    before = await lock_network(session, network)
    old = find_range(before, name)
    new = replace(old, **changes)  # type: ignore[arg-type]  # the names are ours
    if new == old:
        return before
    _check_range(before.network, new)
    id = before.range_ids[name]
    await session.run(
        "UPDATE ranges SET use = :use, first = CAST(:first AS inet), last = CAST(:last AS inet) WHERE id = :id",
        id=id,
        use=new.use.value,
        first=str(new.first),
        last=str(new.last),
    )
    await _attach_allocations(session, before.id, id, new)
    return await _finish_change(session, before)


async def delete_range(session: GraphSession, network: str, name: str) -> NetworkRecord:
    """Delete a range: no node gets an address from it any more, and nodes that have one keep it."""
    before = await lock_network(session, network)
    find_range(before, name)
    id = before.range_ids[name]
    await session.run("UPDATE allocations SET range_id = NULL WHERE range_id = :id", id=id)
    await session.run("DELETE FROM ranges WHERE id = :id", id=id)
    return await _finish_change(session, before)


async def add_router(session: GraphSession, network: str, router: Router) -> NetworkRecord:
    before = await lock_network(session, network)
    if any(known.address == router.address for known in before.network.routers):
        raise Conflict(Rule.EXISTS, f"Network {network!r} has the router {router.address} already.")
    _check_part(lambda: with_changes(before.network, {"routers": (*before.network.routers, router)}))
    taken = await select_allocations(session, "WHERE a.address = CAST(:address AS inet)", address=str(router.address))
    admin_ids = await _select_admin_ids(session)
    if any(allocation.node_id not in admin_ids for allocation in taken):
        raise Conflict(Rule.EXISTS, f"{router.address} is taken: {taken[0].node} has it.")
    await _insert_router(session, before.id, router)
    return await _finish_change(session, before)


async def delete_router(session: GraphSession, network: str, address: str) -> NetworkRecord:
    before = await lock_network(session, network)
    deleted = await session.run(
        "DELETE FROM routers WHERE network_id = :id AND address = CAST(:address AS inet)",
        id=before.id,
        address=address,
    )
    if not deleted:
        raise NotFound(f"router of network {network}", address)
    return await _finish_change(session, before)


def find_range(record: NetworkRecord, name: str) -> Range:
    for range in record.network.ranges:
        if range.name == name:
            return range
    raise NotFound(f"range of network {record.name}", name)


def _check_range(network: Network, new: Range) -> None:
    """Check the network as it would be with a new range, or with this one in place of the old one of its name."""
    others = tuple(range for range in network.ranges if range.name != new.name)
    _check_part(lambda: with_changes(network, {"ranges": (*others, new)}))


def _check_part(check: Callable[[], object]) -> None:
    """Run a check, and have the pointer of an error begin at the part that was given: /ranges/3/first is its /first."""
    try:
        check()
    except Invalid as error:
        raise Invalid(error.message, "".join(f"/{key}" for key in error.pointer.split("/")[3:])) from None


# --- the rows


async def _insert_range(session: Session, network_id: int, range: Range) -> None:
    id: int = await session.value(
        "INSERT INTO ranges (network_id, name, use, first, last)"
        " VALUES (:network, :name, :use, CAST(:first AS inet), CAST(:last AS inet)) RETURNING id",
        network=network_id,
        name=range.name,
        use=range.use.value,
        first=str(range.first),
        last=str(range.last),
    )
    await _attach_allocations(session, network_id, id, range)


async def _attach_allocations(session: Session, network_id: int, range_id: int, range: Range) -> None:
    """Attach the allocations within a range to it, and compute its gaps."""
    taken = await select_allocations(
        session,
        "WHERE a.network_id = :network AND a.address BETWEEN CAST(:first AS inet) AND CAST(:last AS inet)",
        network=network_id,
        first=str(range.first),
        last=str(range.last),
    )
    if taken and range.use is Use.DYNAMIC:
        raise Conflict(
            Rule.BOUND,
            f"{taken[0].node} has {taken[0].address}, so range {range.name!r} cannot be given out by DHCP. "
            "Free it first.",
        )
    await session.run("UPDATE allocations SET range_id = NULL WHERE range_id = :id", id=range_id)
    await session.run(
        "UPDATE allocations SET range_id = :range WHERE id = ANY (:ids)",
        range=range_id,
        ids=[allocation.id for allocation in taken],
    )
    await rebuild_gaps(session, range_id, range, [allocation.address for allocation in taken])


async def _insert_router(session: Session, network_id: int, router: Router) -> None:
    await session.run(
        "INSERT INTO routers (network_id, address, preference) VALUES (:network, CAST(:address AS inet), :preference)",
        network=network_id,
        address=str(router.address),
        preference=router.preference,
    )


async def _check_no_overlap(session: Session, network: Network) -> None:
    check_overlap(network, [record.network for record in await select_networks(session)])


async def _select_admin_ids(session: Session) -> set[int]:
    return {row.id for row in await session.rows("SELECT id FROM nodes WHERE admin")}


def _subnet_text(subnet: IPv4Network | IPv6Network | None) -> str | None:
    return None if subnet is None else str(subnet)


# --- consequences of a change


async def _finish_change(session: GraphSession, before: NetworkRecord) -> NetworkRecord:
    await _import_network_roles(session)
    after = await get_network(session, before.name)
    old, new = network_as_json(before.network), network_as_json(after.network)
    await _emit_change(session, "change", after, {key: value for key, value in old.items() if new[key] != value})
    return after


async def _emit_change(
    session: Session, change: str, record: NetworkRecord, before: Mapping[str, object] | None = None
) -> None:
    await raise_boot_generation(session)
    participle = {"create": "created", "change": "changed", "delete": "deleted"}[change]
    await emit(
        session, f"network.{participle}", record.id, data={"name": record.name, "changed": [*sorted(before or {})]}
    )
    view = build_hook_view(record, dict(before or {}))  # type: ignore[arg-type]  # JSON, from `network_as_json`
    await queue_network(session, f"network_{change}", record.id, view)


async def _import_network_roles(session: GraphSession) -> None:
    """Import the roles of all networks into the catalogue."""
    await import_barclamps(session, [networks_barclamp(record.network for record in await select_networks(session))])


async def _bind_existing_machines(session: GraphSession, name: str) -> None:
    """Bind machines that existed before the admin network to it."""
    rows = await session.rows(
        "SELECT DISTINCT nr.node_id FROM node_roles nr JOIN roles r ON r.id = nr.role_id"
        " WHERE r.name = ANY (:roles) ORDER BY 1",
        roles=list(ADMIN_NETWORK_ROLES),
    )
    system = await get_deployment(session, SYSTEM, EVERYTHING)
    await bind_committed(session, system.id, [(row.node_id, role_name(name)) for row in rows])
