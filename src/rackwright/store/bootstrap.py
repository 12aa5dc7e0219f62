"""First start: the root deployment, the built-in barclamps, and this host as first admin node. Safe to repeat."""

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
"""The setting that says what the last start imported, and into what."""


async def first_start(store: Store, barclamps: Sequence[Barclamp], host: str) -> None:
    """Make the database a working one, once; later starts only import what changed in the barclamps."""

    async def work(session: GraphSession) -> None:
        await session.run("INSERT INTO graph DEFAULT VALUES ON CONFLICT DO NOTHING")
        if not await session.value("SELECT 1 FROM deployments WHERE parent_id IS NULL"):
            system = await insert_deployment(session, SYSTEM, None, "Discovery and bootstrap; the root of all others")
            await session.run(
                "INSERT INTO snapshots (deployment_id, state, committed_at) VALUES (:id, 'head', now())", id=system
            )
            await create_first_domain(session)
        await _import_what_changed(session, barclamps)
        if not await session.value("SELECT 1 FROM nodes WHERE admin"):
            await create_node(session, NewNode(name=host, admin=True, alive=True, description="Runs Rackwright"))

    await store.change_graph(work, actor="first start")


async def _import_what_changed(session: GraphSession, barclamps: Sequence[Barclamp]) -> None:
    """Import these barclamps, unless they are what was imported last: most starts find nothing new."""
    # Not where they lie: servers of one database may have them in different places.
    declared = [asdict(replace(barclamp, path="", archive=b"")) | {"archive": None} for barclamp in barclamps]
    said = json.dumps(declared, sort_keys=True, default=sorted)
    digest = hashlib.sha256(said.encode()).hexdigest()
    if await read_setting(session, IMPORTED, {}) == await _mark(session, digest):
        await session.catalogue()  # for who needs only what this process has seen of it
        return
    await import_barclamps(session, barclamps)
    await session.run(
        "INSERT INTO settings (name, value) VALUES (:name, :value)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        name=IMPORTED,
        value=Jsonb(await _mark(session, digest)),
    )


async def _mark(session: Session, digest: str) -> JsonObject:
    """Whoever imports something else, or brings the schema up to date, makes it another one."""
    row = await session.row("SELECT catalogue_version, version_num FROM graph, alembic_version")
    assert row is not None
    return {"barclamps": digest, "catalogue": row.catalogue_version, "schema": row.version_num}
