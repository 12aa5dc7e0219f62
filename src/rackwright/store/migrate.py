"""Bring a database's schema to the revision this Rackwright works with. The revisions are in `migrations/versions`.

Each runs once however many servers start at the same time, and all of them in one transaction: killed in the middle,
the schema is as before.
"""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine

from rackwright.store.unusable import DatabaseVersionUnsupported

ADVISORY_LOCK = 0x7261636B  # "rack"
"""Whoever migrates holds this lock of the database; `pg_locks` shows it as objid."""


def alembic_config(connection: Connection | None = None) -> Config:
    """Alembic's settings, without a file: ours have no other place than this package."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("file_template", "r%%(rev)s_%%(slug)s")  # importable, so that it is type-checked
    if connection is not None:
        config.attributes["connection"] = connection
    return config


def revisions() -> list[str]:
    """Every revision we know, oldest first."""
    scripts = ScriptDirectory.from_config(alembic_config())
    return [script.revision for script in reversed(list(scripts.walk_revisions()))]


async def current_revision(engine: AsyncEngine) -> str | None:
    """Of the database; None before the first."""
    async with engine.connect() as connection:
        return await connection.run_sync(_revision_of)


async def migrate(engine: AsyncEngine, revision: str = "head") -> None:
    """Upgrade to `revision`. Waits for whoever is migrating already."""
    async with engine.begin() as connection:
        await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_LOCK})
        await connection.run_sync(_upgrade, revision)


def _revision_of(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _upgrade(connection: Connection, revision: str) -> None:
    present, known = _revision_of(connection), revisions()
    if present is not None and present not in known:
        raise DatabaseVersionUnsupported(
            f"The database {connection.engine.url.database!r} has schema revision {present}, which this Rackwright "
            f"does not know (its newest is {known[-1] if known else 'none'}): a newer Rackwright has used it. "
            f"Start that one, or restore a backup made before the upgrade."
        )
    if known and (revision != "head" or present != known[-1]):
        command.upgrade(alembic_config(connection), revision)
