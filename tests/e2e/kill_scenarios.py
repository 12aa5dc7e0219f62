"""The server killed, and the machine's power cut, at every stage of an install: none is lost, and no disk is wiped
twice but by a person's word.

`python -m tests.e2e.kill_scenarios NAME FOLDER IMAGES [LAYOUT]`, as `scenarios.py`.
"""

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

from tests.e2e.scenarios import Site, import_marker, site_of
from tests.support.waiting import PATIENCE, until

from rackwright.lab.hardware import Hardware
from rackwright.lab.rack import RackedMachine
from rackwright.lab.serving import ServerProcess

WIPED = "rackwright: install: partition"
"""What the installer writes on the console before it writes to a disk."""
INSTALLER_STAGES = ("partition", "download", "configure", "bootloader")
STAGES = ("publishing", "rebooting", "installing", *INSTALLER_STAGES, "booting", "probing", "done")
DISKS_NEEDED = {"raid1": 2, "raid10": 4}
"""Of a layout; all others are on one."""
GOES_ON = frozenset({"rebooting", "booting"})
"""Stages in which a machine that loses its power goes on by itself: nothing is written then."""

LAST_STAGE = """
SELECT coalesce(e.data->>'stage', split_part(e.kind, '.', 2)) AS stage FROM events e JOIN nodes n ON n.id = e.node_id
WHERE n.name = :node AND e.id > :after AND e.kind LIKE 'install.%' AND e.kind <> 'install.refused' ORDER BY e.id
"""


class Install:
    """The install of the only machine of a site, and how far it has come."""

    def __init__(self, site: Site, node: str) -> None:
        self.site = site
        self.node = node
        self._began_after = 0

    @property
    def racked(self) -> RackedMachine:
        [racked] = self.site.rack.machines
        return racked

    async def commit(self, layout: str | None) -> None:
        await self.site.bind(self.node, attribs={"provisioner-storage": layout} if layout else None)
        await self.site.commit()

    async def reinstall(self) -> None:
        self._began_after = await self.site.number("SELECT max(id) FROM events")
        api = self.site.rack.api
        seen = await api.get(f"/nodes/{self.node}/reinstall")
        await api.post(f"/nodes/{self.node}/reinstall", {"digest": seen["digest"]})

    async def stages(self) -> list[str]:
        async with self.site.rack.store.read() as session:
            rows = await session.rows(LAST_STAGE, node=self.node, after=self._began_after)
        return [row.stage for row in rows]

    async def until(self, stage: str) -> str:
        """Wait until the install is at a stage or past it, and return where it is: an installer that gets no answer
        goes on, and tells the next stage."""

        async def reached() -> str:
            last = max(map(STAGES.index, await self.stages()), default=-1)
            return STAGES[last] if last >= STAGES.index(stage) else ""

        stage_reached = await until(reached, f"it is {stage}", 8 * PATIENCE, every=0.05)
        self.site.say(f"it is {stage_reached}")
        return stage_reached

    async def attempts(self) -> int:
        return await self.site.number("SELECT count(*) FROM install_attempts")

    def wipes(self) -> int:
        """Return how often an installer began to write to the disks, by the machine's own console."""
        return self.racked.machine.console.read_text(errors="replace").count(WIPED)

    async def active(self) -> None:
        await self.site.active(self.node, "provisioner-os-install", "crowbar-installed-node", "e2e-look")


async def _begin(site: Site, folder: Path) -> Install:
    """Discover the machine of a site, let it in, and wait until its BMC is known."""
    await import_marker(site, folder)
    [racked] = site.rack.machines
    await racked.machine.on()
    node = (await site.discovered(racked))["name"]
    await site.knows_bmc(node)
    return Install(site, node)


async def kill_server_at_each_stage(folder: Path, images: Path, layout: str | None = None) -> None:
    server = ServerProcess()
    async with site_of(folder, images, [_hardware(layout)], server.serving) as site:
        install = await _begin(site, folder)
        await install.commit(layout)
        reached = await install.until(STAGES[0])
        while reached != STAGES[-1]:
            await server.kill()
            await server.start()
            site.say("the server was killed, and is there again")
            reached = await install.until(STAGES[STAGES.index(reached) + 1])
        await install.active()
        assert await install.attempts() == 1, "it went on, and did not begin anew"
        assert install.wipes() == 1


async def cut_power_at_each_stage(folder: Path, images: Path, layout: str | None = None) -> None:
    async with site_of(folder, images, [_hardware(layout)]) as site:
        install = await _begin(site, folder)
        await install.commit(layout)
        wipes = 0
        for stage in ("rebooting", *INSTALLER_STAGES, "booting"):
            assert await install.until(stage) == stage
            await install.racked.machine.off()
            await install.racked.machine.on()
            site.say("its power was cut, and is there again")
            if stage in GOES_ON:
                continue
            wipes += 1
            await _let_in_again(install)
            assert install.wipes() == wipes, "nothing is wiped again by itself"
            await install.reinstall()
        await install.active()
        assert install.wipes() == wipes + 1


async def _let_in_again(install: Install) -> None:
    """Let a machine in that came back with another key, and see its install fail for that."""

    async def offered_key() -> Any:
        return (await install.site.node_of(install.racked))["offered_key"]

    key = await install.site.until("it offers its new key", offered_key)
    await install.site.rack.api.post(f"/nodes/{install.node}/accept", {"key": key})

    async def failed() -> Any:
        return (await install.site.noderoles(install.node))["provisioner-os-install"]["error"]

    error = await install.site.until("its install has failed", failed)
    assert "lost its power" in error, error

    async def is_managed() -> bool:
        state = (await install.site.noderoles(install.node))["crowbar-managed-node"]["state"]
        return bool(state == "active")

    await install.site.until("it does as it is told", is_managed)


def _hardware(layout: str | None) -> Hardware:
    """Return a machine with the disks that a layout needs."""
    return Hardware(1, disks=DISKS_NEEDED.get(layout or "", 1), disk="4G" if layout else "8G")


SCENARIOS = {scenario.__name__: scenario for scenario in (kill_server_at_each_stage, cut_power_at_each_stage)}

if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(SCENARIOS[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:]))
