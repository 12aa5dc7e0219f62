"""Choices for the stateful test, each step's from a seed of its own.

Hypothesis draws the seeds and leaves out steps to make a failing case shorter. It does not make the choices within a
step itself: it prefers small and repeated ones, and then most steps are refused for the same few reasons.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from random import Random
from typing import Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
U = TypeVar("U")

Choice = Callable[["Dice"], T]


class Dice:
    def __init__(self, random: Random) -> None:
        self.random = random

    def draw(self, choice: Choice[T]) -> T:
        return choice(self)

    def one_in(self, count: int) -> bool:
        return self.random.randrange(count) == 0


def sampled_from(values: Sequence[T]) -> Choice[T]:
    return lambda dice: dice.random.choice(values)


def integers(low: int, high: int) -> Choice[int]:
    return lambda dice: dice.random.randint(low, high)


def pairs(first: Choice[T], second: Choice[U]) -> Choice[tuple[T, U]]:
    return lambda dice: (dice.draw(first), dice.draw(second))


def lists(of: Choice[T], low: int, high: int) -> Choice[list[T]]:
    """Choose a list without repeats, so perhaps of fewer than `low`."""
    return lambda dice: list(dict.fromkeys(dice.draw(of) for _ in range(dice.random.randint(low, high))))


def composite(function: Callable[Concatenate[Dice, P], T]) -> Callable[P, Choice[T]]:
    @wraps(function)
    def choose(*args: P.args, **kwargs: P.kwargs) -> Choice[T]:
        return lambda dice: function(dice, *args, **kwargs)

    return choose
