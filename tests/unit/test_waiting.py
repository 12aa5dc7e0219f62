"""Waiting in tests: what is returned, and what a wait that is given up says."""

import itertools

import pytest
from tests.support.waiting import until, wait_until


def test_the_first_answer_that_is_true_is_returned() -> None:
    numbers = itertools.count()
    assert wait_until(lambda: next(numbers) // 3, "three were asked", every=0) == 1


async def test_it_may_be_awaited() -> None:
    numbers = itertools.count()

    async def ask() -> int:
        return next(numbers) // 3

    assert await until(ask, "three were asked", every=0) == 1
    assert await until(lambda: next(numbers) // 3, "it was asked once more", every=0) == 1


def test_what_was_awaited_and_the_last_answer_are_told() -> None:
    with pytest.raises(AssertionError, match=r"^not within 0 s \(the last answer was \[\]\): there are nodes$"):
        wait_until(list, "there are nodes", 0)
    with pytest.raises(AssertionError, match=r"^not within 0 s: it ends; it runs$"):
        wait_until(lambda: False, lambda: "it ends; it runs", 0)


async def test_how_things_are_may_be_asked_for_at_the_end() -> None:
    async def tell() -> str:
        return "it ends; it runs"

    with pytest.raises(AssertionError, match=r"^not within 0 s: it ends; it runs$"):
        await until(lambda: False, tell, 0)
