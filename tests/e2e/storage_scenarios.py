"""Disk layouts from empty disks to a system that runs on them, and that goes on without one of its disks.

`python -m tests.e2e.storage_scenarios NAME FOLDER IMAGES`, as `scenarios.py`.
"""

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

from tests.e2e.scenarios import Site, import_marker, site_of

from rackwright.lab.hardware import Drive, Firmware, Hardware

LOOK = """#!/bin/sh -e
systemctl is-system-running --wait >/dev/null || true # all is mounted then, also what the boot does not wait for
write_attribute seen/root "$(findmnt -n -o SOURCE /)"
write_attribute seen/mounts "$(findmnt -n -r -o TARGET,FSTYPE -t ext4,xfs,vfat | sort | tr '\\n' ';')"
write_attribute seen/arrays "$(grep -s ^md /proc/mdstat | tr '\\n' ';')"
write_attribute seen/swap "$(swapon --noheadings --show=NAME | wc -l)"
write_attribute seen/disks "$(lsblk -d -n -o NAME -e 1,7,11 | grep -c ^vd)"
write_attribute seen/failed "$(systemctl --failed --no-legend --plain | tr '\\n' ';')"
"""
DOCUMENT = """\
storage:
  version: 1
  config:
    - {id: pair, type: disk, match: {bus: virtio, size: "<3500M"}, count: 2, ptable: gpt}
    - {id: single, type: disk, match: {size: largest}, ptable: gpt}
    - {id: bios, type: partition, device: pair, size: 1M, flag: bios_grub}
    - {id: boot, type: partition, device: pair, size: 512M, flag: raid}
    - {id: rest, type: partition, device: pair, flag: raid}
    - {id: swap, type: partition, device: single, size: 256M, flag: swap}
    - {id: data, type: partition, device: single}
    - {id: boot-array, type: raid, name: boot, raidlevel: 1, devices: [boot]}
    - {id: root-array, type: raid, name: root, raidlevel: 0, devices: [rest]}
    - {id: group, type: lvm_volgroup, name: vg-0, devices: [root-array]}
    - {id: root, type: lvm_partition, name: root-1, volgroup: group, size: 4G}
    - {id: boot-fs, type: format, fstype: ext4, volume: boot-array}
    - {id: root-fs, type: format, fstype: xfs, volume: root}
    - {id: data-fs, type: format, fstype: xfs, volume: data}
    - {id: swap-fs, type: format, fstype: swap, volume: swap}
    - {id: root-mount, type: mount, device: root-fs, path: /}
    - {id: boot-mount, type: mount, device: boot-fs, path: /boot}
    - {id: data-mount, type: mount, device: data-fs, path: /srv, options: "noatime,nodev"}
"""


async def _install(site: Site, folder: Path, layout: str) -> tuple[str, dict[str, Any]]:
    """Discover the machine of a site and install it; return the node's name, and what a role saw on it."""
    await import_marker(site, folder, LOOK)
    [racked] = site.rack.machines
    await racked.machine.on()
    node = (await site.discovered(racked))["name"]
    await site.bind(node, attribs={"provisioner-storage": layout})
    await site.commit()
    await site.active(node, "provisioner-os-install", "crowbar-installed-node", "e2e-look")
    return node, await _seen(site, node)


async def _seen(site: Site, node: str) -> dict[str, Any]:
    seen = (await site.wall(node, "e2e-look"))["seen"]
    site.say(f"it runs on {seen}")
    assert not seen["failed"], seen["failed"]
    return dict(seen)


async def _boot_without(site: Site, node: str, slot: int) -> dict[str, Any]:
    """Pull a disk out of a machine that is off, and return what a role sees when it runs again."""
    [racked] = site.rack.machines
    before = (await site.facts(node)).boot_id
    await racked.machine.off()
    racked.machine.pull_disk(slot)
    site.say(f"it is off, and the disk in slot {slot} is pulled")
    await racked.machine.on()

    async def has_booted() -> bool:
        facts = await site.facts(node)
        return bool(facts.boot_id != before and facts.observed_bootenv == "local")

    await site.until("it booted from what is left", has_booted)

    async def looked_again() -> bool:
        wall = await site.wall(node, "e2e-look")
        return bool(wall["seen"]["disks"] == str(len(racked.machine.drives) - 1))

    await site.until("its roles ran again", looked_again)
    await site.active(node, "e2e-look")
    return await _seen(site, node)


def _hardware(disks: int, firmware: Firmware = Firmware.BIOS) -> Hardware:
    return Hardware(1, firmware, disks=disks, disk="3G")


async def raid1_by_uefi(folder: Path, images: Path) -> None:
    """Both disks of a mirror are started from by UEFI: the one that the firmware knows is pulled."""
    async with site_of(folder, images, [_hardware(2, Firmware.UEFI)]) as site:
        node, seen = await _install(site, folder, "raid1")
        assert seen["root"].startswith("/dev/md"), seen
        assert "/boot/efi vfat" in seen["mounts"], seen
        assert "raid1" in seen["arrays"], seen
        left = await _boot_without(site, node, 0)
        assert left["root"].startswith("/dev/md"), left
        assert left["disks"] == "1"


async def lvm_by_bios(folder: Path, images: Path) -> None:
    async with site_of(folder, images, [_hardware(1)]) as site:
        _, seen = await _install(site, folder, "lvm")
        assert seen["root"] == "/dev/mapper/system-root", seen


async def raid10_by_bios(folder: Path, images: Path) -> None:
    """Each of four disks is started from by a BIOS, of which one is pulled."""
    async with site_of(folder, images, [_hardware(4)]) as site:
        node, seen = await _install(site, folder, "raid10")
        assert "raid10" in seen["arrays"], seen
        left = await _boot_without(site, node, 0)
        assert left["root"].startswith("/dev/md"), left
        assert left["disks"] == "3"


async def document_by_bios(folder: Path, images: Path) -> None:
    """Arrays below LVM, a /boot of its own, XFS and swap, on disks that are chosen by what they are."""
    async with site_of(folder, images, [_hardware(2)]) as site:
        [racked] = site.rack.machines
        large = folder / "large.raw"
        with large.open("wb") as file:
            file.truncate(5 << 30)
        racked.machine.drives.append(Drive("LARGE", large))
        _, seen = await _install(site, folder, DOCUMENT)
        assert seen["root"] == "/dev/mapper/vg--0-root--1", seen
        assert seen["mounts"] == "/ xfs;/boot ext4;/srv xfs;", seen
        assert seen["swap"] == "1", seen


SCENARIOS = {scenario.__name__: scenario for scenario in (raid1_by_uefi, lvm_by_bios, raid10_by_bios, document_by_bios)}

if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(SCENARIOS[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3])))
