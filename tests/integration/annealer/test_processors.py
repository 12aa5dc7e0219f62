"""A machine with another kind of processor than a system is for: nothing of an install begins there."""

from collections.abc import AsyncIterator
from functools import partial

import httpx
import pytest
from tests.support.servers.api_server import ok, refused
from tests.support.servers.install_site import INSTALL, INSTALLED, HandMachine, Site

from rackwright.domain.installs.request import SystemImage
from rackwright.domain.states import ERROR
from rackwright.server.first_admin import TOKEN_FILE
from rackwright.store.machines.registration import accept_machine

DISK = {"name": "virtio-X1", "device": "vda", "bytes": 40 * 10**9, "contents": [], "fingerprint": ""}


@pytest.fixture
async def api(site: Site) -> AsyncIterator[httpx.AsyncClient]:
    """The administrator's client."""
    token = (site.options.home / TOKEN_FILE).read_text().strip()
    transport = httpx.ASGITransport(app=site.app, client=("192.0.2.250", 40000))
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://site/api/v2", headers=headers) as client:
        yield client


async def boot(machine: HandMachine, architecture: str) -> None:
    """Boot sledgehammer, which says what `uname -m` says."""
    machine.new_boot()
    inventory = {"serial": "H1", "disks": [DISK], "cpu": {"cores": 4, "architecture": architecture}}
    answer = await machine.register(inventory=inventory)
    assert answer.status_code == 201, answer.text
    await machine.site.anneal()


async def discovered(site: Site, architecture: str) -> HandMachine:
    machine = HandMachine(site, 1)
    await boot(machine, architecture)
    await site.change(lambda session: accept_machine(session, machine.name))
    await site.anneal()
    return machine


async def propose(api: httpx.AsyncClient, machine: HandMachine) -> None:
    ok(await api.post("/deployments", json={"name": "web"}), 201)
    body = {"node": machine.name, "role": INSTALLED, "deployment": "web"}
    ok(await api.post("/node_roles", json=body), 201)


async def test_a_system_for_amd64_is_refused_for_a_machine_with_arm64_at_the_commit(
    site: Site, api: httpx.AsyncClient
) -> None:
    machine = await discovered(site, "aarch64")
    await propose(api, machine)
    site.server.store.read_image = SystemImage
    plan = ok(await api.post("/deployments/web/plan"))
    [install] = plan["installs"]
    reason = "the machine has a processor of the kind 'arm64', and debian-12 is for amd64"
    assert any(reason in lack for lack in install["missing"]), install
    assert install["wipes"] == []
    refusal = await api.post("/deployments/web/commit", json={"digest": plan["digest"]})
    assert reason in refused(refusal, 422, "invalid")["detail"]
    assert await site.stage(machine) is None


async def test_a_system_for_arm64_is_refused_everywhere_while_it_cannot_be_installed(
    site: Site, api: httpx.AsyncClient
) -> None:
    machine = await discovered(site, "aarch64")
    await propose(api, machine)
    site.server.store.read_image = partial(SystemImage, architecture="arm64")
    refusal = await api.post("/deployments/web/commit", json={})
    assert "nothing can be installed on arm64 machines yet" in refused(refusal, 422, "invalid")["detail"]
    await boot(machine, "x86_64")
    refusal = await api.post("/deployments/web/commit", json={})
    assert "of the kind 'amd64', and debian-12 is for arm64" in refused(refusal, 422, "invalid")["detail"]


async def test_a_machine_that_turns_out_to_be_of_another_kind_after_the_commit_is_not_touched(
    site: Site, api: httpx.AsyncClient
) -> None:
    machine = await discovered(site, "x86_64")
    await propose(api, machine)
    ok(await api.post("/deployments/web/commit", json={}))
    machine.new_boot()
    inventory = {"serial": "H1", "disks": [DISK], "cpu": {"architecture": "aarch64"}}
    assert (await machine.register(inventory=inventory)).status_code == 201
    await site.anneal()
    noderole = await site.rack.at(machine.short, INSTALL)
    assert noderole.state is ERROR
    assert "nothing can be installed on arm64 machines yet" in noderole.error
    assert await site.stage(machine) is None
    assert await machine.what_to_boot() == "sledgehammer"
