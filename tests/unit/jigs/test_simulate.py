"""The simulating jig: it takes as long and fails as often as it is told, and does the same each time."""

import asyncio

import pytest

from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.runs import Answer, Outcome, Run
from rackwright.jigs.simulate import SimulateJig


async def _outcome(simulate: JsonObject, attempt: int = 1, node: str = "n1") -> Outcome:
    run = Run(1, 1, 1, node, "role", "simulate", "simulate", {"simulate": simulate}, 60.0, attempt=attempt)
    return await SimulateJig().run(run, lambda _: None)


async def test_without_a_word_it_succeeds_at_once() -> None:
    run = Run(1, 1, 1, "n1", "role", "simulate", "simulate", {}, 60.0)
    log: list[str] = []
    outcome = await SimulateJig().run(run, log.append)
    assert outcome.answer is Answer.SUCCEEDED
    assert "".join(log).endswith("done\n")


async def test_it_takes_as_long_as_it_is_told() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await _outcome({"seconds": 0.05})
    assert loop.time() - began >= 0.05


async def test_the_first_attempts_fail_as_often_as_told() -> None:
    answers = [(await _outcome({"fail_times": 2}, attempt)).answer for attempt in (1, 2, 3)]
    assert answers == [Answer.FAILED, Answer.FAILED, Answer.SUCCEEDED]


async def test_chance_is_the_seeds_and_nothing_elses() -> None:
    first = [(await _outcome({"fail_rate": 0.3, "seed": 1}, node=f"n{n}")).answer for n in range(200)]
    again = [(await _outcome({"fail_rate": 0.3, "seed": 1}, node=f"n{n}")).answer for n in reversed(range(200))]
    other = [(await _outcome({"fail_rate": 0.3, "seed": 2}, node=f"n{n}")).answer for n in range(200)]
    assert first == again[::-1] != other
    assert 30 < first.count(Answer.FAILED) < 90


@pytest.mark.parametrize(("name", "value"), [("seconds", "soon"), ("fail_rate", 2), ("jitter", -1), ("seed", True)])
async def test_a_wrong_number_is_a_failure_that_names_it(name: str, value: Json) -> None:
    outcome = await _outcome({name: value})
    assert outcome.answer is Answer.FAILED
    assert f"simulate/{name}" in outcome.error
