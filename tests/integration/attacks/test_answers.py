"""What answers tell browsers and caches, and what a server says of itself when its disk is full."""

from pathlib import Path

import pytest
from tests.support.servers.api_server import Site, api_site

from rackwright.api.routes.service import health


async def test_no_answer_of_the_api_is_kept_or_taken_for_something_else(tmp_path: Path, started_url: str) -> None:
    async with api_site(tmp_path, started_url) as site, site.client() as administrator:
        for path in ("/nodes", "/me", "/nowhere", "/nodes/none", "/docs"):
            headers = (await administrator.get(path)).headers
            assert headers["Cache-Control"] == "no-store", path
            assert headers["X-Content-Type-Options"] == "nosniff", path


async def test_the_files_of_the_page_keep_their_own_rules(tmp_path: Path, started_url: str) -> None:
    async with api_site(tmp_path, started_url) as site, site.client("") as stranger:
        page = await stranger.get("http://server/")
        assert page.headers["Cache-Control"] in ("no-cache", "no-store"), "the latter where the page is not built"
        assert page.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("full", [False, True])
async def test_a_server_without_room_on_its_disk_is_not_ready(
    tmp_path: Path, started_url: str, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    async with api_site(tmp_path, started_url) as site:
        monkeypatch.setattr(health, "LEAST_FREE", 2**62 if full else 0)
        assert await _ready(site) == ((503, False) if full else (200, True))


async def _ready(site: Site) -> tuple[int, bool]:
    async with site.client("") as stranger:
        answer = await stranger.get("http://server/readyz")
    return answer.status_code, answer.json()["disk"]
