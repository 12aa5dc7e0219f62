"""The checker of histories itself: it must let through what could have happened, and nothing else."""

import random
from dataclasses import replace

import pytest
from tests.support.mesh.linearizable import Kind, Operation, first_problem


def read(value: str | None, start: float, end: float) -> Operation:
    return Operation("k", Kind.READ, value, start, end)


def write(value: str, start: float, end: float = float("inf")) -> Operation:
    return Operation("k", Kind.WRITE, value, start, end)


def swap(expected: str | None, value: str, start: float, end: float, swapped: bool = True) -> Operation:
    return Operation("k", Kind.SWAP, value, start, end, expected, swapped)


@pytest.mark.parametrize(
    "history",
    [
        [],
        [read(None, 0, 1)],
        [write("a", 0, 1), read("a", 2, 3)],
        [write("a", 0, 10), read(None, 1, 2), read("a", 3, 4)],
        [write("a", 0, 1), write("b", 2), read("a", 3, 4), read("b", 5, 6)],
        [write("a", 0, 1), write("b", 2), read("a", 3, 4)],
        [swap(None, "a", 0, 1), swap("a", "b", 0.5, 2), swap("a", "c", 3, 4, swapped=False), read("b", 5, 6)],
    ],
)
def test_what_could_have_happened_passes(history: list[Operation]) -> None:
    assert first_problem(history) is None


@pytest.mark.parametrize(
    "history",
    [
        [read("a", 0, 1)],
        [write("a", 0, 1), read(None, 2, 3)],
        [write("a", 0, 1), write("b", 2, 3), read("a", 4, 5)],
        [write("a", 0, 10), read("a", 1, 2), read(None, 3, 4)],
        [write("a", 0, 1), write("b", 2), read("b", 3, 4), read("a", 5, 6)],
        [swap(None, "a", 0, 1), swap(None, "b", 2, 3)],
        [write("a", 0, 1), swap("a", "b", 2, 3, swapped=False)],
    ],
)
def test_what_cannot_have_happened_is_rejected(history: list[Operation]) -> None:
    assert first_problem(history) is not None


def simulated(seed: int, count: int = 300) -> list[Operation]:
    """A history of several clients on a register that is one."""
    chance = random.Random(seed)
    state: str | None = None
    history: list[Operation] = []
    clock = 0.0
    for number in range(count):
        clock += chance.random()
        start, end = clock - chance.random() * 3, clock + chance.random() * 3
        if chance.random() < 0.5:
            history.append(read(state, start, end))
        else:
            state = str(number)
            history.append(write(state, start, end if chance.random() < 0.95 else float("inf")))
    return history


@pytest.mark.parametrize("seed", range(5))
def test_a_long_history_of_one_register_passes_and_its_corruption_does_not(seed: int) -> None:
    history = simulated(seed)
    assert first_problem(history) is None
    places = [n for n, operation in enumerate(history) if operation.kind is Kind.READ and n > 50]
    place = random.Random(seed).choice(places)
    stale = next(operation.value for operation in history[:20] if operation.kind is Kind.WRITE and operation.known)
    corrupted = [*history[:place], replace(history[place], value=stale), *history[place + 1 :]]
    assert first_problem(corrupted) is not None


def test_a_lost_write_is_found_however_many_outcomes_nobody_knows() -> None:
    unknown = [write(f"unknown-{number}", number) for number in range(200)]
    history = [write("a", 0, 1), write("b", 2, 3), *unknown]
    assert first_problem([*history, read("b", 300, 301)]) is None
    assert first_problem([*history, read("a", 300, 301)]) is not None
    failed = [swap("b", f"c-{number}", 300 + number, 300.5 + number, swapped=False) for number in range(3)]
    assert first_problem([*history, *failed]) is None, "one that nobody met may have come before"
