"""Each resource over the API, as people use it."""

import asyncio
import json
import re
from dataclasses import replace
from typing import Any

import pytest
from tests.support.rack import ADMIN
from tests.support.servers.api_server import NODE, Api, Site, anneal_all, deploy_role, ok, refused

from rackwright.hammers.base import BootDevice, Hammer, HammerFailed, HammerNode, Power
from rackwright.store.db.session import GraphSession
from rackwright.store.graph.deployments import MAX_DEPTH, insert_deployment, read_root_id
from rackwright.store.runs.run_logs import append_logs

# --- binding and the time line


async def test_a_dry_run_says_what_binding_would_do_and_does_nothing(api: Api) -> None:
    ok(await api.post("/nodes", json={"name": NODE}), 201)
    ok(await api.post("/deployments", json={"name": "web"}), 201)
    binding = {"node": NODE, "role": "test-child", "deployment": "web"}
    tried = ok(await api.post("/node_roles?dry_run=true", json=binding), 201)
    assert tried["id"] is None
    assert {noderole["id"] for noderole in tried["created"]} == {None}
    assert ok(await api.get("/node_roles?deployment=web"))["items"] == []
    done = ok(await api.post("/node_roles", json=binding), 201)
    assert [(noderole["role"], noderole["node"]) for noderole in done["created"]] == [
        (noderole["role"], noderole["node"]) for noderole in tried["created"]
    ]
    assert done["id"] in {noderole["id"] for noderole in done["created"]}


async def test_many_nodes_are_bound_at_once_all_of_them_or_none(api: Api) -> None:
    names = ["n3.rack.example", "n1.rack.example", "n2.rack.example"]
    for name in names:
        ok(await api.post("/nodes", json={"name": name}), 201)
    ok(await api.post("/deployments", json={"name": "web"}), 201)
    bindings = [{"node": name, "role": "test-child"} for name in names]
    for wrong in ({"node": "nowhere", "role": "test-child"}, {"node": names[0], "role": "no-such-role"}):
        assert (await api.post("/deployments/web/bind", json={"bindings": [*bindings, wrong]})).status_code in (
            404,
            409,
        )
    assert (await api.post("/deployments/web/bind", json={"bindings": []})).status_code == 422
    tried = ok(await api.post("/deployments/web/bind?dry_run=true", json={"bindings": bindings}), 201)
    assert tried["ids"] == [None] * 3
    assert ok(await api.get("/node_roles?deployment=web"))["items"] == []
    done = ok(await api.post("/deployments/web/bind", json={"bindings": bindings}), 201)
    bound = {noderole["id"]: noderole for noderole in ok(await api.get("/node_roles?deployment=web"))["items"]}
    assert [(bound[id]["node"], bound[id]["role"]) for id in done["ids"]] == [(name, "test-child") for name in names]
    assert {noderole["id"] for noderole in done["created"]} == set(bound)
    repeated = ok(await api.post("/deployments/web/bind", json={"bindings": bindings[:1]}), 201)
    assert (repeated["ids"], repeated["created"]) == (done["ids"][:1], [])


async def test_the_time_line_of_a_deployment_is_walked_there_and_back(site: Site, api: Api) -> None:
    noderole = await deploy_role(site, api)
    first = ok(await api.get("/deployments/web"))["head_id"]
    ok(await api.post("/deployments/web/propose"))
    refused(await api.post("/deployments/web/propose"), 409, "proposal-exists")
    ok(await api.delete(f"/node_roles/{noderole}"), 204)
    difference = ok(await api.get("/deployments/web/diff"))
    assert {"node": NODE, "role": "test-child"} in difference["bindings_removed"]
    plan = ok(await api.post("/deployments/web/plan"))
    assert "test-child" in [line["role"] for line in plan["removed"]]
    ok(await api.post("/deployments/web/commit", json={"digest": plan["digest"], "comment": "off with it"}))
    assert (await api.get(f"/node_roles/{noderole}")).status_code == 404
    back = ok(await api.post("/deployments/web/rollback", json={"snapshot": first}))
    assert back["not_restorable"] == []
    listed = ok(await api.get("/snapshots?deployment=web"))["items"]
    assert [snapshot["state"] for snapshot in listed] == ["proposed", "head", "archived"]
    assert listed[1]["comment"] == "off with it"
    detail = ok(await api.get(f"/snapshots/{listed[0]['id']}"))
    assert {"node": NODE, "role": "test-child", "data": {}} in detail["bindings"]
    ok(await api.post("/deployments/web/discard"))
    held = ok(await api.post("/deployments/web/recall"))
    assert held["held"] is True
    assert ok(await api.post("/deployments/web/discard"))["held"] is False


async def test_deployments_form_a_tree(api: Api) -> None:
    ok(await api.post("/deployments", json={"name": "web"}), 201)
    ok(await api.post("/deployments", json={"name": "shop", "parent": "web"}), 201)
    tree = ok(await api.get("/deployments/system/tree"))
    [web] = tree["children"]
    assert (web["name"], web["parent"], [child["name"] for child in web["children"]]) == ("web", "system", ["shop"])
    refused(await api.delete("/deployments/web"), 409, "has-children")
    ok(await api.delete("/deployments/shop"), 204)
    ok(await api.delete("/deployments/web"), 204)


async def test_a_deployment_is_renamed_and_moved_where_nothing_is_left_behind(site: Site, api: Api) -> None:
    await deploy_role(site, api, "test-parent")  # in web
    for name, parent in (("shop", "web"), ("till", "shop"), ("mail", "system")):
        ok(await api.post("/deployments", json={"name": name, "parent": parent}), 201)
    assert ok(await api.patch("/deployments/shop", json={"name": "store"}))["name"] == "store"
    assert (await api.get("/deployments/shop")).status_code == 404
    assert ok(await api.get("/deployments/till"))["parent"] == "store"
    phantom = ok(await api.get("/deployments/store"))["phantom_id"]
    assert ok(await api.get(f"/nodes/{phantom}"))["name"].startswith("store")
    refused(await api.patch("/deployments/store", json={"name": "mail"}), 409, "already-exists")
    refused(await api.patch("/deployments/store", json={"parent": "till"}), 409, "cycle")
    refused(await api.patch("/deployments/system", json={"name": "root"}), 409, "system-deployment")
    refused(await api.patch("/deployments/system", json={"parent": "mail"}), 409, "system-deployment")
    assert ok(await api.patch("/deployments/store", json={"parent": "mail"}))["parent"] == "mail"
    assert ok(await api.patch("/deployments/store", json={"parent": "web"}))["parent"] == "web"

    ok(await api.post("/nodes", json={"name": "n2.rack.example", "alive": True}), 201)
    binding = {"node": "n2.rack.example", "role": "test-child", "deployment": "till"}
    ok(await api.post("/node_roles", json=binding), 201)  # it stands on test-parent in web
    problem = refused(await api.patch("/deployments/store", json={"parent": "mail"}), 409, "orphans-dependant")
    assert "test-child on n2.rack.example" in problem["detail"]
    assert f"test-parent on {NODE}" in problem["detail"]
    assert ok(await api.get("/deployments/store"))["parent"] == "web"
    ok(await api.post("/deployments/till/discard"))
    ok(await api.post("/domains", json={"name": "rack.example", "deployment": "web"}), 201)
    ok(await api.post("/nodes", json={"name": "n3.rack.example", "deployment": "till"}), 201)
    problem = refused(await api.patch("/deployments/store", json={"parent": "mail"}), 409, "still-bound")
    assert "n3.rack.example" in problem["detail"]
    parent = "mail"
    for level in range(MAX_DEPTH - 3):
        body = {"name": f"level-{level}", "parent": parent}
        parent = ok(await api.post("/deployments", json=body), 201)["name"]
    ok(await api.delete("/nodes/n3.rack.example"), 204)
    refused(await api.patch("/deployments/store", json={"parent": parent}), 422, "invalid")


async def test_a_tree_from_before_its_depth_was_bounded_is_shown_level_by_level(site: Site, api: Api) -> None:
    async def grow(session: GraphSession) -> None:
        parent = await read_root_id(session)
        for level in range(300):
            parent = await insert_deployment(session, f"level-{level}", parent)

    await site.rack.do(grow)

    def deepest(tree: dict[str, Any]) -> dict[str, Any]:
        while tree["children"]:
            [tree] = tree["children"]
        return tree

    last = deepest(ok(await api.get("/deployments/system/tree")))
    assert (last["name"], last["cut"]) == (f"level-{MAX_DEPTH - 2}", True)
    last = deepest(ok(await api.get("/deployments/level-290/tree")))
    assert (last["name"], last["cut"]) == ("level-299", False)
    for path in ("/deployments?limit=1000", "/deployments/level-299", "/inventory", "/deployments/level-299/graph"):
        assert (await api.get(path)).status_code == 200, path
    refused(await api.post("/deployments", json={"name": "deeper", "parent": "level-299"}), 422, "invalid")


async def test_the_graph_has_the_noderoles_and_who_stands_on_whom(site: Site, api: Api) -> None:
    noderole = await deploy_role(site, api)
    detail = ok(await api.get(f"/node_roles/{noderole}"))
    for path in ("/graph", "/deployments/web/graph"):
        graph = ok(await api.get(path))
        assert graph["whole"] is True
        assert {(edge["parent"], edge["child"]) for edge in graph["edges"]} >= {
            (parent, noderole) for parent in detail["parents"]
        }
        assert set(detail["parents"]) | {noderole} <= {vertex["id"] for vertex in graph["vertices"]}
    assert ok(await api.get("/graph?limit=1"))["whole"] is False


# --- nodes


async def test_a_node_moves_where_the_model_lets_it(api: Api) -> None:
    ok(await api.post("/nodes", json={"name": NODE}), 201)
    ok(await api.post("/deployments", json={"name": "web"}), 201)
    assert ok(await api.post(f"/nodes/{NODE}/move", json={"deployment": "web"}))["deployment"] == "web"
    refused(await api.post(f"/nodes/{NODE}/move", json={"deployment": "nowhere"}), 404, "not-found")


async def test_macs_and_uuid_can_be_changed_but_not_to_another_nodes(api: Api) -> None:
    mac, other = "52:54:00:00:00:01", "52:54:00:00:00:02"
    ok(await api.post("/nodes", json={"name": NODE, "macs": [mac]}), 201)
    ok(await api.post("/nodes", json={"name": "n2.rack.example", "macs": [other]}), 201)
    problem = refused(await api.patch(f"/nodes/{NODE}", json={"macs": [mac, other]}), 409, "already-exists")
    assert "n2.rack.example" in problem["detail"]
    third = "52-54-00-00-00-0A"
    assert ok(await api.patch(f"/nodes/{NODE}", json={"macs": [third]}))["macs"] == ["52:54:00:00:00:0a"]
    assert ok(await api.get("/nodes?mac=52:54:00:00:00:0a"))["items"][0]["name"] == NODE
    ok(await api.patch("/nodes/n2.rack.example", json={"macs": [other, mac]}))


async def test_only_a_node_with_an_install_can_be_reinstalled(site: Site, api: Api) -> None:
    ok(await api.post("/nodes", json={"name": NODE}), 201)
    refused(await api.post(f"/nodes/{NODE}/reinstall"), 404, "not-found")


async def test_a_phantom_cannot_be_edited_deleted_or_powered(api: Api) -> None:
    phantom = "system.services.internal"
    refused(await api.patch(f"/nodes/{phantom}", json={"description": "x"}), 409, "phantom-node")
    refused(await api.patch(f"/nodes/{phantom}", json={"macs": ["52:54:00:00:00:01"]}), 409, "phantom-node")
    refused(await api.delete(f"/nodes/{phantom}"), 409, "phantom-node")
    refused(await api.get(f"/nodes/{phantom}/power"), 409, "phantom-node")
    refused(await api.delete(f"/nodes/{ADMIN}"), 409, "last-admin-node")


class Bmc(Hammer):
    """A controller that remembers what it was asked."""

    def __init__(self) -> None:
        self.actions: list[str] = []
        self.power = Power.OFF
        self.broken = False

    async def status(self, node: HammerNode) -> Power:
        if self.broken:
            raise HammerFailed("it does not answer")
        return self.power

    async def on(self, node: HammerNode) -> None:
        self.actions.append("on")
        self.power = Power.ON

    async def off(self, node: HammerNode) -> None:
        self.actions.append("off")
        self.power = Power.OFF

    async def reset(self, node: HammerNode) -> None:
        self.actions.append("reset")

    async def boot_device(self, node: HammerNode, device: BootDevice) -> None:
        self.actions.append(f"boot {device}")


async def test_power_goes_through_the_nodes_hammer_and_once_a_key(
    site: Site, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    bmc = Bmc()
    monkeypatch.setattr(site.server.power_orders, "reach", replace(site.server.installs.reach, hammer=lambda _: bmc))
    ok(await api.post("/nodes", json={"name": NODE}), 201)
    assert ok(await api.get(f"/nodes/{NODE}/power")) == {"node": NODE, "power": "off"}
    ok(await api.post(f"/nodes/{NODE}/boot_device", json={"device": "network"}))
    body, headers = {"action": "on"}, {"Idempotency-Key": "k"}
    for _ in range(2):
        assert ok(await api.post(f"/nodes/{NODE}/power", json=body, headers=headers))["power"] == "on"
    assert bmc.actions == ["boot network", "on"]
    refused(await api.post(f"/nodes/{NODE}/power", json={"action": "explode"}), 422, "invalid")
    bmc.broken = True
    assert "does not answer" in refused(await api.get(f"/nodes/{NODE}/power"), 502, "hammer-failed")["detail"]


# --- runs


async def test_runs_are_listed_shown_and_their_logs_read_from_any_place(site: Site, api: Api) -> None:
    noderole = await deploy_role(site, api)
    await anneal_all(api)
    [run] = ok(await api.get(f"/runs?node_role_id={noderole}"))["items"]
    assert (run["state"], run["role"], run["node"], run["deployment"]) == ("succeeded", "test-child", NODE, "web")
    assert ok(await api.get(f"/runs/{run['id']}")) == run
    newest = ok(await api.get("/runs?limit=2"))["items"]
    assert newest[0]["id"] > newest[1]["id"]
    await site.rack.do(lambda session: append_logs(session, [(run["id"], "one\n"), (run["id"], "two\n")]))
    log = await api.get(f"/runs/{run['id']}/log")
    assert (log.text, log.headers["content-type"]) == ("one\ntwo\n", "text/plain; charset=utf-8")
    await site.rack.do(lambda session: append_logs(session, [(run["id"], "three\n")]))
    assert (await api.get(f"/runs/{run['id']}/log?after={log.headers['log-position']}")).text == "three\n"
    tail = await api.get(f"/runs/{run['id']}/log/tail", headers={"Last-Event-ID": "1"})
    assert _events(tail.text) == [("log", "2", "two\n"), ("log", "3", "three\n"), ("end", "3", "succeeded")]
    refused(await api.post(f"/runs/{run['id']}/cancel"), 409, "not-retryable")
    refused(await api.get("/runs/999999"), 404, "not-found")


def _events(text: str) -> list[tuple[str, str, str]]:
    events = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if line and not line.startswith(":"))
        if lines:
            events.append((lines["event"], lines["id"], json.loads(lines["data"])))
    return events


async def test_a_log_is_followed_while_it_grows_and_the_run_can_be_cancelled(site: Site, api: Api) -> None:
    await deploy_role(site, api)
    [run, *_] = await site.rack.claim()
    follower = asyncio.create_task(api.get(f"/runs/{run.id}/log/tail"))
    await site.rack.do(lambda session: append_logs(session, [(run.id, "working\n")]))
    assert ok(await api.post(f"/runs/{run.id}/cancel"))["state"] == "cancelled"
    events = _events((await follower).text)
    assert events == [("log", "1", "working\n"), ("end", "1", "cancelled")]
    failed = ok(await api.get(f"/node_roles/{run.node_role_id}"))
    assert (failed["state"], failed["error"]) == ("error", "cancelled by admin")
    assert ok(await api.post(f"/node_roles/{run.node_role_id}/retry"))["state"] == "todo"


# --- the rest


async def test_groups_hold_nodes(api: Api) -> None:
    ok(await api.post("/nodes", json={"name": NODE}), 201)
    created = await api.post("/groups", json={"category": "rack", "name": "r1"})
    assert created.headers["location"] == "/api/v2/groups/rack:r1"
    refused(await api.post("/groups", json={"category": "rack", "name": "r1"}), 409, "already-exists")
    assert ok(await api.put(f"/groups/rack:r1/nodes/{NODE}"))["nodes"] == [NODE]
    assert ok(await api.get(f"/nodes/{NODE}"))["groups"] == ["rack:r1"]
    assert [node["name"] for node in ok(await api.get("/nodes?group=rack:r1"))["items"]] == [NODE]
    assert ok(await api.patch(f"/groups/{ok(created, 201)['id']}", json={"description": "x"}))["description"] == "x"
    assert ok(await api.delete(f"/groups/rack:r1/nodes/{NODE}"))["nodes"] == []
    refused(await api.delete(f"/groups/rack:r1/nodes/{NODE}"), 404, "not-found")
    ok(await api.delete("/groups/rack:r1"), 204)
    refused(await api.get("/groups/rack:r1"), 404, "not-found")


async def test_what_is_imported_is_found_by_name_and_id(api: Api) -> None:
    for kind, name in (
        ("barclamps", "test"),
        ("roles", "provisioner-os-install"),
        ("jigs", "noop"),
    ):
        record = ok(await api.get(f"/{kind}/{name}"))
        assert ok(await api.get(f"/{kind}/{record['id']}")) == record
        assert record in ok(await api.get(f"/{kind}?limit=1000"))["items"]
    ok(await api.get("/hammers"))
    destructive = ok(await api.get("/roles?flag=destructive&fields=name"))["items"]
    assert {"name": "provisioner-os-install"} in destructive


async def test_a_jig_that_is_not_active_takes_no_work(site: Site, api: Api) -> None:
    noderole = await deploy_role(site, api)
    jig = ok(await api.get(f"/roles/{ok(await api.get(f'/node_roles/{noderole}'))['role']}"))["jig"]
    assert ok(await api.post(f"/jigs/{jig}/deactivate"))["active"] is False
    await anneal_all(api)
    causes = {reason["cause"] for chain in ok(await api.get("/why"))["items"] for reason in chain["chain"]}
    assert "jig" in causes
    assert ok(await api.post(f"/jigs/{jig}/activate"))["active"] is True
    await anneal_all(api)
    assert ok(await api.get("/why"))["items"] == []
    assert ok(await api.get("/anneal"))["noderoles"].keys() == {"active"}


async def test_a_node_is_renamed_and_what_has_its_name_follows(site: Site, api: Api) -> None:
    await deploy_role(site, api)
    before = ok(await api.get(f"/nodes/{NODE}"))
    ok(await api.post("/nodes", json={"name": "taken.rack.example"}), 201)
    for wrong in ("taken.rack.example", ADMIN):
        refused(await api.patch(f"/nodes/{NODE}", json={"name": wrong}), 409, "already-exists")
    refused(await api.patch(f"/nodes/{NODE}", json={"name": "no name"}), 422, "invalid")
    refused(await api.patch(f"/nodes/{ADMIN}", json={"name": "other.rack.example"}), 409, "admin-name")
    renamed = ok(await api.patch(f"/nodes/{NODE}", json={"name": "DB1.rack.example"}))
    assert (renamed["id"], renamed["name"]) == (before["id"], "db1.rack.example")
    refused(await api.get(f"/nodes/{NODE}"), 404, "not-found")
    bound = ok(await api.get("/node_roles?node=db1.rack.example"))["items"]
    assert "test-child" in {noderole["role"] for noderole in bound}
    events = ok(await api.get("/events?kind=node.updated"))["items"]
    assert NODE in {event["data"].get("before") for event in events}


async def test_the_cap_is_read_and_set(site: Site, api: Api) -> None:
    answer = await api.get("/anneal/cap")
    assert ok(answer)["cap"] == 10
    headers = {"If-Match": answer.headers["etag"]}
    assert ok(await api.put("/anneal/cap", json={"cap": "auto"}, headers=headers))["cap"] == "auto"
    refused(await api.put("/anneal/cap", json={"cap": 5}, headers=headers), 412, "stale")
    for wrong in (0, 100000, "many", None):
        refused(await api.put("/anneal/cap", json={"cap": wrong}), 422, "invalid")
    assert ok(await api.get("/anneal"))["cap"] == "auto"
    ok(await api.put("/anneal/cap", json={"cap": 3}))


async def test_ansible_gets_hosts_in_groups(site: Site, api: Api) -> None:
    await deploy_role(site, api)
    ok(await api.patch(f"/nodes/{NODE}", json={"hint": {"address": "192.0.2.7", "ssh": {"port": 2222}}}))
    ok(await api.post("/groups", json={"category": "rack", "name": "r-1"}), 201)
    ok(await api.put(f"/groups/rack:r-1/nodes/{NODE}"))
    inventory = ok(await api.get("/inventory"))
    assert inventory["_meta"]["hostvars"][NODE]["ansible_host"] == "192.0.2.7"
    assert inventory["_meta"]["hostvars"][NODE]["ansible_port"] == 2222
    assert NODE in inventory["deployment_web"]["hosts"]
    assert NODE in inventory["role_test_child"]["hosts"]
    assert NODE in inventory["group_rack_r_1"]["hosts"]
    assert "deployment_web" in inventory["deployment_system"]["children"]
    assert "system.services.internal" not in inventory["_meta"]["hostvars"]
    named = set(inventory["all"]["children"])
    assert named == inventory.keys() - {"_meta", "all"}


async def test_failing_hooks_are_listed_and_what_is_not_there_cannot_be_retried(api: Api) -> None:
    assert ok(await api.get("/hook_calls"))["items"] == []
    refused(await api.post("/hook_calls/999999/retry"), 404, "not-found")


async def test_the_description_is_served_for_programs_and_for_people(api: Api) -> None:
    document = ok(await api.get("/openapi.json"))
    assert document["openapi"].startswith("3.1")
    page = await api.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    for path in document["paths"]:
        assert path in page.text
    assert "://" not in re.sub(r"<pre>.*?</pre>", "", page.text, flags=re.DOTALL), "nothing comes from elsewhere"
