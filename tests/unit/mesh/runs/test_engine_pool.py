"""The pool of engines: real processes, a spare one of them started before there is a job for it."""

import asyncio
import json
import os
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import PATIENCE

from rackwright.mesh.runs.engine_pool import Engine, EnginePool


@pytest.fixture
async def engines(tmp_path: Path) -> AsyncIterator[EnginePool]:
    pool = EnginePool(tmp_path / "runs.log", tmp_path / "engines")
    yield pool
    await pool.close()


def job(folder: Path, text: str) -> dict[str, Any]:
    files = {"init.sls": {"base64": b64encode(text.encode()).decode(), "mode": 0o600}}
    settings = {"sls": ["init"], "variables": {}, "mode": "ansible", "modules": {}, "secrets": []}
    work = {"do": "run", "run": "r1", "name": "s1", "targets": ["s1"], "test": False, "parallel": 0}
    return work | settings | {"files": files, "signers": str(folder / "signers"), "seen": str(folder / "seen.json")}


async def run_job(engine: Engine, work: dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
    """Run a job in an engine; return the exit status and the events."""
    events: list[dict[str, Any]] = []
    async with asyncio.timeout(PATIENCE):
        await engine.send(work)
        async for lines in engine.lines():
            for event in map(json.loads, lines):
                events.append(event)
                if event["kind"] == "ask":
                    await engine.send({"answer": event["ask"], "value": []})
        return await engine.wait(), events


async def test_an_engine_that_is_at_hand_is_taken_once(engines: EnginePool, tmp_path: Path) -> None:
    await engines.stock()
    first, second = await engines.take(), await engines.take()
    try:
        assert first is not second
        for engine in (first, second):
            status, events = await run_job(engine, job(tmp_path, "a:\n  test.nop: []\n"))
            assert status == 0
            assert [event["state"]["id"] for event in events if event["kind"] == "state"] == ["a"]
    finally:
        await first.kill()
        await second.kill()
    assert not list(engines.folder.iterdir())


async def test_what_a_killed_agent_left_behind_is_gone_when_it_starts_again(engines: EnginePool) -> None:
    engine = await engines.take()
    (left,) = engines.folder.iterdir()
    again = EnginePool(engines.log, engines.folder)
    assert not left.exists()
    left.mkdir()
    await engine.kill()
    await again.close()


async def test_an_engine_that_died_while_it_waited_is_replaced(engines: EnginePool, tmp_path: Path) -> None:
    await engines.stock()
    spare = await engines.take()
    await spare.kill()
    engines._spare = spare
    engine = await engines.take()
    try:
        status, _ = await run_job(engine, job(tmp_path, "a:\n  test.nop: []\n"))
        assert status == 0
    finally:
        await engine.kill()


async def test_every_one_of_many_states_is_told_in_order(engines: EnginePool, tmp_path: Path) -> None:
    text = "".join(f"s{number}:\n  test.nop: []\n" for number in range(3000))
    engine = await engines.take()
    try:
        _, events = await run_job(engine, job(tmp_path, text))
    finally:
        await engine.kill()
    assert [event["state"]["id"] for event in events if event["kind"] == "state"] == [
        f"s{number}" for number in range(3000)
    ]
    assert {(event["run"], event["target"]) for event in events} == {("r1", "s1")}


async def test_a_state_that_takes_its_time_is_told_when_it_starts(engines: EnginePool, tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    engine = await engines.take()
    kinds: list[str] = []
    try:
        async with asyncio.timeout(PATIENCE):
            await engine.send(job(tmp_path, f"a:\n  cmd.run:\n    - name: cat {go}\n"))
            async for lines in engine.lines():
                for event in map(json.loads, lines):
                    kinds.append(event["kind"])
                    if event["kind"] == "ask":
                        await engine.send({"answer": event["ask"], "value": []})
                    elif event["kind"] == "start":
                        assert event["id"] == "a"
                        # Only now may it end.
                        await asyncio.to_thread(go.write_text, "go")
    finally:
        await engine.kill()
    assert [kind for kind in kinds if kind != "ask"] == ["planned", "start", "state", "report"]
