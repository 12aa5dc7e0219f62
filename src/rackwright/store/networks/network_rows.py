"""Networks as stored, read back into the domain's values.

Changing them is in `networks.py`, addresses are in `allocations.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address

from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.errors import NotFound
from rackwright.domain.networks.networks import Category, Network, Range, Router, Use
from rackwright.store.db.listing import SEEN_BY_EVERY_READER, Column, Filter, Listing, key_id
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import Visibility


@dataclass(frozen=True)
class NetworkRecord:
    id: int
    network: Network
    range_ids: Mapping[str, int]
    """The ids of the ranges by their names."""

    @property
    def name(self) -> str:
        return self.network.name


_SELECT = """
SELECT n.id, n.name, n.description, n.category, n.vlan, n.v4_subnet::text AS v4_subnet, n.v6_subnet::text AS v6_subnet,
       (SELECT coalesce(json_agg(json_build_array(r.id, r.name, r.use, host(r.first), host(r.last))
                                 ORDER BY family(r.first), r.first), '[]')
        FROM ranges r WHERE r.network_id = n.id) AS ranges,
       (SELECT coalesce(json_agg(json_build_array(host(t.address), t.preference)
                                 ORDER BY family(t.address), t.preference, t.address), '[]')
        FROM routers t WHERE t.network_id = n.id) AS routers
FROM networks n
"""


async def select_networks(session: Session, where: str = "ORDER BY n.name", **values: object) -> list[NetworkRecord]:
    return [
        NetworkRecord(
            row.id,
            Network(
                row.name,
                Category(row.category),
                row.description,
                row.vlan,
                None if row.v4_subnet is None else IPv4Network(row.v4_subnet),
                None if row.v6_subnet is None else IPv6Network(row.v6_subnet),
                tuple(
                    Range(name, Use(use), ip_address(first), ip_address(last))
                    for _, name, use, first, last in row.ranges
                ),
                tuple(Router(ip_address(address), preference) for address, preference in row.routers),
            ),
            {name: id for id, name, *_ in row.ranges},
        )
        for row in await session.rows(f"{_SELECT} {where}", **values)
    ]


NETWORKS = Listing(
    "networks",
    {
        "id": Column("n.id", Filter.NUMBER, sort="bigint"),
        "name": Column("n.name", sort="text"),
        "category": Column(
            "n.category", Filter.CHOICE, choices={category.value: category.value for category in Category}
        ),
        "vlan": Column("n.vlan", Filter.NUMBER),
    },
    default="name",
    id="n.id",
    seen=SEEN_BY_EVERY_READER,
)


async def find_network(session: Session, name_or_id: str, visible: Visibility) -> NetworkRecord:
    records = await select_networks(
        session,
        f"WHERE (n.name = :name OR n.id = :id) AND {visible.condition(NETWORKS.seen)}",
        name=name_or_id,
        id=key_id(name_or_id),
        **visible.values,
    )
    if not records:
        raise NotFound("network", name_or_id)
    return records[0]


async def get_network(session: Session, name: str) -> NetworkRecord:
    records = await select_networks(session, "WHERE n.name = :name", name=name)
    if not records:
        raise NotFound("network", name)
    return records[0]


async def lock_network(session: Session, name: str) -> NetworkRecord:
    """Lock the network, with its addresses and ranges, until this transaction ends, and return it."""
    # The lock is a statement of its own: one that both locks and reads would read a moment before it had the lock.
    await session.run("SELECT FROM networks WHERE name = :name FOR UPDATE", name=name)
    return await get_network(session, name)


def build_hook_view(record: NetworkRecord, before: JsonObject | None = None) -> JsonObject:
    """Return a network as hooks see it."""
    return {"id": record.id, **network_as_json(record.network), "before": before or {}}


def network_as_json(network: Network) -> JsonObject:
    """Return a network as JSON."""
    ranges: list[Json] = [
        {"name": range.name, "use": range.use.value, "first": str(range.first), "last": str(range.last)}
        for range in network.ranges
    ]
    routers: list[Json] = [
        {"address": str(router.address), "preference": router.preference} for router in network.routers
    ]
    return {
        "name": network.name,
        "category": network.category.value,
        "description": network.description,
        "vlan": network.vlan,
        "v4_subnet": None if network.v4_subnet is None else str(network.v4_subnet),
        "v6_subnet": None if network.v6_subnet is None else str(network.v6_subnet),
        "ranges": ranges,
        "routers": routers,
    }
