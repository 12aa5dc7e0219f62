"""What is tried on virtual machines, each in namespaces of its own: `python -m tests.e2e.scenarios NAME FOLDER IMAGES`.

It is the first process of its PID namespace, so nothing it starts outlives it. What it asserts is seen by its exit.
"""

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import dns.asyncquery
import dns.message
from tests.support.waiting import PATIENCE, until

from rackwright.barclamps.loader import load_folder
from rackwright.hammers.base import HammerNode, Power
from rackwright.hammers.redfish import RedfishHammer
from rackwright.lab.hardware import Firmware, Hardware
from rackwright.lab.lldp import send_frame, switch_frame
from rackwright.lab.network import IPV4, SERVER, LabNetwork
from rackwright.lab.rack import Rack, RackedMachine, running_rack
from rackwright.lab.serving import ServerProcess, Serving, in_this_process
from rackwright.store.barclamp_import import import_barclamps


def tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Site:
    """A rack, and words for what is seen of it."""

    def __init__(self, rack: Rack) -> None:
        self.rack = rack
        self.began = time.monotonic()

    def say(self, text: str) -> None:
        tell(f"{time.monotonic() - self.began:7.1f} s  {text}")

    async def until(self, what: str, ask: Callable[[], Awaitable[Any]]) -> Any:
        """The first answer that is something; said when it came. Machines boot and are installed meanwhile."""
        answer = await until(ask, what, 8 * PATIENCE, every=0.5)
        self.say(what)
        return answer

    async def node_of(self, one: RackedMachine) -> Any:
        nodes = await self.rack.api.pages("/nodes")
        return next((node for node in nodes if one.machine.hardware.mac in node["macs"]), None)

    async def discovered(self, one: RackedMachine) -> Any:
        """Wait until a machine is known, let it in, and wait until it does as it is told."""
        name = one.machine.hardware.name
        node = await self.until(f"{name} registered", lambda: self.node_of(one))
        assert not node["available"], "a stranger waits until somebody lets it in"
        await self.rack.api.post(f"/nodes/{node['name']}/accept")
        await self.active(node["name"])
        self.say(f"{name} is managed")
        return await self.node_of(one)

    async def cabled(self, one: RackedMachine, node: str) -> None:
        """A switch speaks up on the cable of a machine that runs already, and the machine reports it by itself."""
        number, tap = one.machine.hardware.number, one.machine.taps[0]
        assert (await self.facts(node)).discovery["lldp"] == {}, "nobody has spoken yet"

        async def told() -> Any:
            send_frame(tap, switch_frame(number))
            return (await self.facts(node)).discovery["lldp"]

        heard = await self.until(f"{one.machine.hardware.name} knows its switch", told)
        assert [(said["name"], said["port"]) for said in heard.values()] == [("leaf-1", f"Ethernet{number}")]

    async def knows_bmc(self, node: str) -> None:
        """Wait until the BMC of a node is known."""

        async def look() -> bool:
            return "bmc" in (await self.facts(node)).hint

        await self.until("its BMC is known", look)

    async def bind(self, node: str, role: str = "e2e-look", attribs: Mapping[str, Any] | None = None) -> None:
        """Make deployment `web`, bind a role to a node there, and set attributes of the node's installer."""
        await self.rack.api.post("/deployments", {"name": "web"})
        await self.rack.api.post("/node_roles", {"node": node, "role": role, "deployment": "web"})
        for attrib, value in (attribs or {}).items():
            await self.set_attrib(node, attrib, value)

    async def set_attrib(self, node: str, attrib: str, value: Any) -> None:
        """Set an attribute of a node's installer in what is proposed."""
        installer = (await self.noderoles(node))["provisioner-os-install"]["id"]
        path = f"/node_roles/{installer}/attribs/{attrib}"
        await self.rack.api.put(path, {"value": value}, check_unchanged=False)

    async def plan(self) -> Any:
        return await self.rack.api.post("/deployments/web/plan")

    async def commit(self) -> Any:
        """Commit what is proposed with all that it wipes, and return its plan."""
        plan = await self.plan()
        await self.rack.api.post("/deployments/web/commit", {"digest": plan["digest"]})
        return plan

    async def noderoles(self, node: str) -> dict[str, Any]:
        return {one["role"]: one for one in await self.rack.api.pages("/node_roles", node=node)}

    async def active(self, node: str, *roles: str) -> None:
        """Wait until all noderoles of a node are ACTIVE, these among them; one that fails ends it."""

        async def look() -> bool:
            found = await self.noderoles(node)
            failed = [f"{role}: {one['error']}" for role, one in found.items() if one["state"] == "error"]
            assert not failed, failed
            return set(roles) <= found.keys() and all(one["state"] == "active" for one in found.values())

        await self.until(f"all of {node} is ACTIVE", look)

    async def wall(self, node: str, role: str) -> Any:
        """What a run gave back."""
        async with self.rack.store.read() as session:
            return await session.value(
                "SELECT nr.wall FROM node_roles nr JOIN nodes n ON n.id = nr.node_id JOIN roles r ON r.id = nr.role_id"
                " WHERE n.name = :node AND r.name = :role",
                node=node,
                role=role,
            )

    async def number(self, query: str, **values: object) -> int:
        async with self.rack.store.read() as session:
            return int(await session.value(query, **values) or 0)

    async def facts(self, node: str) -> Any:
        async with self.rack.store.read() as session:
            row = await session.row("SELECT * FROM nodes WHERE name = :name", name=node)
        assert row is not None
        return row


@contextlib.asynccontextmanager
async def site_of(
    folder: Path,
    images: Path,
    hardware: Sequence[Hardware],
    serving: Serving = in_this_process,
    network: LabNetwork = IPV4,
    **options: Any,
) -> AsyncIterator[Site]:
    home = folder / "home"
    home.mkdir(parents=True)
    (home / "images").symlink_to(images)
    async with running_rack(home, folder, hardware, serving, network, heartbeat=20.0, tick=1.0, **options) as rack:
        try:
            yield Site(rack)
        except BaseException:
            _show(home / "server.log")
            for one in rack.machines:
                _show(one.machine.console, one.machine.folder / "qemu.log")
            raise


def _show(*paths: Path) -> None:
    for path in paths:
        if path.exists():
            tell(f"--- the end of {path.parent.name}/{path.name}\n{path.read_text(errors='replace')[-3000:]}")


async def discover_three_at_once(folder: Path, images: Path) -> None:
    """Machines with one, two and three disks and network cards."""
    hardware = [Hardware(number, memory=384, disks=number, nics=number) for number in (1, 2, 3)]
    async with site_of(folder, images, hardware) as site:
        await asyncio.gather(*(one.machine.on() for one in site.rack.machines))
        nodes = await asyncio.gather(*(site.discovered(one) for one in site.rack.machines))
        assert len({node["name"] for node in nodes}) == 3
        for machine, node in zip(hardware, nodes, strict=True):
            discovery = (await site.facts(node["name"])).discovery
            assert discovery["serial"] == machine.serial
            assert (len(discovery["disks"]), len(discovery["links"])) == (machine.disks, machine.nics)
        await asyncio.gather(
            *(site.cabled(one, node["name"]) for one, node in zip(site.rack.machines, nodes, strict=True))
        )


MARKER = """
name: e2e
display: Trial
description: Something to run on an installed system
version: "1.0"
parent: core
roles:
  - name: e2e-look
    jig: script
    description: Says what it runs on
    requires: [crowbar-installed-node]
"""
LOOK = """#!/bin/sh -e
write_attribute seen/root "$(findmnt -n -o SOURCE /)"
write_attribute seen/kernel "$(uname -r)"
write_attribute seen/system "$(. /etc/os-release && echo "$ID-$VERSION_ID")"
write_attribute seen/boot_id "$(cat /proc/sys/kernel/random/boot_id)"
"""


async def import_marker(site: Site, folder: Path, script: str = LOOK) -> None:
    """A role of the script jig, as a person would add one."""
    scripts = folder / "e2e" / "script" / "roles" / "e2e-look"
    scripts.mkdir(parents=True)
    (folder / "e2e" / "barclamp.yml").write_text(MARKER)
    (scripts / "10-look.sh").write_text(script)
    barclamp = await asyncio.to_thread(load_folder, folder / "e2e")
    await site.rack.store.change_graph(lambda session: import_barclamps(session, [barclamp]))


async def install(folder: Path, images: Path, firmware: Firmware = Firmware.BIOS) -> None:
    """The whole way, from a machine that is off and has an empty disk to a role that runs on its own system. While the
    image arrives, the server is killed, and with it its DHCP and name servers; started again, it goes on."""
    server = ServerProcess()
    async with site_of(folder, images, [Hardware(1, firmware, memory=1024)], server.serving) as site:
        await import_marker(site, folder)
        [one] = site.rack.machines
        bmc = HammerNode(0, "m1", {"bmc": site.rack.bmc_settings(one)})
        assert await RedfishHammer().status(bmc) is Power.OFF
        await RedfishHammer().on(bmc)
        node = (await site.discovered(one))["name"]
        before = await site.facts(node)
        await site.knows_bmc(node)
        await site.bind(node)
        plan = await site.commit()
        assert [wiped for wiped in plan["wiped"] if node in str(wiped)], plan
        await site.until("its image arrives", lambda: _reached(site, node, "download"))
        await server.kill()
        site.say("the server is killed")
        await server.start()
        site.say("the server is there again")
        await site.active(node, "provisioner-os-install", "crowbar-installed-node", "e2e-look")
        assert await _attempts(site, node) == 1, "it went on, and did not begin anew"
        after = await site.facts(node)
        assert after.observed_bootenv == "local"
        assert after.boot_id != before.boot_id
        assert after.host_key != before.host_key
        seen = (await site.wall(node, "e2e-look"))["seen"]
        assert seen["root"] == ("/dev/vda1" if firmware is Firmware.BIOS else "/dev/vda2")
        assert seen["system"] == "debian-12"
        assert seen["boot_id"] == after.boot_id
        await site.until("DNS knows its name", lambda: _has_name(node, after.discovery["address"]))


async def install_by_uefi(folder: Path, images: Path) -> None:
    await install(folder, images, Firmware.UEFI)


async def _reached(site: Site, node: str, stage: str) -> bool:
    """Whether the installer of a machine said that it has come so far."""
    return (
        await site.number(
            "SELECT count(*) FROM events e JOIN nodes n ON n.id = e.node_id"
            " WHERE e.kind = 'install.progress' AND n.name = :node AND e.data->>'stage' = :stage",
            node=node,
            stage=stage,
        )
        > 0
    )


async def _attempts(site: Site, node: str) -> int:
    return await site.number(
        "SELECT count(*) FROM install_attempts a JOIN nodes n ON n.id = a.node_id WHERE n.name = :node", node=node
    )


async def _has_name(node: str, address: str) -> bool:
    """Whether the lab's own name server gives the address the machine really has."""
    answer = await dns.asyncquery.udp(dns.message.make_query(node, "A"), SERVER, timeout=PATIENCE)
    return any(address == str(record) for rrset in answer.answer for record in rrset)


SCENARIOS = {one.__name__: one for one in (discover_three_at_once, install, install_by_uefi)}

if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(SCENARIOS[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3])))
