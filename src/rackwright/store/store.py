"""`Store`, which runs transactions: with actor and trace for their events, locks, and retries after a deadlock.

Nothing here knows a table but the catalogue's version. Queries live with their aggregate.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

from psycopg import AsyncConnection, sql
from psycopg.errors import DeadlockDetected, SerializationFailure
from sqlalchemy.exc import DBAPIError

from rackwright.domain.installs.request import CloudInitSchema, SystemImage
from rackwright.store.catalogue.stored_catalogue import StoredCatalogue, load_catalogue
from rackwright.store.db.database import Database
from rackwright.store.db.locks import GRAPH_LOCK
from rackwright.store.db.notices import Notices
from rackwright.store.db.read_session import ReadSession
from rackwright.store.db.session import DATABASE_TROUBLE, TRACE, GraphSession, Session
from rackwright.store.db.vault import Vault
from rackwright.store.runs.transaction_end import refresh_touched_slots

T = TypeVar("T")
S = TypeVar("S", bound=Session)

ATTEMPTS = 8

_BEGIN = """
SELECT set_config('rackwright.actor', :actor, true), set_config('rackwright.trace', :trace, true),
       set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       pg_advisory_xact_lock(CAST(:lock AS bigint))
"""
# No scans but in the order of an index: every change names its rows by id, or wants the first of many, so an index
# serves however large a table has grown since its statistics were taken. Where there is none, PostgreSQL scans all the
# same.


@contextmanager
def _keep_cancellation() -> Iterator[None]:
    """Raise CancelledError in place of the database error that a cancellation caused.

    A loop that works for ever would take that error for a database that does not answer, and go on.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    try:
        yield
    except DATABASE_TROUBLE as error:
        if task and task.cancelling() > before:
            raise asyncio.CancelledError from error
        raise


def _read_no_schema(_system: str) -> None:
    return None


def _read_no_image(_system: str) -> None:
    return None


class Store:
    """Access to the database: `change` and `change_graph` run transactions that write, `read` one that only reads."""

    def __init__(self, database: Database, vault: Vault | None = None) -> None:
        self.database = database
        self.engine = database.engine
        self.vault = vault or Vault.fresh()
        """Seals secrets. Without the server's own keys it cannot open what was sealed before."""
        self.read_cloud_init: Callable[[str], CloudInitSchema | None] = _read_no_schema
        """Returns the schema of the cloud-init in a system's image; None: there is no such image, or none is needed."""
        self.read_image: Callable[[str], SystemImage | None] = _read_no_image
        """Returns what a system's image can be installed on; None: there is no such image, or none is needed."""
        self._catalogue: StoredCatalogue | None = None
        self.watchers: set[Callable[[], None]] = set()
        """Functions called after each commit of this process: there may be new events or new work."""
        self.permissions_version = 0
        """Grows whenever this process changed users, grants, tokens or sessions: cached permissions are stale then."""

    def forget_permissions(self) -> None:
        """Make every cache of permissions stale, so that it is read again."""
        self.permissions_version += 1

    async def change(
        self,
        work: Callable[[Session], Awaitable[T]],
        *,
        actor: str = "system",
        trace: str | None = None,
        lock: int | None = None,
    ) -> T:
        """Run `work` in one transaction, again after a deadlock.

        The lock is taken in a statement of its own, before the work: a statement that both locks and reads would see
        the data as of a moment before it had the lock. `trace`: None means that of the request this is part of.
        """
        return await self._run(Session, work, actor, trace, lock)

    async def change_graph(
        self,
        work: Callable[[GraphSession], Awaitable[T]],
        *,
        actor: str = "system",
        trace: str | None = None,
    ) -> T:
        """Run `work` as `change` does, holding the graph lock: for what may add or remove noderoles or edges."""
        return await self._run(GraphSession, work, actor, trace, GRAPH_LOCK)

    async def _run(
        self,
        kind: type[S],
        work: Callable[[S], Awaitable[T]],
        actor: str,
        trace: str | None,
        lock: int | None,
    ) -> T:
        trace = TRACE.get() if trace is None else trace
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with _keep_cancellation():
                    async with self._begin(kind, actor, trace, lock) as session:
                        result = await work(session)
                        await refresh_touched_slots(session)
                for callback in session.after_commit:
                    callback()
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
    async def _begin(self, kind: type[S], actor: str, trace: str, lock: int | None) -> AsyncIterator[S]:
        async with self.engine.begin() as connection:
            session = kind(connection, self, actor)
            await session.run(_BEGIN, actor=actor, trace=trace, lock=lock)
            yield session

    @asynccontextmanager
    async def read(self, *, once: bool = False) -> AsyncIterator[Session]:
        """Open a transaction that only reads, and sees the data of one moment. `once`: it runs a single query."""
        with _keep_cancellation():
            async with self.database.readers.lend(once=once) as driver:
                yield ReadSession(driver, self, once)

    async def listen(self, *channels: str) -> Notices:
        """Listen to PostgreSQL's notifications on these channels, on a connection of its own."""
        url = self.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
        connection = await AsyncConnection.connect(url, autocommit=True)
        try:
            for channel in channels:
                await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        except BaseException:
            await connection.close()
            raise
        return Notices(connection)

    @property
    def known_catalogue(self) -> StoredCatalogue | None:
        """The catalogue as this process last read it: for callers that need no newer one. None: it was never read."""
        return self._catalogue

    async def uncommitted_catalogue(self, session: Session) -> StoredCatalogue:
        """Read the catalogue as of this transaction, which changed it: other transactions must not be given it."""
        return await load_catalogue(session, -1)

    async def catalogue(self, session: Session) -> StoredCatalogue:
        """Return the catalogue as of this transaction; it is read only if its version changed since."""
        version = await session.value("SELECT catalogue_version FROM graph")
        catalogue = self._catalogue
        if catalogue is None or catalogue.version != version:
            catalogue = await load_catalogue(session, version)
            self._catalogue = catalogue
        return catalogue
