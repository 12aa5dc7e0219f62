"""The names and addresses of nodes that DNS servers serve, as of one moment."""

from ipaddress import ip_address

from rackwright.domain.networks.dns import DnsHost, DnsState, dns_state
from rackwright.domain.networks.domains import domain_of
from rackwright.domain.networks.networks import Address, Category
from rackwright.store.db.session import Session
from rackwright.store.networks.allocations import allocate_for_bound_nodes
from rackwright.store.networks.domains import select_domains
from rackwright.store.networks.network_rows import select_networks
from rackwright.store.people.users import ancestors_by_deployment

_HOSTS = """
SELECT n.id, n.name, n.deployment_id, coalesce(
           CASE WHEN n.hint ->> 'address' = split_part(n.approved_address, ' port ', 1) THEN n.hint ->> 'address' END,
           n.discovery ->> 'address'
       ) AS reported,
       ARRAY(SELECT host(a.address) FROM allocations a JOIN networks w ON w.id = a.network_id
             WHERE a.node_id = n.id AND w.category = :admin) AS admin,
       ARRAY(SELECT host(a.address) FROM allocations a JOIN networks w ON w.id = a.network_id
             WHERE a.node_id = n.id AND w.category <> :admin) AS others
FROM nodes n WHERE NOT n.system
"""


async def read_dns_state(session: Session) -> DnsState:
    """Return the names to serve, each with its addresses.

    The name of a node stands for its addresses on the admin network; without one there, for where it registered from,
    or where an administrator said that it is. Served are names in a domain of the node's own deployment or one above:
    what else a node is called concerns only its owner.
    """
    await allocate_for_bound_nodes(session)
    generation = await session.value("SELECT generation FROM boot_state FOR SHARE")
    domains = {domain.name: domain.deployment_id for domain in await select_domains(session, "")}
    ancestors = await ancestors_by_deployment(session)
    rows = [
        row
        for row in await session.rows(_HOSTS, admin=Category.ADMIN.value)
        # A node in a deployment that was created after the ancestors were read is served by the run that this asks for.
        if (domain := domain_of(row.name, domains)) is not None
        and domains[domain] in ancestors.get(row.deployment_id, frozenset())
    ]
    subnets = [subnet for record in await select_networks(session) for subnet in record.network.subnets]
    hosts = [
        DnsHost(
            row.name,
            tuple(map(ip_address, row.admin)) or _parse_reported_address(row.reported),
            tuple(map(ip_address, row.others)),
        )
        for row in rows
    ]
    return dns_state(generation or 0, hosts, subnets, domains)


def _parse_reported_address(text: str | None) -> tuple[Address, ...]:
    """Return the address that a machine reports of itself, or nothing if it is none that can be served."""
    try:
        address = ip_address(text or "")
    except ValueError:
        return ()
    return () if address.is_loopback or address.is_unspecified or "%" in str(address) else (address,)
