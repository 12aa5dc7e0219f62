"""One transaction: what is asked and changed in it. How it is run is in `store/store.py`.

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
from rackwright.store.db.pipeline import Asked, Pipe, Rows, drop_open_questions, is_stuck

if TYPE_CHECKING:
    from rackwright.store.catalogue.stored_catalogue import StoredCatalogue
    from rackwright.store.store import Store

TRACE: ContextVar[str] = ContextVar("trace", default="")
"""Which request this is part of. Its changes carry it into their events, whoever makes them on its behalf."""

DATABASE_TROUBLE = (DBAPIError, PoolTimeout, psycopg.Error, OSError)
"""What says that the database does not answer now. SQLAlchemy wraps the driver's errors, but those of a COPY and of
the connections that listen come as they are. Whoever works for ever waits a little, and tries again."""


UNREACHABLE = (OperationalError, InterfaceError, PoolTimeout, psycopg.OperationalError, OSError)
"""The part of it that is not about what was asked: asked again later, it works."""


def first_line(error: BaseException) -> str:
    """What an error says, short enough for a log."""
    return next(iter(str(error).splitlines()), type(error).__name__)


@lru_cache(maxsize=1024)
def _statement(query: str) -> TextClause:
    return text(query)


class Session:
    """The open transaction. All it does becomes visible together, or not at all."""

    def __init__(self, connection: AsyncConnection | None, store: "Store", actor: str) -> None:
        self._connection = connection
        self.store = store
        self.actor = actor
        self.touched: set[int] = set()
        """Nodes on which something else may run next than before this transaction."""
        self.moved: list[tuple[int, int]] = []
        """(noderole, state) of every change of state in this transaction, in order."""
        self.after_commit: list[Callable[[], None]] = []
        """Called once this transaction is committed."""
        self.hooks = HookContext()
        """What the caller says of hooks: the verdicts on this change, and the calls that led to it."""
        self._catalogue: StoredCatalogue | None = None

    @property
    def connection(self) -> AsyncConnection:
        assert self._connection is not None, "a transaction that only asks has none of SQLAlchemy's"
        return self._connection

    def touch(self, nodes: Iterable[int]) -> None:
        self.touched.update(nodes)

    async def rows(self, query: str, **values: object) -> Sequence[Row[Any]]:
        return (await self._execute(query, values)).all()

    async def row(self, query: str, **values: object) -> Row[Any] | None:
        return (await self._execute(query, values)).first()

    async def run(self, query: str, **values: object) -> int:
        """Execute, and say how many rows it touched."""
        return (await self._execute(query, values)).rowcount

    async def _execute(self, query: str, values: dict[str, object]) -> CursorResult[Any]:
        return await self.connection.execute(_statement(query), values)

    async def value(self, query: str, **values: object) -> Any:
        found = await self.row(query, **values)
        return None if found is None else found[0]

    @asynccontextmanager
    async def pipe(self) -> AsyncIterator[Pipe]:
        """For where every microsecond counts: statements are sent together, and worked on while we do something else.

        They are prepared on the server, and each looks at its own moment. Rows are plain tuples, errors the driver's
        own.
        """
        async with self._driving() as driver:
            pipeline: AsyncPipeline | None = None
            try:
                async with driver.pipeline() as pipeline:
                    yield Pipe(driver)
            except BaseException:
                if pipeline is not None:
                    drop_open_questions(pipeline)
                raise

    async def batch(self, *asked: Asked) -> list[Rows]:
        """The rows of each of several statements, sent together."""
        async with self.pipe() as pipe:
            return await pipe.answers(await pipe.ask(*asked))

    async def copy(
        self, table: str, columns: Sequence[str], types: Sequence[str], rows: Iterable[Sequence[object]]
    ) -> None:
        """Many rows at once, by COPY."""
        statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(
            sql.Identifier(table), sql.SQL(", ").join(map(sql.Identifier, columns))
        )
        async with self._driving() as driver, driver.cursor() as cursor, cursor.copy(statement) as copy:
            copy.set_types(types)
            for row in rows:
                await copy.write_row(row)

    @asynccontextmanager
    async def _driving(self) -> AsyncIterator[PsycopgConnection[Any]]:
        """For what SQLAlchemy has no word for. Nor does it know when the connection is gone by then, or stuck between
        questions and answers: it would go on with it."""
        driver = await self.driver()
        try:
            yield driver
        except (psycopg.Error, asyncio.CancelledError):
            if is_stuck(driver):
                await self.connection.invalidate()
            raise

    async def driver(self) -> PsycopgConnection[Any]:
        """psycopg's own connection, for what SQLAlchemy has no word for."""
        raw = await self.connection.get_raw_connection()
        driver: PsycopgConnection[Any] = raw.driver_connection  # type: ignore[assignment]
        return driver

    async def catalogue(self) -> "StoredCatalogue":
        """What is imported, as of this transaction."""
        if self._catalogue is None:
            self._catalogue = await self.store.catalogue(self)
        return self._catalogue

    def forget_catalogue(self) -> None:
        """Somebody imported since; look again."""
        self._catalogue = None

    async def new_ids(self, table: str, count: int) -> list[int]:
        """Ids drawn ahead, for rows that refer to each other before they are written."""
        # The name is looked up once, in a subquery, and not for each id.
        found = await self.rows(
            f"SELECT nextval((SELECT CAST(pg_get_serial_sequence('{table}', 'id') AS regclass)))"
            " FROM generate_series(1, :count)",
            count=count,
        )
        return [row[0] for row in found]


class GraphSession(Session):
    """A transaction that holds the graph lock: it may add and remove noderoles, edges, nodes, deployments and roles.

    A function that needs the lock takes a session of this type, so none can be called without it.
    """

    _imports = False

    async def catalogue(self) -> "StoredCatalogue":
        """What is imported, as of this transaction, which may have imported itself."""
        if self._imports and self._catalogue is None:
            self._catalogue = await self.store.uncommitted_catalogue(self)
        return await super().catalogue()

    def changed_catalogue(self) -> None:
        """This transaction imported; what it sees now nobody else may keep until it is committed."""
        self._catalogue, self._imports = None, True
