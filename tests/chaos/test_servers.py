"""Servers killed, paused and cut off from their database while machines converge, installs included.

After each: never two runs at once on a machine, by the machine's own account; no run lost; nothing stuck; no machine
installed twice; everything ACTIVE; and a person needed only where a secret was lost with the server that handed it out
(`tests/support/servers/breakable_servers.py`). `make soak` does the same with 200 machines.
"""

import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from tests.support.servers.breakable_servers import STORES, Floor, floor
from tests.support.servers.postgres import NO_SYNC

from rackwright.lab.machine import Machine
from rackwright.store.db.session import Session
from rackwright.store.embedded.server import EmbeddedPostgres, database_url
from rackwright.store.graph.noderoles import retry_noderole

pytestmark = pytest.mark.chaos


# --- (a) killed


async def test_servers_killed_at_random_while_machines_converge(migrated_url: str, tmp_path: Path) -> None:
    async with floor(tmp_path, migrated_url, machines=30, count=2) as site:
        await site.discover()
        await site.deploy(batches=4)
        assert await site.kill_at_random() == 3
        await site.until_converged()
        await site.check()


# --- (b) paused


@dataclass(frozen=True)
class SlowRun:
    id: int
    node_role_id: int
    worker: str


async def test_a_server_that_slept_past_its_lease_is_refused_when_it_wakes(migrated_url: str, tmp_path: Path) -> None:
    async with floor(tmp_path, migrated_url, machines=STORES + 2, count=2) as site:
        await site.discover()
        await site.deploy()
        await site.until_converged()
        machine = site.lab.machines[1]
        [(node_id,)] = await site.rack.rows("SELECT id FROM nodes WHERE uuid = CAST(:uuid AS uuid)", uuid=machine.uuid)
        slow = await _start_slow_run(site, machine, int(str(node_id)))
        sleeper = next(one for one in site.servers if slow.worker.endswith(f":{one.pid}"))
        [other] = [one for one in site.servers if one is not sleeper]
        sleeper.pause()
        await site.until(lambda: _is_lost(site, slow.id), "the run of the sleeper is given up")
        await site.until_converged()
        sleeper.wake()
        other.kill()
        # Only the sleeper is left: what runs now shows that it has been through its passes since it woke.
        await site.store.change(lambda session: retry_noderole(session, slow.node_role_id), actor="tester")
        await site.until_converged()
        assert await site.rack.rows("SELECT state FROM runs WHERE id = :id", id=slow.id) == [("lost",)]
        workers = await site.rack.rows(
            "SELECT worker FROM runs WHERE node_role_id = :id ORDER BY id DESC LIMIT 1", id=slow.node_role_id
        )
        assert str(workers[0][0]).endswith(f":{sleeper.pid}")
        assert any(old == slow.id for old, _ in machine.journal.superseded), "the slow run was still on the machine"
        assert site.interventions == [], "no server died while it handed out a secret"
        await site.check()


async def _start_slow_run(site: Floor, machine: Machine, node_id: int) -> SlowRun:
    """Have something run on a machine for longer than this test; gives its run, once the machine has it.

    Only this once: what takes its place is quick, however soon that comes.
    """
    execute, slow = machine.execute, list[int]()

    async def slow_once(token: int, role: str, seconds: float) -> None:
        if not slow and role == "lab-base":
            slow.append(token)
            seconds = 24 * 3600.0
        await execute(token, role, seconds)

    vars(machine)["execute"] = slow_once

    async def work(session: Session) -> None:
        [row] = await session.rows(
            "SELECT nr.id FROM node_roles nr JOIN roles r ON r.id = nr.role_id AND r.name = 'lab-base'"
            " WHERE nr.node_id = :id",
            id=node_id,
        )
        await retry_noderole(session, row.id)

    async def begun() -> bool:
        return any(execution.token in slow for execution in machine.journal.executions)

    await site.store.change(work, actor="tester")
    await site.until(begun, "the slow run is on its machine")
    [(node_role_id, worker)] = await site.rack.rows("SELECT node_role_id, worker FROM runs WHERE id = :id", id=slow[0])
    return SlowRun(slow[0], int(str(node_role_id)), str(worker))


async def _is_lost(site: Floor, run_id: int) -> bool:
    return await site.rack.rows("SELECT state FROM runs WHERE id = :id", id=run_id) == [("lost",)]


# --- (c) without a database


async def test_the_database_restarts_in_the_middle(tmp_path: Path) -> None:
    async with _own_postgres(tmp_path) as (url, restart), floor(tmp_path, url, machines=20, count=2) as site:
        await site.discover()
        await site.deploy()
        for share in (0.8, 0.4):
            before = await site.left()
            await site.until(partial(_at_most, site, round(before * share)), f"only {share:.0%} of the work is left")
            async with site.without_database():
                await restart()
        await site.until_converged()
        await site.check()


async def _at_most(site: Floor, left: int) -> bool:
    await site.help()
    return await site.left() <= left


@contextlib.asynccontextmanager
async def _own_postgres(home: Path) -> AsyncIterator[tuple[str, Callable[[], Awaitable[None]]]]:
    """A server of our own behind an address that stays the same, and how to restart it."""
    postgres = EmbeddedPostgres(home / "database", NO_SYNC)
    with tempfile.TemporaryDirectory(prefix="rackwright-test-") as place:
        link = Path(place, "sockets")

        def link_again() -> None:
            assert postgres.sockets is not None
            link.unlink(missing_ok=True)
            link.symlink_to(postgres.sockets)

        async def start() -> None:
            await postgres.start()
            link_again()

        async def restart() -> None:
            await postgres.stop()
            await start()

        await start()
        try:
            yield database_url(link), restart
        finally:
            await postgres.stop()
