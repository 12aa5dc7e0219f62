"""The network of an installed node: a bond of two cards, a VLAN on top of it, and an address of ours on that.

`python -m tests.e2e.network_scenarios NAME FOLDER IMAGES`, as `scenarios.py`.
"""

import asyncio
import logging
import sys
from functools import partial
from pathlib import Path
from typing import Any

from tests.e2e.scenarios import Site, import_marker, site_of
from tests.e2e.vlan_port import vlan_port

from rackwright.lab.hardware import Hardware
from rackwright.store.runs.run_logs import read_log

VLAN = 77
STORAGE = {
    "name": "storage",
    "category": "general",
    "vlan": VLAN,
    "v4_subnet": "10.78.0.0/24",
    "ranges": [{"name": "host", "use": "host", "first": "10.78.0.10", "last": "10.78.0.99"}],
}
CHANGES_NETWORK = "provisioner-node-network"
SERVER_ON_STORAGE = "10.78.0.1/24"
NETWORK = """\
network:
  version: 2
  ethernets:
    left: {match: {macaddress: "%s"}}
    right: {match: {macaddress: "%s"}}
  bonds:
    bond0:
      interfaces: [left, right]
      parameters: {mode: active-backup, primary: left}
      dhcp4: true
  vlans:
    bond0.77: {id: 77, link: bond0, addresses: [network: storage]}
"""


async def bond_with_vlan(folder: Path, images: Path) -> None:
    """A node is installed with a bond and a VLAN; both addresses stay when a cable is pulled."""
    async with site_of(folder, images, [Hardware(1, nics=2)]) as site, vlan_port(VLAN, SERVER_ON_STORAGE):
        [racked] = site.rack.machines
        node = await _install(site, folder, NETWORK % racked.machine.hardware.macs)
        addresses = (await _storage_address(site, node), (await site.facts(node)).discovery["address"])
        for address in addresses:
            await site.until(f"{address} answers", partial(_answers, address))
        await racked.machine.plug_cable(0, plugged=False)
        for address in addresses:
            await site.until(f"{address} answers by the other cable", partial(_answers, address))


WRONG = """\
network:
  version: 2
  ethernets:
    left: {match: {macaddress: "%s"}}
    right: {match: {macaddress: "%s"}}
  bonds:
    bond1: {interfaces: [right], parameters: {mode: active-backup}, addresses: [network: admin]}
"""
RIGHT = """\
network:
  version: 2
  ethernets:
    left: {match: {macaddress: "%s"}}
    right: {match: {macaddress: "%s"}}
  bonds:
    bond1:
      interfaces: [left, right]
      parameters: {mode: active-backup, primary: left}
      mtu: 1400
      addresses: [network: admin]
  vlans:
    bond1.77: {id: 77, link: bond1, mtu: 1400, addresses: [network: storage]}
"""


async def wrong_network_comes_back(folder: Path, images: Path) -> None:
    """A change by which the server cannot reach the node comes back by itself; a right one then goes through."""
    async with site_of(folder, images, [Hardware(1, nics=2)]) as site, vlan_port(VLAN, SERVER_ON_STORAGE):
        [racked] = site.rack.machines
        left, right = racked.machine.hardware.macs
        node = await _install(site, folder, NETWORK % (left, right))
        before = await site.facts(node)
        address, storage = before.discovery["address"], await _storage_address(site, node)
        # The only link of the wrong network has no cable, and the node's address moves to it.
        await racked.machine.plug_cable(1, plugged=False)
        await _change_network(site, node, WRONG % (left, right))
        noderole = await site.until("the change is an ERROR", lambda: _in_error(site, node))
        assert "went back by itself" in noderole["error"], noderole["error"]
        assert address in noderole["error"], noderole["error"]
        for there in (address, storage):
            await site.until(f"{there} answers again", partial(_answers, there))
        await racked.machine.plug_cable(1, plugged=True)
        await _change_network(site, node, RIGHT % (left, right))
        await site.active(node, CHANGES_NETWORK, "e2e-look")
        log = await _last_log(site, node)
        assert "+Name=bond1\n" in log, log
        assert "the change is final" in log, log
        await racked.machine.plug_cable(0, plugged=False)
        for there in (address, storage):
            await site.until(f"{there} answers by the new bond's other cable", partial(_answers, there))
        after = await site.facts(node)
        assert (after.boot_id, after.host_key) == (before.boot_id, before.host_key), (
            "it was neither reinstalled nor reset"
        )
        await site.rack.api.post(f"/node_roles/{(await site.noderoles(node))[CHANGES_NETWORK]['id']}/retry")
        await site.until("the same change again changes nothing", partial(_says_unchanged, site, node))
        await site.active(node)


async def _change_network(site: Site, node: str, network: str) -> None:
    """Commit another network for an installed node, of which no disk may be wiped."""
    await site.rack.api.post("/deployments/web/propose")
    await site.set_attrib(node, "provisioner-network", network)
    plan = await site.commit()
    assert plan["wiped"] == [], plan
    assert CHANGES_NETWORK in [noderole["role"] for noderole in plan["rerun"]], plan
    site.say("another network is committed")


async def _in_error(site: Site, node: str) -> Any:
    noderole = (await site.noderoles(node))[CHANGES_NETWORK]
    return noderole if noderole["state"] == "error" else None


async def _says_unchanged(site: Site, node: str) -> bool:
    return "The network is as it is wanted." in await _last_log(site, node)


async def _last_log(site: Site, node: str) -> str:
    """Return the log of the last run that changed a node's network."""
    id = (await site.noderoles(node))[CHANGES_NETWORK]["id"]
    runs = await site.rack.api.pages("/runs", node_role_id=id)
    async with site.rack.store.read() as session:
        pieces = await read_log(session, max(run["id"] for run in runs), 0)
    return "".join(text for _, text in pieces)


async def _install(site: Site, folder: Path, network: str) -> str:
    """Install the only machine of a site with a network, and return the name of its node."""
    await import_marker(site, folder)
    [racked] = site.rack.machines
    await racked.machine.on()
    node = str((await site.discovered(racked))["name"])
    api = site.rack.api
    await api.post("/networks", STORAGE)
    await site.bind(node, "network-storage")
    await site.commit()
    await site.active(node, "network-storage")
    await api.post("/deployments/web/propose")
    await api.post("/node_roles", {"node": node, "role": "e2e-look", "deployment": "web"})
    await site.set_attrib(node, "provisioner-network", network)
    await site.commit()
    await site.active(node, "provisioner-os-install", "crowbar-installed-node", "e2e-look")
    return node


async def _storage_address(site: Site, node: str) -> str:
    allocations = await site.rack.api.pages(f"/nodes/{node}/allocations")
    [address] = [allocation["address"] for allocation in allocations if allocation["network"] == "storage"]
    return str(address)


async def _answers(address: str) -> bool:
    process = await asyncio.create_subprocess_exec(
        "busybox", "ping", "-c", "1", "-W", "2", address, stdout=asyncio.subprocess.DEVNULL
    )
    return await process.wait() == 0


SCENARIOS = {scenario.__name__: scenario for scenario in (bond_with_vlan, wrong_network_comes_back)}

if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(SCENARIOS[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3])))
