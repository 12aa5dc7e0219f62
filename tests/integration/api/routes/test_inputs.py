"""Where a noderole's inputs come from: this node or another, and which layer there."""

from typing import Any

from tests.support.servers.api_server import Api, ok

HERE, THERE = "here.rack.example", "there.rack.example"


async def _bind(api: Api, node: str, role: str) -> int:
    return int(ok(await api.post("/node_roles", json={"node": node, "role": role, "deployment": "web"}), 201)["id"])


async def _bind_wanting(api: Api) -> tuple[int, int]:
    """What is wanted lies on another node than who wants it: (who wants it, who has it)."""
    ok(await api.post("/nodes", json={"name": HERE, "alive": True, "hint": {"test": {"hinted": "a wish"}}}), 201)
    ok(await api.post("/nodes", json={"name": THERE, "alive": True}), 201)
    ok(await api.post("/deployments", json={"name": "web"}), 201)
    parent = await _bind(api, THERE, "test-parent")
    return await _bind(api, HERE, "test-wanting"), parent


async def _inputs(api: Api, noderole: int) -> dict[str, Any]:
    return {input["attrib"]: input for input in ok(await api.get(f"/node_roles/{noderole}/inputs"))}


async def test_an_input_names_the_noderole_the_node_and_the_layer_it_is_taken_from(api: Api) -> None:
    wanting, parent = await _bind_wanting(api)
    ok(await api.put(f"/node_roles/{parent}/attribs/test-parent-template", json={"value": "by a person"}))
    ok(await api.put(f"/node_roles/{parent}/attribs/test-parent-secret", json={"value": "hush"}))
    ok(await api.post("/deployments/web/commit", json={}))
    inputs = await _inputs(api, wanting)
    taken = {"node": THERE, "node_role_id": parent, "role": "test-parent", "elsewhere": True, "overridden": False}
    assert inputs["test-parent-template"].items() >= {**taken, "value": "by a person", "source": "user"}.items()
    assert inputs["test-parent-default"].items() >= {**taken, "value": "from the default", "source": "default"}.items()
    assert inputs["test-parent-result"].items() >= {**taken, "value": None, "source": None}.items()
    own = {"node": HERE, "node_role_id": None, "role": None, "elsewhere": False, "value": "a wish", "source": "hint"}
    assert inputs["test-node-hinted"].items() >= own.items()
    assert inputs["test-parent-secret"]["secret"]
    assert "hush" not in str(inputs)


async def test_what_is_only_proposed_is_not_yet_an_input_of_what_is_committed(api: Api) -> None:
    wanting, parent = await _bind_wanting(api)
    ok(await api.put(f"/node_roles/{parent}/attribs/test-parent-template", json={"value": "first"}))
    assert (await _inputs(api, wanting))["test-parent-template"]["value"] == "first"
    ok(await api.post("/deployments/web/commit", json={}))
    ok(await api.post("/deployments/web/propose"))
    ok(await api.put(f"/node_roles/{parent}/attribs/test-parent-template", json={"value": "second"}))
    assert (await _inputs(api, wanting))["test-parent-template"]["value"] == "first"


async def test_an_input_that_its_own_data_overrides_says_so(api: Api) -> None:
    wanting, _ = await _bind_wanting(api)
    ok(await api.patch(f"/node_roles/{wanting}", json={"user_data": {"test": {"defaulted": "mine"}}}))
    ok(await api.post("/deployments/web/commit", json={}))
    inputs = await _inputs(api, wanting)
    assert inputs["test-parent-default"]["overridden"]
    assert not inputs["test-parent-template"]["overridden"]
