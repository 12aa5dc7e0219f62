"""Disks that are not what they were when a person confirmed that they are wiped: nothing is written to them.

`python -m tests.e2e.wipe_scenarios NAME FOLDER IMAGES`, as `scenarios.py`.
"""

import asyncio
import errno
import hashlib
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.e2e.kill_scenarios import WIPED
from tests.e2e.scenarios import Site, import_marker, site_of
from tests.support.waiting import PATIENCE, until

from rackwright.client.errors import ApiProblem
from rackwright.lab.hardware import Drive, Hardware
from rackwright.lab.rack import RackedMachine

INSTALL = "provisioner-os-install"
DISK_BYTES = 4 << 30
BLOCK = 1 << 16


async def swapped_disks(folder: Path, images: Path) -> None:
    """The disk that an install is to wipe is taken out, and another one is there when the installer looks: once with
    the same serial number and other data, once with another serial number. Nothing is written, and the reason names
    both."""
    async with site_of(folder, images, [Hardware(1, disks=2, memory=1024)]) as site:
        await import_marker(site, folder)
        [racked] = site.rack.machines
        machine = racked.machine
        planned = _drive(machine.drives[0], "pgdata")
        _drive(machine.drives[1], "archive")
        await machine.on()
        node = (await site.discovered(racked))["name"]
        await site.knows_bmc(node)

        api = site.rack.api
        await site.bind(node)
        plan = await site.plan()
        [disk] = plan["installs"][0]["wipes"]
        assert disk["serial"] == planned.serial
        assert any("ext4 “pgdata”" in content for content in disk["contents"]), disk
        assert await _refusal(api.post("/deployments/web/commit", {})) == 428, "nobody said that the data may be lost"

        await machine.off()
        twin = _drive(Drive(planned.serial, folder / "twin.raw"), "ledger")
        machine.pull_disk(0)
        machine.insert_disk(0, twin)
        drives = [planned, twin, *_others(racked)]
        before = [_digest(drive) for drive in drives]
        await api.post("/deployments/web/commit", {"digest": plan["digest"]})
        error = await _failed(site, node)
        for word in ("nothing was written", planned.serial, "pgdata", "ledger"):
            assert word in error, error
        assert [_digest(drive) for drive in drives] == before
        site.say("a disk with other data was not touched")

        await site.until("it says what is on its disks", lambda: _holds(site, node, "ledger"))
        seen = await api.get(f"/nodes/{node}/reinstall")
        assert any("ledger" in content for content in seen["installs"][0]["wipes"][0]["contents"]), seen
        assert await _refusal(api.post(f"/nodes/{node}/reinstall", {"digest": plan["digest"]})) == 412
        await site.until("it is managed again", lambda: _is_managed(site, node))
        await machine.off()
        stranger = _drive(Drive("STRANGER", folder / "stranger.raw"), "payroll")
        machine.pull_disk(0)
        machine.insert_disk(0, stranger)
        drives.append(stranger)
        before = [_digest(drive) for drive in drives]
        await api.post(f"/nodes/{node}/reinstall", {"digest": seen["digest"]})
        error = await _failed(site, node)
        for word in ("nothing was written", planned.serial, "ledger", "STRANGER", "payroll"):
            assert word in error, error
        assert [_digest(drive) for drive in drives] == before
        assert WIPED not in machine.console.read_text(errors="replace")
        site.say("another disk was not touched")


def _drive(drive: Drive | None, label: str) -> Drive:
    """Put a file system on a drive, as somebody left it there."""
    assert drive is not None
    drive.file.parent.mkdir(parents=True, exist_ok=True)
    with drive.file.open("wb") as file:
        file.truncate(DISK_BYTES)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-L", label, str(drive.file)], check=True)
    return drive


def _others(racked: RackedMachine) -> list[Drive]:
    return [drive for drive in racked.machine.drives[1:] if drive is not None]


def _digest(drive: Drive) -> str:
    """Return a digest of what a drive holds. Holes of its file read as zeros, and so may what was written: which of the
    two it is depends on the file system that the file is on."""
    digest = hashlib.sha256()
    with drive.file.open("rb") as file:
        at = end = 0
        while (begin := _next_data(file.fileno(), end)) is not None:
            end = os.lseek(file.fileno(), begin, os.SEEK_HOLE)
            at = max(at, begin - begin % BLOCK)  # several pieces of data may be in one block
            while at < end:
                file.seek(at)
                if (block := file.read(BLOCK)).strip(b"\0"):
                    digest.update(f"{at} ".encode() + block)
                at += BLOCK
    return digest.hexdigest()


def _next_data(file: int, after: int) -> int | None:
    """Return where the next data of a file begins; None: there is no more."""
    try:
        return os.lseek(file, after, os.SEEK_DATA)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return None


async def _refusal(call: Any) -> int:
    """Return the status by which a call is refused."""
    try:
        await call
    except ApiProblem as error:
        return error.status
    return 200


async def _failed(site: Site, node: str) -> str:
    """Wait until the install failed, and return why."""

    async def error() -> str:
        install = (await site.noderoles(node))[INSTALL]
        return str(install["error"]) if install["state"] == "error" else ""

    reason = await until(error, "the install failed", 8 * PATIENCE, every=0.5)
    site.say(f"the install failed: {reason}")
    return str(reason)


async def _holds(site: Site, node: str, label: str) -> bool:
    return label in str((await site.facts(node)).discovery["disks"])


async def _is_managed(site: Site, node: str) -> bool:
    return bool((await site.noderoles(node))["crowbar-managed-node"]["state"] == "active")


SCENARIOS = {scenario.__name__: scenario for scenario in (swapped_disks,)}

if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(SCENARIOS[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3])))
