"""A site to attack: a server on a real database, with machines that send whatever a test has them send."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.servers.install_site import Site, running_site


@pytest.fixture
async def site(started_url: str, tmp_path: Path) -> AsyncIterator[Site]:
    async with running_site(tmp_path, started_url) as running:
        yield running
