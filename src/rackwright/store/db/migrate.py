"""Bring a database's schema to the revision this Rackwright works with. The revisions are in `migrations/versions`.

Each revision runs once, however many servers start at the same time, and all of them run in one transaction: if the
server is killed in the middle, the schema is as before.
"""

import asyncio
import threading
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, NullPool, create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine

from rackwright.store.database_errors import DatabaseVersionUnsupported
from rackwright.store.db.locks import MIGRATION_LOCK

MIGRATIONS = Path(__file__).parent / "migrations"

_alembic_lock = threading.Lock()
"""Held while Alembic runs: it hands its context to the revisions through a global of its module."""


def alembic_config(connection: Connection | None = None, scripts: Path = MIGRATIONS) -> Config:
    """Return Alembic's settings. There is no settings file: the revisions are nowhere but in this package."""
    config = Config()
    config.set_main_option("script_location", str(scripts).replace("%", "%%"))
    config.set_main_option("file_template", "r%%(rev)s_%%(slug)s")  # importable, so that it is type-checked
    if connection is not None:
        config.attributes["connection"] = connection
    return config


@cache
def revisions(scripts: Path = MIGRATIONS) -> tuple[str, ...]:
    """Return every revision that this Rackwright knows, oldest first."""
    history = ScriptDirectory.from_config(alembic_config(scripts=scripts)).walk_revisions()
    return tuple(reversed([script.revision for script in history]))


async def current_revision(engine: AsyncEngine) -> str | None:
    """Return the revision of the database's schema; None before the first."""
    async with engine.connect() as connection:
        return await connection.run_sync(_revision_of)


async def migrate(engine: AsyncEngine, revision: str = "head", scripts: Path = MIGRATIONS) -> None:
    """Upgrade the schema to `revision`. Waits for a server that is migrating already."""
    current, known = await current_revision(engine), revisions(scripts)
    if current != (known[-1] if known else None):
        # In a thread, with a connection of its own: Alembic is not async, and a long revision must not stop the loop.
        await asyncio.to_thread(_migrate_locked, engine.url, revision, scripts)


def _migrate_locked(url: URL, revision: str, scripts: Path) -> None:
    engine = create_engine(url, poolclass=NullPool)
    with _alembic_lock, engine.begin() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
        _refuse_unknown(_revision_of(connection), revisions(scripts), url)
        if revisions(scripts):
            command.upgrade(alembic_config(connection, scripts), revision)


def _revision_of(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _refuse_unknown(current: str | None, known: tuple[str, ...], url: URL) -> None:
    if current is not None and current not in known:
        raise DatabaseVersionUnsupported(
            f"The database {url.database!r} has schema revision {current}, which this Rackwright does not know (its "
            f"newest is {known[-1] if known else 'none'}): a newer Rackwright has used it. Start that one, or restore "
            f"a backup made before the upgrade."
        )
