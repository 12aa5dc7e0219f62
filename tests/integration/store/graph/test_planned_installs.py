"""What people wrote is judged aside: while that takes long, others are served."""

import asyncio
import threading
from pathlib import Path

import pytest
from tests.support.servers.install_site import Site, running_site

from rackwright.domain.installs import planned_installs
from rackwright.domain.installs.request import InstallRequest
from rackwright.domain.installs.resolve import ResolvedInstall, resolve_install
from rackwright.store.graph.planned_installs import select_resolved_installs


async def test_other_requests_are_answered_while_user_data_is_judged(
    started_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, served = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def judge(request: InstallRequest) -> ResolvedInstall:
        loop.call_soon_threadsafe(entered.set)
        assert served.wait(60), "the event loop stood still"
        return resolve_install(request)

    async with running_site(tmp_path / "home", started_url) as site:
        [machine] = await site.deployed(1)
        monkeypatch.setattr(planned_installs, "resolve_install", judge)
        installs = asyncio.create_task(_select(site))
        await entered.wait()
        async with site.server.store.read() as session:
            assert await session.value("SELECT 1") == 1
        served.set()
        assert [install.node for install in await installs] == [machine.name]


async def _select(site: Site) -> list[planned_installs.PlannedInstall]:
    async with site.server.store.read() as session:
        ids = [row.id for row in await session.rows("SELECT id FROM node_roles")]
        return await select_resolved_installs(session, ids, proposed=False)
