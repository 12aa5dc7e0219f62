"""What `bench/api.py` compares with: one FastAPI handler that reads one row with psycopg, served by uvicorn.

It shares no line with Rackwright and runs as a process of its own.

    BENCH_DATABASE_URL=postgresql://... uvicorn --app-dir bench/peers bare_api:app
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

pool: AsyncConnectionPool[Any] = AsyncConnectionPool(
    os.environ["BENCH_DATABASE_URL"], min_size=8, max_size=8, open=False, kwargs={"row_factory": dict_row}
)


@asynccontextmanager
async def _open_pool(_: FastAPI) -> AsyncIterator[None]:
    async with pool:
        yield


app = FastAPI(lifespan=_open_pool)


@app.get("/nodes/{name}")
async def get_node(name: str) -> dict[str, Any] | None:
    async with pool.connection() as connection:
        cursor = await connection.execute("SELECT id, name FROM nodes WHERE name = %s", (name,))
        row: dict[str, Any] | None = await cursor.fetchone()
    return row
