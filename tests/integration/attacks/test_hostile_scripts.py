"""What a taken-over machine sends back of a run: whatever its shape, the server has soon read it, and does other work.

All runs, logs and answers of a server share one thread, so what takes it a second keeps everybody waiting a second. A
machine knows the mark of its run's wrapper, and can say whatever the wrapper and its helpers could, and much else.
"""

import asyncio
import json
import time
from collections.abc import Callable
from typing import cast

import pytest

from rackwright.annealer.logs import RunLogs
from rackwright.reach.attribute_lines import BadAttribute, parse_wall
from rackwright.reach.conversation import WRITTEN_LIMIT, Conversation
from rackwright.store.store import Store

SOON = 1.5
"""Seconds of this process, on a slow machine."""
MUCH = 8 * 2**20
NO_STORE = cast(Store, None)
"""Of logs that are never written down."""


def seconds_of(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


LONG = {"list": [*range(20_000)]}
SHAPES = {
    "one path as deep as it is long": "/a" * (MUCH // 2) + "\ts\t\n",
    "the same attribute again and again": "/a\ts\t\n" * (MUCH // 6),
    "very many attributes": "".join(f"/{number}\ts\t\n" for number in range(MUCH // 12)),
    "a list that is taken over again and again": "/list\ts\t\n/list/0\ts\t\n" * 4_000,
    "values nested too deep": f"/a\tj\t{'[' * MUCH}\n",
    "a number without end": f"/a\tj\t{'9' * MUCH}\n",
    "an index without end": f"/list/{'9' * MUCH}\ts\tx\n",
    "a line without parts": "x\n",
    "a line of too many parts": "/a\ts\tb\tc\n",
    "an escape that is none": "/a\ts\t\\q\n",
    "half an escape": "/a\ts\t\\\n",
}


@pytest.mark.parametrize("written", SHAPES.values(), ids=SHAPES.keys())
def test_attributes_of_any_shape_are_soon_refused(written: str) -> None:
    def read() -> None:
        with pytest.raises(BadAttribute):
            parse_wall(written, {**LONG})

    assert seconds_of(read) < SOON


def test_as_much_as_a_machine_may_write_is_soon_read() -> None:
    """Not slower than a few dozen readings of it as JSON, whatever the machine."""
    value = f"[{','.join(['[]'] * (WRITTEN_LIMIT // 3 - 10))}]"
    parsing = min(seconds_of(lambda: json.loads(value)) for _ in range(3))
    assert seconds_of(lambda: parse_wall(f"/a\tj\t{value}\n", {})) < 50 * parsing


async def test_more_than_a_machine_may_write_is_not_kept() -> None:
    talk = Conversation("n", lambda line: None)
    talk.feed_control(b"@n started\n@n ended 0\n")
    for _ in range(64):
        talk.feed_control(b"/a\ts\t" + b"x" * 2**16 + b"\n")
    assert len(talk.written) <= WRITTEN_LIMIT
    assert talk.answer is not None
    assert talk.answer.verdict == "broken"


async def test_a_name_that_the_wrapper_says_is_short() -> None:
    talk = Conversation("n", lambda line: None)
    talk.feed_control(b"@n script " + b"x" * 2**20 + b"\n@n ended " + b"7" * 2**20 + b"\n")
    assert talk.answer is not None
    assert len(talk.script) + len(talk.answer.detail) < 1000


@pytest.mark.parametrize("line", [b"\n", b"a\n"])
@pytest.mark.parametrize("channel", ["output", "control"])
async def test_a_flood_of_short_lines_is_soon_taken_in(line: bytes, channel: str) -> None:
    """As much as is read from a connection at once; and beyond what is shown of a run, next to nothing."""
    talk = Conversation("n", lambda line: None)
    feed = talk.feed_control if channel == "control" else talk.output.feed
    piece = line * (2**18 // len(line))
    assert seconds_of(lambda: feed(piece)) < SOON

    def go_on() -> None:
        for _ in range(40):
            talk.output.feed(piece)

    assert seconds_of(go_on) < SOON


async def test_a_flood_of_lines_is_soon_left_out_of_the_log() -> None:
    """As when the database is away for a while."""
    with RunLogs(NO_STORE).writer(1) as write:

        def flood() -> None:
            for _ in range(600_000):
                write("12345678")

        assert seconds_of(flood) < 4 * SOON


async def test_a_machine_that_says_a_thousand_times_that_a_run_ended_is_heard_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    talk = Conversation("n", lambda line: None)
    timers: list[float] = []
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "call_later", lambda delay, *work: timers.append(delay))
    for _ in range(1000):
        talk.exited()
    assert len(timers) == 1
