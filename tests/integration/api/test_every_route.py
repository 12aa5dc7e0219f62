"""Every route of the application, found by walking it: who gets in and who does not. A new one is in here by itself."""

import re
from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from tests.support.api import Site

from rackwright.api.app import create_app
from rackwright.domain.people import UserRole

PUBLIC = {
    "GET /healthz",
    "GET /boot.ipxe",
    "GET /boot/{machine}",
    "GET /boot/{machine}/secret",
    "GET /boot/{machine}/secret.cpio",
    "GET /files/{image}/{file}",
    "POST /api/v2/nodes/register",
    "GET /assets/{name}",
    "GET /{place:path}",
    "POST /api/v2/sessions",
}
"""All that a stranger may ask. Whoever adds to it has thought about strangers."""

MACHINES = {
    "POST /api/v2/machine/heartbeat",
    "GET /api/v2/install/config",
    "POST /api/v2/install/progress",
    "POST /api/v2/install/result",
}
"""What takes a machine's own token, or the secret of an install."""

OWN = {
    "PUT /api/v2/me/password",
    "POST /api/v2/tokens",
    "DELETE /api/v2/tokens/{id}",
    "DELETE /api/v2/sessions/current",
    "DELETE /api/v2/sessions/{id}",
}
"""What everybody may change: one's own ways in."""

FOR_ADMINISTRATORS = {
    "GET /api/v2/users",
    "POST /api/v2/users",
    "GET /api/v2/users/{user}",
    "PATCH /api/v2/users/{user}",
    "DELETE /api/v2/users/{user}",
    "PUT /api/v2/users/{user}/password",
    "DELETE /api/v2/users/{user}/grants/{deployment}",
    "PUT /api/v2/nodes/{node}/bmc",
}
"""What an operator may not do, and nobody but administrators even read."""


def walk(app: FastAPI) -> Iterator[tuple[str, str]]:
    """(method, path) of every route."""
    for route in iter_route_contexts(app.routes):
        assert route.path, f"a route of a kind that this test does not know: {route}"
        assert route.methods, f"a route of a kind that this test does not know: {route}"
        for method in sorted(route.methods - {"HEAD", "OPTIONS"}):
            yield method, route.path


ROUTES = sorted(set(walk(create_app(None))))
GUARDED = [(method, path) for method, path in ROUTES if f"{method} {path}" not in PUBLIC]
PEOPLES = [(method, path) for method, path in GUARDED if f"{method} {path}" not in MACHINES]
WRITES = [(method, path) for method, path in PEOPLES if method != "GET" and f"{method} {path}" not in OWN]


def address(path: str) -> str:
    """An address of the route. What is named need not be there: who may not ask is not told."""
    return "http://server" + re.sub(r"\{[^}]*\}", "1", path)


def test_the_walk_finds_the_routes() -> None:
    assert len(ROUTES) > 90
    assert {f"{method} {path}" for method, path in ROUTES} >= PUBLIC | MACHINES
    assert len(WRITES) > 45


async def _statuses(site: Site, routes: list[tuple[str, str]], token: str) -> dict[str, int]:
    found = {}
    async with site.client(token) as client:
        for method, path in routes:
            body: dict[str, str] | None = None if method in ("GET", "DELETE") else {}
            found[f"{method} {path}"] = (await client.request(method, address(path), json=body)).status_code
    return found


async def test_without_a_token_every_route_but_the_public_ones_is_a_401(site: Site) -> None:
    for token in ("", "rw_guessed"):
        found = await _statuses(site, GUARDED, token)
        let_in = {route: status for route, status in found.items() if status != 401}
        if token:
            # An install's secret is looked up, and a guessed one is like one that is over.
            for route in ("GET /api/v2/install/config", "POST /api/v2/install/progress", "POST /api/v2/install/result"):
                assert let_in.pop(route, 404) in (404, 422)
        assert let_in == {}


async def test_strangers_get_an_answer_only_where_the_list_says(site: Site) -> None:
    found = await _statuses(site, ROUTES, "")
    assert {route for route, status in found.items() if status != 401} == PUBLIC


async def test_a_viewer_may_read_everything_and_change_nothing(site: Site) -> None:
    viewer = await site.token_of(UserRole.VIEWER)
    changed = {route: status for route, status in (await _statuses(site, WRITES, viewer)).items() if status != 403}
    assert changed == {}
    reads = [(method, path) for method, path in PEOPLES if method == "GET" and not path.endswith("/tail")]
    refused = {route for route, status in (await _statuses(site, reads, viewer)).items() if status in (401, 403)}
    assert refused == {one for one in FOR_ADMINISTRATORS if one.startswith("GET")}


@pytest.mark.parametrize("role", [UserRole.OPERATOR, UserRole.ADMIN])
async def test_whoever_may_write_is_not_refused_for_who_he_is(site: Site, role: UserRole) -> None:
    token = await site.token_of(role, "somebody")
    # A pass by hand would do all the work there is, once for each role.
    routes = [route for route in WRITES if route != ("POST", "/api/v2/anneal/step")]
    found = await _statuses(site, routes, token)
    refused = {route for route, status in found.items() if status in (401, 403)}
    assert refused == (set() if role is UserRole.ADMIN else {one for one in FOR_ADMINISTRATORS if "GET" not in one})
    assert all(status < 500 or status == 502 for status in found.values()), found
