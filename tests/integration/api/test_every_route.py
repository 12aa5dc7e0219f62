"""Who gets in at every route and who does not. The routes are found by walking the application, so new ones are
included."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from tests.support.servers.api_server import Site, ok
from tests.support.waiting import until

from rackwright.api.app import create_app
from rackwright.domain.people import UserRole
from rackwright.domain.runs import Run
from rackwright.store.db.session import Session
from rackwright.store.machines.registration import token_hash

PUBLIC = {
    "GET /healthz",
    "GET /readyz",
    "GET /boot/{machine}",
    "GET /boot/{machine}/grub.cfg",
    "GET /grub/grub.cfg",
    "GET /boot/{machine}/secret",
    "GET /boot/{machine}/secret.cpio",
    "GET /boot.ipxe",
    "GET /files/{image}/{file}",
    "GET /chunks/{sha256}",
    "GET /api/v2/machine/challenge",
    "POST /api/v2/nodes/register",
    "POST /api/v2/sessions",
    "GET /assets/{name}",
    "GET /{place:path}",
}
"""All routes that a stranger may call. To add one, think about strangers first."""

MACHINES = {
    "POST /api/v2/machine/heartbeat",
    "GET /api/v2/install/config",
    "POST /api/v2/install/progress",
    "POST /api/v2/install/result",
}
"""What takes a machine's own token, or the secret of an install."""


PERSONAL = {
    "DELETE /api/v2/sessions/current",
    "DELETE /api/v2/sessions/{id}",
    "PUT /api/v2/me/password",
    "POST /api/v2/tokens",
    "DELETE /api/v2/tokens/{id}",
}
"""What everybody may change, because it is their own: `test_people.py` shows that it is nobody else's."""

FOR_ADMINISTRATORS = {
    "PUT /api/v2/nodes/{node}/bmc",
    "POST /api/v2/domains",
    "DELETE /api/v2/domains/{domain}",
    "GET /api/v2/users",
    "POST /api/v2/users",
    "GET /api/v2/users/{user}",
    "PATCH /api/v2/users/{user}",
    "DELETE /api/v2/users/{user}",
    "PUT /api/v2/users/{user}/password",
    "GET /api/v2/webhooks",
    "POST /api/v2/webhooks",
    "GET /api/v2/webhooks/{webhook}",
    "DELETE /api/v2/webhooks/{webhook}",
    "GET /api/v2/webhooks/{webhook}/deliveries",
    "POST /api/v2/webhooks/{webhook}/resume",
    "POST /api/v2/webhooks/{webhook}/test",
}
"""What only administrators may even read."""

FOR_ADMINISTRATORS_THERE = {
    "PUT /api/v2/users/{user}/grants/{deployment}",
    "DELETE /api/v2/users/{user}/grants/{deployment}",
}
"""What takes an administrator too, if only one of that deployment."""


def walk(app: FastAPI) -> Iterator[tuple[str, str]]:
    """(method, path) of every route."""
    for route in iter_route_contexts(app.routes):
        assert route.path, f"a route of a kind that this test does not know: {route}"
        assert route.methods, f"a route of a kind that this test does not know: {route}"
        for method in sorted(route.methods - {"HEAD", "OPTIONS"}):
            yield method, route.path


ROUTES = sorted(set(walk(create_app(None))))
GUARDED = [(method, path) for method, path in ROUTES if f"{method} {path}" not in PUBLIC]
FOR_PEOPLE = [(method, path) for method, path in GUARDED if f"{method} {path}" not in MACHINES]
READS = [(method, path) for method, path in FOR_PEOPLE if method == "GET"]
CHANGES = [(method, path) for method, path in FOR_PEOPLE if method not in ("GET", "HEAD")]
WRITES = [(method, path) for method, path in CHANGES if f"{method} {path}" not in PERSONAL]


def address(path: str) -> str:
    """An address of the route. What is named need not be there: who may not ask is not told."""
    return "http://server" + re.sub(r"\{[^}]*\}", "1", path)


def test_the_walk_finds_the_routes() -> None:
    assert len(ROUTES) > 90
    assert {f"{method} {path}" for method, path in ROUTES} >= PUBLIC | MACHINES | PERSONAL | FOR_ADMINISTRATORS
    assert len(WRITES) > 45


async def _statuses(site: Site, routes: list[tuple[str, str]], token: str) -> dict[str, int]:
    statuses = {}
    async with site.client(token) as client:
        for method, path in routes:
            body: dict[str, str] | None = None if method in ("GET", "DELETE") else {}
            statuses[f"{method} {path}"] = (await client.request(method, address(path), json=body)).status_code
    return statuses


async def test_without_a_token_every_route_but_the_public_ones_is_a_401(site: Site) -> None:
    for token in ("", "rw_guessed"):
        statuses = await _statuses(site, GUARDED, token)
        let_in = {route: status for route, status in statuses.items() if status != 401}
        if token:
            # An install's secret is looked up, and a guessed one is like one that is over.
            for route in ("GET /api/v2/install/config", "POST /api/v2/install/progress", "POST /api/v2/install/result"):
                assert let_in.pop(route, 404) in (404, 422)
        assert let_in == {}


async def test_strangers_get_an_answer_only_where_the_list_says(site: Site) -> None:
    statuses = await _statuses(site, ROUTES, "")
    assert {route for route, status in statuses.items() if status != 401} == PUBLIC


async def test_a_viewer_may_read_everything_and_change_nothing(site: Site) -> None:
    viewer = await site.token_of(UserRole.VIEWER)
    changed = {route: status for route, status in (await _statuses(site, WRITES, viewer)).items() if status != 403}
    assert changed == {}
    refused = {route for route, status in (await _statuses(site, READS, viewer)).items() if status in (401, 403)}
    assert refused <= FOR_ADMINISTRATORS


@pytest.mark.parametrize("role", [UserRole.OPERATOR, UserRole.ADMIN])
async def test_whoever_may_write_is_not_refused_for_who_he_is(site: Site, role: UserRole) -> None:
    token = await site.token_of(role, "somebody")
    # A pass by hand would do all the work there is, once for each role.
    routes = [route for route in WRITES if route != ("POST", "/api/v2/anneal/step")]
    statuses = await _statuses(site, routes, token)
    refused = {route for route, status in statuses.items() if status in (401, 403)}
    assert refused <= (set() if role is UserRole.ADMIN else FOR_ADMINISTRATORS | FOR_ADMINISTRATORS_THERE)
    assert all(status < 500 or status == 502 for status in statuses.values()), statuses


async def test_a_machine_is_refused_everything_that_is_not_its_own(site: Site) -> None:
    token = "a machine's token"
    await site.server.store.change(
        lambda session: session.run(
            "UPDATE nodes SET token_hash = :hash WHERE id = (SELECT min(id) FROM nodes)", hash=token_hash(token)
        )
    )
    statuses = await _statuses(site, FOR_PEOPLE, token)
    assert {route: status for route, status in statuses.items() if status != 403} == {}
    # Its own token is no install's secret: it is like one that is over.
    own = await _statuses(site, [("GET", "/api/v2/install/config")], token)
    assert own == {"GET /api/v2/install/config": 404}


async def test_what_is_a_machines_is_not_a_persons(site: Site) -> None:
    statuses = await _statuses(site, [tuple(route.split(" ")) for route in MACHINES], site.token)  # type: ignore[misc]
    assert {route: status for route, status in statuses.items() if status not in (401, 404, 422)} == {}


NODE, DOMAIN = "n1.rack.example", "web.rack.example"
HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBJBKD3Mes7QBmg16cC9I/iX6q3/Tu4l1foK5VA+t0Z5"

BODIES: dict[str, dict[str, object]] = {
    "POST /nodes": {"name": "n2.rack.example", "deployment": "web"},
    "PATCH /nodes/{node}": {"description": "x"},
    "PUT /nodes/{node}/host_key": {"host_key": HOST_KEY},
    "POST /nodes/{node}/move": {"deployment": "web"},
    "POST /nodes/{node}/power": {"action": "on"},
    "POST /nodes/{node}/boot_device": {"device": "network"},
    "POST /deployments": {"name": "below", "parent": "web"},
    "PATCH /deployments/{deployment}": {"description": "x"},
    "POST /deployments/{deployment}/bind": {"bindings": [{"node": NODE, "role": "test-child"}]},
    "POST /deployments/{deployment}/rollback": {"snapshot": 1},
    "POST /deployment_roles": {"deployment": "web", "role": "test-service"},
    "PATCH /deployment_roles/{id}": {"data": {}},
    "POST /node_roles": {"node": NODE, "role": "test-child", "deployment": "web"},
    "PATCH /node_roles/{id}": {"data": {}},
    "PUT /nodes/{node}/attribs/{attrib}": {"value": "x"},
    "PUT /node_roles/{id}/attribs/{attrib}": {"value": "x"},
    "PUT /deployments/{deployment}/attribs/{attrib}": {"value": "x"},
    "POST /groups": {"category": "rack", "name": "r2"},
    "PATCH /groups/{group}": {"description": "x"},
    "POST /networks": {"name": "two", "category": "admin", "v4_subnet": "198.51.100.0/24"},
    "PATCH /networks/{network}": {"description": "x"},
    "POST /networks/{network}/ranges": {"name": "r", "first": "192.0.2.1", "last": "192.0.2.9"},
    "POST /networks/{network}/routers": {"address": "192.0.2.254"},
    "POST /networks/{network}/allocations": {"node": NODE, "address": "192.0.2.7"},
    "POST /domains": {"name": "two.rack.example", "deployment": "web"},
    "PUT /anneal/cap": {"cap": 10},
    "PUT /users/{user}/grants/{deployment}": {"role": "viewer"},
}
"""What would be right, so that it is not refused for what it says."""


@dataclass(frozen=True)
class Objects:
    """What is there to be changed, in deployment web."""

    node_roles: int
    deployment_roles: int
    snapshots: int
    runs: int
    hook_calls: int

    def address(self, path: str) -> str:
        id = getattr(self, path.removeprefix("/api/v2/").partition("/")[0], 1)
        known = {"node": NODE, "deployment": "web", "group": "rack:r1", "jig": "noop", "user": "admin", "id": str(id)}
        known |= {"attrib": "test-node-hinted" if "/nodes/" in path else "test-parent-default", "address": "192.0.2.7"}
        known |= {"network": "one", "range": "r", "domain": DOMAIN}
        return "http://server" + re.sub(r"\{([^}]*)\}", lambda match: known.get(match[1], "1"), path)


async def _create_objects(site: Site) -> Objects:
    async with site.client() as admin:
        for name in ("web", "mail"):
            ok(await admin.post("/deployments", json={"name": name}), 201)
        ok(await admin.post("/nodes", json={"name": NODE, "alive": True, "deployment": "web"}), 201)
        ok(await admin.post("/groups", json={"category": "rack", "name": "r1"}), 201)
        ok(await admin.put(f"/groups/rack:r1/nodes/{NODE}"))
        ok(await admin.post("/domains", json={"name": DOMAIN, "deployment": "web"}), 201)
        ok(await admin.post("/networks", json={"name": "one", "v4_subnet": "192.0.2.0/24"}), 201)
        ok(await admin.post("/networks/one/allocations", json={"node": NODE, "address": "192.0.2.8"}), 201)
        binding = {"node": NODE, "role": "test-child", "deployment": "web"}
        created = ok(await admin.post("/node_roles", json=binding), 201)["created"]
        [bound] = [noderole["id"] for noderole in created if noderole["role"] == "test-parent"]
        ok(await admin.post("/deployments/web/commit", json={}))
        [first, *_] = ok(await admin.get("/deployment_roles?deployment=web"))["items"]
        [snapshot] = ok(await admin.get("/snapshots?deployment=web"))["items"]
        run = await _run_of(site, bound)
        ok(await admin.post("/deployments/web/propose"))
    return Objects(bound, first["id"], snapshot["id"], run, await _failed_hook(site))


async def _run_of(site: Site, noderole: int) -> int:
    """It runs, and does not end by itself."""

    async def claimed() -> Run | None:
        await site.server.hooks.deliver_all()
        runs = await site.rack.claim()
        await site.rack.finish(*(run for run in runs if run.node_role_id != noderole))
        return next((run for run in runs if run.node_role_id == noderole), None)

    run = await until(claimed, "the noderole runs")
    assert run is not None
    return run.id


async def _failed_hook(site: Site) -> int:
    async def work(session: Session) -> int:
        id: int = await session.value(
            "INSERT INTO hook_calls (kind, handler, hook, subject, subject_id, node_id, state, error)"
            " SELECT 'role', 'test-parent', 'on_node_update', 'node', id, id, 'failed', 'no' FROM nodes"
            " WHERE name = :name RETURNING id",
            name=NODE,
        )
        return id

    return await site.rack.do(work)


async def _as_operator_of(site: Site, deployment: str, objects: Objects) -> dict[str, int]:
    async with site.client() as admin:
        ok(await admin.put(f"/users/{deployment}-op/grants/{deployment}", json={"role": "operator"}))
    token = await site.token_named(f"{deployment}-op")
    statuses = {}
    async with site.client(token) as client:
        for method, path in WRITES:
            route = f"{method} {path}"
            if deployment == "web" and method == "DELETE":
                continue  # what is deleted could not be asked for again
            body = BODIES.get(route.replace("/api/v2", ""), None if method == "DELETE" else {})
            statuses[route] = (await client.request(method, objects.address(path), json=body)).status_code
    return statuses


async def test_the_operator_of_another_subtree_is_refused(site: Site) -> None:
    objects = await _create_objects(site)
    await site.token_of(UserRole.VIEWER, "mail-op")
    before = await site.rack.everything()
    statuses = await _as_operator_of(site, "mail", objects)
    assert statuses.keys() == {f"{method} {path}" for method, path in WRITES}
    assert {route: status for route, status in statuses.items() if status != 403} == {}
    unchanged = {table: rows for table, rows in (await site.rack.everything()).items() if table != "events"}
    assert unchanged == {table: rows for table, rows in before.items() if table != "events"}


async def test_the_operator_of_the_subtree_itself_is_not_refused_there(site: Site) -> None:
    objects = await _create_objects(site)
    await site.token_of(UserRole.VIEWER, "web-op")
    statuses = await _as_operator_of(site, "web", objects)
    refused = {route for route, status in statuses.items() if status in (401, 403)}
    assert refused == FOR_THE_WHOLE | (FOR_ADMINISTRATORS & statuses.keys())
    assert statuses["POST /api/v2/runs/{id}/cancel"] == 200
    assert statuses["POST /api/v2/hook_calls/{id}/retry"] == 204


FOR_THE_WHOLE = {
    "PATCH /api/v2/groups/{group}",
    "PATCH /api/v2/networks/{network}",
    "PATCH /api/v2/networks/{network}/ranges/{range}",
    "POST /api/v2/anneal/step",
    "POST /api/v2/groups",
    "POST /api/v2/jigs/{jig}/activate",
    "POST /api/v2/jigs/{jig}/deactivate",
    "POST /api/v2/networks",
    "POST /api/v2/networks/{network}/ranges",
    "POST /api/v2/networks/{network}/routers",
    "PUT /api/v2/anneal/cap",
    "PUT /api/v2/users/{user}/grants/{deployment}",
}
"""What concerns every deployment: an operator of one alone may not."""


# --- who may read in one subtree alone

PLACED = re.compile(r"\{(node|deployment|id|group|domain)\}")
"""What lies in a deployment, or has something in it that does."""

ABOUT_THE_API = {"GET /api/v2/openapi.json", "GET /api/v2/docs"}
"""Their examples have names like those of this test."""

MARKS = ('"web"', NODE, DOMAIN, '"r1"', "192.0.2.8")
"""What says in an answer that it tells of deployment web."""


async def _as_reader_of(
    site: Site, deployment: str, objects: Objects, routes: list[tuple[str, str]]
) -> dict[str, tuple[int, str]]:
    """Status and text of each, for somebody who may see nothing but that deployment."""
    await site.token_of(UserRole.NONE, f"{deployment}-reader")
    async with site.client() as admin:
        ok(await admin.put(f"/users/{deployment}-reader/grants/{deployment}", json={"role": "viewer"}))
    answers = {}
    async with site.client(await site.token_named(f"{deployment}-reader")) as client:
        for method, path in routes:
            answer = await client.request(method, objects.address(path))
            answers[f"{method} {path}"] = (answer.status_code, answer.text)
    return answers


async def test_the_reader_of_another_subtree_is_shown_nothing_of_it(site: Site) -> None:
    answers = await _as_reader_of(site, "mail", await _create_objects(site), READS)
    refused = {route for route, (status, _) in answers.items() if status == 403}
    assert refused == (FOR_ADMINISTRATORS & answers.keys()) | {"GET /metrics"}
    placed = {route for route in answers.keys() - refused if PLACED.search(route)}
    assert len(placed) > 20
    assert {route: answers[route] for route in placed if answers[route][0] != 404} == {}
    lists = answers.keys() - refused - placed - ABOUT_THE_API
    assert len(lists) > 15
    assert {
        route: status for route, (status, _) in answers.items() if route in lists and status not in (200, 404)
    } == {}
    texts = {route: text for route, (status, text) in answers.items() if route in lists and status == 200}
    assert {route: text for route, text in texts.items() if any(mark in text for mark in MARKS)} == {}


async def test_the_reader_of_the_subtree_itself_is_shown_what_is_in_it(site: Site) -> None:
    ending = [(method, path) for method, path in READS if not path.endswith("/tail")]  # it ends with the run
    answers = await _as_reader_of(site, "web", await _create_objects(site), ending)
    refused = {route for route, (status, _) in answers.items() if status == 403}
    assert refused == (FOR_ADMINISTRATORS & answers.keys()) | {"GET /metrics"}
    placed = {route: status for route, (status, _) in answers.items() if route not in refused and PLACED.search(route)}
    assert {route for route, status in placed.items() if status != 200} <= {
        "GET /api/v2/nodes/{node}/power",  # the machine has no controller
        "GET /api/v2/nodes/{node}/reinstall",  # nothing installs it
    }
    for path in (
        "nodes",
        "node_roles",
        "deployments",
        "snapshots",
        "deployment_roles",
        "runs",
        "hook_calls",
        "groups",
        "domains",
    ):
        assert '"items":[]' not in answers[f"GET /api/v2/{path}"][1], path
    for path in ("networks/{network}/allocations", "graph", "inventory", "why", "events"):
        assert any(mark in answers[f"GET /api/v2/{path}"][1] for mark in MARKS), path
