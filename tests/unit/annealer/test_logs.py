"""Logs of runs in memory: bounded for each run and for all, full at a run's share, and cut with a note."""

import asyncio
from typing import Any

import psycopg
import pytest

from rackwright.annealer import logs as module
from rackwright.annealer.logs import (
    ALLOWANCE_BYTES,
    MAX_SHARE_BYTES,
    MIN_SHARE_BYTES,
    OVERDRAFT_SHARES,
    TAIL_BYTES,
    RunLogs,
)
from rackwright.store.runs.run_logs import LOG_LIMIT


class RecordingStore:
    """A store that records the texts that are written to it, and can be away."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.texts: dict[int, str] = {}
        self.away = False
        monkeypatch.setattr(module, "append_logs", self.append)
        self.logs = RunLogs(self)  # type: ignore[arg-type]

    async def change(self, work: Any, actor: str) -> None:
        if self.away:
            raise psycopg.OperationalError("away")
        await work(None)

    async def append(self, session: None, chunks: list[tuple[int, str]], *, bounded: bool) -> None:
        for id, text in chunks:
            self.texts[id] = self.texts.get(id, "") + text


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> RecordingStore:
    return RecordingStore(monkeypatch)


async def test_a_run_is_full_at_its_share_and_another_one_is_not(written: RecordingStore) -> None:
    with written.logs.writer(1) as chatty, written.logs.writer(2) as quiet:
        chatty("x" * MAX_SHARE_BYTES)
        quiet("y\n")
        assert chatty.full
        assert not quiet.full
        waiting = asyncio.create_task(chatty.room())
        await asyncio.sleep(0)
        assert not waiting.done()
        await written.logs.flush()
        await waiting
        assert not chatty.full
    assert written.texts == {1: "x" * MAX_SHARE_BYTES, 2: "y\n"}


async def test_the_shares_of_all_runs_are_no_more_than_the_allowance(written: RecordingStore) -> None:
    writers = [written.logs.writer(number) for number in range(64)]
    for writer in writers:
        writer.__enter__()
    assert MIN_SHARE_BYTES <= written.logs.share <= ALLOWANCE_BYTES // 64
    for writer in writers:
        writer.__exit__(None, None, None)
    await written.logs.flush()
    assert written.logs.share == MAX_SHARE_BYTES


async def test_nothing_is_lost_while_the_database_is_away_and_nobody_talks_on(written: RecordingStore) -> None:
    with written.logs.writer(1) as log:
        written.away = True
        log("a" * MAX_SHARE_BYTES)
        await written.logs.flush()
        assert log.full
        written.away = False
        await written.logs.flush()
        log("b")
    await written.logs.flush()
    assert written.texts[1] == "a" * MAX_SHARE_BYTES + "b"
    assert written.logs._open == {}


async def test_what_a_run_says_on_while_it_is_full_is_left_out_and_told_in_its_place(written: RecordingStore) -> None:
    with written.logs.writer(1) as log:
        for _ in range(2 * OVERDRAFT_SHARES):
            log("a" * MAX_SHARE_BYTES)
        await written.logs.flush()
        log("b\n")
    await written.logs.flush()
    kept, mark, rest = written.texts[1].partition("\n[")
    assert set(kept) == {"a"}
    assert mark
    assert rest == "3.5 MiB of output are left out here.]\nb\n"
    assert len(kept) + 7 * 2**19 == 2 * OVERDRAFT_SHARES * MAX_SHARE_BYTES


@pytest.mark.parametrize("letter", ["x", "é"])
async def test_a_log_that_is_too_long_is_cut_once_and_has_its_end(written: RecordingStore, letter: str) -> None:
    """However long: 30 MiB of short lines in blocks, written down in between."""
    block = f"{letter * 7}\n" * 2**13
    size = len(block.encode())
    with written.logs.writer(1) as log:
        count = 0
        while count * size < 30 * 2**20:
            log(block)
            count += 1
            if log.full:
                await written.logs.flush()
        log("the last line\n")
    await written.logs.flush()
    text = written.texts[1]
    assert LOG_LIMIT - 2 * TAIL_BYTES < len(text.encode()) <= LOG_LIMIT
    assert text.endswith(f"{letter * 7}\nthe last line\n")
    assert text.count("[") == 2
    head, _, rest = text.partition("\n[The log is cut here, after 9.9 MiB; its end follows when the run is over.]\n")
    mark, _, tail = rest.partition("]\n")
    assert mark == "\n[20.0 MiB of output are left out here."
    assert len(head.encode()) + 20 * 2**20 + len(tail.encode()) == pytest.approx(count * size + 14, rel=0.01)


async def test_one_text_that_is_longer_than_a_log_is_kept_as_far_as_it_goes(written: RecordingStore) -> None:
    with written.logs.writer(1) as log:
        log("".join(f"{number:09d}\n" for number in range(2 * LOG_LIMIT // 10)))
    await written.logs.flush()
    text = written.texts[1]
    assert text.startswith("000000000\n000000001\n")
    assert text.endswith(f"{2 * LOG_LIMIT // 10 - 1:09d}\n")
    assert len(text) <= LOG_LIMIT


async def test_the_rest_of_an_ended_log_is_the_callers_and_no_flush_stores_it_twice(written: RecordingStore) -> None:
    with written.logs.writer(1) as ended, written.logs.writer(2) as running:
        ended("first\n")
        await written.logs.flush()
        ended("last\n")
        running("so far\n")
        ended.end()
        async with written.logs.rest_of([1, 3]) as texts:
            assert texts == [(1, "last\n")]
            await written.logs.flush()
    await written.logs.flush()
    assert written.texts == {1: "first\n", 2: "so far\n"}


async def test_the_rest_of_a_log_that_its_caller_could_not_store_is_stored_by_a_flush(written: RecordingStore) -> None:
    with written.logs.writer(1) as ended:
        ended("last\n")
    with pytest.raises(psycopg.OperationalError):
        async with written.logs.rest_of([1]):
            raise psycopg.OperationalError("away")
    await written.logs.flush()
    assert written.texts == {1: "last\n"}


async def test_the_rest_of_a_log_follows_what_a_flush_is_about_to_store(
    written: RecordingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow_append(session: None, chunks: list[tuple[int, str]], *, bounded: bool) -> None:
        begun.set()
        await go_on.wait()
        await written.append(session, chunks, bounded=bounded)

    monkeypatch.setattr(module, "append_logs", slow_append)
    with written.logs.writer(1) as run_log:
        run_log("first\n")
        flush = asyncio.create_task(written.logs.flush())
        await begun.wait()
        run_log("last\n")

    async def settle() -> None:
        async with written.logs.rest_of([1]) as texts:
            await written.append(None, texts, bounded=True)

    settling = asyncio.create_task(settle())
    await asyncio.sleep(0)
    assert not settling.done()
    go_on.set()
    await asyncio.gather(flush, settling)
    assert written.texts == {1: "first\nlast\n"}
