"""How long binding and committing a big proposal takes beside a bare COPY of the same rows, and whether unblocking the
children of one noderole costs the same in a small graph and in a big one.

Everything runs on the embedded PostgreSQL with its own settings, fsync on, in a folder that is gone afterwards.
"""

import argparse
import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import psycopg

from rackwright.barclamps.loader import built_in, known_kinds
from rackwright.domain.barclamps.barclamp_file import parse_barclamp
from rackwright.domain.states import ACTIVE, BLOCKED, TODO, TRANSITION
from rackwright.store.bootstrap import first_start
from rackwright.store.db.database import Database, open_database
from rackwright.store.db.session import GraphSession
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph import commits
from rackwright.store.graph.binding import bind_proposed
from rackwright.store.graph.deployments import create_deployment, get_deployment
from rackwright.store.graph.subgraph import bump_graph
from rackwright.store.runs.settling import FinishedRun, settle_runs
from rackwright.store.runs.slots import add_slots
from rackwright.store.store import Store
from report import at_most, emit

T = TypeVar("T")

ROLES = 20
"""Noderoles of a node; it has three times as many edges."""
CHILDREN = 10
"""Noderoles that the first one of a node unblocks."""
SETTLES = 40
"""Measured in a graph, after some to warm up."""
WARM_UP = 10


def parents_of(role: int) -> range:
    """Which roles a role stands on: the first has ten children, and the last stands on nearly all."""
    if role == 0:
        return range(0)
    if role <= CHILDREN:
        return range(1)
    return range(role - (6 if role <= 15 else 5), role)


EDGES = [(parent, role) for role in range(ROLES) for parent in parents_of(role)]
LEAVES = [role for role in range(ROLES) if all(parent != role for parent, _ in EDGES)]
assert len(EDGES) == 3 * ROLES


def barclamp_text() -> str:
    roles = (
        f"- {{name: bench-{role}, jig: noop, flags: [implicit],"
        f" requires: [{', '.join(f'bench-{parent}' for parent in parents_of(role))}]}}\n"
        for role in range(ROLES)
    )
    return "name: bench\nroles:\n" + "".join(roles)


class Clock:
    """Seconds that pieces of work took, by their names."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    async def time(self, name: str, work: Awaitable[T]) -> T:
        start = time.perf_counter()
        done = await work
        self.seconds[name] = time.perf_counter() - start
        return done


async def fresh(home: Path, name: str) -> Database:
    """A database of its own on the embedded server, after its first start and with the bench roles."""
    database = await open_database(None, home)
    url = database.url
    with psycopg.connect(plain(database), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        assert connection.execute("SHOW fsync").fetchone() == ("on",)
    mine = await open_database(url.set(database=name).render_as_string(hide_password=False), home)
    await first_start(
        Store(mine), [*built_in(), parse_barclamp(barclamp_text(), "bench.yml", known_kinds())], "admin.bench.example"
    )
    # The server stays for as long as its first user does.
    return replace(mine, embedded=database.embedded)


def plain(database: Database) -> str:
    return database.url.set(drivername="postgresql").render_as_string(hide_password=False)


async def make_nodes(session: GraphSession, count: int) -> list[int]:
    rows = await session.rows(
        "INSERT INTO nodes (name, alive, available, deployment_id)"
        " SELECT 'n' || i || '.bench.example', true, true, (SELECT id FROM deployments WHERE parent_id IS NULL)"
        " FROM generate_series(1, :count) AS i RETURNING id",
        count=count,
    )
    ids = [row.id for row in rows]
    await add_slots(session, nodes=ids)
    return ids


# --- commit


async def commit_beside_copy(home: Path, nodes: int) -> dict[str, float]:
    clock = Clock()
    async with await fresh(home, "commit") as database:
        store = Store(database)
        ids = await store.change_graph(lambda session: make_nodes(session, nodes))
        await store.change_graph(lambda session: create_deployment(session, "bench", None))
        requests = [(id, f"bench-{role}") for id in ids for role in LEAVES]

        async def bind(session: GraphSession) -> None:
            await bind_proposed(session, await get_deployment(session, "bench", EVERYTHING), requests)

        async def plan(session: GraphSession) -> str:
            deployment = await get_deployment(session, "bench", EVERYTHING)
            return (await commits.plan_proposal_commit(session, deployment)).digest

        settled(database)
        await clock.time("bind", store.change_graph(bind))
        settled(database)
        digest = await clock.time("plan", store.change_graph(plan))

        # Somebody else's commit makes all of it to be worked out again.
        await store.change_graph(bump_graph)
        digest = await clock.time("plan_after_another_commit", store.change_graph(plan))

        async def commit(session: GraphSession) -> None:
            await commits.commit_proposal(session, await get_deployment(session, "bench", EVERYTHING), digest)

        settled(database)
        await clock.time("commit", store.change_graph(commit))
        with psycopg.connect(plain(database)) as connection:
            check_committed(connection, nodes)
        clock.seconds["copy"] = bare_copy(database)
    return clock.seconds


def settled(*databases: Database) -> None:
    """So that no figure pays for the writes before it. No ANALYZE: a person commits before the server gets to it."""
    for database in databases:
        with psycopg.connect(plain(database), autocommit=True) as connection:
            connection.execute("CHECKPOINT")


def check_committed(connection: psycopg.Connection, nodes: int) -> None:
    states = connection.execute(
        "SELECT state, count(*) FROM node_roles nr JOIN roles r ON r.id = nr.role_id AND r.name LIKE 'bench-%'"
        " GROUP BY state ORDER BY state"
    ).fetchall()
    assert states == [(int(BLOCKED), nodes * (ROLES - 1)), (int(TODO), nodes)], states
    edges = connection.execute("SELECT count(*) FROM node_role_edges").fetchone()
    assert edges is not None
    assert edges[0] >= nodes * len(EDGES)


def bare_copy(database: Database) -> float:
    """Seconds to COPY the rows of both tables into tables with the same columns, indexes and constraints."""
    with psycopg.connect(plain(database)) as connection:
        connection.execute("CREATE TABLE node_roles_copy (LIKE node_roles INCLUDING ALL) WITH (fillfactor = 70)")
        connection.execute("CREATE TABLE node_role_edges_copy (LIKE node_role_edges INCLUDING ALL)")
        for table, column, other in (
            ("node_roles_copy", "node_id", "nodes"),
            ("node_roles_copy", "role_id", "roles"),
            ("node_roles_copy", "deployment_id", "deployments"),
            ("node_role_edges_copy", "parent_id", "node_roles_copy"),
            ("node_role_edges_copy", "child_id", "node_roles_copy"),
        ):
            connection.execute(f"ALTER TABLE {table} ADD FOREIGN KEY ({column}) REFERENCES {other} (id)".encode())
        rows = {table: read_binary(connection, table) for table in ("node_roles", "node_role_edges")}
        connection.commit()
    settled(database)
    with psycopg.connect(plain(database)) as connection:
        start = time.perf_counter()
        for table, content in rows.items():
            with connection.cursor().copy(f"COPY {table}_copy FROM STDIN (FORMAT BINARY)".encode()) as copy:
                for block in content:
                    copy.write(block)
        connection.commit()
        return time.perf_counter() - start


def read_binary(connection: psycopg.Connection, table: str) -> list[bytes]:
    with connection.cursor().copy(f"COPY {table} TO STDOUT (FORMAT BINARY)".encode()) as copy:
        return [bytes(block) for block in copy]


# --- settle


async def settle_in_graphs_of(home: Path, sizes: Sequence[int]) -> list[float]:
    """Median seconds to settle one noderole and unblock its ten children, in a graph of each size.

    The graphs take turns, so that what else happens on the machine falls on all of them alike.
    """
    async with contextlib.AsyncExitStack() as stack:
        databases = [await stack.enter_async_context(await fresh(home, f"settle_{size}")) for size in sizes]
        for database, size in zip(databases, sizes, strict=True):
            with psycopg.connect(plain(database)) as connection:
                generate(connection, size // ROLES)
            with psycopg.connect(plain(database), autocommit=True) as connection:
                connection.execute("VACUUM ANALYZE")  # as the server has long done for a graph that grew to this size
        settled(*databases)
        stores = [Store(database) for database in databases]
        took: list[list[float]] = [[] for _ in sizes]
        for turn in range(SETTLES + WARM_UP):
            for store, seconds in zip(stores, took, strict=True):
                seconds.append(await settle_one(store, FinishedRun(turn + 1)))
        for database in databases:
            with psycopg.connect(plain(database)) as connection:
                unblocked = connection.execute(
                    # without the admin node's own, which have lower ids
                    f"SELECT count(*) FROM node_roles WHERE state = {int(TODO)} AND id >= 1000000".encode()
                )
                assert unblocked.fetchone() == (CHILDREN * (SETTLES + WARM_UP),)
    return [statistics.median(seconds[WARM_UP:]) for seconds in took]


async def settle_one(store: Store, finished: FinishedRun) -> float:
    start = time.perf_counter()
    await store.change(lambda session: settle_runs(session, [finished]))
    return time.perf_counter() - start


def generate(connection: psycopg.Connection, nodes: int) -> None:
    """A graph in which all is ACTIVE, but the first noderole of some nodes is under way and the rest there waits."""

    def run(query: str) -> None:
        connection.execute(query.encode())

    # Foreign keys are checked by triggers, which would take longer than all the rest; the rows are right by making.
    run("SET session_replication_role = replica")
    run(
        "INSERT INTO nodes (name, alive, available, deployment_id)"
        " SELECT 'n' || i || '.bench.example', true, true, (SELECT id FROM deployments WHERE parent_id IS NULL)"
        f" FROM generate_series(0, {nodes - 1}) AS i"
    )
    run("CREATE TEMP TABLE place AS SELECT row_number() OVER (ORDER BY id) - 1 AS i, id FROM nodes WHERE name ~ '^n'")
    run("CREATE TEMP TABLE kind AS SELECT split_part(name, '-', 2)::int AS i, id FROM roles WHERE name LIKE 'bench-%'")
    run("INSERT INTO slots (slot, node_id) SELECT id, id FROM place")
    unmet = ", ".join(str(len(parents_of(role))) for role in range(ROLES))
    every = nodes // (SETTLES + WARM_UP)
    busy = f"place.i % {every} = 0 AND place.i / {every} < {SETTLES + WARM_UP}"
    run(
        f"""
        INSERT INTO node_roles (id, node_id, role_id, deployment_id, state, cohort, unmet, run_id)
        OVERRIDING SYSTEM VALUE
        SELECT 1000000 + place.i * {ROLES} + kind.i, place.id, kind.id, (SELECT id FROM deployments LIMIT 1),
               CASE WHEN NOT ({busy}) THEN {int(ACTIVE)} WHEN kind.i = 0 THEN {int(TRANSITION)} ELSE {int(BLOCKED)} END,
               kind.i, CASE WHEN {busy} THEN (ARRAY[{unmet}])[kind.i + 1] ELSE 0 END,
               CASE WHEN {busy} AND kind.i = 0 THEN place.i / {every} + 1 END
        FROM place CROSS JOIN kind ORDER BY place.i, kind.i
        """
    )
    edges = ", ".join(f"({parent}, {child})" for parent, child in EDGES)
    run(
        f"INSERT INTO node_role_edges SELECT 1000000 + i * {ROLES} + parent, 1000000 + i * {ROLES} + child"
        f" FROM place CROSS JOIN (VALUES {edges}) AS e (parent, child)"
    )
    run(
        f"""
        INSERT INTO runs (id, node_role_id, node_id, slot, jig, state, inputs_rev, hash, deadline, started_at)
        OVERRIDING SYSTEM VALUE
        SELECT nr.run_id, nr.id, nr.node_id, nr.node_id, 'noop', 'running', 0, '\\x00', 3600, now()
        FROM node_roles nr WHERE nr.state = {int(TRANSITION)}
        """
    )
    run("SET session_replication_role = DEFAULT")
    connection.commit()


async def main(quick: bool) -> None:
    nodes, small, big = (250, 1_000, 20_000) if quick else (5_000, 1_000, 1_000_000)
    with tempfile.TemporaryDirectory(prefix="rackwright-bench-") as folder:
        home = Path(folder)
        seconds = await commit_beside_copy(home, nodes)
        few, many = await settle_in_graphs_of(home, [small, big])
    emit(
        "commit",
        {
            "nodes": nodes,
            "noderoles": nodes * ROLES,
            "edges": nodes * len(EDGES),
            **{f"seconds_{name}": round(taken, 2) for name, taken in seconds.items()},
            f"settle_ms_of_{small}": round(few * 1000, 2),
            f"settle_ms_of_{big}": round(many * 1000, 2),
        },
        [
            at_most("commit, in bare COPYs of the same rows", seconds["commit"] / seconds["copy"], 3),
            at_most("settle in the big graph, in settles in the small one", many / few, 1.5),
        ],
    )


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="a twentieth of the size, to see that it runs")
    asyncio.run(main(arguments.parse_args().quick))
