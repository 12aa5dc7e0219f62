"""The way through all layers over the API: a token, a node, a deployment, a plan, a commit, passes until ACTIVE."""

import httpx
import pytest
from tests.support.servers.api_server import Api


async def ok(answer: httpx.Response) -> httpx.Response:
    assert answer.is_success, answer.text
    return answer


async def test_from_a_node_to_everything_active(api: Api) -> None:
    await ok(await api.post("/nodes", json={"name": "n1.rack.example", "alive": True}))
    await ok(await api.post("/deployments", json={"name": "web"}))
    binding = {"node": "n1.rack.example", "role": "test-child", "deployment": "web"}
    tried = (await ok(await api.post("/node_roles?dry_run=true", json=binding))).json()
    assert tried["id"] is None
    await ok(await api.post("/node_roles", json=binding))
    plan = (await ok(await api.post("/deployments/web/plan"))).json()
    assert "test-child" in [line["role"] for line in plan["created"]]
    await ok(await api.post("/deployments/web/commit", json={"digest": plan["digest"]}))
    while (await ok(await api.post("/anneal/step"))).json()["ran"]:
        pass
    assert (await ok(await api.get("/anneal"))).json()["noderoles"].keys() == {"active"}


async def test_why_leads_to_what_a_person_can_do(api: Api) -> None:
    await ok(await api.post("/nodes", json={"name": "n1.rack.example", "alive": False}))
    listed = (await ok(await api.get("/node_roles?node=n1.rack.example"))).json()["items"]
    managed = next(item for item in listed if item["role"] == "crowbar-managed-node")
    chain = (await ok(await api.get(f"/node_roles/{managed['id']}/why"))).json()
    assert [item["cause"] for item in chain] == ["parent", "node"]
    assert "rackwright node power n1.rack.example on" in chain[-1]["remedy"]


async def test_nobody_gets_in_without_a_token(api: Api) -> None:
    for method, path in (("GET", "/nodes"), ("POST", "/nodes"), ("POST", "/anneal/step"), ("GET", "/node_roles")):
        answer = await api.request(method, path, headers={"Authorization": "Bearer rw_guessed"}, json={})
        assert answer.status_code == 401, (method, path)
        assert answer.headers["content-type"] == "application/problem+json"


async def test_a_conflict_is_a_409_in_the_models_own_words(api: Api) -> None:
    binding = {"node": "n1.rack.example", "role": "crowbar-managed-node", "deployment": "system"}
    await ok(await api.post("/nodes", json={"name": "n1.rack.example"}))
    answer = await api.post("/node_roles", json=binding)
    assert answer.status_code == 409
    problem = answer.json()
    assert problem["type"] == "urn:rackwright:problem:system-deployment"
    assert "never proposed" in problem["detail"]


async def test_a_commit_of_another_plan_than_the_one_seen_changes_nothing(api: Api) -> None:
    await ok(await api.post("/nodes", json={"name": "n1.rack.example"}))
    await ok(await api.post("/deployments", json={"name": "web"}))
    plan = (await ok(await api.post("/deployments/web/plan"))).json()
    binding = {"node": "n1.rack.example", "role": "crowbar-joined-node", "deployment": "web"}
    refused = await api.post("/node_roles", json=binding)
    assert refused.status_code == 409
    assert "crowbar-managed-node" in refused.json()["detail"]
    await ok(await api.post("/node_roles", json=binding | {"role": "ssh-access"}))
    await ok(await api.post("/node_roles", json=binding | {"role": "crowbar-installed-node"}))
    stale = await api.post("/deployments/web/commit", json={"digest": plan["digest"]})
    assert stale.status_code == 412
    assert (await ok(await api.get("/deployments/web"))).json()["head_id"] is None


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"name": "nodots"}, "full domain name"),
        ({"name": "n1.rack.example", "macs": ["zz"]}, "MAC"),
        ({"name": "n1.rack.example", "colour": "red"}, "colour"),
        ({"name": "x.services.internal"}, "kept for"),
    ],
)
async def test_bad_input_is_a_422_that_says_what_would_be_right(api: Api, body: dict[str, object], says: str) -> None:
    answer = await api.post("/nodes", json=body)
    assert answer.status_code == 422
    assert says in answer.text
    assert (await api.get("/nodes/n1.rack.example")).status_code == 404
