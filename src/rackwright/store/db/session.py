"""One transaction, and how it is run: actor and trace for its events, the graph lock, retries after a deadlock.

Nothing here knows a table but the catalogue's version. Queries live with their aggregate.
"""

import asyncio
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection as PsycopgConnection
from psycopg import AsyncPipeline, sql
from psycopg.errors import DeadlockDetected, SerializationFailure
from psycopg.pq import PipelineStatus, TransactionStatus
from sqlalchemy import CursorResult, Row, TextClause, text
from sqlalchemy.engine import result_tuple
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection

from rackwright.store.catalogue.stored_catalogue import StoredCatalogue, load_catalogue
from rackwright.store.db.database import Database
from rackwright.store.db.locks import GRAPH_LOCK
from rackwright.store.db.vault import Vault
from rackwright.store.hooks.hook_calls import Unjudged, Verdicts, queue_moves
from rackwright.store.runs.slots import WORK_CHANNEL, refresh_slots

T = TypeVar("T")
S = TypeVar("S", bound="Session")

ATTEMPTS = 8

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


_BEGIN = """
SELECT set_config('rackwright.actor', :actor, true), set_config('rackwright.trace', :trace, true),
       set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       pg_advisory_xact_lock(CAST(:lock AS bigint))
"""
# No scans but in the order of an index: every change names its rows by id, or wants the first of many, so an index
# serves however large a table has grown since its statistics were taken. Where there is none, PostgreSQL scans all the
# same.


@lru_cache(maxsize=1024)
def _statement(query: str) -> TextClause:
    return text(query)


Asked = tuple[str, Mapping[str, object]]
"""A statement and its values."""
Rows = list[tuple[Any, ...]]
Cursor = psycopg.AsyncCursor[tuple[Any, ...]]


@lru_cache(maxsize=1024)
def _native(query: str) -> bytes:
    """The same statement in the driver's own spelling of its values."""
    return re.sub(r"(?<![:\w]):(\w+)", r"%(\1)s", query.replace("%", "%%")).encode()


def array(numbers: Iterable[int]) -> str:
    """An array of PostgreSQL's, for `batch`: written as text, which is far faster than to have the driver do it."""
    return "{" + ",".join(map(str, numbers)) + "}"


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
        self.verdicts: Verdicts | None = None
        """What hooks that may refuse said of this change; None: nobody can be refused, they are told afterwards."""
        self.hook_chain: Mapping[str, int] = {}
        """How often each role was called in the chain of hooks that led to this change; empty: no hook did."""
        self.oscillating: list[tuple[int, str, str, str]] = []
        """(node, role, hook, error) of calls that are not made because that chain is too long."""
        self._catalogue: StoredCatalogue | None = None

    @property
    def connection(self) -> AsyncConnection:
        assert self._connection is not None, "a transaction that only asks has none of SQLAlchemy's"
        return self._connection

    def touch(self, nodes: Iterable[int]) -> None:
        self.touched.update(nodes)

    async def settle_slots(self, *, notify: bool = True) -> None:
        """Work out anew what runs next on the touched nodes, and wake annealers if something can."""
        await self.queue_hooks()
        if self.touched and await refresh_slots(self, self.touched) and notify:
            await self.run(f"NOTIFY {WORK_CHANNEL}")
        self.touched.clear()

    async def queue_hooks(self) -> None:
        """Tell roles of the moves so far; it comes before slots, since a call to make keeps work from starting."""
        moved, self.moved = self.moved, []
        await queue_moves(self, moved)

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
    async def pipe(self) -> AsyncIterator["Pipe"]:
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
                    _drop_open_questions(pipeline)
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
            if driver.closed or driver.pgconn.pipeline_status != PipelineStatus.OFF or _in_the_middle(driver):
                await self.connection.invalidate()
            raise

    async def driver(self) -> PsycopgConnection[Any]:
        """psycopg's own connection, for what SQLAlchemy has no word for."""
        raw = await self.connection.get_raw_connection()
        driver: PsycopgConnection[Any] = raw.driver_connection  # type: ignore[assignment]
        return driver

    async def catalogue(self) -> StoredCatalogue:
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

    async def catalogue(self) -> StoredCatalogue:
        """What is imported, as of this transaction, which may have imported itself."""
        if self._imports and self._catalogue is None:
            self._catalogue = await load_catalogue(self, -1)
        return await super().catalogue()

    def changed_catalogue(self) -> None:
        """This transaction imported; what it sees now nobody else may keep until it is committed."""
        self._catalogue, self._imports = None, True


class ReadSession(Session):
    """A transaction that only asks, by the driver alone. Its rows are those that SQLAlchemy would give."""

    def __init__(self, driver: PsycopgConnection[Any], store: "Store", once: bool) -> None:
        super().__init__(None, store, "")
        self._driver = driver
        self._questions_left = 1 if once else -1

    async def rows(self, query: str, **values: object) -> Sequence[Row[Any]]:
        cursor = await self._ask(query, values)
        make_row = _row_maker(query, cursor)
        return [make_row(values) for values in await cursor.fetchall()]

    async def row(self, query: str, **values: object) -> Row[Any] | None:
        cursor = await self._ask(query, values)
        found = await cursor.fetchone()
        return None if found is None else _row_maker(query, cursor)(found)

    async def run(self, query: str, **values: object) -> int:
        return (await self._ask(query, values)).rowcount

    async def _ask(self, query: str, values: dict[str, object]) -> Cursor:
        if self._questions_left == 0:
            raise AssertionError("a second question sees another moment than the first: read without `once`")
        self._questions_left -= 1
        return await self._driver.execute(_native(query), values)

    async def driver(self) -> PsycopgConnection[Any]:
        assert self._questions_left < 0, "what is asked by the driver needs a transaction: read without `once`"
        return self._driver

    @asynccontextmanager
    async def _driving(self) -> AsyncIterator[PsycopgConnection[Any]]:
        yield await self.driver()  # whether it can be used again is seen when it is given back


_row_makers: dict[str, tuple[int, Callable[[Sequence[Any]], Row[Any]]]] = {}


def _row_maker(query: str, cursor: Cursor) -> Callable[[Sequence[Any]], Row[Any]]:
    """What makes a row with names of one without. The names are worked out once a query."""
    result = cursor.pgresult
    assert result is not None
    columns, make_row = _row_makers.get(query, (0, None))
    if make_row is None or columns != result.nfields:
        make_row = result_tuple([column.name for column in cursor.description or ()])
        if len(_row_makers) >= 1024:
            _row_makers.clear()
        _row_makers[query] = (result.nfields, make_row)
    return make_row


def _drop_open_questions(pipeline: AsyncPipeline) -> None:
    """Have a pipeline that was left by an error ask the server nothing more.

    Whoever is cancelled twice while it waits for the server's last word leaves psycopg's generator in the middle. When
    that is collected it goes on, asks a connection that is closed by then, and complains of it on standard error.
    """
    pipeline.command_queue.clear()
    pipeline.result_queue.clear()


def _in_the_middle(driver: PsycopgConnection[Any]) -> bool:
    return driver.pgconn.transaction_status == TransactionStatus.ACTIVE


class Pipe:
    """A connection on which one need not wait for an answer before one asks again."""

    def __init__(self, driver: PsycopgConnection[Any]) -> None:
        self._driver = driver

    async def ask(self, *asked: Asked) -> list[Cursor]:
        """Send statements; the server begins with the first at once."""
        cursors = []
        for query, values in asked:
            cursor = self._driver.cursor(binary=True)
            await cursor.execute(_native(query), values, prepare=True)
            cursors.append(cursor)
        return cursors

    async def answers(self, asked: Sequence[Cursor]) -> list[Rows]:
        """The rows of each, once all that was sent is done."""
        return [await cursor.fetchall() for cursor in asked]


@contextmanager
def _cancelled_stays_cancelled() -> Iterator[None]:
    """Whoever is cancelled in the middle of something is told so, and not of the trouble that made: those who work for
    ever would take it for a database that does not answer, and go on."""
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    try:
        yield
    except DATABASE_TROUBLE as error:
        if task and task.cancelling() > before:
            raise asyncio.CancelledError from error
        raise


class Store:
    """The way to the database: `change` for writes, `read` for questions."""

    def __init__(self, database: Database, vault: Vault | None = None) -> None:
        self.database = database
        self.engine = database.engine
        self.vault = vault or Vault.fresh()
        """Seals secrets. Without the server's own keys, what was sealed before cannot be opened."""
        self._catalogue: StoredCatalogue | None = None
        self.watchers: set[Callable[[], None]] = set()
        """Called after each commit of this process: something may have happened."""
        self.people_version = 0
        """Grows whenever this process changed who may do what; what was known before is to be looked up again."""

    def forget_people(self) -> None:
        """What is known of who may do what is to be looked up again."""
        self.people_version += 1

    async def change(
        self,
        work: Callable[[Session], Awaitable[T]],
        *,
        actor: str = "system",
        trace: str | None = None,
        lock: int | None = None,
        verdicts: Verdicts | None = None,
    ) -> T:
        """Run `work` in one transaction, again after a deadlock.

        The lock is taken in a statement of its own, before the work: a statement that both locks and looks would look
        at a moment before it had the lock. `trace`: None means that of the request this is part of.
        """
        return await self._run(Session, work, actor, trace, lock, verdicts)

    async def change_graph(
        self,
        work: Callable[[GraphSession], Awaitable[T]],
        *,
        actor: str = "system",
        trace: str | None = None,
        verdicts: Verdicts | None = None,
    ) -> T:
        """As `change`, for what may add or remove noderoles or edges: it holds the graph lock."""
        return await self._run(GraphSession, work, actor, trace, GRAPH_LOCK, verdicts)

    async def _run(
        self,
        kind: type[S],
        work: Callable[[S], Awaitable[T]],
        actor: str,
        trace: str | None,
        lock: int | None,
        verdicts: Verdicts | None,
    ) -> T:
        trace = TRACE.get() if trace is None else trace
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with _cancelled_stays_cancelled():
                    async with self._begun(kind, actor, trace, lock) as session:
                        session.verdicts = verdicts
                        result = await work(session)
                        if verdicts is not None and verdicts.missing:
                            raise Unjudged(verdicts.missing)
                        await session.settle_slots()
                for follow in session.after_commit:
                    follow()
                for wake in self.watchers:
                    wake()
                return result
            # SQLAlchemy wraps the driver's errors; those of a COPY come as they are.
            except (DBAPIError, DeadlockDetected, SerializationFailure) as error:
                cause = error.orig if isinstance(error, DBAPIError) else error
                if not isinstance(cause, DeadlockDetected | SerializationFailure) or attempt == ATTEMPTS:
                    raise
            await asyncio.sleep(random.uniform(0, 0.01 * 2**attempt))  # noqa: S311  # jitter, no secret
        raise AssertionError("unreachable: the last attempt returns or raises")

    @asynccontextmanager
    async def _begun(self, kind: type[S], actor: str, trace: str, lock: int | None) -> AsyncIterator[S]:
        async with self.engine.begin() as connection:
            session = kind(connection, self, actor)
            await session.run(_BEGIN, actor=actor, trace=trace, lock=lock)
            yield session

    @asynccontextmanager
    async def read(self, *, once: bool = False) -> AsyncIterator[Session]:
        """A transaction that only asks. It sees one moment throughout. `once`: it asks a single question."""
        with _cancelled_stays_cancelled():
            async with self.database.readers.lend(once=once) as driver:
                yield ReadSession(driver, self, once)

    async def listen(self, *channels: str) -> "Notices":
        """Hear PostgreSQL's notifications, on a connection of its own."""
        url = self.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
        connection = await PsycopgConnection.connect(url, autocommit=True)
        for channel in channels:
            await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        return Notices(connection)

    @property
    def known_catalogue(self) -> StoredCatalogue | None:
        """What was imported when this process last looked: for what needs no more than that."""
        return self._catalogue

    async def catalogue(self, session: Session) -> StoredCatalogue:
        version = await session.value("SELECT catalogue_version FROM graph")
        known = self._catalogue
        if known is None or known.version != version:
            known = await load_catalogue(session, version)
            self._catalogue = known
        return known


class Notices:
    """Notifications as they come: (channel, payload). Close it by leaving its context."""

    def __init__(self, connection: PsycopgConnection[Any]) -> None:
        self._connection = connection

    async def __aenter__(self) -> "Notices":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connection.close()

    async def __aiter__(self) -> AsyncIterator[tuple[str, str]]:
        async for notice in self._connection.notifies():
            yield notice.channel, notice.payload
