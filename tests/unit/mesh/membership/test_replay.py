"""The replay window: every message is accepted once, and old ones not at all."""

from hypothesis import given, settings
from hypothesis import strategies as st

from rackwright.mesh.membership.messages import Gossip, Message
from rackwright.mesh.membership.replay_window import WINDOW, ReplayGuard


def _message(sequence: int, session: int = 1, sender: str = "a") -> Message:
    return Message(sender, session, sequence, Gossip())


def test_a_message_is_accepted_once() -> None:
    guard = ReplayGuard(10)
    assert guard.accept(_message(5))
    assert not guard.accept(_message(5))


def test_messages_may_arrive_out_of_order() -> None:
    guard = ReplayGuard(10)
    assert [guard.accept(_message(number)) for number in (5, 3, 4, 3, 6, 5)] == [True, True, True, False, True, False]


def test_what_is_older_than_the_window_is_refused() -> None:
    guard = ReplayGuard(10)
    assert guard.accept(_message(2 * WINDOW))
    assert not guard.accept(_message(WINDOW))
    assert guard.accept(_message(WINDOW + 1))


def test_an_earlier_session_is_refused_and_a_later_one_starts_anew() -> None:
    guard = ReplayGuard(10)
    assert guard.accept(_message(900, session=7))
    assert not guard.accept(_message(901, session=6))
    assert guard.accept(_message(1, session=8))
    assert not guard.accept(_message(901, session=7))


def test_senders_do_not_disturb_each_other() -> None:
    guard = ReplayGuard(10)
    assert guard.accept(_message(5, sender="a"))
    assert guard.accept(_message(5, sender="b"))


def test_the_guard_remembers_a_bounded_number_of_senders() -> None:
    guard = ReplayGuard(10)
    for number in range(1000):
        guard.accept(_message(1, sender=f"s{number}"))
    assert len(guard) == 10


@given(st.lists(st.integers(1, WINDOW), max_size=200))
@settings(max_examples=100, deadline=None)
def test_within_the_window_just_the_first_of_each_is_accepted(sequences: list[int]) -> None:
    guard = ReplayGuard(10)
    seen: set[int] = set()
    for sequence in sequences:
        assert guard.accept(_message(sequence)) == (sequence not in seen)
        seen.add(sequence)
