"""The BMC that a machine reports for itself, as far as a person may be told of it, who would send a password there."""

from rackwright.domain.machines.reported_bmc import ProposedBmc, propose_bmc
from rackwright.store.db.session import Session
from rackwright.store.machines.node_address import is_address_of_another_node
from rackwright.store.machines.nodes import NodeRecord


async def read_proposed_bmc(session: Session, node: NodeRecord) -> ProposedBmc | None:
    """Return the BMC that a person may take from a machine's report.

    None: it reports none that could be proposed, or one at an address that is known to be somebody else's: another
    node's (servers are nodes, too), another node's BMC, a router, or the machine's own.
    """
    proposed = propose_bmc(node.discovery.get("bmc"), node.hint.get("bmc"))
    if proposed is None or await is_address_of_another_node(session, node.id, [proposed.host]):
        return None
    return None if await _is_taken(session, node, proposed.host) else proposed


async def _is_taken(session: Session, node: NodeRecord, host: str) -> bool:
    return bool(
        await session.value(
            """
            SELECT 1 FROM nodes n WHERE n.id <> :id AND (n.hint #>> '{bmc,address}' IN (:host, '[' || :host || ']')
                OR n.hint #>> '{bmc,address}' LIKE :host || ':%' AND :host NOT LIKE '%:%'
                OR n.hint #>> '{bmc,address}' LIKE '[' || :host || ']:%')
            UNION ALL
            SELECT 1 FROM nodes n WHERE n.id = :id AND n.discovery ->> 'address' = :host
            UNION ALL
            SELECT 1 FROM allocations a WHERE a.node_id = :id AND a.address = CAST(:host AS inet)
            UNION ALL
            SELECT 1 FROM routers r WHERE r.address = CAST(:host AS inet)
            LIMIT 1
            """,
            id=node.id,
            host=host,
        )
    )
