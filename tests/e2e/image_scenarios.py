"""Other images than the one of the other scenarios, from an empty disk to a system that roles run on.

`python -m tests.e2e.image_scenarios NAME FOLDER IMAGES`, as `scenarios.py`.
"""

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

from tests.e2e.scenarios import Site, import_marker, site_of

from rackwright.lab.hardware import Hardware

DEBIAN_13 = "debian-13"


async def install_debian_13(folder: Path, images: Path) -> None:
    """A machine is installed with Debian 13, reports, and has a role run on it; the server knows that it uses it."""
    await _install(folder, images, DEBIAN_13)


async def _install(folder: Path, images: Path, system: str) -> None:
    async with site_of(folder, images, [Hardware(1, memory=1024)]) as site:
        await import_marker(site, folder)
        [racked] = site.rack.machines
        await racked.machine.on()
        node = (await site.discovered(racked))["name"]
        await site.bind(node, attribs={"provisioner-target-os": system})
        assert await _uses(site, system) == [{"node": node, "use": "planned"}]
        plan = await site.commit()
        assert [install["os"] for install in plan["installs"]] == [system]
        await site.active(node, "provisioner-os-install", "crowbar-installed-node", "e2e-look")
        assert (await site.facts(node)).observed_bootenv == "local"
        assert (await site.wall(node, "e2e-look"))["seen"]["system"] == system
        assert await _uses(site, system) == [{"node": node, "use": "installed"}]


async def _uses(site: Site, system: str) -> Any:
    return next(image["nodes"] for image in await site.rack.api.get("/images") if image["name"] == system)


SCENARIOS = {scenario.__name__: scenario for scenario in (install_debian_13,)}

if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(SCENARIOS[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3])))
