"""The first start of a server: it makes the root deployment, imports the built-in barclamps and adds this host as the
first admin node. Safe to repeat.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, replace

from psycopg.types.json import Jsonb

from rackwright.domain.catalogue import Barclamp, JsonObject
from rackwright.store.barclamp_import import import_barclamps
from rackwright.store.db.session import GraphSession, Session
from rackwright.store.graph.deployments import SYSTEM, insert_deployment
from rackwright.store.machines.nodes import NewNode, create_node
from rackwright.store.networks.domains import create_first_domain
from rackwright.store.settings import read_setting
from rackwright.store.store import Store

IMPORTED = "imported_at_start"
"""The name of the setting that tells which barclamps the last start imported, and into which catalogue and schema."""


async def first_start(store: Store, barclamps: Sequence[Barclamp], host: str) -> None:
    """Fill a new database with what a server needs; on later starts, only import the barclamps that changed."""

    async def work(session: GraphSession) -> None:
        await session.run("INSERT INTO graph DEFAULT VALUES ON CONFLICT DO NOTHING")
        if not await session.value("SELECT 1 FROM deployments WHERE parent_id IS NULL"):
            system = await insert_deployment(session, SYSTEM, None, "Discovery and bootstrap; the root of all others")
            await session.run(
                "INSERT INTO snapshots (deployment_id, state, committed_at) VALUES (:id, 'head', now())", id=system
            )
            await create_first_domain(session)
        await _import_changed_barclamps(session, barclamps)
        if not await session.value("SELECT 1 FROM nodes WHERE admin"):
            await create_node(session, NewNode(name=host, admin=True, alive=True, description="Runs Rackwright"))

    await store.change_graph(work, actor="first start")


async def _import_changed_barclamps(session: GraphSession, barclamps: Sequence[Barclamp]) -> None:
    """Import these barclamps, unless the last start imported the same ones: on most starts nothing is new."""
    # Without their paths: servers of one database may have the barclamps in different folders.
    declared = [asdict(replace(barclamp, path="", archive=b"")) | {"archive": None} for barclamp in barclamps]
    declared_json = json.dumps(declared, sort_keys=True, default=sorted)
    digest = hashlib.sha256(declared_json.encode()).hexdigest()
    if await read_setting(session, IMPORTED, {}) == await _import_mark(session, digest):
        await session.catalogue()  # loads it for `Store.known_catalogue`, which reads nothing itself
        return
    await import_barclamps(session, barclamps)
    await session.run(
        "INSERT INTO settings (name, value) VALUES (:name, :value)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        name=IMPORTED,
        value=Jsonb(await _import_mark(session, digest)),
    )


async def _import_mark(session: Session, digest: str) -> JsonObject:
    """Return what identifies an import: another import, or a migration of the schema, changes it."""
    row = await session.row("SELECT catalogue_version, version_num FROM graph, alembic_version")
    assert row is not None
    return {"barclamps": digest, "catalogue": row.catalogue_version, "schema": row.version_num}
