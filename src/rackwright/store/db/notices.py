"""PostgreSQL's notifications as an async iterator."""

from collections.abc import AsyncIterator
from typing import Any

from psycopg import AsyncConnection


class Notices:
    """An iterator of (channel, payload) as notifications come. Leaving its context closes the connection."""

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        self._connection = connection

    async def __aenter__(self) -> "Notices":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connection.close()

    async def __aiter__(self) -> AsyncIterator[tuple[str, str]]:
        async for notice in self._connection.notifies():
            yield notice.channel, notice.payload
