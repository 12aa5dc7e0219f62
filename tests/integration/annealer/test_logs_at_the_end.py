"""A run that is seen to have ended has its whole log, however the run was executed."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.support.rack import Rack
from tests.support.waiting import until

from rackwright.annealer.annealer import Annealer, Pace
from rackwright.annealer.step import step
from rackwright.domain.runs import Outcome, Run
from rackwright.jigs.base import Jig
from rackwright.reach.run_log import Log
from rackwright.store.runs.claims import Claimant
from rackwright.store.runs.run_logs import read_log

TALKERS = """
name: talkers
roles:
- {name: talks, jig: simulate}
- {name: fails, jig: simulate}
- {name: talks-at-once, jig: noop}
"""
ROLES = ("talks", "fails", "talks-at-once")
NEVER = 86400.0
"""Seconds between two flushes of logs: none happens within a test."""


class TalkingJig(Jig):
    """Says something in the middle and at its end; says so and fails for the role `fails`."""

    async def run(self, run: Run, log: Log) -> Outcome:
        log(f"{run.role} begins\n")
        if not self.instant:
            await asyncio.sleep(0)
        log("and ends\n")
        return Outcome.failure("as it was told to") if run.role == "fails" else Outcome.success()


class InstantJig(TalkingJig):
    instant = True


JIGS: dict[str, Jig] = {"simulate": TalkingJig(), "noop": InstantJig()}


async def _annealed(rack: Rack, seen: Callable[[], Awaitable[bool]]) -> None:
    annealer = Annealer(rack.store, JIGS, Claimant("tester"), Pace(tick=0.5, log_flush=NEVER))
    task = asyncio.create_task(annealer.run())
    try:
        await until(seen, "all of it ran, and each log was whole when it had")
    finally:
        annealer.stop()
        await task


async def _stepped(rack: Rack, seen: Callable[[], Awaitable[bool]]) -> None:
    while not await seen():
        await step(rack.store, JIGS, Claimant("tester"), 10, "tester")


@pytest.mark.parametrize("execute", [_annealed, _stepped], ids=["by itself", "by hand"])
async def test_a_run_that_has_ended_has_its_whole_log(
    rack: Rack, execute: Callable[[Rack, Callable[[], Awaitable[bool]]], Awaitable[None]]
) -> None:
    await rack.import_text(TALKERS)
    await rack.deployment("web")
    await rack.node("n1")
    await rack.anneal()
    await rack.deploy("web", *(("n1", role) for role in ROLES))

    async def all_ended() -> bool:
        async with rack.store.read() as session:
            rows = await session.rows(
                "SELECT run.id, r.name FROM runs run JOIN node_roles nr ON nr.id = run.node_role_id"
                " JOIN roles r ON r.id = nr.role_id WHERE r.name = ANY (:roles) AND run.ended_at IS NOT NULL",
                roles=list(ROLES),
            )
            for row in rows:
                log = "".join(text for _, text in await read_log(session, row.id))
                assert log.endswith(f"{row.name} begins\nand ends\n")
        return {row.name for row in rows} == set(ROLES)

    await execute(rack, all_ended)
