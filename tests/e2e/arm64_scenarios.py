"""Machines with arm64 processors: they are discovered and managed, and nothing is installed on them.

`python -m tests.e2e.arm64_scenarios NAME FOLDER IMAGES`, as `scenarios.py`.
"""

import asyncio
import logging
import sys
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.e2e.firmware_scenarios import NO_FIRMWARE_ASKS_HERE
from tests.e2e.ipv6_scenarios import is_served
from tests.e2e.scenarios import Site, import_marker, site_of

from rackwright.client.errors import ApiProblem
from rackwright.domain.architectures import Architecture
from rackwright.lab.hardware import Firmware, Hardware
from rackwright.lab.network import IPV6
from rackwright.lab.rack import RackedMachine

MACHINE = Hardware(1, Firmware.UEFI, memory=512, architecture=Architecture.ARM64)
MISMATCH = "the machine has a processor of the kind 'arm64', and debian-12 is for amd64"
NOT_YET = "nothing can be installed on arm64 machines yet"


async def arm64(folder: Path, images: Path) -> None:
    """A machine is discovered beside one with amd64, let in and managed; a system for amd64 is refused, and its disk
    stays as it was."""
    async with site_of(folder, images, [MACHINE, Hardware(2, memory=384)]) as site:
        await import_marker(site, folder)
        racked, other = site.rack.machines
        await other.machine.on()
        node = await _discovered(site, racked)
        other_node = (await site.discovered(other))["name"]
        assert (await site.facts(other_node)).discovery["cpu"]["architecture"] == "x86_64"
        await site.bind(node)
        plan = await site.plan()
        [install] = plan["installs"]
        assert any(MISMATCH in lack and NOT_YET in lack for lack in install["missing"]), install
        assert install["wipes"] == [], "no disk is named for it"
        site.say(f"the plan says: {install['missing'][0]}")
        refusal = await _refusal_of_commit(site.rack.api.post("/deployments/web/commit", {"digest": plan["digest"]}))
        assert refusal.status == 422, refusal
        assert MISMATCH in str(refusal), refusal
        site.say(f"the commit is refused: {refusal}")
        assert await site.number("SELECT count(*) FROM install_attempts") == 0
        assert racked.machine.drives[0] is not None
        assert racked.machine.drives[0].file.stat().st_blocks == 0, "nothing was ever written to its disk"


async def arm64_secure_boot(folder: Path, images: Path) -> None:
    """The same loaders and kernel, with a firmware that starts nothing that is not signed."""
    async with site_of(folder, images, [replace(MACHINE, firmware=Firmware.UEFI_SECURE)]) as site:
        await _discovered(site, site.rack.machines[0])


async def arm64_http_boot(folder: Path, images: Path) -> None:
    """A machine whose firmware boots by HTTP. TFTP is at a port that no firmware asks."""
    hardware = replace(MACHINE, firmware=Firmware.UEFI_HTTP)
    async with site_of(folder, images, [hardware], tftp_port=NO_FIRMWARE_ASKS_HERE) as site:
        [racked] = site.rack.machines
        await _discovered(site, racked)
        assert "PXE" not in racked.machine.console.read_text(errors="replace")


async def arm64_ipv6_only(folder: Path, images: Path) -> None:
    """A machine on a network without IPv4."""
    async with site_of(folder, images, [replace(MACHINE, ipv6_only=True)], network=IPV6) as site:
        await site.until("DHCPv6 is served", lambda: is_served(folder / "home"))
        await _discovered(site, site.rack.machines[0])


async def _discovered(site: Site, racked: RackedMachine) -> str:
    """Switch a machine on, let it in, look at what it says of itself, and return its node's name."""
    await racked.machine.on()
    node = str((await site.discovered(racked))["name"])
    discovery = (await site.facts(node)).discovery
    assert discovery["cpu"]["architecture"] == "aarch64"
    is_secure = racked.machine.hardware.firmware is Firmware.UEFI_SECURE
    assert (discovery["firmware"]["mode"], discovery["firmware"]["secure_boot"]) == ("uefi", is_secure)
    assert discovery["kernel"].endswith("-arm64")
    assert [disk["serial"] for disk in discovery["disks"]] == ["LAB0001"]
    assert (await site.noderoles(node))["crowbar-managed-node"]["state"] == "active"
    return node


async def _refusal_of_commit(commit: Awaitable[Any]) -> ApiProblem:
    try:
        await commit
    except ApiProblem as problem:
        return problem
    raise AssertionError("the commit was taken")


SCENARIOS = {scenario.__name__: scenario for scenario in (arm64, arm64_secure_boot, arm64_http_boot, arm64_ipv6_only)}

if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(SCENARIOS[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3])))
