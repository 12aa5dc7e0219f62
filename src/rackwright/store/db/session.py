"""`Session`, one open transaction: it runs queries and statements. `store/store.py` begins, commits and retries it.

Nothing here knows a table. Queries live with their aggregate.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import AsyncConnection as PsycopgConnection
from psycopg import AsyncPipeline, sql
from sqlalchemy import CursorResult, Row, TextClause, text
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection

from rackwright.store.db.hook_context import HookContext
from rackwright.store.db.pipeline import Pipe, Rows, Statement, drop_unanswered_statements, is_stuck

if TYPE_CHECKING:
    from rackwright.store.catalogue.stored_catalogue import StoredCatalogue
    from rackwright.store.store import Store

TRACE: ContextVar[str] = ContextVar("trace", default="")
"""The trace of the request that the current task works for. The events of all its changes carry this trace."""

DATABASE_TROUBLE = (DBAPIError, PoolTimeout, psycopg.Error, OSError)
"""Errors that mean that the database does not work now. SQLAlchemy wraps the driver's errors, but those of a COPY and
of the connections that listen come as they are. A loop that works for ever waits a little, and tries again."""


UNREACHABLE = (OperationalError, InterfaceError, PoolTimeout, psycopg.OperationalError, OSError)
"""Those of the errors that have nothing to do with the statement: later the same statement works."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, which is short enough for a log."""
    return next(iter(str(error).splitlines()), type(error).__name__)


@lru_cache(maxsize=1024)
def _statement(query: str) -> TextClause:
    return text(query)


class Session:
    """An open transaction. All its changes become visible at once, or not at all."""

    def __init__(self, connection: AsyncConnection | None, store: "Store", actor: str) -> None:
        self._connection = connection
        self.store = store
        self.actor = actor
        self.touched: set[int] = set()
        """Ids of the nodes whose next run may be another one because of this transaction."""
        self.state_changes: list[tuple[int, int]] = []
        """(noderole id, new state) of every change of state in this transaction, in order."""
        self.after_commit: list[Callable[[], None]] = []
        """Functions called once this transaction is committed."""
        self.hooks = HookContext()
        """Set by the caller: the verdicts of hooks on this change, and the hook calls that led to it."""
        self._catalogue: StoredCatalogue | None = None

    @property
    def connection(self) -> AsyncConnection:
        assert self._connection is not None, "a transaction that only reads has no connection of SQLAlchemy's"
        return self._connection

    def touch(self, nodes: Iterable[int]) -> None:
        self.touched.update(nodes)

    async def rows(self, query: str, **values: object) -> Sequence[Row[Any]]:
        return (await self._execute(query, values)).all()

    async def row(self, query: str, **values: object) -> Row[Any] | None:
        return (await self._execute(query, values)).first()

    async def run(self, query: str, **values: object) -> int:
        """Execute a statement, and return how many rows it changed."""
        return (await self._execute(query, values)).rowcount

    async def _execute(self, query: str, values: dict[str, object]) -> CursorResult[Any]:
        return await self.connection.execute(_statement(query), values)

    async def value(self, query: str, **values: object) -> Any:
        """Return the first column of the first row; None if there is no row."""
        row = await self.row(query, **values)
        return None if row is None else row[0]

    @asynccontextmanager
    async def pipe(self) -> AsyncIterator[Pipe]:
        """Open a pipe, which sends several statements at once and lets the server work on them meanwhile.

        For code where every microsecond counts. The statements are prepared on the server, and each sees the data of
        its own moment. Rows are plain tuples, errors the driver's own.
        """
        async with self._driving() as driver:
            pipeline: AsyncPipeline | None = None
            try:
                async with driver.pipeline() as pipeline:
                    yield Pipe(driver)
            except BaseException:
                if pipeline is not None:
                    drop_unanswered_statements(pipeline)
                raise

    async def batch(self, *statements: Statement) -> list[Rows]:
        """Send several statements at once, and return the rows of each."""
        async with self.pipe() as pipe:
            return await pipe.fetch_rows(await pipe.send(*statements))

    async def copy(
        self, table: str, columns: Sequence[str], types: Sequence[str], rows: Iterable[Sequence[object]]
    ) -> None:
        """Insert many rows at once, by COPY."""
        statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(
            sql.Identifier(table), sql.SQL(", ").join(map(sql.Identifier, columns))
        )
        async with self._driving() as driver, driver.cursor() as cursor, cursor.copy(statement) as copy:
            copy.set_types(types)
            for row in rows:
                await copy.write_row(row)

    @asynccontextmanager
    async def _driving(self) -> AsyncIterator[PsycopgConnection[Any]]:
        """Use the driver's connection, and have SQLAlchemy drop the connection if that leaves it unusable.

        SQLAlchemy does not notice by itself that the connection is gone, or stuck between statements and results: it
        would go on using it.
        """
        driver = await self.driver()
        try:
            yield driver
        except (psycopg.Error, asyncio.CancelledError):
            if is_stuck(driver):
                await self.connection.invalidate()
            raise

    async def driver(self) -> PsycopgConnection[Any]:
        """Return psycopg's own connection, for what SQLAlchemy has no function for."""
        raw = await self.connection.get_raw_connection()
        driver: PsycopgConnection[Any] = raw.driver_connection  # type: ignore[assignment]
        return driver

    async def catalogue(self) -> "StoredCatalogue":
        """Return the catalogue as of this transaction."""
        if self._catalogue is None:
            self._catalogue = await self.store.catalogue(self)
        return self._catalogue

    def forget_catalogue(self) -> None:
        """Have the catalogue read again, because another transaction has imported since."""
        self._catalogue = None

    async def new_ids(self, table: str, count: int) -> list[int]:
        """Draw ids for rows of a table ahead, because the rows refer to each other before they are written."""
        # The name is looked up once, in a subquery, and not for each id.
        rows = await self.rows(
            f"SELECT nextval((SELECT CAST(pg_get_serial_sequence('{table}', 'id') AS regclass)))"
            " FROM generate_series(1, :count)",
            count=count,
        )
        return [row[0] for row in rows]


class GraphSession(Session):
    """A transaction that holds the graph lock: it may add and remove noderoles, edges, nodes, deployments and roles.

    A function that needs the lock takes a session of this type, so none can be called without it.
    """

    _imports = False

    async def catalogue(self) -> "StoredCatalogue":
        """Return the catalogue as of this transaction, which may have changed it itself."""
        if self._imports and self._catalogue is None:
            self._catalogue = await self.store.uncommitted_catalogue(self)
        return await super().catalogue()

    def changed_catalogue(self) -> None:
        """Note that this transaction changed the catalogue: until its commit no other one may use what it reads."""
        self._catalogue, self._imports = None, True
