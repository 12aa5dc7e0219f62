"""What people see who may see a part of the deployments: lists, pages and views of the graph show just that part.

That no route shows more is in `test_every_route.py`.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.servers.api_server import Api, Site, ok, refused

from rackwright.api.context import Caller, Forbidden
from rackwright.domain.people import Principal, UserRole
from rackwright.store.db.listing import Listing
from rackwright.store.db.session import Session
from rackwright.store.graph.noderole_views import NODE_ROLES
from rackwright.store.graph.snapshots import SNAPSHOTS
from rackwright.store.machines.nodes import NODES
from rackwright.store.runs.run_lifecycle import RUNS

NODES_OF = {"web": "w1.rack.example", "shop": "s1.rack.example", "mail": "m1.rack.example"}
MINE = {"web", "shop"}
"""The subtree of web."""


@pytest.fixture
async def estate(site: Site, api: Api) -> Site:
    """web with shop below it, and mail beside them, each with a node, committed work that has run, and a proposal."""
    for name, parent in (("web", None), ("shop", "web"), ("mail", None)):
        ok(await api.post("/deployments", json={"name": name, "parent": parent}), 201)
        node = NODES_OF[name]
        ok(await api.post("/nodes", json={"name": node, "deployment": name, "alive": True}), 201)
        # Service roles and their parents, so that each deployment has more than one page of everything.
        for role in ("test-implicit-child", "test-service-child", "test-cluster"):
            ok(await api.post("/node_roles", json={"node": node, "role": role, "deployment": name}), 201)
        ok(await api.post(f"/deployments/{name}/commit", json={}))
        ok(await api.post(f"/deployments/{name}/propose"))
    while ok(await api.post("/anneal/step"))["ran"]:
        pass
    return site


@pytest.fixture
async def reader(estate: Site) -> AsyncIterator[Api]:
    """May see the subtree of web, and nothing else."""
    async with estate.client(await _token_with_grant(estate, "reader", "viewer", "web")) as client:
        yield client


async def _token_with_grant(
    site: Site, name: str, role: str, deployment: str, everywhere: UserRole = UserRole.NONE
) -> str:
    await site.token_of(everywhere, name)
    async with site.client() as admin:
        ok(await admin.put(f"/users/{name}/grants/{deployment}", json={"role": role}))
    return await site.token_named(name)


async def _read_pages(client: Api, path: str, **query: str | int) -> list[dict[str, Any]]:
    """All pages of a list."""
    items: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        page = ok(await client.get(path, params={**query, **cursor}))
        items += page["items"]
        if page["next"] is None:
            return items
        cursor = {"cursor": page["next"]}


@pytest.mark.parametrize(
    ("path", "listing"), [("/nodes", NODES), ("/node_roles", NODE_ROLES), ("/snapshots", SNAPSHOTS), ("/runs", RUNS)]
)
async def test_the_pages_of_a_list_are_those_of_the_whole_without_the_rest(
    api: Api, reader: Api, path: str, listing: Listing
) -> None:
    for sort in (direction + name for name in listing.sorts for direction in ("", "-")):
        everything = await _read_pages(api, path, sort=sort, limit=1000)
        mine = [item for item in everything if item["deployment"] in MINE]
        assert 2 < len(mine) < len(everything)
        assert await _read_pages(reader, path, sort=sort, limit=2) == mine, sort


async def test_a_filter_finds_nothing_outside(reader: Api) -> None:
    assert ok(await reader.get("/node_roles?deployment=mail"))["items"] == []
    assert ok(await reader.get(f"/runs?node={NODES_OF['mail']}"))["items"] == []
    assert [deployment["name"] for deployment in ok(await reader.get("/deployments?parent=web"))["items"]] == ["shop"]
    refused(await reader.get("/events?node=m1.rack.example"), 404, "not-found")
    refused(await reader.get("/why?deployment=mail"), 404, "not-found")


async def test_a_token_for_a_subtree_shows_just_that_whoever_made_it(estate: Site, api: Api) -> None:
    body = {"name": "narrow", "scope": "read", "deployment": "shop"}
    async with estate.client(ok(await api.post("/tokens", json=body), 201)["token"]) as narrow:
        assert [item["name"] for item in await _read_pages(narrow, "/deployments")] == ["shop"]
        assert {item["deployment"] for item in await _read_pages(narrow, "/node_roles", limit=1)} == {"shop"}
        refused(await narrow.get("/deployments/web"), 404, "not-found")
        refused(await narrow.get("/deployments/web/tree"), 404, "not-found")
        status = ok(await narrow.get("/anneal"))
        assert sum(status["noderoles"].values()) == len(await _read_pages(narrow, "/node_roles"))


async def test_the_tree_and_the_inventory_are_those_of_the_subtree(reader: Api) -> None:
    tree = ok(await reader.get("/deployments/web/tree"))
    assert (tree["name"], [child["name"] for child in tree["children"]]) == ("web", ["shop"])
    inventory = ok(await reader.get("/inventory"))
    assert inventory["_meta"]["hostvars"].keys() == {NODES_OF["web"], NODES_OF["shop"]}
    assert (
        "test-discovery" not in inventory["_meta"]["hostvars"][NODES_OF["web"]]["rackwright_roles"]
    )  # it is in system
    assert {name for name in inventory if name.startswith("deployment_")} == {"deployment_web", "deployment_shop"}


async def _bind_on_web(api: Api) -> int:
    """A noderole of shop that waits for one of web."""
    for deployment, role in (("web", "test-parent"), ("shop", "test-child")):
        binding = {"node": NODES_OF[deployment], "role": role, "deployment": deployment}
        bound = ok(await api.post("/node_roles", json=binding), 201)["id"]
        ok(await api.post(f"/deployments/{deployment}/commit", json={}))
    return int(bound)


async def test_edges_out_of_the_subtree_are_not_drawn(estate: Site, api: Api) -> None:
    bound = await _bind_on_web(api)
    async with estate.client(await _token_with_grant(estate, "shopper", "viewer", "shop")) as shopper:
        mine = {noderole["id"] for noderole in await _read_pages(shopper, "/node_roles")}
        for path in ("/graph", "/deployments/shop/graph"):
            full, seen = ok(await api.get(path)), ok(await shopper.get(path))
            assert {noderole["id"] for noderole in seen["vertices"]} == mine
            inner = [edge for edge in full["edges"] if {edge["parent"], edge["child"]} <= mine]
            assert (seen["edges"], seen["whole"]) == (inner, True)
            assert [edge for edge in full["edges"] if edge["child"] == bound]
            assert not [edge for edge in inner if edge["child"] == bound]
        assert ok(await shopper.get(f"/node_roles/{bound}"))["parents"] == []
    assert len(ok(await api.get(f"/node_roles/{bound}"))["parents"]) == 1


async def test_the_reason_for_waiting_ends_where_it_leaves_the_subtree(estate: Site, api: Api) -> None:
    bound = await _bind_on_web(api)
    assert len(ok(await api.get(f"/node_roles/{bound}/why"))) == 2
    async with estate.client(await _token_with_grant(estate, "shopper", "viewer", "shop")) as shopper:
        [reason] = ok(await shopper.get(f"/node_roles/{bound}/why"))
        assert "may not see" in reason["text"]
        chains = ok(await shopper.get("/why"))["items"]
        assert [chain["node_role_id"] for chain in chains] == [bound]
        assert NODES_OF["web"] not in str(chains)


async def test_a_group_is_shown_with_the_nodes_that_may_be_seen(estate: Site, api: Api) -> None:
    for name, members in (("mine", ["web"]), ("both", ["web", "mail"]), ("theirs", ["mail"])):
        ok(await api.post("/groups", json={"category": "rack", "name": name}), 201)
        for member in members:
            ok(await api.put(f"/groups/rack:{name}/nodes/{NODES_OF[member]}"))
    async with estate.client(await _token_with_grant(estate, "grace", "operator", "web")) as grace:
        nodes_of = {group["name"]: group["nodes"] for group in await _read_pages(grace, "/groups", limit=1)}
        assert nodes_of == {"mine": [NODES_OF["web"]], "both": [NODES_OF["web"]]}
        assert ok(await grace.get(f"/groups?node={NODES_OF['mail']}"))["items"] == []
        refused(await grace.get("/groups/rack:theirs"), 404, "not-found")
        # What she saw is what her change is held against, and what she is answered.
        seen = {"If-Match": (await grace.get("/groups/rack:both")).headers["etag"]}
        changed = ok(await grace.put(f"/groups/rack:both/nodes/{NODES_OF['shop']}", headers=seen))
        assert changed["nodes"] == [NODES_OF["shop"], NODES_OF["web"]]
        refused(await grace.put(f"/groups/rack:both/nodes/{NODES_OF['shop']}", headers=seen), 412, "stale")
    assert len(ok(await api.get("/groups/rack:both"))["nodes"]) == 3


async def test_networks_are_everybodys_and_the_addresses_on_them_are_not(api: Api, reader: Api) -> None:
    ok(await api.post("/networks", json={"name": "one", "v4_subnet": "192.0.2.0/24"}), 201)
    for address, deployment in (("192.0.2.7", "web"), ("192.0.2.8", "mail")):
        ok(await api.post("/networks/one/allocations", json={"node": NODES_OF[deployment], "address": address}), 201)
    assert [item["name"] for item in await _read_pages(reader, "/networks")] == ["one"]
    assert [item["node"] for item in await _read_pages(reader, "/networks/one/allocations")] == [NODES_OF["web"]]
    assert ok(await reader.get(f"/networks/one/allocations?node={NODES_OF['mail']}"))["items"] == []
    [own] = ok(await reader.get(f"/nodes/{NODES_OF['web']}/allocations"))["items"]
    assert own["address"] == "192.0.2.7"
    refused(await reader.get(f"/nodes/{NODES_OF['mail']}/allocations"), 404, "not-found")


async def test_an_answer_that_was_kept_to_nothing_is_refused(estate: Site) -> None:
    caller = Caller(estate.server, Principal("grace", UserRole.NONE, grants={1: UserRole.VIEWER}))
    with pytest.raises(Forbidden):
        async with caller.read() as (session, _):
            await session.rows("SELECT name FROM nodes")
    async with Caller(estate.server, Principal("grace", UserRole.VIEWER)).read() as (session, _):
        await session.rows("SELECT name FROM nodes")


async def test_a_change_that_asked_nothing_is_undone(estate: Site) -> None:
    async def rename(session: Session) -> None:
        await session.run("UPDATE deployments SET description = 'changed'")

    caller = Caller(estate.server, Principal("grace", UserRole.NONE, grants={1: UserRole.OPERATOR}))
    for change in (caller.change, caller.change_graph):
        with pytest.raises(Forbidden):
            await change(rename)
    async with estate.server.store.read() as session:
        assert await session.value("SELECT count(*) FROM deployments WHERE description = 'changed'") == 0
    await Caller(estate.server, Principal("grace", UserRole.OPERATOR)).change(rename)


# --- nodes of others


async def test_a_node_of_another_subtree_is_not_bound_into_ones_own(estate: Site) -> None:
    token = await _token_with_grant(estate, "grace", "operator", "web", UserRole.VIEWER)
    async with estate.client(token) as grace:
        binding = {"node": NODES_OF["mail"], "role": "test-milestone", "deployment": "web"}
        refused(await grace.post("/node_roles", json=binding), 403, "forbidden")
        ok(await grace.post("/node_roles", json={**binding, "node": NODES_OF["web"]}), 201)


async def test_a_deployment_is_moved_by_whoever_may_change_where_it_is_and_where_it_goes(
    estate: Site, api: Api
) -> None:
    ok(await api.post("/deployments", json={"name": "moving", "parent": "web"}), 201)
    token = await _token_with_grant(estate, "grace", "operator", "web", UserRole.VIEWER)
    async with estate.client(token) as grace:
        refused(await grace.patch("/deployments/moving", json={"parent": "mail"}), 403, "forbidden")
        refused(await grace.patch("/deployments/web", json={"parent": "mail"}), 403, "forbidden")
        assert ok(await grace.patch("/deployments/moving", json={"name": "moved"}))["name"] == "moved"
    assert ok(await api.get("/deployments/moved"))["parent"] == "web"


async def test_a_commit_takes_no_node_from_a_deployment_that_one_may_not_change(estate: Site, api: Api) -> None:
    ok(await api.post("/nodes", json={"name": "free.rack.example", "alive": True}), 201)
    binding = {"node": "free.rack.example", "role": "test-milestone", "deployment": "web"}
    ok(await api.post("/node_roles", json=binding), 201)  # by somebody who may
    token = await _token_with_grant(estate, "grace", "operator", "web", UserRole.VIEWER)
    async with estate.client(token) as grace:
        refused(await grace.post("/deployments/web/commit", json={}), 403, "forbidden")
    assert ok(await api.get("/nodes/free.rack.example"))["deployment"] == "system"
    ok(await api.post("/deployments/web/commit", json={}))
    assert ok(await api.get("/nodes/free.rack.example"))["deployment"] == "web"
