"""Data of roles, attribs and plans over the API: read with where it comes from, edited in the proposal."""

import json
from dataclasses import replace
from functools import partial
from typing import Any

from tests.support.machines.root_trees import put_trial_image
from tests.support.servers.api_server import NODE, Api, Site, anneal_all, deploy_role, ok, refused

from rackwright.provision.images.cloud_init_schema import read_schema
from rackwright.provision.images.shelf import Shelf

INSTALL = "provisioner-os-install"
PUBLIC_KEY = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3"
BARCLAMP = """
name: tuning
display: Tuning
roles:
  - name: tuned
    jig: noop
    attribs:
      - {name: port, map: tuned/port, schema: {type: integer, minimum: 1}, default: 80}
      - {name: found, map: tuned/found}
      - {name: word, map: tuned/word, schema: {type: string}, secret: true}
attribs:
  - {name: rack-height, map: place/height, schema: {type: integer, minimum: 0}}
"""


async def test_what_people_want_of_a_noderole_is_edited_in_the_proposal(site: Site, api: Api) -> None:
    noderole = await deploy_role(site, api)
    path = f"/node_roles/{noderole}"
    refused(await api.patch(path, json={"user_data": {"x": 1}}), 409, "nothing-proposed")
    ok(await api.post("/deployments/web/propose"))
    first = await api.get(path)
    changed = ok(await api.patch(path, json={"user_data": {"x": 1}}, headers={"If-Match": first.headers["etag"]}))
    assert (changed["user_data"], changed["committed_data"]) == ({"x": 1}, {})
    stale = await api.patch(path, json={"user_data": {"x": 2}}, headers={"If-Match": first.headers["etag"]})
    refused(stale, 412, "stale")
    ok(await api.post("/deployments/web/commit", json={}))
    assert ok(await api.get(path))["committed_data"] == {"x": 1}


async def _attribs(api: Api, path: str) -> dict[str, Any]:
    return {attrib["name"]: attrib for attrib in ok(await api.get(f"{path}/attribs"))["items"]}


async def test_an_attrib_is_read_with_where_it_comes_from_and_written_if_it_fits(site: Site, api: Api) -> None:
    await site.rack.import_text(BARCLAMP)
    noderole = await deploy_role(site, api, "tuned")
    own, home = f"/node_roles/{noderole}/attribs/port", "/deployments/web/attribs/port"
    assert ok(await api.get(own))["source"] == "default"
    assert ok(await api.get(own))["value"] == 80
    ok(await api.post("/deployments/web/propose"))
    assert ok(await api.put(home, json={"value": 81}))["source"] == "deployment"
    assert (ok(await api.get(own))["value"], ok(await api.get(own))["source"]) == (81, "deployment")
    written = ok(await api.put(own, json={"value": 82}))
    assert (written["value"], written["source"]) == (82, "user")
    assert [(layer["source"], layer["value"]) for layer in written["layers"]] == [
        ("default", 80),
        ("deployment", 81),
        ("user", 82),
    ]
    problem = refused(await api.put(own, json={"value": "many"}), 422, "invalid")
    assert problem["pointer"].startswith("/value")
    assert "port" in problem["detail"]
    refused(await api.put(f"/node_roles/{noderole}/attribs/found", json={"value": 1}), 422, "invalid")
    back = ok(await api.delete(own))
    assert (back["value"], back["source"]) == (81, "deployment")
    refused(await api.get(f"/node_roles/{noderole}/attribs/nothing"), 404, "not-found")
    assert set(await _attribs(api, f"/node_roles/{noderole}")) == {"port", "found", "word"}
    assert "port" in await _attribs(api, "/deployments/web")


async def test_secrets_are_masked_everywhere_and_survive_being_sent_back_masked(site: Site, api: Api) -> None:
    await site.rack.import_text(BARCLAMP)
    noderole = await deploy_role(site, api, "tuned")
    ok(await api.post("/deployments/web/propose"))
    path = f"/node_roles/{noderole}"
    answers = [await api.put(f"{path}/attribs/word", json={"value": "open sesame"})]
    seen = ok(await api.get(path))["user_data"]
    assert seen == {"tuned": {"word": "********"}}
    answers.append(await api.patch(path, json={"user_data": {**seen, "more": 1}}))
    answers += [await api.get(f"{path}{end}") for end in ("", "/attribs", "/attribs/word")]
    answers += [await api.get(path) for path in ("/node_roles", "/deployments/web/attribs", "/attribs/word")]
    [proposed] = ok(await api.get("/snapshots?deployment=web&state=proposed"))["items"]
    answers.append(await api.get(f"/snapshots/{proposed['id']}"))
    for answer in answers:
        ok(answer)
        assert "sesame" not in answer.text
        assert "$sealed" not in answer.text
    ok(await api.post("/deployments/web/commit", json={}))
    assert (await site.rack.opened("n1", "tuned"))["tuned"] == {"word": "open sesame", "port": 80}
    ok(await api.post("/deployments/web/propose"))
    forged = {"$sealed": "1:AAAA", "fingerprint": "x"}
    refused(await api.patch(path, json={"user_data": {"tuned": {"word": forged}}}), 422, "invalid")


async def test_a_wish_for_a_node_wins_over_what_it_reports(site: Site, api: Api) -> None:
    await site.rack.import_text(BARCLAMP)
    ok(await api.post("/nodes", json={"name": NODE}), 201)
    path = f"/nodes/{NODE}/attribs/rack-height"
    assert ok(await api.get(path))["source"] is None
    assert ok(await api.put(path, json={"value": 7}))["source"] == "hint"
    assert ok(await api.get(f"/nodes/{NODE}"))["hint"] == {"place": {"height": 7}}
    refused(await api.put(path, json={"value": -1}), 422, "invalid")
    wrong = await api.patch(f"/nodes/{NODE}", json={"hint": {"place": {"height": "high"}}})
    assert refused(wrong, 422, "invalid")["pointer"] == "/place/height"
    assert ok(await api.delete(path))["value"] is None
    assert set(await _attribs(api, f"/nodes/{NODE}")) >= {"rack-height"}


async def test_data_of_a_role_is_edited_in_the_proposal_and_in_the_system_deployment_in_place(
    site: Site, api: Api
) -> None:
    await deploy_role(site, api)
    [own] = ok(await api.get("/deployment_roles?deployment=web&role=test-child"))["items"]
    path = f"/deployment_roles/{own['id']}"
    refused(await api.patch(path, json={"data": {"x": 1}}), 409, "nothing-proposed")
    ok(await api.post("/deployments/web/propose"))
    changed = ok(await api.patch(path, json={"data": {"x": 1}}))
    assert (changed["data"], changed["committed_data"]) == ({"x": 1}, {})
    body = {"deployment": "web", "role": "provisioner-os-install"}
    assert ok(await api.post("/deployment_roles", json=body), 201)["role"] == "provisioner-os-install"
    await anneal_all(api)
    [system] = ok(await api.get("/deployment_roles?deployment=system&role=crowbar-managed-node"))["items"]
    affected = ok(await api.get(f"/deployment_roles/{system['id']}/affected"))
    assert (affected["at_once"], affected["others"]) == (True, 0)
    announced = {(noderole["role"], noderole["node"]) for noderole in affected["rerun"]}
    assert ("crowbar-managed-node", NODE) in announced
    changed = ok(await api.patch(f"/deployment_roles/{system['id']}", json={"data": {"y": 2}}))
    assert changed["committed_data"] == {"y": 2}
    [noderole] = ok(await api.get(f"/node_roles?node={NODE}&role=crowbar-managed-node"))["items"]
    assert noderole["state"] == "todo", "whoever takes it runs again"
    moved = [
        noderole
        for noderole in ok(await api.get("/node_roles?limit=1000"))["items"]
        if noderole["state"] in ("todo", "blocked")
    ]
    assert {(noderole["role"], noderole["node"]) for noderole in moved} <= announced, "all of it was said before"


async def test_the_plan_says_what_is_installed_where_and_what_is_missing(site: Site, api: Api) -> None:
    site.app.state.server = replace(site.server, simulates=False)  # simulated machines need no image
    ok(await api.post("/nodes", json={"name": NODE, "alive": True}), 201)
    ok(await api.post("/deployments", json={"name": "web"}), 201)
    body = {"deployment": "web", "role": "provisioner-os-install"}
    added = ok(await api.post("/deployment_roles", json=body), 201)
    data = {"provisioner": {"target_os": "ubuntu-24.04", "disk": "sda"}}
    ok(await api.patch(f"/deployment_roles/{added['id']}", json={"data": data}))
    ok(await api.post("/node_roles", json={"node": NODE, **body}), 201)
    offered = {entry["name"]: entry for entry in ok(await api.get("/target_systems"))}
    unbuilt = {"name": "ubuntu-24.04", "built": False, "size": None, "problem": None, "recipe": True}
    assert offered["ubuntu-24.04"] == unbuilt
    plan = ok(await api.post("/deployments/web/plan"))
    [install] = plan["installs"]
    assert (install["node"], install["os"], install["disk"]) == (NODE, "ubuntu-24.04", "sda")
    assert "the image of ubuntu-24.04 is not built: rackwright image build ubuntu-24.04" in install["missing"]
    assert plan["wiped"] == [NODE]
    put_trial_image(site.server.shelf, "ubuntu-24.04", b"12", b"34")
    [system] = [entry for entry in ok(await api.get("/target_systems")) if entry["name"] == "ubuntu-24.04"]
    assert (system["built"], system["size"]) == (True, 4)
    [install] = ok(await api.post("/deployments/web/plan"))["installs"]
    assert not any("image" in lack for lack in install["missing"])
    assert any("disk" in lack for lack in install["missing"])
    signed = replace(site.server, simulates=False, shelf=Shelf(site.server.shelf.folder.parent, [PUBLIC_KEY]))
    site.app.state.server = signed
    [install] = ok(await api.post("/deployments/web/plan"))["installs"]
    assert any("'ubuntu-24.04' is not signed" in lack for lack in install["missing"])


SCHEMA = {"$schema": "http://json-schema.org/draft-04/schema#", "properties": {"runcmd": {"type": "array"}}}


async def test_user_data_that_cloud_init_would_reject_is_in_the_plan_and_is_not_committed(site: Site, api: Api) -> None:
    site.app.state.server = replace(site.server, simulates=False)  # simulated machines have no cloud-init
    site.server.store.read_cloud_init = partial(read_schema, site.server.shelf)
    with site.server.shelf.making("debian-12", {}) as folder:
        (folder / "root.tar.zst").write_bytes(b"1234")
        (folder / "cloud-config.schema.json").write_text(json.dumps(SCHEMA))
    ok(await api.post("/nodes", json={"name": NODE, "alive": True}), 201)
    ok(await api.post("/deployments", json={"name": "web"}), 201)
    bound = ok(await api.post("/node_roles", json={"node": NODE, "deployment": "web", "role": INSTALL}), 201)
    [installer] = [noderole for noderole in bound["created"] if noderole["role"] == INSTALL]

    async def choose(attrib: str, value: object) -> list[str]:
        answer = await api.put(f"/node_roles/{installer['id']}/attribs/{attrib}", json={"value": value})
        assert "hunter2" not in answer.text
        plan = await api.post("/deployments/web/plan")
        assert "hunter2" not in plan.text
        return [line for line in ok(plan)["installs"][0]["missing"] if "provisioner-user-data" in line]

    wrong = "provisioner-user-data, line 2: runcmd: 'ls ${secret:db}' is not of type 'array'"
    unknown = "provisioner-user-data, line 2: provisioner-secrets has no secret db"
    assert await choose("provisioner-user-data", "#cloud-config\nruncmd: ls ${secret:db}\n") == [unknown, wrong]
    assert await choose("provisioner-secrets", {"db": "hunter2"}) == [wrong]
    before = ok(await api.get("/deployments/web"))
    problem = refused(await api.post("/deployments/web/commit", json={}), 422, "invalid")
    assert wrong in problem["detail"]
    assert ok(await api.get("/deployments/web")) == before, "nothing was committed"
    assert await choose("provisioner-user-data", "#cloud-config\nruncmd: [ls]\n") == []
    ok(await api.post("/deployments/web/commit", json={}))


async def test_a_role_is_taken_out_of_a_deployment_in_its_proposal(site: Site, api: Api) -> None:
    bound = await deploy_role(site, api)
    [own] = ok(await api.get("/deployment_roles?deployment=web&role=test-child"))["items"]
    path = f"/deployment_roles/{own['id']}"
    refused(await api.delete(path), 409, "nothing-proposed")
    ok(await api.post("/deployments/web/propose"))
    assert ok(await api.delete(path)) == {
        "role": "test-child",
        "noderoles": [{"id": bound, "node": NODE, "role": "test-child"}],
        "at_once": False,
    }
    left = ok(await api.get(path))
    assert left["leaving"] is True
    assert left["etag"] != own["etag"]
    assert ok(await api.post("/deployments/web/plan"))["roles_removed"] == ["test-child"]
    ok(await api.post("/deployments/web/commit", json={}))
    assert (await api.get(path)).status_code == 404
    [system] = ok(await api.get("/deployment_roles?deployment=system&role=crowbar-managed-node"))["items"]
    refused(await api.delete(f"/deployment_roles/{system['id']}"), 409, "system-deployment")
