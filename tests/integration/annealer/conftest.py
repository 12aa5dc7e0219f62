"""A rack whose barclamp has hooks, and a site to install machines on."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.rack import Rack
from tests.support.servers.hooked_barclamps import Hooked
from tests.support.servers.install_site import Site, running_site
from tests.support.waiting import PATIENCE

from rackwright.annealer.hooks import HookPace


@pytest.fixture
async def hooked(rack: Rack, tmp_path: Path) -> AsyncIterator[Hooked]:
    hooked_rack = Hooked(rack, tmp_path, HookPace(tries=3, back_off=0.02, lease=2 * PATIENCE, tick=1))
    yield hooked_rack
    await hooked_rack.workers.close()


@pytest.fixture
async def site(started_url: str, tmp_path: Path) -> AsyncIterator[Site]:
    async with running_site(tmp_path, started_url) as running:
        yield running
