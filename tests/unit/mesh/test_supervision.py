"""Parts of an agent that fail are logged, counted and started again with growing pauses, and end nothing else."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from tests.support.waiting import until

from rackwright.mesh import supervision
from rackwright.mesh.log import BURST, Log
from rackwright.mesh.metrics import Metrics
from rackwright.mesh.supervision import Supervisor


@pytest.fixture
def lines() -> list[dict[str, str]]:
    return []


@pytest.fixture
async def parts(lines: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Supervisor]:
    monkeypatch.setattr(supervision, "FIRST_PAUSE", 0.001)
    supervisor = Supervisor(Log("s1", lambda line: lines.append(json.loads(line))), Metrics())
    yield supervisor
    await supervisor.stop()


async def test_a_part_that_fails_is_started_again_until_it_is_well(
    parts: Supervisor, lines: list[dict[str, str]]
) -> None:
    starts: list[int] = []
    well = asyncio.Event()

    async def part() -> None:
        starts.append(len(starts))
        if len(starts) < 4:
            raise KeyError("what a peer sent")
        well.set()
        await asyncio.Event().wait()

    parts.keep("trial", part)
    await until(well.is_set, "it is well at the fourth start")
    assert [line["part"] for line in lines if line["event"] == "part_failed"] == ["trial"] * 3
    assert "KeyError" in parts.failing()["trial"]
    assert b'rackwright_mesh_part_failures_total{part="trial"} 3.0' in parts.metrics.text()


async def test_the_pauses_grow_and_the_log_does_not_fill(
    parts: Supervisor, lines: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    enough = asyncio.Event()
    resting = asyncio.Event()

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) >= 2 * BURST:
            enough.set()
            await resting.wait()

    async def fail() -> None:
        raise ValueError("again")

    monkeypatch.setattr("rackwright.mesh.supervision.asyncio.sleep", pause)
    parts.keep("trial", fail)
    await enough.wait()
    assert pauses[:3] == [0.002, 0.004, 0.008]
    assert pauses[-1] == supervision.LONGEST_PAUSE
    assert len(lines) == BURST


async def test_what_is_done_once_and_fails_is_told_and_ends_nothing(parts: Supervisor) -> None:
    async def fail() -> None:
        raise RecursionError("deep")

    parts.once("once", fail())
    await until(lambda: "once" in parts.failing(), "it is told")
