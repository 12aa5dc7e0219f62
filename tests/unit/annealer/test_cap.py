"""The automatic cap, on a simulated system that bears only so many runs at once."""

import heapq
import random
import statistics

import pytest

from rackwright.annealer.run_cap import AutoCap

SECONDS = 40.0


class LoadedSystem:
    """A simulated system. Beyond the number of runs that it bears, each takes longer the more there are, so that all
    together do less. It is slower in some seconds than in others, by itself."""

    def __init__(self, bears: int, seed: int, uneven: float) -> None:
        self.bears = bears
        self.uneven = uneven
        self.now = 0.0
        self._chance = random.Random(seed)  # repeatable, not secret
        self._ends: list[float] = []
        self._second, self._slow = -1, 1.0

    def _slowness(self) -> float:
        if int(self.now) != self._second:
            self._second, self._slow = int(self.now), max(0.5, self._chance.gauss(1.0, self.uneven))
        return self._slow

    def fill(self, limit: int) -> None:
        while len(self._ends) < limit:
            load = (len(self._ends) + 1) / self.bears
            takes = 0.05 * max(1.0, load * load) + self._chance.expovariate(1 / 0.006)
            heapq.heappush(self._ends, self.now + takes * self._slowness())

    def next_end(self) -> None:
        self.now = heapq.heappop(self._ends)


def rate(bears: int, seed: int, fixed: int | None = None, uneven: float = 0.0, later: int | None = None) -> float:
    """Return the runs a second in the last two fifths of the time. `later`: the number it bears from the middle on."""
    system = LoadedSystem(bears, seed, uneven)
    auto = AutoCap(clock=lambda: system.now)
    ended = 0
    while system.now < SECONDS:
        if later and system.now > SECONDS * 0.4:
            system.bears = later
        system.fill(fixed or auto.limit)
        system.next_end()
        auto.observe(1, 0)
        ended += system.now > SECONDS * 0.6
    return ended / (SECONDS * 0.4)


def best(bears: int, seed: int, uneven: float = 0.0) -> float:
    return max(rate(bears, seed, fixed, uneven) for fixed in (bears // 2, bears, bears * 5 // 4, bears * 2))


@pytest.mark.parametrize("bears", [10, 20, 60])
@pytest.mark.parametrize("seed", range(3))
def test_it_comes_close_to_the_best_number_from_far_below_it_and_from_above(bears: int, seed: int) -> None:
    assert rate(bears, seed) >= 0.9 * best(bears, seed)


@pytest.mark.parametrize("bears", [20, 60])
def test_a_system_that_is_uneven_by_itself_does_not_lead_it_astray(bears: int) -> None:
    found = [rate(bears, seed, uneven=0.1) / best(bears, seed, uneven=0.1) for seed in range(10)]
    assert statistics.mean(found) >= 0.85
    assert min(found) >= 0.6


@pytest.mark.parametrize("seed", range(3))
def test_it_follows_a_system_that_bears_less_all_at_once(seed: int) -> None:
    assert rate(60, seed, later=20) >= 0.8 * best(20, seed)


def feed(auto: AutoCap, clock: list[float], per_second: int, failed: int = 0) -> None:
    clock[0] += 1.0
    auto.observe(per_second, failed)


def test_a_step_that_brings_nothing_is_taken_back_and_a_smaller_one_tried_the_other_way() -> None:
    clock = [0.0]
    auto = AutoCap(cap=40, clock=lambda: clock[0])
    seen = []
    for per_second in (1000, 500, 1000):
        feed(auto, clock, per_second)
        seen.append(auto.limit)
    assert seen == [60, 40, 32]


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
    feed(auto, clock, 1100)
    assert auto.limit > held, "the hour counts for nothing, so the step brought something"
