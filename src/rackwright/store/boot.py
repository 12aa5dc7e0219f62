"""What nodes should boot: the desired bootenv, its generation, and what the boot providers have to serve."""

from dataclasses import dataclass

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.errors import NotFound
from rackwright.domain.install import SLEDGEHAMMER
from rackwright.domain.states import PROPOSED
from rackwright.store.generation import next_generation
from rackwright.store.nodes import update_node
from rackwright.store.session import Session

INSTALL_CHANNEL = "rackwright_install"
"""Notified when an install may go on."""

PROVIDER_ROLE = "provisioner-dhcp-database"
"""Its noderoles are the boot providers: each records the generation it serves."""


async def set_bootenv(session: Session, node_id: int, bootenv: str) -> int:
    """Decide what a node boots next, and say the generation from which on providers serve that."""
    known = await session.row("SELECT bootenv, boot_generation FROM nodes WHERE id = :id FOR UPDATE", id=node_id)
    if known is None:
        raise NotFound("node", node_id)
    if known.bootenv == bootenv and known.boot_generation:
        return int(known.boot_generation)
    generation = await next_generation(session)
    await session.run("UPDATE nodes SET boot_generation = :n WHERE id = :id", n=generation, id=node_id)
    await update_node(session, node_id, {"bootenv": bootenv})
    return generation


@dataclass(frozen=True)
class BootEntries:
    """All that a boot provider has to serve, and the generation that this is."""

    generation: int
    entries: tuple[JsonObject, ...]


async def boot_entries(session: Session) -> BootEntries:
    """Read under the lock of the counter: nobody is in the middle of changing what this generation says."""
    generation = await session.value("SELECT generation FROM boot_state FOR SHARE")
    rows = await session.rows(
        "SELECT n.id, n.name, n.bootenv, n.uuid::text AS uuid,"
        " ARRAY(SELECT mac::text FROM node_macs m WHERE m.node_id = n.id ORDER BY mac) AS macs"
        " FROM nodes n WHERE NOT n.system ORDER BY n.id"
    )
    entries: list[JsonObject] = [
        {"node": row.name, "macs": row.macs, "uuid": row.uuid, "bootenv": row.bootenv or SLEDGEHAMMER} for row in rows
    ]
    return BootEntries(generation or 0, tuple(entries))


async def record_served(session: Session, node_role_id: int, generation: int) -> None:
    """A provider was seen to serve a generation; an older one never replaces a newer."""
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
    """Boot providers up the node's deployment path, on nodes that are alive, that do not serve `generation` yet."""
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


async def boot_answer(session: Session, node_id: int | None) -> str:
    """What a machine that asks now should boot. An unknown one is to be discovered."""
    if node_id is None:
        return SLEDGEHAMMER
    bootenv: str | None = await session.value("SELECT bootenv FROM nodes WHERE id = :id", id=node_id)
    return bootenv or SLEDGEHAMMER
