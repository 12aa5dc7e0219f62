"""A server with machines and a browser for each file of tests. Each test takes machines that no other has touched."""

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright
from sqlalchemy import make_url
from tests.support.servers.postgres import administer
from tests.support.servers.web_page import CHROMIUM, FLAGS, Database, Floor, Person, machines, serving
from tests.support.waiting import wait_until

MACHINES = 8


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert Path(CHROMIUM).exists(), "Chromium is missing. Install it: scripts/packages"
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def database(postgres_server: str, migrated_template: str) -> Database:
    """Makes databases that are gone after their block."""

    @contextlib.contextmanager
    def make(place: str) -> Iterator[str]:
        name = f"page_{re.sub(r'[^a-z0-9]', '_', place)}"
        administer(postgres_server, f"CREATE DATABASE {name} TEMPLATE {migrated_template} STRATEGY file_copy")
        yield make_url(postgres_server).set(database=name).render_as_string(hide_password=False)
        administer(postgres_server, f"DROP DATABASE {name} WITH (FORCE)")

    return make


@pytest.fixture(scope="module")
def floor(database: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Floor]:
    """A running server on a database of its own, with machines that were let in."""
    home = tmp_path_factory.mktemp("server")
    with (
        database(home.name) as url,
        serving(home, url) as server,
        machines(server.address, MACHINES) as lab,
    ):
        floor = Floor(server, lab, *server.secrets())
        lab.power_on()
        wait_until(lambda: len(waiting(floor)) == MACHINES, "all machines are discovered")
        for node in waiting(floor):
            floor.call("POST", f"/nodes/{node}/accept")
        wait_until(lambda: floor.states("system") == {"active"}, "all machines are managed")
        yield floor
        floor.api.close()


def waiting(floor: Floor) -> list[str]:
    return [node["name"] for node in floor.all("/nodes", available=False)]


@pytest.fixture
def person(browser: Browser, floor: Floor) -> Iterator[Callable[..., Person]]:
    """Makes people at browsers of their own."""
    made: list[Person] = []

    def make(**wanted: object) -> Person:
        one = Person(browser, floor, **wanted)  # type: ignore[arg-type]
        made.append(one)
        return one

    yield make
    for one in made:
        one.close()
