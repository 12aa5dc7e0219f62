"""A conversation with a node: output and wrapper words are understood in whatever pieces their bytes come."""

import asyncio
import itertools

from hypothesis import given
from hypothesis import strategies as st
from tests.support.waiting import until

from rackwright.domain.masking import Mask
from rackwright.reach import conversation as module
from rackwright.reach.conversation import Conversation, Output, Throttle, WrapperAnswer, WrapperVerdict

RECEIVED = b"sh: warning\n@n started\n@n script a.sh\n@n ended 0\n/a\ts\tx\n/b\ts\ty\n@n over\nnoise\n"


@given(st.lists(st.integers(0, len(RECEIVED)), max_size=8))
async def test_the_wrapper_is_understood_whatever_the_pieces(cuts: list[int]) -> None:
    log: list[str] = []
    conversation = Conversation("n", log.append)
    edges = [0, *sorted(cuts), len(RECEIVED)]
    for start, end in itertools.pairwise(edges):
        conversation.feed_control(RECEIVED[start:end])
    assert conversation.started
    assert conversation.script == "a.sh"
    assert conversation.answer == WrapperAnswer(WrapperVerdict.ENDED, "0")
    assert bytes(conversation.written) == b"/a\ts\tx\n/b\ts\ty\n"
    assert "".join(log) == "sh: warning\nnoise\n"


async def test_a_refusal_is_the_answer_and_not_the_end_that_follows_it() -> None:
    conversation = Conversation("n", lambda line: None)
    conversation.feed_control(b"@n refused older 7\n@n ended 125\n@n over\n")
    assert conversation.answer == WrapperAnswer(WrapperVerdict.REFUSED, "older 7")


async def test_a_line_with_another_nonce_is_not_the_wrapper() -> None:
    log: list[str] = []
    conversation = Conversation("n", log.append)
    conversation.feed_control(b"@m ended 0\n")
    assert conversation.answer is None
    assert log == ["@m ended 0\n"]


async def test_a_wrapper_that_is_gone_without_a_last_word_was_killed() -> None:
    conversation = Conversation("n", lambda line: None, last_words=0.0)
    conversation.exited()
    await conversation.wait_finished()
    assert str(conversation.lost) == "the wrapper was killed"


def test_output_is_passed_on_as_it_comes_and_its_end_is_kept() -> None:
    log: list[str] = []
    output = Output(log.append)
    blocks = ["".join(f"line {number}\n" for number in range(start, start + 1000)) for start in range(0, 9000, 1000)]
    for block in blocks:
        output.feed(block.encode())
    assert log == blocks
    assert output.tail().splitlines() == [f"line {number}" for number in range(8980, 9000)]


def test_a_last_line_without_end_gets_one() -> None:
    log: list[str] = []
    output = Output(log.append)
    output.feed(b"one\r\ntwo")
    output.end()
    output.end()
    assert "".join(log) == "one\ntwo\n"
    assert output.tail() == "one\ntwo"


def test_a_character_cut_in_two_is_put_together() -> None:
    log: list[str] = []
    output = Output(log.append)
    output.feed("é".encode()[:1])
    output.feed("é".encode()[1:] + b"\xff\n")
    assert "".join(log) == "é\N{REPLACEMENT CHARACTER}\n"


def test_a_tail_is_masked_before_it_is_cut() -> None:
    """Else a long line would end in the middle of a secret."""
    output = Output(lambda text: None, Mask(["hunter2-the-second"]))
    output.feed(b"x" * (module.TAIL_LINE_LIMIT - 5) + b"hunter2-the-")
    output.feed(b"second\n")
    assert "hunt" not in output.tail()
    assert output.tail().endswith("x***** ...")


class FullLog:
    """A log whose fullness a test sets."""

    def __init__(self) -> None:
        self.full = True
        self.emptied = asyncio.Event()

    def __call__(self, text: str) -> None:
        self.text = text

    async def room(self) -> None:
        await self.emptied.wait()


async def test_a_node_is_not_heard_while_the_log_is_full_until_its_run_is_over() -> None:
    log, calls = FullLog(), []
    conversation = Conversation("n", log)
    throttle = Throttle(conversation, lambda: calls.append("paused"), lambda: calls.append("resumed"))
    throttle.check()
    throttle.check()
    assert calls == ["paused"]
    log.emptied.set()
    await until(lambda: calls == ["paused", "resumed"], "the node is calls again")
    throttle.check()
    log.emptied.clear()
    conversation.feed_control(b"@n over\n")
    await until(lambda: calls == ["paused", "resumed"] * 2, "the rest is calls at once")
    throttle.check()
    assert len(calls) == 4


async def test_a_wrapper_that_is_gone_is_not_given_up_while_its_words_wait_for_room() -> None:
    log = FullLog()
    conversation = Conversation("n", log, last_words=0.0)
    conversation.exited()
    for _ in range(10):
        await asyncio.sleep(0)
    assert conversation.lost is None
    log.full = False
    await conversation.wait_finished()
    assert str(conversation.lost) == "the wrapper was killed"
