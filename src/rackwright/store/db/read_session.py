"""`ReadSession`, a transaction that only reads, with the driver alone."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from psycopg import AsyncConnection
from sqlalchemy import Row
from sqlalchemy.engine import result_tuple

from rackwright.store.db.pipeline import Cursor, to_driver_sql
from rackwright.store.db.session import Session

if TYPE_CHECKING:
    from rackwright.store.store import Store


class ReadSession(Session):
    """A transaction that only reads, with the driver alone. Its rows are of the kind that SQLAlchemy gives."""

    def __init__(self, driver: AsyncConnection[Any], store: "Store", once: bool) -> None:
        super().__init__(None, store, "")
        self._driver = driver
        self._queries_left = 1 if once else -1

    async def rows(self, query: str, **values: object) -> Sequence[Row[Any]]:
        cursor = await self._execute_query(query, values)
        make_row = _row_maker(query, cursor)
        return [make_row(values) for values in await cursor.fetchall()]

    async def row(self, query: str, **values: object) -> Row[Any] | None:
        cursor = await self._execute_query(query, values)
        values_read = await cursor.fetchone()
        return None if values_read is None else _row_maker(query, cursor)(values_read)

    async def run(self, query: str, **values: object) -> int:
        return (await self._execute_query(query, values)).rowcount

    async def _execute_query(self, query: str, values: dict[str, object]) -> Cursor:
        if self._queries_left == 0:
            raise AssertionError("a second query sees another moment than the first: read without `once`")
        self._queries_left -= 1
        return await self._driver.execute(to_driver_sql(query), values)

    async def driver(self) -> AsyncConnection[Any]:
        assert self._queries_left < 0, "statements of the driver need a transaction: read without `once`"
        return self._driver

    @asynccontextmanager
    async def _driving(self) -> AsyncIterator[AsyncConnection[Any]]:
        yield await self.driver()  # the pool checks whether it can be used again


_row_makers: dict[str, tuple[int, Callable[[Sequence[Any]], Row[Any]]]] = {}


def _row_maker(query: str, cursor: Cursor) -> Callable[[Sequence[Any]], Row[Any]]:
    """Return the function that makes a row with column names of a plain tuple. The names are read once a query."""
    result = cursor.pgresult
    assert result is not None
    columns, make_row = _row_makers.get(query, (0, None))
    if make_row is None or columns != result.nfields:
        make_row = result_tuple([column.name for column in cursor.description or ()])
        if len(_row_makers) >= 1024:
            _row_makers.clear()
        _row_makers[query] = (result.nfields, make_row)
    return make_row
