"""A server without annealer, and its administrator's client."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.servers.api_server import Api, Site, api_site


@pytest.fixture
async def site(started_url: str, tmp_path: Path) -> AsyncIterator[Site]:
    async with api_site(tmp_path, started_url) as site:
        yield site


@pytest.fixture
async def api(site: Site) -> AsyncIterator[Api]:
    async with site.client() as client:
        yield client
