"""Servers and what they provide: which of them are alive, and runs that have their daemons serve what is stored."""

from collections.abc import Collection

from rackwright.domain.states import ACTIVE, ERROR, PROPOSED, Trigger
from rackwright.store.db.session import Session
from rackwright.store.graph.transitions import move_noderoles
from rackwright.store.machines.nodes import update_node
from rackwright.store.runs.run_lifecycle import enqueue_refresh
from rackwright.store.runs.slots import WORK_CHANNEL


async def refresh_providers(session: Session, node_id: int, roles: Collection[str]) -> list[str]:
    """Have these roles run again on a node, also where they failed, and return those that are bound there."""
    rows = await session.rows(
        "SELECT nr.id, nr.state, r.name FROM node_roles nr JOIN roles r ON r.id = nr.role_id"
        " WHERE nr.node_id = :node AND r.name = ANY (:roles) AND nr.state <> :proposed AND NOT nr.doomed"
        " ORDER BY nr.id",
        node=node_id,
        roles=list(roles),
        proposed=int(PROPOSED),
    )
    await move_noderoles(session, Trigger.RETRY, [row.id for row in rows if row.state == int(ERROR)])
    for row in rows:
        if row.state == int(ACTIVE):
            await enqueue_refresh(session, row.id)
    # A refresh that failed because the daemon was not there need not wait any longer now that it is.
    await session.run(
        "UPDATE runs SET not_before = NULL WHERE node_role_id = ANY (:ids) AND state = 'queued'",
        ids=[row.id for row in rows],
    )
    await session.run(f"NOTIFY {WORK_CHANNEL}")
    return [row.name for row in rows]


async def record_server_heartbeat(session: Session, node_id: int) -> None:
    """Record that the server on this admin node is up; after a silence its node is alive again."""
    alive = await session.value("UPDATE nodes SET seen_at = now() WHERE id = :id RETURNING alive", id=node_id)
    if alive is False:
        await update_node(session, node_id, {"alive": True})


async def mark_silent_servers(session: Session, silence: float) -> list[str]:
    """Mark admin nodes whose server has been silent for too long as not alive, and return their names.

    Nothing waits for what those servers provide. An admin node that no server ever spoke for stays as it is.
    """
    rows = await session.rows(
        "SELECT id, name FROM nodes WHERE admin AND alive AND seen_at < now() - :silence * interval '1 second'"
        " ORDER BY id FOR UPDATE SKIP LOCKED",
        silence=silence,
    )
    for row in rows:
        await update_node(session, row.id, {"alive": False})
    return [row.name for row in rows]
