"""First start: the root deployment, the built-in barclamps, and this host as first admin node. Safe to repeat."""

from collections.abc import Sequence

from rackwright.domain.catalogue import Barclamp
from rackwright.store.barclamps import import_barclamps
from rackwright.store.deployments import SYSTEM, insert_deployment
from rackwright.store.domains import make_first_domain
from rackwright.store.nodes import NewNode, create_node
from rackwright.store.session import Session, Store


async def first_start(store: Store, barclamps: Sequence[Barclamp], host: str) -> None:
    """Make the database a working one, once; later starts only import what changed in the barclamps."""

    async def work(session: Session) -> None:
        await session.run("INSERT INTO graph DEFAULT VALUES ON CONFLICT DO NOTHING")
        if not await session.value("SELECT 1 FROM deployments WHERE parent_id IS NULL"):
            system = await insert_deployment(session, SYSTEM, None, "Discovery and bootstrap; the root of all others")
            await session.run(
                "INSERT INTO snapshots (deployment_id, state, committed_at) VALUES (:id, 'head', now())", id=system
            )
            await make_first_domain(session)
        await import_barclamps(session, barclamps)
        if not await session.value("SELECT 1 FROM nodes WHERE admin"):
            await create_node(session, NewNode(name=host, admin=True, alive=True, description="Runs Rackwright"))

    await store.change(work, actor="first start", graph=True)
