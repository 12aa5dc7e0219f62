"""Open the database: an engine on a PostgreSQL server that is new enough and has the current schema.

Whether that server is the embedded one or one at a URL is decided here, and no other module needs to know.
"""

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from rackwright.shown_urls import shown_url
from rackwright.store.database_errors import (
    DatabaseEmpty,
    DatabaseUnreachable,
    DatabaseUrlInvalid,
    DatabaseVersionUnsupported,
)
from rackwright.store.db.migrate import current_revision, migrate
from rackwright.store.db.read_connections import ReadConnections
from rackwright.store.embedded.server import EmbeddedPostgres

OLDEST_MAJOR = 15
REACH_DEADLINE = 30.0
"""Seconds: long enough for a database and a Rackwright that boot at the same time, and not too long for a wrong URL."""

SCHEMES = {"postgres", "postgresql", "postgresql+psycopg", "postgresql+psycopg_async"}


@dataclass(frozen=True)
class Database:
    """An open database. `close` it, or use it as an async context manager."""

    engine: AsyncEngine
    """For transactions that write."""
    url: URL = field(repr=False)
    readers: ReadConnections
    """For transactions that only read."""
    embedded: EmbeddedPostgres | None = None
    """The embedded server, if this is its database."""

    async def close(self) -> None:
        """Close every connection; an embedded server stops when no other process uses it."""
        await self.readers.close()
        await self.engine.dispose()
        if self.embedded is not None:
            await self.embedded.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def open_database(
    url: str | None, home: Path, deadline: float = REACH_DEADLINE, *, create: bool = True
) -> Database:
    """Open the database at `url`, or else the embedded one of `home`, and bring its schema up to date.

    `create`: it may be a database that no server has used yet. A command that only adds to a server's database must
    not begin a new one.
    """
    if url is not None:
        return await _open(normalise_url(url), deadline, create=create)
    embedded = EmbeddedPostgres(home)
    if not create and not embedded.exists:
        raise DatabaseEmpty(f"No server has a database in {home}, and none was made. {DatabaseEmpty.way_out}")
    address = await embedded.start()
    try:
        return await _open(normalise_url(address), deadline, embedded)
    except BaseException:
        await embedded.stop()
        raise


async def _open(
    url: URL, deadline: float, embedded: EmbeddedPostgres | None = None, *, create: bool = True
) -> Database:
    await wait_for_server(url, deadline)
    # Pre-ping: after a restart of the server the first statement gets a new connection, not an error.
    engine = create_async_engine(
        url, pool_size=10, max_overflow=20, pool_pre_ping=True, connect_args={"options": _options(url)}
    )
    try:
        if not create and await current_revision(engine) is None:
            raise DatabaseEmpty(f"No server has used the database {_shown(url)} yet. {DatabaseEmpty.way_out}")
        await migrate(engine)
    except BaseException:
        await engine.dispose()
        raise
    return Database(engine, url, read_connections(url), embedded)


IDLE_LIMIT = 30
"""Seconds that a transaction may do nothing. A process that is paused in the middle of one keeps its locks, and with
the lock of the run cap it stops all other servers. So PostgreSQL ends the transaction, and the process starts it anew
when it wakes. Transactions that PostgreSQL does not take for idle are ended by `stalled_transactions.py`."""

GONE_CLIENT_CHECK = 5
"""Seconds between PostgreSQL's checks, during a long statement, whether its client is still connected. Otherwise a
statement whose cancellation came too early would hold its transaction open after the connection was closed."""


def _options(url: URL) -> str:
    limits = {"idle_in_transaction_session_timeout": IDLE_LIMIT, "client_connection_check_interval": GONE_CLIENT_CHECK}
    own_options = " ".join(f"-c {name}={seconds}s" for name, seconds in limits.items())
    url_options = url.query.get("options", "")
    return f"{own_options} {url_options if isinstance(url_options, str) else ' '.join(url_options)}".strip()


def read_connections(url: URL) -> ReadConnections:
    return ReadConnections(psycopg.conninfo.make_conninfo(_conninfo(url), options=_options(url)))


def normalise_url(text: str) -> URL:
    """Return a URL with our driver, from any spelling that people and platforms use for PostgreSQL."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        # The text may hold a password, so it is not repeated.
        raise DatabaseUrlInvalid(
            f"The database URL cannot be read ({error.__class__.__name__}). "
            f"It looks like postgresql://USER:PASSWORD@HOST:5432/DATABASE; special characters in the password are "
            f"percent-encoded."
        ) from None
    if "@" in (url.host or ""):
        # The text before the last @ is the rest of the password, which an error about that host would show.
        raise DatabaseUrlInvalid(
            "The database URL has several @ in it. One that belongs to the user or the password is written %40."
        )
    if url.drivername not in SCHEMES:
        raise DatabaseUrlInvalid(
            f"The database URL {_shown(url)} begins with {url.drivername!r}, but Rackwright works with PostgreSQL, "
            f"through a driver of its own choice: postgresql://USER:PASSWORD@HOST:5432/DATABASE"
        )
    if not url.database:
        raise DatabaseUrlInvalid(
            f"The database URL {_shown(url)} names no database. Add it at the end: {_shown(url).rstrip('/')}/rackwright"
        )
    return url.set(drivername="postgresql+psycopg")


async def wait_for_server(url: URL, deadline: float) -> None:
    """Wait until the server accepts a connection; fail at once if waiting cannot help (a wrong password)."""
    end = time.monotonic() + deadline
    while True:
        try:
            conninfo = _conninfo(url)
            patience = max(2, round(end - time.monotonic()))
            connection = await psycopg.AsyncConnection.connect(conninfo, connect_timeout=patience)
        except psycopg.ProgrammingError as error:
            raise DatabaseUrlInvalid(f"The database URL {_shown(url)} is not understood: {_reason(error)}") from None
        except psycopg.OperationalError as error:
            if _is_final_refusal(error):
                raise DatabaseUnreachable(
                    f"PostgreSQL at {_shown(url)} refuses us: {_reason(error)}. Check the user, the password and the "
                    f"database's name in RACKWRIGHT_DATABASE_URL."
                ) from None
            if time.monotonic() > end:
                raise DatabaseUnreachable(
                    f"PostgreSQL at {_shown(url)} did not answer within {deadline:g} s: {_reason(error)}. "
                    f"Is it running, and is this the right host and port?"
                ) from None
            await asyncio.sleep(0.1)
        else:
            async with connection:
                _check_version(connection.info.server_version, url)
            return


def _conninfo(url: URL) -> str:
    """Return the connection string for libpq, whose URLs differ from SQLAlchemy's in small ways."""
    parts: dict[str, Any] = url.translate_connect_args(database="dbname", username="user")
    for name, value in url.query.items():
        parts[name] = value if isinstance(value, str) else ",".join(value)
    return psycopg.conninfo.make_conninfo(**parts)


def _check_version(number: int, url: URL) -> None:
    major = number // 10000
    if major < OLDEST_MAJOR:
        raise DatabaseVersionUnsupported(
            f"The server at {_shown(url)} is PostgreSQL {major}, but Rackwright needs {OLDEST_MAJOR} or newer. "
            f"Upgrade it, or unset RACKWRIGHT_DATABASE_URL to use the embedded one."
        )


def _is_final_refusal(error: psycopg.OperationalError) -> bool:
    """Return whether the server refused us, and not because it is starting (57P03) or full (53300)."""
    # For a failed connection libpq has no SQLSTATE, only the text of the server's message.
    text = str(error)
    temporary_reasons = ("starting up", "shutting down", "recovery", "too many c", "remaining connection")
    return "FATAL:" in text and not any(reason in text for reason in temporary_reasons)


def _reason(error: psycopg.Error) -> str:
    return " ".join(str(error).split()).rstrip(".")


def shown_database_url(text: str) -> str:
    """Return a database URL without its password, and only asterisks for one that cannot be parsed."""
    try:
        return _shown(make_url(text))
    except (ArgumentError, ValueError):
        return "***"


def _shown(url: URL) -> str:
    """Return the URL for messages and logs: the password is hidden, also one in the query."""
    query = {name: "***" if name in ("password", "sslpassword") else value for name, value in url.query.items()}
    shown = url.set(query=query).render_as_string(hide_password=True)
    return shown_url(shown) if "@" in (url.host or "") else shown
