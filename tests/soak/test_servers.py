"""Servers killed while 200 machines converge, installs included: `tests/chaos/test_servers.py` at full size."""

import logging
from pathlib import Path

import pytest
from tests.support.servers.breakable_servers import floor

log = logging.getLogger(__name__)

LEASE = 40.0
"""Seconds. So many machines keep the servers busy for longer than those of the small test."""

pytestmark = pytest.mark.chaos


async def test_servers_killed_at_random_while_200_machines_converge(migrated_url: str, tmp_path: Path) -> None:
    async with floor(tmp_path, migrated_url, machines=200, count=3, lease=LEASE) as site:
        await site.discover()
        await site.deploy(batches=7)
        kills = await site.kill_at_random()
        assert kills == 6
        await site.until_converged()
        await site.check()
        runs = await site.number("SELECT count(*) FROM runs")
        lost = sum(len(machine.journal.lost_secrets) for machine in site.lab.machines.values())
        helped = len(site.interventions)
        log.warning("%d kills, %d runs, %d answers lost, %d installs started by a person", kills, runs, lost, helped)
