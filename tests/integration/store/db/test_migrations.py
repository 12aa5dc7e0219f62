"""The revisions: from each of them a start leads to the schema of the tables; several starts at once run it once."""

import asyncio
import shutil
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from sqlalchemy import Engine, NullPool, create_engine, make_url, text
from sqlalchemy.exc import DataError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from tests.support.waiting import PATIENCE

from rackwright.store.database_errors import DatabaseVersionUnsupported
from rackwright.store.db.migrate import MIGRATIONS, alembic_config, current_revision, migrate, revisions
from rackwright.store.db.tables import metadata

CATALOGUE = {
    "columns": """
        SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, a.attgenerated,
               pg_get_expr(d.adbin, d.adrelid)
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v') AND a.attnum > 0
          AND NOT a.attisdropped""",
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid)
        FROM pg_constraint WHERE connamespace = 'public'::regnamespace""",
    "indexes": "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
}
"""With what Alembic does not look at: check constraints, predicates of partial indexes, identity columns."""


Schema = dict[str, set[tuple[object, ...]]]


async def schema_of(engine: AsyncEngine) -> Schema:
    async with engine.connect() as connection:
        rows = {name: (await connection.execute(text(query))).all() for name, query in CATALOGUE.items()}
    return {name: {tuple(row) for row in tables if row[0] != "alembic_version"} for name, tables in rows.items()}


@pytest.fixture
async def engine(postgres_url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(postgres_url)
    yield engine
    await engine.dispose()


@pytest.fixture
async def expected_schema(engine: AsyncEngine) -> Schema:
    """Return the schema that the tables give an empty database, which is empty again afterwards."""
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
    schema = await schema_of(engine)
    async with engine.begin() as connection:
        await connection.execute(text("DROP SCHEMA public CASCADE"))
        await connection.execute(text("CREATE SCHEMA public"))
    return schema


@pytest.mark.parametrize("start", [None, *revisions()])
async def test_every_revision_upgrades_to_the_schema_of_the_tables(
    start: str | None, engine: AsyncEngine, expected_schema: Schema
) -> None:
    if start is not None:
        await migrate(engine, start)
        assert await current_revision(engine) == start
    await migrate(engine)
    assert await current_revision(engine) == (revisions()[-1] if revisions() else None)
    schema = await schema_of(engine)
    for kind, expected in expected_schema.items():
        assert (kind, schema[kind] - expected, expected - schema[kind]) == (kind, set(), set())
    await assert_nothing_to_generate(engine)


async def assert_nothing_to_generate(engine: AsyncEngine) -> None:
    """Assert that Alembic itself, with our settings, finds nothing for a next revision to do."""

    def check() -> None:
        with create_engine(engine.url, poolclass=NullPool).connect() as connection:
            command.check(alembic_config(connection))

    await asyncio.to_thread(check)


def write_revisions(folder: Path, *upgrades: str) -> Path:
    """Write revisions of a test, which our `env.py` runs."""
    (folder / "versions").mkdir(parents=True)
    for name in ("env.py", "script.py.mako"):
        shutil.copy(MIGRATIONS / name, folder)
    for number, upgrade in enumerate(upgrades, 1):
        parent = repr(f"{number - 1:04d}") if number > 1 else None
        (folder / "versions" / f"r{number:04d}.py").write_text(
            f"from alembic import op\nrevision = '{number:04d}'\ndown_revision = {parent}\n"
            f"def upgrade():\n    op.execute({upgrade!r})\n"
        )
    return folder


MIGRATE = """
import asyncio, sys
from pathlib import Path
from sqlalchemy.ext.asyncio import create_async_engine
from rackwright.store.db.migrate import migrate
asyncio.run(migrate(create_async_engine(sys.argv[1]), scripts=Path(sys.argv[2])))
"""


def waiting_sql(condition: str) -> str:
    """Return a statement that waits for a condition, and fails if it does not come about."""
    return (
        f"DO $$ BEGIN FOR pass IN 1..{PATIENCE / 0.02:.0f} LOOP IF {condition} THEN RETURN; END IF;"
        " PERFORM pg_sleep(0.02); END LOOP; RAISE EXCEPTION 'waited in vain'; END $$"
    )


async def test_of_several_servers_starting_at_once_one_migrates_and_the_others_wait(
    engine: AsyncEngine, postgres_url: str, tmp_path: Path
) -> None:
    # The one that migrates is at it until both others wait for their turn.
    others = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    scripts = write_revisions(tmp_path / "scripts", "CREATE TABLE once (id int)", waiting_sql(f"({others}) = 2"))
    starters = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", MIGRATE, postgres_url, str(scripts))
        for _ in range(3)
    ]
    assert [await starter.wait() for starter in starters] == [0, 0, 0]
    assert await current_revision(engine) == "0002"


async def test_a_failing_revision_leaves_nothing_of_those_before_it(engine: AsyncEngine, tmp_path: Path) -> None:
    scripts = write_revisions(tmp_path / "scripts", "CREATE TABLE first (id int)", "SELECT 1/0")
    with pytest.raises(DataError, match="division by zero"):
        await migrate(engine, scripts=scripts)
    assert await current_revision(engine) is None
    assert (await schema_of(engine))["columns"] == set()


async def test_two_databases_of_one_process_migrate_at_the_same_time(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Barrier(2, timeout=PATIENCE)

    def create_together(*arguments: Any, **options: Any) -> Engine:
        begun.wait()
        return create_engine(*arguments, **options)

    monkeypatch.setattr("rackwright.store.db.migrate.create_engine", create_together)
    # The sleep only leaves time for one to get into the other's way; nothing has to happen within it.
    scripts = write_revisions(tmp_path / "scripts", "SELECT pg_sleep(0.5)", "CREATE TABLE anything (id int)")
    other_url = make_url(postgres_url).set(database="postgres")
    engines = [create_async_engine(postgres_url), create_async_engine(other_url)]
    try:
        await asyncio.gather(*(migrate(engine, scripts=scripts) for engine in engines))
        assert [await current_revision(engine) for engine in engines] == ["0002", "0002"]
    finally:
        async with engines[1].begin() as connection:
            await connection.execute(text("DROP TABLE IF EXISTS anything, alembic_version"))
        for engine in engines:
            await engine.dispose()


async def test_a_schema_of_a_newer_rackwright_is_refused_and_untouched(engine: AsyncEngine, tmp_path: Path) -> None:
    newer = write_revisions(tmp_path / "newer", *["SELECT 1"] * (len(revisions()) + 1))
    await migrate(engine, scripts=newer)
    present = await current_revision(engine)
    with pytest.raises(DatabaseVersionUnsupported, match=f"schema revision {present}.*newer Rackwright"):
        await migrate(engine)
    assert await current_revision(engine) == present


NODES_OF_0011 = """
INSERT INTO nodes (id, name, system, alive, available, deployment_id) OVERRIDING SYSTEM VALUE VALUES
    (1, 'system.phantom', true, true, true, 1), (2, 'web.phantom', true, true, true, 2);
INSERT INTO deployments (id, name, parent_id, phantom_id) OVERRIDING SYSTEM VALUE VALUES
    (1, 'system', NULL, 1), (2, 'web', 1, 2);
INSERT INTO nodes (id, name, available, deployment_id, key, seen_at, hint, bootenv, discovery)
OVERRIDING SYSTEM VALUE VALUES
    (10, 'stranger.example', false, 1, 'k10', now(), '{}', '', '{"address": "192.0.2.10", "cpu": 8}'),
    (11, 'accepted.example', true, 1, 'k11', now(), '{}', '', '{}'),
    (12, 'aside-with-wish.example', false, 1, 'k12', now(), '{"a": 1}', '', '{}'),
    (13, 'aside-once-told-to-boot.example', false, 1, 'k13', now(), '{}', 'local', '{}'),
    (14, 'aside-once-let-in.example', false, 1, 'k14', now(), '{}', '', '{}'),
    (15, 'aside-added.example', false, 1, NULL, NULL, '{}', '', '{}'),
    (16, 'claimed.example', true, 2, NULL, NULL, '{}', '', '{}'),
    (17, 'aside-ran.example', false, 1, 'k17', now(), '{}', '', '{}');
INSERT INTO node_macs (mac, node_id) VALUES ('52:54:00:00:00:10', 16);
INSERT INTO events (kind, node_id, data) VALUES ('node.updated', 14, '{"changed": ["available"]}');
INSERT INTO runs (node_role_id, node_id, slot, jig, state, deadline, ended_at)
VALUES (1, 17, 17, 'noop', 'succeeded', 60, now());
INSERT INTO hook_calls (kind, handler, hook, subject, subject_id, view) VALUES
    ('role', 'r', 'on_node_delete', 'node', 99, '{"name": "gone.example", "discovery": {"cpu": 8}}'),
    ('role', 'r', 'on_node_update', 'node', 10, '{"name": "stranger.example", "before": {"alive": true}}');
"""


async def test_of_nodes_that_were_there_only_those_wait_that_clearly_nobody_accepted(engine: AsyncEngine) -> None:
    await migrate(engine, "0011")
    async with engine.begin() as connection:
        for statement in NODES_OF_0011.split(";\n"):
            if statement.strip():
                await connection.exec_driver_sql(statement)
    await migrate(engine)
    async with engine.connect() as connection:
        waiting = (
            (await connection.execute(text("SELECT id FROM nodes WHERE waiting_since IS NOT NULL"))).scalars().all()
        )
        claims = (await connection.execute(text("SELECT id FROM nodes WHERE NOT identity_confirmed"))).scalars().all()
        calls = (
            await connection.execute(
                text("SELECT h.hook, v.view FROM hook_calls h LEFT JOIN hook_views v ON v.id = h.view_id ORDER BY h.id")
            )
        ).all()
        reported = (await connection.execute(text("SELECT reported_by FROM nodes WHERE id = 10"))).scalar()
    assert waiting == [10]
    assert sorted(claims) == [10, 16]
    assert [tuple(row) for row in calls] == [
        ("on_node_delete", {"name": "gone.example", "discovery": {"cpu": 8}}),
        ("on_node_update", None),
    ]
    assert reported == {"address": "sledgehammer", "cpu": "sledgehammer"}
