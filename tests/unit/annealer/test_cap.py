"""The cap that finds itself, on a simulated system that bears only so many at once."""

import heapq
import random

import pytest

from rackwright.annealer.cap import AutoCap

SECONDS = 40.0


class Crowd:
    """Beyond what it bears, each takes longer the more there are, so that all together do less."""

    def __init__(self, bears: int, seed: int) -> None:
        self.bears = bears
        self.now = 0.0
        self._chance = random.Random(seed)  # repeatable, not secret
        self._ends: list[float] = []

    def fill(self, limit: int) -> None:
        while len(self._ends) < limit:
            crowd = (len(self._ends) + 1) / self.bears
            takes = 0.05 * max(1.0, crowd * crowd) + self._chance.expovariate(1 / 0.006)
            heapq.heappush(self._ends, self.now + takes)

    def next_end(self) -> None:
        self.now = heapq.heappop(self._ends)


def rate(bears: int, seed: int, fixed: int | None = None) -> float:
    """Runs a second in the last two fifths of the time."""
    crowd = Crowd(bears, seed)
    auto = AutoCap(clock=lambda: crowd.now)
    ended = 0
    while crowd.now < SECONDS:
        crowd.fill(fixed or auto.limit)
        crowd.next_end()
        auto.observe(1, 0)
        ended += crowd.now > SECONDS * 0.6
    return ended / (SECONDS * 0.4)


@pytest.mark.parametrize("bears", [10, 20, 60])
@pytest.mark.parametrize("seed", range(3))
def test_it_comes_close_to_the_best_number_from_far_below_it_and_from_above(bears: int, seed: int) -> None:
    best = max(rate(bears, seed, fixed) for fixed in (bears // 2, bears, bears * 5 // 4, bears * 2))
    assert rate(bears, seed) >= 0.9 * best


def feed(auto: AutoCap, clock: list[float], per_second: int, failed: int = 0) -> None:
    clock[0] += 1.0
    auto.observe(per_second, failed)


def test_a_collapse_halves_it_once_and_the_smaller_rate_after_that_is_no_second_one() -> None:
    clock = [0.0]
    auto = AutoCap(cap=40, clock=lambda: clock[0])
    feed(auto, clock, 1000)
    held = auto.limit
    feed(auto, clock, 500)
    assert auto.limit == round(held / 2)
    feed(auto, clock, 300)
    assert auto.limit > round(held / 2)


def test_failures_that_come_with_more_work_halve_it() -> None:
    clock = [0.0]
    auto = AutoCap(cap=40, clock=lambda: clock[0])
    feed(auto, clock, 1000)
    held = auto.limit
    feed(auto, clock, 1100, failed=300)
    assert auto.limit == round(held / 2)


def test_having_nothing_to_do_is_no_overload() -> None:
    clock = [0.0]
    auto = AutoCap(cap=40, clock=lambda: clock[0])
    feed(auto, clock, 1000)
    held = auto.limit
    auto.observe(0, 0, busy=False)
    clock[0] += 3600.0
    auto.observe(0, 0)
    feed(auto, clock, 1000)
    assert auto.limit > held * 0.7, "a step, no halving"
