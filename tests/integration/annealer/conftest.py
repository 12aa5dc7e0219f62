"""A rack whose barclamp has hooks."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.hooked import Hooked
from tests.support.rack import Rack

from rackwright.annealer.hooks import HookPace


@pytest.fixture
async def hooked(rack: Rack, tmp_path: Path) -> AsyncIterator[Hooked]:
    made = Hooked(rack, tmp_path, HookPace(tries=3, back_off=0.02, lease=5, tick=1))
    yield made
    await made.workers.close()
