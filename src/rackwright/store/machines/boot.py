"""What nodes should boot: the desired bootenv, its generation, and what the boot providers have to serve."""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from sqlalchemy import Row

from rackwright.domain.errors import NotFound
from rackwright.domain.machines.install import SLEDGEHAMMER
from rackwright.domain.networks.dhcp import DhcpState, DhcpSubnet, sorted_state
from rackwright.domain.networks.dhcp6 import Dhcp6State, Dhcp6Subnet, DhcpStates, sorted_state6
from rackwright.domain.networks.dhcp_hosts import DhcpHost, pool_share
from rackwright.domain.networks.networks import Category, Network, Use
from rackwright.domain.states import PROPOSED
from rackwright.store.db.session import Session
from rackwright.store.machines.boot_generation import raise_boot_generation
from rackwright.store.machines.keys import disk_mark
from rackwright.store.machines.nodes import update_node
from rackwright.store.networks.allocations import allocate_for_bound_nodes
from rackwright.store.networks.network_rows import NetworkRecord, select_networks

INSTALL_CHANNEL = "rackwright_install"
"""The channel that is notified when an install may go on."""

PROVIDER_ROLE = "provisioner-dhcp-database"
"""The role whose noderoles are the boot providers: each records the generation that it serves."""


async def set_bootenv(session: Session, node_id: int, bootenv: str) -> int:
    """Set what a node boots next, and return the generation from which on providers serve that."""
    node = await session.row("SELECT bootenv, boot_generation FROM nodes WHERE id = :id FOR UPDATE", id=node_id)
    if node is None:
        raise NotFound("node", node_id)
    if node.bootenv == bootenv and node.boot_generation:
        return int(node.boot_generation)
    generation = await raise_boot_generation(session)
    await session.run("UPDATE nodes SET boot_generation = :n WHERE id = :id", n=generation, id=node_id)
    await update_node(session, node_id, {"bootenv": bootenv})
    return generation


async def read_dhcp_state(session: Session, node_role_id: int) -> DhcpStates:
    """Return all that a boot provider has to serve, as of one moment.

    It is read under the lock of the counter: no transaction is in the middle of changing what this generation has.
    """
    await allocate_for_bound_nodes(session)
    generation = await session.value("SELECT generation FROM boot_state FOR SHARE")
    index, count = await _read_provider_share(session, node_role_id)
    rows = await session.rows(
        "SELECT n.name, CASE WHEN n.identity_confirmed THEN n.bootenv ELSE '' END AS bootenv,"
        " ARRAY(SELECT mac::text FROM node_macs m WHERE m.node_id = n.id) AS macs,"
        " ARRAY(SELECT host(address) FROM allocations a WHERE a.node_id = n.id AND a.family = 4) AS v4,"
        " ARRAY(SELECT host(address) FROM allocations a WHERE a.node_id = n.id AND a.family = 6) AS v6"
        " FROM nodes n WHERE NOT n.system AND EXISTS (SELECT FROM node_macs m WHERE m.node_id = n.id)"
    )
    records = await select_networks(session)
    v4_subnets = tuple(_build_subnet(record, index, count) for record in records if _is_served(record.network, 4))
    v6_subnets = tuple(_build_subnet6(record, index, count) for record in records if _is_served(record.network, 6))
    v4 = DhcpState(generation or 0, v4_subnets, tuple(_build_host(row, v4_subnets) for row in rows))
    if not v6_subnets:
        return DhcpStates(sorted_state(v4))
    v6 = Dhcp6State(generation or 0, v6_subnets, tuple(_build_host6(row, v6_subnets) for row in rows))
    return DhcpStates(sorted_state(v4), sorted_state6(v6))


def _build_host(row: Row[Any], subnets: Sequence[DhcpSubnet]) -> DhcpHost[IPv4Address]:
    addresses = map(IPv4Address, row.v4)
    served = tuple(address for address in addresses if any(address in subnet.subnet for subnet in subnets))
    return DhcpHost(row.name, row.bootenv or SLEDGEHAMMER, tuple(row.macs), served)


def _build_host6(row: Row[Any], subnets: Sequence[Dhcp6Subnet]) -> DhcpHost[IPv6Address]:
    addresses = map(IPv6Address, row.v6)
    served = tuple(address for address in addresses if any(address in subnet.subnet for subnet in subnets))
    return DhcpHost(row.name, row.bootenv or SLEDGEHAMMER, tuple(row.macs), served)


def _is_served(network: Network, family: int) -> bool:
    """Return whether DHCP of a family is served on a network.

    Machines boot from the admin network; on another network DHCP is served if it has a dynamic range.
    """
    return (network.v4_subnet if family == 4 else network.v6_subnet) is not None and (
        network.category is Category.ADMIN
        or any(range.use is Use.DYNAMIC and range.family == family for range in network.ranges)
    )


def _build_subnet(record: NetworkRecord, index: int, count: int) -> DhcpSubnet:
    network = record.network
    assert network.v4_subnet is not None
    pools = [
        (range.first, range.last)
        for range in network.ranges
        if range.use is Use.DYNAMIC and isinstance(range.first, IPv4Address) and isinstance(range.last, IPv4Address)
    ]
    routers = tuple(router.address for router in network.routers if isinstance(router.address, IPv4Address))
    return DhcpSubnet(record.id, network.name, network.v4_subnet, pool_share(pools, index, count), routers)


def _build_subnet6(record: NetworkRecord, index: int, count: int) -> Dhcp6Subnet:
    network = record.network
    assert network.v6_subnet is not None
    pools = [
        (range.first, range.last)
        for range in network.ranges
        if range.use is Use.DYNAMIC and isinstance(range.first, IPv6Address) and isinstance(range.last, IPv6Address)
    ]
    return Dhcp6Subnet(record.id, network.name, network.v6_subnet, pool_share(pools, index, count))


async def _read_provider_share(session: Session, node_role_id: int) -> tuple[int, int]:
    """Return the provider's index among all providers, and their number.

    Each provider gives out its own share of the addresses for machines that are not known.
    """
    rows = await session.rows(
        "SELECT nr.id FROM node_roles nr JOIN roles r ON r.id = nr.role_id AND r.name = :role"
        " WHERE nr.state <> :proposed AND NOT nr.doomed ORDER BY nr.id",
        role=PROVIDER_ROLE,
        proposed=int(PROPOSED),
    )
    ids = [row.id for row in rows]
    return (ids.index(node_role_id), len(ids)) if node_role_id in ids else (0, 1)


async def record_served(session: Session, node_role_id: int, generation: int) -> None:
    """Record the generation that a provider was seen to serve; an older one never replaces a newer."""
    await session.run(
        """
        INSERT INTO boot_providers (node_role_id, generation) VALUES (:id, :generation)
        ON CONFLICT (node_role_id) DO UPDATE SET generation = excluded.generation, published_at = now()
        WHERE boot_providers.generation < excluded.generation
        """,
        id=node_role_id,
        generation=generation,
    )
    await session.run(f"NOTIFY {INSTALL_CHANNEL}")


async def lagging_providers(session: Session, node_id: int, generation: int) -> list[str]:
    """Return boot providers up the node's deployment path, on live nodes, that do not serve `generation` yet."""
    rows = await session.rows(
        """
        WITH RECURSIVE path (id, parent_id) AS (
            SELECT d.id, d.parent_id FROM nodes n JOIN deployments d ON d.id = n.deployment_id WHERE n.id = :node_id
            UNION ALL SELECT d.id, d.parent_id FROM path JOIN deployments d ON d.id = path.parent_id
        )
        SELECT r.name || ' on ' || n.name AS title FROM path JOIN node_roles nr ON nr.deployment_id = path.id
        JOIN roles r ON r.id = nr.role_id AND r.name = :role JOIN nodes n ON n.id = nr.node_id AND n.alive
        LEFT JOIN boot_providers b ON b.node_role_id = nr.id
        WHERE nr.state <> :proposed AND coalesce(b.generation, 0) < :generation ORDER BY 1
        """,
        node_id=node_id,
        role=PROVIDER_ROLE,
        generation=generation,
        proposed=int(PROPOSED),
    )
    return [row.title for row in rows]


@dataclass(frozen=True)
class BootAnswer:
    """What a machine that asks now should boot."""

    bootenv: str = SLEDGEHAMMER
    disk_mark: str = ""
    """The mark of the disk that the last install of the machine wrote; empty: there was none."""


async def read_boot_answer(session: Session, node_id: int | None) -> BootAnswer:
    """Return what a machine that asks now should boot.

    An unknown machine boots sledgehammer, to be discovered; so does one whose identity nobody who may accept machines
    has confirmed.
    """
    if node_id is None:
        return BootAnswer()
    row = await session.row("SELECT bootenv, key FROM nodes WHERE id = :id AND identity_confirmed", id=node_id)
    if row is None:
        return BootAnswer()
    return BootAnswer(row.bootenv or SLEDGEHAMMER, disk_mark(row.key) if row.key else "")
