"""What is on the disks of a machine, from the plan that names it to the installer that is told of it."""

import base64
import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import httpx
import pytest
from tests.support.servers.api_server import ok, refused
from tests.support.servers.install_site import INSTALL, INSTALLED, HandMachine, Site

from rackwright.domain.installs.request import SystemImage
from rackwright.domain.machines.install import Stage
from rackwright.domain.states import ACTIVE, ERROR, PROPOSED, TODO
from rackwright.server.first_admin import TOKEN_FILE
from rackwright.store.graph.noderoles import retry_noderole
from rackwright.store.machines.confirmed_wipes import read_confirmed_wipes
from rackwright.store.machines.install_attempts import record_set_up_failure
from rackwright.store.machines.registration import accept_machine


def disk(label: str = "", fingerprint: str = "") -> dict[str, Any]:
    """A disk as sledgehammer reports it, with one file system on it, or none."""
    contents = [{"device": "vda1", "type": "ext4", "label": label, "bytes": 20 * 10**9}] if label else []
    size = 40 * 10**9
    identity = {"name": "virtio-X1", "device": "vda", "serial": "X1", "bytes": size}
    return {**identity, "contents": contents, "fingerprint": fingerprint}


async def discovered(site: Site, **disk_on_it: str) -> HandMachine:
    machine = HandMachine(site, 1)
    await report(machine, **disk_on_it)
    await site.change(lambda session: accept_machine(session, machine.name))
    await site.anneal()
    return machine


async def report(machine: HandMachine, **disk_on_it: str) -> None:
    """Boot sledgehammer, which reports what is on the disk."""
    machine.new_boot()
    answer = await machine.register(inventory={"serial": "H1", "disks": [disk(**disk_on_it)]})
    assert answer.status_code == 201, answer.text
    await machine.site.anneal()


@pytest.fixture
async def api(site: Site) -> AsyncIterator[httpx.AsyncClient]:
    """The administrator's client, which speaks to the server of this moment."""
    token = (site.options.home / TOKEN_FILE).read_text().strip()
    transport = httpx.ASGITransport(app=site.app, client=("192.0.2.250", 40000))
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://site/api/v2", headers=headers) as client:
        yield client


async def propose(api: httpx.AsyncClient, machine: HandMachine) -> Any:
    """Bind the install in a deployment; return the plan."""
    ok(await api.post("/deployments", json={"name": "web"}), 201)
    body = {"node": machine.name, "role": INSTALLED, "deployment": "web"}
    ok(await api.post("/node_roles", json=body), 201)
    return ok(await api.post("/deployments/web/plan"))


async def commit(api: httpx.AsyncClient, plan: Any) -> None:
    ok(await api.post("/deployments/web/commit", json={"digest": plan["digest"]}))


async def test_a_commit_names_the_data_and_needs_the_digest_of_what_was_seen(
    site: Site, api: httpx.AsyncClient
) -> None:
    machine = await discovered(site, label="pgdata", fingerprint="f1")
    plan = await propose(api, machine)
    [wiped] = plan["installs"][0]["wipes"]
    assert wiped["contents"] == ["vda1 ext4 “pgdata” 20.0 GB"]
    assert (wiped["name"], wiped["serial"], wiped["known"]) == ("virtio-X1", "X1", True)

    problem = refused(await api.post("/deployments/web/commit", json={}), 428, "digest-required")
    assert "pgdata" in problem["detail"]
    await report(machine, label="ledger", fingerprint="f2")
    refused(await api.post("/deployments/web/commit", json={"digest": plan["digest"]}), 412, "plan-changed")
    assert await site.rack.state(machine.short, INSTALL) is PROPOSED, "nothing was touched"

    plan = ok(await api.post("/deployments/web/plan"))
    assert "ledger" in plan["installs"][0]["wipes"][0]["contents"][0]
    await commit(api, plan)
    await site.reach_stage(machine, Stage.INSTALLING)
    config = (await machine.config(site.secrets[machine.name])).json()
    [told] = config["wipes"]
    assert (told["name"], told["fingerprint"], told["serial"]) == ("virtio-X1", "f2", "X1")
    assert "ledger" in told["text"]


async def test_an_empty_disk_needs_no_digest(site: Site, api: httpx.AsyncClient) -> None:
    machine = await discovered(site, fingerprint="f0")
    await propose(api, machine)
    ok(await api.post("/deployments/web/commit", json={}))
    await site.reach_stage(machine, Stage.INSTALLING)


async def test_data_that_came_after_the_commit_is_not_wiped_until_somebody_confirms_it(
    site: Site, api: httpx.AsyncClient
) -> None:
    machine = await discovered(site, fingerprint="f0")
    await commit(api, await propose(api, machine))
    await report(machine, label="ledger", fingerprint="f2")
    assert await site.rack.state(machine.short, INSTALL) is ERROR
    error = await site.error(machine)
    for words in ("Nothing was touched", "virtio-X1", "ledger", f"rackwright node reinstall {machine.name}"):
        assert words in error
    assert await site.stage(machine) is None, "there was no attempt"

    path = f"/nodes/{machine.name}/reinstall"
    assert "ledger" in refused(await api.post(path), 428, "digest-required")["detail"]
    seen = ok(await api.get(path))
    assert seen["installs"][0]["wipes"][0]["contents"] == ["vda1 ext4 “ledger” 20.0 GB"]
    await report(machine, label="ledger", fingerprint="f3")
    refused(await api.post(path, json={"digest": seen["digest"]}), 412, "plan-changed")
    assert await site.rack.state(machine.short, INSTALL) is ERROR
    ok(await api.post(path, json={"digest": ok(await api.get(path))["digest"]}))
    await site.reach_stage(machine, Stage.INSTALLING)


async def test_a_failed_install_is_tried_again_on_what_it_left_itself(site: Site, api: httpx.AsyncClient) -> None:
    machine = await discovered(site, label="pgdata", fingerprint="f1")
    await commit(api, await propose(api, machine))
    await site.reach_stage(machine, Stage.INSTALLING)
    result = {"ok": False, "error": "no file system", "disks": [disk("root", "f2")]}
    await machine.ask("POST", "/api/v2/install/result", result, site.secrets[machine.name])
    await report(machine, label="root", fingerprint="f2")
    noderole = await site.rack.at(machine.short, INSTALL)
    assert noderole.state is ERROR
    await site.change(lambda session: retry_noderole(session, noderole.id))
    await site.step()
    assert await site.stage(machine) is Stage.WAITING


async def test_what_a_machine_holds_that_lost_its_power_is_confirmed_by_a_person(
    site: Site, api: httpx.AsyncClient
) -> None:
    machine = await discovered(site, label="pgdata", fingerprint="f1")
    await commit(api, await propose(api, machine))
    await site.reach_stage(machine, Stage.INSTALLING)
    await report(machine, label="root", fingerprint="f2")
    noderole = await site.rack.at(machine.short, INSTALL)
    assert noderole.state is ERROR
    await site.change(lambda session: retry_noderole(session, noderole.id))
    await site.anneal()
    assert "root" in await site.error(machine)
    path = f"/nodes/{machine.name}/reinstall"
    ok(await api.post(path, json={"digest": ok(await api.get(path))["digest"]}))
    assert await site.rack.state(machine.short, INSTALL) is TODO


async def test_after_an_install_its_own_disks_are_known_and_a_reinstall_confirms_them(
    site: Site, api: httpx.AsyncClient
) -> None:
    machine = await discovered(site, label="pgdata", fingerprint="f1")
    await commit(api, await propose(api, machine))
    await site.reach_stage(machine, Stage.INSTALLING)
    result = {"ok": True, "disks": [disk("root", "f2")]}
    await machine.ask("POST", "/api/v2/install/result", result, site.secrets[machine.name])
    await site.reach_stage(machine, Stage.DONE)
    await site.anneal()
    assert await site.rack.state(machine.short, INSTALL) is ACTIVE
    path = f"/nodes/{machine.name}/reinstall"
    seen = ok(await api.get(path))
    assert seen["installs"][0]["wipes"][0]["contents"] == ["vda1 ext4 “root” 20.0 GB"]
    ok(await api.post(path, json={"digest": seen["digest"]}))
    await site.step()
    await site.reach_stage(machine, Stage.INSTALLING)
    [told] = (await machine.config(site.secrets[machine.name])).json()["wipes"]
    assert told["fingerprint"] == "f2"


async def test_disks_that_nobody_looked_into_block_nothing_and_are_told(site: Site, api: httpx.AsyncClient) -> None:
    machine = await discovered(site)
    plan = await propose(api, machine)
    assert plan["installs"][0]["wipes"][0]["known"] is False
    assert any("what is on virtio-X1 is not known" in lack for lack in plan["installs"][0]["missing"])
    await commit(api, plan)
    await site.reach_stage(machine, Stage.INSTALLING)
    [told] = (await machine.config(site.secrets[machine.name])).json()["wipes"]
    assert told["fingerprint"] == "", "the installer writes only if the disk is empty"


async def test_a_document_that_is_wrong_is_refused_at_the_commit_with_its_line(
    site: Site, api: httpx.AsyncClient
) -> None:
    machine = await discovered(site, fingerprint="f0")
    await propose(api, machine)
    noderole = await site.rack.at(machine.short, INSTALL)
    text = "network:\n  version: 2\n  ethernets:\n    left: {speed: 9}\n"
    path = f"/node_roles/{noderole.id}/attribs/provisioner-network"
    ok(await api.put(path, json={"value": text}))
    plan = ok(await api.post("/deployments/web/plan"))
    assert any("provisioner-network, line 4" in lack for lack in plan["installs"][0]["missing"])
    refusal = await api.post("/deployments/web/commit", json={"digest": plan["digest"]})
    assert "provisioner-network, line 4" in refused(refusal, 422, "invalid")["detail"]
    assert await site.rack.state(machine.short, INSTALL) is PROPOSED


async def test_a_result_is_as_small_as_a_registration(site: Site, api: httpx.AsyncClient) -> None:
    machine = await discovered(site, fingerprint="f0")
    await commit(api, await propose(api, machine))
    await site.reach_stage(machine, Stage.INSTALLING)
    result = {"ok": True, "disks": [{"name": "x" * 270_000}]}
    answer = await machine.ask("POST", "/api/v2/install/result", result, site.secrets[machine.name])
    assert answer.status_code == 413
    assert await site.stage(machine) is Stage.INSTALLING


async def test_what_was_confirmed_for_an_install_is_used_up_when_it_has_succeeded(
    site: Site, api: httpx.AsyncClient
) -> None:
    """The system that was installed fills its disks with data, and their fingerprint stays."""
    machine = await discovered(site, label="pgdata", fingerprint="f1")
    await commit(api, await propose(api, machine))
    await site.reach_stage(machine, Stage.INSTALLING)
    await machine.ask(
        "POST", "/api/v2/install/result", {"ok": True, "disks": [disk("root", "f2")]}, site.secrets[machine.name]
    )
    noderole = await site.rack.at(machine.short, INSTALL)
    async with site.server.store.read() as session:
        assert await read_confirmed_wipes(session, noderole.id) == {}
        attempt_id = await session.value("SELECT id FROM install_attempts")
    await site.reach_stage(machine, Stage.PROBING)
    await site.change(partial(record_set_up_failure, attempt_id=attempt_id, error="a unit of cloud-init failed"))
    await report(machine, label="root", fingerprint="f2")
    assert await site.rack.state(machine.short, INSTALL) is ERROR
    await site.change(lambda session: retry_noderole(session, noderole.id))
    await site.anneal()
    assert "nobody confirmed that this data may be lost" in await site.error(machine)


async def test_another_layout_on_the_same_disk_is_confirmed_anew(site: Site, api: httpx.AsyncClient) -> None:
    machine = await discovered(site, label="pgdata", fingerprint="f1")
    await commit(api, await propose(api, machine))
    await site.reach_stage(machine, Stage.DONE)
    noderole = await site.rack.at(machine.short, INSTALL)
    path = f"/nodes/{machine.name}/reinstall"
    seen = ok(await api.get(path))
    ok(await api.post("/deployments/web/propose"))
    ok(await api.put(f"/node_roles/{noderole.id}/attribs/provisioner-storage", json={"value": "lvm"}))
    ok(await api.post("/deployments/web/commit", json={}))
    await site.anneal()
    assert await site.rack.state(machine.short, INSTALL) is ACTIVE, "a commit does not wipe what was installed"
    refused(await api.post(path, json={"digest": seen["digest"]}), 412, "plan-changed")
    ok(await api.post(path, json={"digest": ok(await api.get(path))["digest"]}))
    await site.step()
    await site.reach_stage(machine, Stage.INSTALLING)
    config = (await machine.config(site.secrets[machine.name])).json()
    assert any(step.startswith("group system") for step in config["storage"]["build"])


async def test_the_largest_machine_there_is_can_register(site: Site) -> None:
    """As much as sledgehammer says at most of each: disks with the longest names, what is on them, and neighbours."""

    def largest(number: int) -> dict[str, Any]:
        words = {"name": f"d{number}-".ljust(128, "x"), "serial": "s" * 64, "wwn": "w" * 96, "fingerprint": "f" * 64}
        left = {"device": f"nvme{number}n1", "type": "99 more, not listed"}
        size = {"bytes": 10**14, "bus": "virtio", "rotational": False}
        return {**words, **size, "device": f"nvme{number}n1", "contents": [left]}

    disks = [largest(number) for number in range(256)]
    listed = {"device": "nvme0n1p1", "type": "ext4", "label": "x" * 128}
    disks[0]["contents"] = [listed] * (28_000 // len(json.dumps(listed)))
    frame = base64.b64encode(b"\x00" * 1500).decode()
    machine = HandMachine(site, 1)
    inventory = {"disks": disks, "lldp": {f"ens{number}": frame for number in range(16)}, "product": "x" * 8000}
    answer = await machine.register(inventory=inventory)
    assert answer.status_code == 201, answer.text
    assert (await machine.register(inventory={"product": "x" * 300_000})).status_code == 413


async def test_an_image_that_cannot_start_from_the_layout_is_refused_at_the_commit(
    site: Site, api: httpx.AsyncClient
) -> None:
    machine = await discovered(site, label="pgdata", fingerprint="f1")
    await propose(api, machine)
    noderole = await site.rack.at(machine.short, INSTALL)
    ok(await api.put(f"/node_roles/{noderole.id}/attribs/provisioner-storage", json={"value": "lvm"}))
    site.server.store.read_image = partial(SystemImage, has_lvm=False)
    plan = ok(await api.post("/deployments/web/plan"))
    assert any("the image of debian-12 has no lvm2" in lack for lack in plan["installs"][0]["missing"])
    refusal = await api.post("/deployments/web/commit", json={"digest": plan["digest"]})
    assert "has no lvm2" in refused(refusal, 422, "invalid")["detail"]
    site.server.store.read_image = SystemImage
    refusal = await api.post("/deployments/web/commit", json={"digest": plan["digest"]})
    refused(refusal, 412, "plan-changed")
    await commit(api, ok(await api.post("/deployments/web/plan")))
