"""Opening the database, the embedded one or one at a URL, and the messages when it cannot be opened."""

import asyncio
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from tests.support.processes import is_alive, postmaster_of
from tests.support.servers.postgres import DEBIAN_BIN, administer, debian_server, execute, plain, sockets_of
from tests.support.waiting import PATIENCE

from rackwright.store.database_errors import (
    DatabaseEmpty,
    DatabaseUnreachable,
    DatabaseUrlInvalid,
    DatabaseVersionUnsupported,
)
from rackwright.store.db.database import Database, open_database
from rackwright.store.db.migrate import current_revision, revisions


async def version_of(database: Database) -> int:
    async with database.engine.connect() as connection:
        return int((await connection.execute(text("SHOW server_version_num"))).scalar_one()) // 10000


async def assert_migrated(database: Database) -> None:
    assert await current_revision(database.engine) == (revisions()[-1] if revisions() else None)


async def test_without_a_url_the_embedded_one_is_opened_and_stopped_by_close(home: Path) -> None:
    async with await open_database(None, home) as database:
        assert await version_of(database) == 18
        await assert_migrated(database)
        postmaster = postmaster_of(home)
    assert not is_alive(postmaster)


async def test_a_second_process_of_a_home_opens_the_same_database(home: Path) -> None:
    async with await open_database(None, home) as server, await open_database(None, home) as command:
        async with server.engine.begin() as connection:
            await connection.execute(text("CREATE TABLE shared AS SELECT 1"))
        async with command.engine.connect() as connection:
            assert (await connection.execute(text("SELECT * FROM shared"))).scalar_one() == 1


@pytest.fixture(scope="module")
def debian_url() -> Iterator[str]:
    with debian_server() as url:
        yield url


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
async def test_with_a_url_that_server_is_used_and_no_other_is_started(scheme: str, debian_url: str, home: Path) -> None:
    url = f"{scheme}:{debian_url.partition(':')[2]}"
    async with await open_database(url, home) as database:
        assert await version_of(database) == 15
        assert database.embedded is None
        await assert_migrated(database)


async def test_who_may_not_make_a_database_leaves_an_empty_one_as_it_is(postgres_url: str, home: Path) -> None:
    for url in (postgres_url, None):
        with pytest.raises(DatabaseEmpty, match="rackwright server"):
            await open_database(url, home, create=False)
    assert not await asyncio.to_thread(home.exists)
    async with await open_database(postgres_url, home):
        pass
    async with await open_database(postgres_url, home, create=False):
        pass


async def test_several_servers_opening_one_database_at_once_all_get_it_migrated(postgres_url: str, home: Path) -> None:
    databases = await asyncio.gather(*(open_database(postgres_url, home) for _ in range(4)))
    for database in databases:
        await assert_migrated(database)
        await database.close()


def test_a_dump_of_another_major_version_is_loaded_beside_the_embedded_server(debian_url: str, home: Path) -> None:
    administer(debian_url, "CREATE DATABASE moving")
    moving = debian_url.replace("@/rackwright", "@/moving")
    execute(moving, "CREATE TABLE kept AS SELECT 7 AS value")
    dump = [str(DEBIAN_BIN / "pg_dump"), "--no-owner", f"--file={home.parent / 'dump.sql'}", plain(moving)]
    subprocess.run(dump, check=True)
    beside = [sys.executable, "-m", "rackwright.store.embedded", "psql", "-qAt"]
    for command, output in ((["-f", dump[2].partition("=")[2]], None), (["-c", "SELECT value FROM kept"], "7\n")):
        environment = os.environ | {"RACKWRIGHT_HOME": str(home)}
        done = subprocess.run([*beside, *command], env=environment, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        assert output in (None, done.stdout)


# What is refused


@pytest.fixture
def connection_attempts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of all connection attempts. At the third, 3600 s have passed on the clock of the module."""
    connect, attempts = psycopg.AsyncConnection.connect, list[str]()

    async def counted(conninfo: str, **options: Any) -> object:
        attempts.append(conninfo)
        return await connect(conninfo, **options)

    monkeypatch.setattr(psycopg.AsyncConnection, "connect", counted)
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + (3600 if len(attempts) >= 3 else 0))
    monkeypatch.setattr("rackwright.store.db.database.time", clock)
    return attempts


async def test_a_server_that_never_answers_is_waited_for_and_then_named(
    connection_attempts: list[str], home: Path
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(DatabaseUnreachable, match=rf"{port}/fleet did not answer within 3600 s.*refused"):
            await open_database(f"postgresql://rack:secret@127.0.0.1:{port}/fleet", home, deadline=3600)
    assert len(connection_attempts) == 3


@pytest.mark.parametrize("missing", ["role", "database"])
async def test_what_waiting_cannot_change_is_said_at_once(missing: str, postgres_url: str, home: Path) -> None:
    user, name = ("stranger", "postgres") if missing == "role" else ("rackwright", "nowhere")
    url = f"postgresql://{user}@/{name}?host={sockets_of(postgres_url)}"
    with pytest.raises(DatabaseUnreachable, match=f'refuses us: .*{missing} "(stranger|nowhere)" does not exist'):
        await asyncio.wait_for(open_database(url, home, deadline=3600), PATIENCE)


async def test_a_full_server_is_waited_for(connection_attempts: list[str], postgres_url: str, home: Path) -> None:
    name = postgres_url.partition("@/")[2].partition("?")[0]
    administer(postgres_url, "CREATE ROLE crowded LOGIN CONNECTION LIMIT 0")
    try:
        url = f"postgresql://crowded@/{name}?host={sockets_of(postgres_url)}"
        with pytest.raises(DatabaseUnreachable, match=r"did not answer within 3600 s.*too many connections"):
            await open_database(url, home, deadline=3600)
        assert len(connection_attempts) == 3
    finally:
        administer(postgres_url, "DROP ROLE crowded")


async def test_an_option_libpq_does_not_know_is_named(home: Path) -> None:
    with pytest.raises(DatabaseUrlInvalid, match="colour"):
        await open_database("postgresql://rack:secret@127.0.0.1/fleet?colour=red", home)


@asynccontextmanager
async def server_of_version(version: str, refusals: int = 0) -> AsyncIterator[int]:
    """Speaks just enough of PostgreSQL's protocol to let a client in and tell its version; yields its port."""
    still_refusing = iter(range(refusals))

    def message(kind: bytes, body: bytes) -> bytes:
        return kind + struct.pack("!i", len(body) + 4) + body

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while struct.unpack("!ii", await reader.readexactly(8))[1] >> 16 != 3:
            writer.write(b"N")  # neither SSL nor GSS encryption
        if next(still_refusing, None) is not None:
            writer.write(message(b"E", b"SFATAL\0C57P03\0Mthe database system is starting up\0\0"))
        else:
            status = message(b"S", b"server_version\0" + version.encode() + b"\0")
            writer.write(message(b"R", struct.pack("!i", 0)) + status + message(b"Z", b"I"))
            await reader.read()
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as listener:
        yield listener.sockets[0].getsockname()[1]
    assert next(still_refusing, None) is None, "nobody came back after a refusal"


@pytest.mark.parametrize("refusals", [0, 2], ids=["at once", "after its start"])
async def test_a_server_older_than_15_is_refused_with_both_versions(refusals: int, home: Path) -> None:
    async with server_of_version("14.9", refusals) as port:
        with pytest.raises(DatabaseVersionUnsupported, match="is PostgreSQL 14, but Rackwright needs 15 or newer"):
            await open_database(f"postgresql://rack@127.0.0.1:{port}/fleet", home, deadline=PATIENCE)
