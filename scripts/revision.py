"""Compares the tables with a throw-away PostgreSQL that has every revision so far, and writes the next revision."""

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

from alembic import command
from alembic.script import Script
from sqlalchemy import create_engine

from rackwright.store.db.database import open_database
from rackwright.store.db.migrate import alembic_config, revisions


async def write_revision(message: str) -> Path:
    number = f"{len(revisions()) + 1:04d}"
    with tempfile.TemporaryDirectory() as home:
        database = await open_database(None, Path(home))
        try:
            engine = create_engine(database.url)
            with engine.begin() as connection:
                written = command.revision(alembic_config(connection), message, autogenerate=True, rev_id=number)
            engine.dispose()
        finally:
            await database.close()
    assert isinstance(written, Script)
    return Path(written.path)


if __name__ == "__main__":
    path = asyncio.run(write_revision(sys.argv[1]))
    ruff = str(Path(sys.executable).with_name("ruff"))
    # Formatted first: the fixes of what is left to fix are judged on formatted lines.
    for step in (["format"], ["check", "--fix"], ["format"]):
        subprocess.run([ruff, *step, "--quiet", str(path)], check=True)
