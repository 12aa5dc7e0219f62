"""Graphs to measure on: chains of noop roles over many nodes, written through the product's own code."""

from rackwright.domain.catalogue import Barclamp, Flag, Jig, Role
from rackwright.store.bootstrap import first_start
from rackwright.store.db.session import GraphSession, Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph import commits
from rackwright.store.graph.binding import bind_proposed
from rackwright.store.graph.deployments import create_deployment, get_deployment
from rackwright.store.store import Store


def chain(length: int) -> Barclamp:
    """Roles link-0 ... link-N, each on top of the one before, on the same node."""
    return Barclamp(
        name="bench",
        jigs=(Jig("noop", "bench", "noop"),),
        roles=tuple(
            Role(
                f"link-{number}",
                "bench",
                "noop",
                requires=(f"link-{number - 1}",) if number else (),
                flags=frozenset({Flag.IMPLICIT}),
            )
            for number in range(length)
        ),
    )


async def fill(store: Store, nodes: int, length: int) -> None:
    """First start, then `nodes` machines that are up, each with the whole chain bound and committed."""
    await first_start(store, [chain(length)], "admin.bench.example")
    await fill_nodes(store, nodes, length)


async def fill_nodes(store: Store, nodes: int, length: int) -> None:
    """Machines that are up, each with the whole chain bound and committed."""

    async def work(session: GraphSession) -> None:
        await session.run(
            "INSERT INTO nodes (name, alive, available, deployment_id)"
            " SELECT 'n' || n || '.bench.example', true, true, (SELECT id FROM deployments WHERE parent_id IS NULL)"
            " FROM generate_series(1, :count) n",
            count=nodes,
        )
        await session.run("INSERT INTO slots (slot, node_id) SELECT id, id FROM nodes WHERE NOT system AND NOT admin")
        ids = await session.rows("SELECT id FROM nodes WHERE NOT system AND NOT admin ORDER BY id")
        await create_deployment(session, "bench", None)
        deployment = await get_deployment(session, "bench", EVERYTHING)
        await bind_proposed(session, deployment, [(row.id, f"link-{length - 1}") for row in ids])
        await commits.commit_proposal(session, deployment)

    await store.change_graph(work)
    async with store.engine.connect() as connection:
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        await connection.exec_driver_sql("VACUUM ANALYZE")


async def more_waiting(store: Store, nodes: int, each: int) -> None:
    """Machines with a run under way and `each` noderoles that could run next, first in every order."""

    async def work(session: Session) -> None:
        await session.run(
            "INSERT INTO roles (name, barclamp_id, jig) SELECT 'waiting-' || n, (SELECT min(id) FROM barclamps), 'noop'"
            " FROM generate_series(1, :each) n",
            each=each,
        )
        await session.run(
            "WITH made AS (INSERT INTO nodes (name, alive, available, deployment_id)"
            " SELECT 'busy' || n || '.bench.example', true, true, (SELECT id FROM deployments WHERE parent_id IS NULL)"
            " FROM generate_series(1, :nodes) n RETURNING id, deployment_id), slotted AS ("
            " INSERT INTO slots (slot, node_id) SELECT id, id FROM made), busy AS ("
            " INSERT INTO runs (node_role_id, node_id, slot, jig, state, deadline, started_at)"
            " SELECT 0, id, id, 'noop', 'accepted', 1e9, now() FROM made)"
            " INSERT INTO node_roles (node_id, role_id, deployment_id, state, cohort)"
            " SELECT made.id, r.id, made.deployment_id, 3, -1 FROM made CROSS JOIN roles r"
            " WHERE r.name LIKE 'waiting-%'",
            nodes=nodes,
        )
        await session.run("UPDATE graph SET catalogue_version = catalogue_version + 1")

    await store.change_graph(work)


async def more_active(store: Store, count: int, after: int = 0) -> None:
    """Many noderoles that are ACTIVE, on machines of their own, numbered from the one after `after` on."""

    async def work(session: Session) -> None:
        await session.run(
            "WITH made AS (INSERT INTO nodes (name, alive, available, deployment_id)"
            " SELECT 'calm' || n || '.bench.example', true, true, (SELECT id FROM deployments WHERE parent_id IS NULL)"
            " FROM generate_series(:after + 1, :after + :count / 20) n RETURNING id, deployment_id), slotted AS ("
            " INSERT INTO slots (slot, node_id) SELECT id, id FROM made)"
            " INSERT INTO node_roles (node_id, role_id, deployment_id, state, cohort)"
            " SELECT made.id, r.id, made.deployment_id, 0, split_part(r.name, '-', 2)::int FROM made"
            " CROSS JOIN roles r WHERE r.name LIKE 'link-%'",
            count=count,
            after=after,
        )

    await store.change_graph(work)
