"""What a conversation makes of bytes that come in any pieces."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackwright.jigs import conversation
from rackwright.jigs.conversation import Answer, Conversation, Output, Verdict

SAID = b"sh: warning\n@n started\n@n script a.sh\n@n ended 0\n/a\ts\tx\n/b\ts\ty\n@n over\nnoise\n"


@given(st.lists(st.integers(0, len(SAID)), max_size=8))
async def test_the_wrapper_is_understood_whatever_the_pieces(cuts: list[int]) -> None:
    log: list[str] = []
    talk = Conversation("n", log.append)
    edges = [0, *sorted(cuts), len(SAID)]
    for start, end in itertools.pairwise(edges):
        talk.control(SAID[start:end])
    assert talk.started
    assert talk.script == "a.sh"
    assert talk.answer == Answer(Verdict.ENDED, "0")
    assert bytes(talk.written) == b"/a\ts\tx\n/b\ts\ty\n"
    assert log == ["sh: warning", "noise"]


async def test_a_refusal_is_the_answer_and_not_the_end_that_follows_it() -> None:
    talk = Conversation("n", lambda line: None)
    talk.control(b"@n refused older 7\n@n ended 125\n@n over\n")
    assert talk.answer == Answer(Verdict.REFUSED, "older 7")


async def test_a_line_with_another_nonce_is_not_the_wrapper() -> None:
    log: list[str] = []
    talk = Conversation("n", log.append)
    talk.control(b"@m ended 0\n")
    assert talk.answer is None
    assert log == ["@m ended 0"]


async def test_a_wrapper_that_is_gone_without_a_last_word_was_killed() -> None:
    talk = Conversation("n", lambda line: None, last_words=0.0)
    talk.exited()
    await talk.wait_finished()
    assert str(talk.lost) == "the wrapper was killed"


def test_output_beyond_the_limit_is_left_out_but_its_end_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "OUTPUT_LIMIT", 2**20)
    log: list[str] = []
    output = Output(log.append)
    for number in range(200_000):
        output.feed(b"line %d\n" % number)
    assert log[-1] == "[The output is longer than 1 MiB; the rest is not shown.]"
    assert sum(len(line) + 1 for line in log) < 2**20 + 200
    assert output.tail().endswith("line 199999")


def test_a_line_without_end_is_passed_on_in_pieces() -> None:
    log: list[str] = []
    Output(log.append).feed(b"x" * (conversation.LINE_LIMIT + 1))
    assert log == ["x" * conversation.LINE_LIMIT]


def test_a_character_cut_in_two_is_put_together() -> None:
    log: list[str] = []
    output = Output(log.append)
    output.feed("é".encode()[:1])
    output.feed("é".encode()[1:] + b"\xff\n")
    assert log == ["é\N{REPLACEMENT CHARACTER}"]
