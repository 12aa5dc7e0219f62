"""Domains: the names under which DNS serves nodes, and the deployments that they belong to.

A domain belongs to a deployment and is for its nodes and those below it. Nothing outside of the domains is ever served,
so no node's name makes us answer for `com`.
"""

from dataclasses import dataclass

from rackwright.domain.errors import Conflict, NotFound, Rule
from rackwright.domain.networks.domains import check_domain, domain_of
from rackwright.store.db.listing import Column, Filter, Listing, key_id
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import EVERYTHING, Visibility
from rackwright.store.events.outbox import emit
from rackwright.store.graph.deployments import DeploymentRecord, read_root_id
from rackwright.store.networks.dns_refresh import refresh_dns_servers

FIRST_DOMAIN = "internal"
"""The domain of a new system, for discovered machines and for servers that have no other."""


@dataclass(frozen=True)
class DomainRecord:
    id: int
    name: str
    deployment: str
    deployment_id: int


_SELECT = """
SELECT m.id, m.name, d.name AS deployment, m.deployment_id
FROM domains m JOIN deployments d ON d.id = m.deployment_id
"""

DOMAINS = Listing(
    "domains",
    {
        "id": Column("m.id", Filter.NUMBER, sort="bigint"),
        "name": Column("m.name", sort="text"),
        "deployment": Column("d.name", Filter.REFERENCE, "d.id", sort="text", says="Deployment it belongs to"),
    },
    default="name",
    id="m.id",
    seen="m.deployment_id = ANY (:sees)",
)


async def select_domains(session: Session, where: str, **values: object) -> list[DomainRecord]:
    return [DomainRecord(**row._mapping) for row in await session.rows(f"{_SELECT} {where}", **values)]


async def get_domain(session: Session, key: str | int, visible: Visibility) -> DomainRecord:
    records = await select_domains(
        session,
        f"WHERE (m.name = :name OR m.id = :id) AND {visible.condition(DOMAINS.seen)}",
        name=str(key).lower(),
        id=key_id(key),
        **visible.values,
    )
    if not records:
        raise NotFound("domain", key)
    return records[0]


async def create_domain(session: Session, name: str, deployment: DeploymentRecord) -> DomainRecord:
    """Create a domain, so that names below it are served for the nodes of a deployment."""
    id = await session.value(
        "INSERT INTO domains (name, deployment_id) VALUES (:name, :deployment) ON CONFLICT DO NOTHING RETURNING id",
        name=check_domain(name),
        deployment=deployment.id,
    )
    if id is None:
        raise Conflict(Rule.EXISTS, f"There is a domain {name!r} already. It belongs to one deployment only.")
    await emit(session, "domain.created", id, deployment_id=deployment.id, data={"name": name})
    await refresh_dns_servers(session)
    return await get_domain(session, id, EVERYTHING)


async def delete_domain(session: Session, domain: DomainRecord) -> None:
    """Delete a domain, so that its names are served no more. Nodes keep their names."""
    await session.run("DELETE FROM domains WHERE id = :id", id=domain.id)
    await emit(session, "domain.deleted", domain.id, deployment_id=domain.deployment_id, data={"name": domain.name})
    await refresh_dns_servers(session)


async def find_domain_of_node(session: Session, node_name: str) -> DomainRecord | None:
    """Return the domain that a node's name lies in, the longest of several; None: it is in none, and is not served."""
    domains = {domain.name: domain for domain in await select_domains(session, "")}
    name = domain_of(node_name, domains)
    return None if name is None else domains[name]


async def create_first_domain(session: Session) -> None:
    """Create the domain of a new system."""
    await session.run(
        "INSERT INTO domains (name, deployment_id) VALUES (:name, :root) ON CONFLICT DO NOTHING",
        name=FIRST_DOMAIN,
        root=await read_root_id(session),
    )
