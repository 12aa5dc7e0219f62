"""Machines with UEFI: Secure Boot, HTTP boot, and firmware that would rather boot its disk.

`python -m tests.e2e.firmware_scenarios NAME FOLDER IMAGES`, as `scenarios.py`.
"""

import asyncio
import logging
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.e2e.scenarios import LOOK, Site, import_marker, site_of

from rackwright.jigs.boot_server import tftp_answers
from rackwright.lab.hardware import Firmware, Hardware
from rackwright.lab.network import SERVER
from rackwright.lab.virtual import VirtualMachine

SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
LOOK_AT_FIRMWARE = f"""{LOOK}
write_attribute seen/secure_boot "$(tail -c 1 {SECURE_BOOT} | od -A n -t u1 | tr -d ' ')"
first=$(efibootmgr | sed -n 's/^BootOrder: \\([0-9A-F]*\\).*/\\1/p')
write_attribute seen/boots_first "$(efibootmgr | sed -n "s/^Boot$first\\* //p")"
"""
PUT_DISK_FIRST = """
disk=$(efibootmgr | sed -n 's/^Boot\\([0-9A-F]*\\)\\* rackwright 1.*/\\1/p')
others=$(efibootmgr | sed -n 's/^BootOrder: //p' | tr ',' '\\n' | grep -v -x "$disk" | paste -s -d , -)
efibootmgr -q -o "$disk,$others"
"""
"""What firmware of the field does by itself after an install."""
ROLES = ("provisioner-os-install", "crowbar-installed-node", "e2e-look")
NO_FIRMWARE_ASKS_HERE = 6969


@asynccontextmanager
async def _installed(
    folder: Path,
    images: Path,
    hardware: Hardware,
    layout: str | None = None,
    look: str = LOOK_AT_FIRMWARE,
    **options: Any,
) -> AsyncIterator[tuple[Site, str]]:
    """Yield a site with one machine on which a system was installed, and the name of its node."""
    async with site_of(folder, images, [hardware], **options) as site:
        await import_marker(site, folder, look)
        [racked] = site.rack.machines
        await racked.machine.on()
        node = (await site.discovered(racked))["name"]
        await site.knows_bmc(node)
        await site.bind(node, attribs={"provisioner-storage": layout} if layout else None)
        await site.commit()
        await site.active(node, *ROLES)
        yield site, node


async def secure_boot(folder: Path, images: Path, layout: str | None = None) -> None:
    """A machine with Secure Boot and a TPM, from its empty disk to a system of its own."""
    hardware = Hardware(1, Firmware.UEFI_SECURE, tpm=True)
    async with _installed(folder, images, hardware, layout) as (site, node):
        facts = await site.facts(node)
        assert facts.observed_bootenv == "local"
        firmware = facts.discovery["firmware"]
        assert (firmware["mode"], firmware["secure_boot"]) == ("uefi", True)
        seen = (await site.wall(node, "e2e-look"))["seen"]
        assert seen["secure_boot"] == "1"


async def secure_boot_lvm(folder: Path, images: Path) -> None:
    await secure_boot(folder, images, "lvm")


async def http_boot(folder: Path, images: Path) -> None:
    """A machine whose firmware boots by HTTP. TFTP is at a port that no firmware asks."""
    hardware = Hardware(1, Firmware.UEFI_HTTP)
    async with _installed(folder, images, hardware, tftp_port=NO_FIRMWARE_ASKS_HERE) as (site, _):
        assert await tftp_answers(SERVER, NO_FIRMWARE_ASKS_HERE, "shimx64.efi"), "the server has it all the same"
        assert not await tftp_answers(SERVER, 69, "shimx64.efi", patience=2.0)
        console = site.rack.machines[0].machine.console.read_text(errors="replace")
        assert f"http://{SERVER}:8091/files/sledgehammer/shimx64.efi" in console
        assert "PXE" not in console


async def refuse_unsigned_kernel(folder: Path, images: Path) -> None:
    """With Secure Boot a kernel with one changed byte is fetched whole, and not started; the right one is."""
    shelf = folder / "altered"
    shutil.copytree(images, shelf)
    kernel = shelf / "sledgehammer" / "kernel"
    content = kernel.read_bytes()
    altered = bytearray(content)
    altered[len(altered) // 2] ^= 1
    kernel.write_bytes(altered)
    async with site_of(folder, shelf, [Hardware(1, Firmware.UEFI_SECURE, memory=512)]) as site:
        [racked] = site.rack.machines
        await racked.machine.on()

        async def refused() -> bool:
            return "bad shim signature" in racked.machine.console.read_text(errors="replace")

        await site.until("the altered kernel is refused", refused)
        loaders = sum((shelf / "sledgehammer" / name).stat().st_size for name in ("shimx64.efi", "grubx64.efi"))
        sent = _bytes_sent_to(racked.machine)
        site.say(f"{sent} bytes were sent to the machine, {len(content)} of them the kernel")
        assert sent > loaders + len(content), "refused, and not cut off on its way"
        assert await site.node_of(racked) is None
        kernel.write_bytes(content)
        await site.discovered(racked)


def _bytes_sent_to(machine: VirtualMachine) -> int:
    """Return how much went out to a machine; `/sys` would be that of another network namespace."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()
    [counters] = [line.partition(":")[2].split() for line in lines if line.strip().startswith(f"{machine.taps[0]}:")]
    return int(counters[8])


async def reinstall_disk_first(folder: Path, images: Path) -> None:
    """Firmware that boots its disk first: the machine is reinstalled all the same, since the BMC says so once."""
    hardware = Hardware(1, Firmware.UEFI, own_boot_order=True)
    look = LOOK_AT_FIRMWARE + PUT_DISK_FIRST
    async with _installed(folder, images, hardware, look=look) as (site, node):
        seen = (await site.wall(node, "e2e-look"))["seen"]
        assert "PXEv4" in seen["boots_first"], "the installer put the network before the disk"
        before = await site.facts(node)
        machine = site.rack.machines[0].machine
        written = machine.console.stat().st_size
        await machine.reset()

        async def booted_again() -> bool:
            return bool((await site.facts(node)).boot_id != before.boot_id)

        await site.until("it booted again", booted_again)
        console = machine.console.read_bytes()[written:]
        assert b"rackwright 1" in console, "the firmware started the disk by its entry"
        assert b"PXE" not in console, "and asked no network"
        await site.active(node, *ROLES)
        digest = (await site.rack.api.get(f"/nodes/{node}/reinstall"))["digest"]
        await site.rack.api.post(f"/nodes/{node}/reinstall", {"digest": digest})
        await site.active(node, *ROLES)
        after = await site.facts(node)
        assert after.host_key != before.host_key
        assert await site.number("SELECT count(*) FROM install_attempts") == 2


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (secure_boot, secure_boot_lvm, http_boot, refuse_unsigned_kernel, reinstall_disk_first)
}

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO if "-v" in sys.argv else logging.WARNING)
    asyncio.run(SCENARIOS[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3])))
