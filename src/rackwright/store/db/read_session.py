"""A transaction that only asks, by the driver alone."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from psycopg import AsyncConnection
from sqlalchemy import Row
from sqlalchemy.engine import result_tuple

from rackwright.store.db.pipeline import Cursor, native
from rackwright.store.db.session import Session

if TYPE_CHECKING:
    from rackwright.store.store import Store


class ReadSession(Session):
    """A transaction that only asks, by the driver alone. Its rows are those that SQLAlchemy would give."""

    def __init__(self, driver: AsyncConnection[Any], store: "Store", once: bool) -> None:
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
        return await self._driver.execute(native(query), values)

    async def driver(self) -> AsyncConnection[Any]:
        assert self._questions_left < 0, "what is asked by the driver needs a transaction: read without `once`"
        return self._driver

    @asynccontextmanager
    async def _driving(self) -> AsyncIterator[AsyncConnection[Any]]:
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
