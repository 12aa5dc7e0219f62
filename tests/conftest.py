"""What every test may ask for: a PostgreSQL of its own, empty or with our schema.

One server per xdist worker, one database per test. `RACKWRIGHT_TEST_POSTGRES=debian` runs all of it against Debian's
PostgreSQL 15 instead of the embedded one.
"""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from sqlalchemy import make_url
from tests.support.rack import ADMIN, Rack
from tests.support.scheduling import HeavyFilesTogether, heavy_first
from tests.support.servers.postgres import administer, debian_server, embedded_server, folder_in_memory
from xdist.remote import Producer
from xdist.scheduler import Scheduling

from rackwright.barclamps.loader import built_in
from rackwright.store.bootstrap import first_start
from rackwright.store.db.database import Database, open_database
from rackwright.store.store import Store

# How long an example takes says how busy this computer is: by default one that took 200 ms is a failure.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    heavy_first(items)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    return HeavyFilesTogether(config, log) if config.getoption("dist") == "loadfile" else None


TEMPLATE = "migrated_template"
STARTED = "started_template"
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of this worker's server."""
    with ExitStack() as stack:
        match os.environ.get("RACKWRIGHT_TEST_POSTGRES", "embedded"):
            case "embedded":
                folder = stack.enter_context(folder_in_memory(tmp_path_factory.mktemp("postgres")))
                yield stack.enter_context(embedded_server(folder))
            case "debian":
                yield stack.enter_context(debian_server())
            case other:
                raise pytest.UsageError(f"RACKWRIGHT_TEST_POSTGRES is {other!r}; it can be 'embedded' or 'debian'")


@pytest.fixture(scope="session")
def migrated_template(postgres_server: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database with our schema, to be copied. Returns its name."""
    administer(postgres_server, f"CREATE DATABASE {TEMPLATE}")

    async def fill() -> None:
        database = await open_database(_named(postgres_server, TEMPLATE), tmp_path_factory.getbasetemp())
        await database.close()

    asyncio.run(fill())
    return TEMPLATE


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """The URL of a fresh, empty database."""
    yield from _fresh_database(postgres_server, "template0")


@pytest.fixture
def migrated_url(postgres_server: str, migrated_template: str) -> Iterator[str]:
    """The URL of a fresh database with our schema, for tests that open it in a process of their own."""
    yield from _fresh_database(postgres_server, migrated_template)


@pytest.fixture(scope="session")
def started_template(postgres_server: str, migrated_template: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database after its first start, with the `test` barclamp, to be copied. Returns its name."""
    administer(postgres_server, f"CREATE DATABASE {STARTED} TEMPLATE {migrated_template} STRATEGY file_copy")

    async def fill() -> None:
        async with await open_database(_named(postgres_server, STARTED), tmp_path_factory.getbasetemp()) as database:
            await first_start(Store(database), built_in(test=True), ADMIN)

    asyncio.run(fill())
    return STARTED


@pytest.fixture
def started_url(postgres_server: str, started_template: str) -> Iterator[str]:
    """The URL of a database after its first start, with the `test` barclamp."""
    yield from _fresh_database(postgres_server, started_template)


@pytest.fixture
async def rack(started_url: str, tmp_path: Path) -> AsyncIterator[Rack]:
    """A store after its first start, with the `test` barclamp."""
    async with await open_database(started_url, tmp_path) as database:
        yield Rack(Store(database))


@pytest.fixture
async def database(migrated_url: str, tmp_path: Path) -> AsyncIterator[Database]:
    """A fresh database with our schema, opened."""
    opened = await open_database(migrated_url, tmp_path)
    yield opened
    await opened.close()


def _fresh_database(server: str, template: str) -> Iterator[str]:
    name = f"test_{next(_numbers)}"
    # Copied as files, because its two checkpoints cost nothing without fsync: 18 ms, and 28 through the log.
    administer(server, f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
    yield _named(server, name)
    administer(server, f"DROP DATABASE {name} WITH (FORCE)")


def _named(server: str, database: str) -> str:
    return make_url(server).set(database=database).render_as_string(hide_password=False)
