"""Switching a machine's power by IPMI, from the route to the BMC: what a person says of the BMC picks the hammer."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.machines.ipmi_simulator import PASSWORD, USER, SimulatedBmc, simulated_bmc
from tests.support.servers.api_server import Api, Site, ok, refused
from tests.support.waiting import PATIENCE

from rackwright.annealer.installs import read_hammer_node
from rackwright.domain.catalogue import JsonObject
from rackwright.hammers import ipmi
from rackwright.hammers.base import HammerFailed, HammerNode
from rackwright.hammers.ipmi import IpmiHammer
from rackwright.hammers.redfish import RedfishHammer
from rackwright.hammers.ssh import SshHammer
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.machines.nodes import get_node

NODE = "n1.rack.example"


@pytest.fixture
async def bmc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SimulatedBmc]:
    monkeypatch.setattr(ipmi, "PAUSE", 60)  # a busy machine answers late; nothing is to be sent twice for that
    monkeypatch.setattr(ipmi, "DEADLINE", PATIENCE)
    async with simulated_bmc(tmp_path / "bmc") as simulated:
        yield simulated


async def test_a_machine_is_cycled_and_booted_through_the_bmc_a_person_named(
    api: Api, bmc: SimulatedBmc, caplog: pytest.LogCaptureFixture
) -> None:
    ok(await api.post("/nodes", json={"name": NODE}), 201)
    body = {"kind": "ipmi", "address": bmc.relay.address, "username": USER, "password": PASSWORD, "cipher_suite": 3}
    ok(await api.put(f"/nodes/{NODE}/bmc", json=body), 204)
    assert ok(await api.post(f"/nodes/{NODE}/power", json={"action": "on"})) == {"node": NODE, "power": "on"}
    before = len(bmc.asked())
    assert ok(await api.post(f"/nodes/{NODE}/power", json={"action": "cycle"}))["power"] == "on"
    assert [command for command in bmc.asked()[before:] if command.startswith("set")] == ["set power 0", "set power 1"]
    ok(await api.post(f"/nodes/{NODE}/boot_device", json={"device": "network"}))
    assert "set boot pxe" in bmc.asked()
    wrong = {**body, "password": "wr0ng-password"}
    ok(await api.put(f"/nodes/{NODE}/bmc", json=wrong), 204)
    problem = refused(await api.get(f"/nodes/{NODE}/power"), 502, "hammer-failed")
    assert problem["detail"].endswith("refuses the user name or the password")
    text = (await api.get(f"/nodes/{NODE}")).text
    assert bmc.relay.address in text
    assert "wr0ng-password" not in text + caplog.text + str(problem)


async def test_other_suites_than_17_and_3_are_refused(api: Api) -> None:
    ok(await api.post("/nodes", json={"name": NODE}), 201)
    body = {"kind": "ipmi", "address": "192.0.2.7"}
    refused(await api.put(f"/nodes/{NODE}/bmc", json={**body, "cipher_suite": 0}), 422, "invalid")
    ok(await api.put(f"/nodes/{NODE}/bmc", json=body), 204)


async def test_the_hammer_is_the_one_of_the_bmc_or_else_ssh(site: Site) -> None:
    def chosen(bmc: JsonObject | None) -> object:
        settings: JsonObject = {} if bmc is None else {"bmc": bmc}
        return site.server.installs.reach.hammer(HammerNode(1, NODE, settings))

    assert isinstance(chosen({"kind": "redfish"}), RedfishHammer)
    assert isinstance(chosen({"kind": "ipmi"}), IpmiHammer)
    assert isinstance(chosen(None), SshHammer)
    assert isinstance(chosen({"address": "192.0.2.7"}), SshHammer), "nobody said what it speaks"
    with pytest.raises(HammerFailed, match="this server knows redfish, ipmi"):
        chosen({"kind": "smoke"})


async def test_where_nobody_said_what_a_bmc_speaks_the_lowest_priority_of_a_barclamp_decides(
    site: Site, api: Api
) -> None:
    ok(await api.post("/nodes", json={"name": NODE}), 201)
    hint = {"bmc": {"address": "192.0.2.7", "username": USER}}
    ok(await api.patch(f"/nodes/{NODE}", json={"hint": hint}))

    async def chosen() -> object:
        async with site.rack.store.read() as session:
            node = await read_hammer_node(session, (await get_node(session, NODE, EVERYTHING)).id)
        return site.server.installs.reach.hammer(node)

    assert isinstance(await chosen(), RedfishHammer)
    await site.rack.import_text("name: own\nhammers: [{name: own-ipmi, kind: ipmi, priority: 5}]\n")
    assert isinstance(await chosen(), IpmiHammer)
    await site.rack.import_text("name: own\nhammers: [{name: own-ssh, kind: ssh, priority: 5}]\n")
    assert isinstance(await chosen(), SshHammer)
