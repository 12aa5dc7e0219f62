"""No-op jobs a second of pgqueuer, in an environment of its own: `pgqueuer_noop.py URL JOBS CONCURRENCY BATCH`."""

import asyncio
import sys
import time

import asyncpg
from pgqueuer.models import Job
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode


async def main(url: str, jobs: int, concurrency: int, batch: int) -> None:
    pool = await asyncpg.create_pool(url, min_size=2, max_size=10)
    queries = Queries.from_asyncpg_pool(pool)
    if not await queries.schema_is_installed():
        await queries.install()
    for start in range(0, jobs, 1000):
        count = min(1000, jobs - start)
        await queries.enqueue(["noop"] * count, [None] * count, [0] * count)
    manager = QueueManager(queries)

    @manager.entrypoint("noop")
    async def noop(job: Job) -> None:
        pass

    began = time.perf_counter()
    await manager.run(batch_size=batch, mode=QueueExecutionMode.drain, max_concurrent_tasks=concurrency)
    print(jobs / (time.perf_counter() - began))
    await pool.close()


asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
