"""A server with machines and a browser for each file of tests. Each test takes machines that no other has touched."""

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright
from sqlalchemy import make_url
from tests.support.page import CHROMIUM, FLAGS, Floor, PageServer, Person, machines, wait_for
from tests.support.postgres import administer

MACHINES = 8


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert Path(CHROMIUM).exists(), "Chromium is missing. Install it: scripts/packages"
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def floor(postgres_server: str, migrated_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Floor]:
    """A running server on a database of its own, with machines that were let in."""
    home = tmp_path_factory.mktemp("server")
    with _database(postgres_server, migrated_template, home.name) as database_url:
        server = PageServer(home, database_url)
        server.start()
        try:
            server.wait()
            with machines(server.address, MACHINES) as lab:
                floor = Floor(server, lab, *server.secrets())
                lab.power_on()
                wait_for(lambda: len(waiting(floor)) == MACHINES, "all machines are discovered")
                for node in waiting(floor):
                    floor.call("POST", f"/nodes/{node}/accept")
                wait_for(lambda: floor.states("system") == {"active"}, "all machines are managed")
                yield floor
                floor.api.close()
        finally:
            if server.running:
                server.kill()


@contextlib.contextmanager
def _database(server: str, template: str, place: str) -> Iterator[str]:
    name = f"page_{re.sub(r'[^a-z0-9]', '_', place)}"
    administer(server, f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
    yield make_url(server).set(database=name).render_as_string(hide_password=False)
    administer(server, f"DROP DATABASE {name} WITH (FORCE)")


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
