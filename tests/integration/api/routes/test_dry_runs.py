"""Dry runs of binding over the API: many targets in one request, and nobody waits for them."""

import asyncio
from typing import Any

import psycopg
import pytest
from tests.support.servers.api_server import Api, Site, ok, refused
from tests.support.waiting import PATIENCE

from rackwright.domain.people import UserRole
from rackwright.store.db.session import Session

NAMES = ["n3.rack.example", "n1.rack.example", "n2.rack.example"]
BIND = "/deployments/web/bind"
DRY = {"dry_run": True}


async def _fill(api: Api) -> None:
    for name in NAMES:
        ok(await api.post("/nodes", json={"name": name, "alive": True}), 201)
    ok(await api.post("/deployments", json={"name": "web"}), 201)
    ok(await api.post("/node_roles", json={"node": NAMES[0], "role": "test-conflict-says", "deployment": "web"}), 201)


async def _try_targets(api: Api, nodes: list[str], roles: list[str], each: str) -> list[dict[str, Any]]:
    body = {"nodes": nodes, "roles": roles, "each": each}
    targets: list[dict[str, Any]] = ok(await api.post(BIND, params=DRY, json=body), 200)["targets"]
    assert [target["target"] for target in targets] == (nodes if each == "node" else roles)
    return targets


async def _try_bindings(api: Api, bindings: list[tuple[str, str]]) -> dict[str, Any]:
    """What the present form says of the same."""
    body = {"bindings": [{"node": node, "role": role} for node, role in bindings]}
    answer = await api.post(BIND, params=DRY, json=body)
    if answer.is_success:
        return {**ok(answer, 201), "refused": None}
    return {"ids": [], "created": [], "refused": answer.json()}


def _without_target(target: dict[str, Any]) -> dict[str, Any]:
    problem = target["refused"]
    refusal = {key: value for key, value in problem.items() if value is not None} if problem else None
    return {"ids": target["ids"], "created": target["created"], "refused": refusal}


async def test_each_node_is_told_whether_it_takes_the_role_in_one_request(api: Api) -> None:
    await _fill(api)
    nodes = [*NAMES, "nowhere.rack.example"]
    before = ok(await api.get("/node_roles?deployment=web"))
    for role in ("test-grandchild", "test-conflict-silent", "test-abstract", "no-such-role"):
        targets = await _try_targets(api, nodes, [role], "node")
        assert [_without_target(target) for target in targets] == [
            await _try_bindings(api, [(node, role)]) for node in nodes
        ]
    kinds = [
        target["refused"] and target["refused"]["type"]
        for target in await _try_targets(api, nodes, ["test-conflict-silent"], "node")
    ]
    problem = "urn:rackwright:problem:"
    assert kinds == [f"{problem}conflicting-roles", None, None, f"{problem}not-found"]
    assert ok(await api.get("/node_roles?deployment=web")) == before


async def test_each_role_is_told_whether_all_the_nodes_together_take_it(api: Api) -> None:
    await _fill(api)
    roles = ["test-cluster", "test-child", "test-conflict-silent", "test-abstract", "no-such-role"]
    targets = await _try_targets(api, NAMES, roles, "role")
    assert [_without_target(target) for target in targets] == [
        await _try_bindings(api, [(node, role) for node in NAMES]) for role in roles
    ]
    assert [len(target["ids"]) for target in targets] == [3, 3, 0, 0, 0]
    lost = await _try_targets(api, [*NAMES, "nowhere"], roles, "role")
    assert {target["refused"]["detail"] for target in lost} == {"There is no node 'nowhere'."}


async def test_nodes_are_named_by_their_ids_too(api: Api) -> None:
    await _fill(api)
    id = str(ok(await api.get(f"/nodes/{NAMES[1]}"))["id"])
    [by_id], [by_name] = [await _try_targets(api, [name], ["test-child"], "node") for name in (id, NAMES[1].upper())]
    assert by_id["created"] == by_name["created"] != []


# --- what is asked too much of


async def test_one_request_names_at_most_a_thousand_targets_and_ten_thousand_bindings(api: Api) -> None:
    await _fill(api)
    many = [f"n{number}.rack.example" for number in range(1001)]
    roles = [f"role-{number}" for number in range(11)]
    for body, pointer, words in (
        ({"nodes": many, "roles": ["test-child"], "each": "node"}, "/nodes", "at most 1000 targets"),
        ({"nodes": NAMES, "roles": many, "each": "role"}, "/roles", "at most 1000"),
        ({"nodes": many[:1000], "roles": roles, "each": "role"}, "/roles", "at most 10000"),
        ({"nodes": many[:1000], "roles": roles, "each": "node"}, "/nodes", "at most 10000"),
        ({"nodes": [], "roles": ["test-child"], "each": "node"}, "/nodes", "must not be empty"),
        ({"nodes": NAMES, "roles": ["test-child"], "each": "deployment"}, "/each", "'node' or 'role'"),
        ({"nodes": [3], "roles": ["test-child"], "each": "node"}, "/nodes/0", "must be text"),
    ):
        problem = refused(await api.post(BIND, params=DRY, json=body), 422, "invalid")
        assert problem["pointer"] == pointer
        assert words in problem["detail"]


async def test_targets_one_by_one_are_for_dry_runs_alone_and_other_bodies_are_refused_as_ever(api: Api) -> None:
    await _fill(api)
    body = {"nodes": NAMES, "roles": ["test-child"], "each": "node"}
    assert "dry_run" in refused(await api.post(BIND, json=body), 422, "invalid")["detail"]
    assert refused(await api.post(BIND, json={}), 422, "invalid")["pointer"] == "/bindings"
    wrong = {"bindings": [{"node": NAMES[0]}]}
    assert refused(await api.post(BIND, json=wrong), 422, "invalid")["pointer"] == "/bindings/0/role"
    assert refused(await api.post(BIND, json=[1]), 422, "invalid")["detail"] == "The body must be an object"


# --- who waits for whom


async def test_a_dry_run_answers_while_another_holds_the_graph(site: Site, api: Api) -> None:
    await _fill(api)
    held, over = asyncio.Event(), asyncio.Event()

    async def hold(session: Session) -> None:
        for table in ("deployments", "snapshots", "nodes", "node_roles"):
            await session.run(f"SELECT FROM {table} FOR UPDATE")
        held.set()
        await over.wait()

    before = await site.rack.everything()
    holding = asyncio.create_task(site.rack.do(hold))
    binding = {"node": NAMES[1], "role": "test-child"}
    try:
        await asyncio.wait_for(held.wait(), PATIENCE)
        async with asyncio.timeout(PATIENCE):
            assert len(await _try_targets(api, NAMES, ["test-child"], "node")) == 3
            ok(await api.post(BIND, params=DRY, json={"bindings": [binding]}), 201)
            ok(await api.post("/node_roles", params=DRY, json={**binding, "deployment": "web"}), 201)
    finally:
        over.set()
        await holding
    assert await site.rack.everything() == before


async def test_five_hundred_targets_take_no_more_queries_than_two(
    site: Site, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    ok(await api.post("/deployments", json={"name": "web"}), 201)

    async def add(session: Session) -> None:
        await session.run(
            "INSERT INTO nodes (name, alive, available, deployment_id)"
            " SELECT 'm' || n || '.rack.example', true, true, d.id FROM generate_series(1, 500) n, deployments d"
            " WHERE d.name = 'web'"
        )

    await site.rack.do(add)
    nodes = [f"m{number}.rack.example" for number in range(1, 501)]
    queries: list[object] = []
    execute = psycopg.AsyncConnection.execute

    async def counted(self: object, query: object, *args: object, **more: object) -> object:
        queries.append(query)
        return await execute(self, query, *args, **more)  # type: ignore[call-overload]

    await _try_targets(api, nodes[:2], ["test-grandchild"], "node")  # the catalogue is known by now
    monkeypatch.setattr(psycopg.AsyncConnection, "execute", counted)
    few = await _try_targets(api, nodes[:2], ["test-grandchild"], "node")
    of_few = len(queries)
    queries.clear()
    many = await _try_targets(api, nodes, ["test-grandchild"], "node")
    assert len(queries) <= of_few < 20
    assert [len(target["created"]) for target in many] == [3] * 500
    assert many[:2] == few


# --- who may

WEB, MAIL = "w1.rack.example", "m1.rack.example"


async def _operator_of_web(site: Site, everywhere: UserRole, role: str = "operator") -> Api:
    """Somebody with that role in deployment web, which has a node as deployment mail has one."""
    name = f"{role}-{everywhere.value}"
    await site.token_of(everywhere, name)
    async with site.client() as admin:
        ok(await admin.put(f"/users/{name}/grants/web", json={"role": role}))
    return site.client(await site.token_named(name))


async def _two_deployments(api: Api) -> None:
    for deployment, node in (("web", WEB), ("mail", MAIL)):
        ok(await api.post("/deployments", json={"name": deployment}), 201)
        ok(await api.post("/nodes", json={"name": node, "deployment": deployment, "alive": True}), 201)


@pytest.mark.parametrize(("everywhere", "type_"), [(UserRole.NONE, "not-found"), (UserRole.VIEWER, "forbidden")])
async def test_of_others_nodes_none_is_bound_and_those_that_one_may_not_see_are_not_there(
    site: Site, api: Api, everywhere: UserRole, type_: str
) -> None:
    await _two_deployments(api)
    problem = f"urn:rackwright:problem:{type_}"
    async with await _operator_of_web(site, everywhere) as grace:
        own, others, missing = await _try_targets(grace, [WEB, MAIL, "x.rack.example"], ["test-milestone"], "node")
        assert own["refused"] is None
        assert others["refused"]["type"] == problem
        assert missing["refused"]["type"] == "urn:rackwright:problem:not-found"
        together = await _try_targets(grace, [WEB, MAIL], ["test-milestone", "test-child"], "role")
        assert {target["refused"]["type"] for target in together} == {problem}
        body = {"nodes": [MAIL], "roles": ["test-milestone"], "each": "node"}
        refused(await grace.post("/deployments/mail/bind", params=DRY, json=body), 403, "forbidden")


async def test_who_only_reads_asks_for_no_dry_run(site: Site, api: Api) -> None:
    await _two_deployments(api)
    async with await _operator_of_web(site, UserRole.NONE, "viewer") as viewer:
        for body in (
            {"nodes": [WEB], "roles": ["test-milestone"], "each": "node"},
            {"bindings": [{"node": WEB, "role": "test-milestone"}]},
        ):
            refused(await viewer.post(BIND, params=DRY, json=body), 403, "forbidden")


async def test_what_is_refused_for_who_asks_is_on_record_once_a_request(site: Site, api: Api) -> None:
    await _two_deployments(api)
    async with await _operator_of_web(site, UserRole.VIEWER) as grace:
        await _try_targets(grace, [MAIL] * 3, ["test-milestone"], "node")
    events = ok(await api.get("/events?kind=permission.refused"))["items"]
    assert [event["actor"] for event in events] == ["operator-viewer"]


# --- terms


async def test_a_dry_run_keeps_to_the_terms_of_a_change(api: Api) -> None:
    await _fill(api)
    stale = {"If-Match": '"nothing"'}
    single: dict[str, Any] = {"bindings": [{"node": NAMES[1], "role": "test-child"}]}
    each: dict[str, Any] = {"nodes": NAMES, "roles": ["test-child"], "each": "node"}
    for number, body in enumerate((single, each)):
        refused(await api.post(BIND, params=DRY, json=body, headers=stale), 412, "stale")
        key = {"Idempotency-Key": f"key {number}"}
        first = await api.post(BIND, params=DRY, json=body, headers=key)
        ok(await api.post("/node_roles", json={"node": NAMES[1], "role": "test-child", "deployment": "web"}), 201)
        again = await api.post(BIND, params=DRY, json=body, headers=key)
        assert (again.json(), again.headers["idempotency-replayed"]) == (first.json(), "true")
        refused(await api.post(BIND, json=single, headers=key), 422, "idempotency-key-reused")
