"""Has every DNS server serve what the database holds now."""

from rackwright.domain.states import ACTIVE, ERROR, PROPOSED, Trigger
from rackwright.store.db.session import Session
from rackwright.store.graph.transitions import move_noderoles
from rackwright.store.runs.run_lifecycle import enqueue_refresh
from rackwright.store.runs.slots import WORK_CHANNEL

DNS_ROLE = "dns-database"


async def refresh_dns_servers(session: Session) -> None:
    """Have all DNS servers run again, because names changed otherwise than by a node."""
    rows = await session.rows(
        "SELECT nr.id, nr.state FROM node_roles nr JOIN roles r ON r.id = nr.role_id"
        " WHERE r.name = :role AND nr.state <> :proposed AND NOT nr.doomed ORDER BY nr.id",
        role=DNS_ROLE,
        proposed=int(PROPOSED),
    )
    await move_noderoles(session, Trigger.RETRY, [row.id for row in rows if row.state == int(ERROR)])
    for row in rows:
        if row.state == int(ACTIVE):
            await enqueue_refresh(session, row.id)
    await session.run(f"NOTIFY {WORK_CHANNEL}")
