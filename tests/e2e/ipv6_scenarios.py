"""Machines with IPv6 alone: nothing above the link speaks IPv4.

`python -m tests.e2e.ipv6_scenarios NAME FOLDER IMAGES`, as `scenarios.py`.
"""

import asyncio
import json
import logging
import sys
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import dns.asyncquery
import dns.message
from tests.e2e.scenarios import import_marker, site_of
from tests.support.waiting import PATIENCE

from rackwright.lab.hardware import Firmware, Hardware
from rackwright.lab.network import BRIDGE, IPV6, SERVER6
from rackwright.provision.served_subnets import read_subnets, subnets_file

MACHINE = Hardware(1, Firmware.UEFI, memory=1024, ipv6_only=True)


async def ipv6_only(folder: Path, images: Path) -> None:
    """A machine is discovered, installed and managed over IPv6 alone, from an empty disk on."""
    async with site_of(folder, images, [MACHINE], network=IPV6) as site:
        await import_marker(site, folder)
        await assert_no_ipv4()
        [racked] = site.rack.machines
        # Firmware asks for a few seconds only, and has no other network to fall back on.
        await site.until("DHCPv6 is served", lambda: is_served(folder / "home"))
        await racked.machine.on()
        node = (await site.discovered(racked))["name"]
        before = await site.facts(node)
        assert ip_address(before.discovery["address"]) in ip_network("fd77::100/120"), "it was a stranger"
        await site.knows_bmc(node)
        await site.bind(node)
        await site.commit()
        await site.active(node, "provisioner-os-install", "crowbar-installed-node", "e2e-look")
        after = await site.facts(node)
        [allocation] = await site.rack.api.pages(f"/nodes/{node}/allocations")
        assert after.discovery["address"] == allocation["address"], "it has the address that is reserved for it"
        assert after.observed_bootenv == "local"
        assert after.boot_id != before.boot_id
        assert (await site.wall(node, "e2e-look"))["seen"]["system"] == "debian-12"
        await site.until("DNS knows its name", lambda: _has_name(node, allocation["address"]))
        await assert_no_ipv4()


async def is_served(home: Path) -> bool:
    return bool(await asyncio.to_thread(read_subnets, subnets_file(home)))


async def assert_no_ipv4() -> None:
    """Assert that nothing can speak IPv4 with a machine: the bridge and its ports have no IPv4 address."""
    links: list[dict[str, Any]] = json.loads(await _output("ip", "-json", "-4", "address"))
    names = {link["ifname"] for link in links if any(entry["family"] == "inet" for entry in link.get("addr_info", ()))}
    assert names <= {"lo"}, names
    assert BRIDGE in await _output("ip", "-6", "address")


async def _output(*command: str) -> str:
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert process.returncode == 0
    return output.decode()


async def _has_name(node: str, address: str) -> bool:
    """Whether the lab's own name server gives the address the machine really has, to who asks over IPv6."""
    answer = await dns.asyncquery.udp(dns.message.make_query(node, "AAAA"), SERVER6, timeout=PATIENCE)
    return any(address == str(record) for rrset in answer.answer for record in rrset)


SCENARIOS = {scenario.__name__: scenario for scenario in (ipv6_only,)}

if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(SCENARIOS[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3])))
