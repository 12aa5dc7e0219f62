"""The jig that only simulates work: it takes as long and fails as often as the noderole's data says.

The data under `simulate/`: `seconds` and `jitter` (up to so many seconds more), `fail_rate` (0 to 1), `fail_times` (so
many attempts fail first), `seed`. Random numbers are drawn from the seed, the node, the role and the attempt, so a lab
can be repeated, in any order of its runs.
"""

import asyncio
import hashlib
import random
from dataclasses import dataclass

from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.errors import Invalid
from rackwright.domain.runs import Outcome, Run
from rackwright.jigs.base import Jig
from rackwright.reach.run_log import Log

KEY = "simulate"


@dataclass(frozen=True)
class Simulation:
    """The options of a simulated run."""

    seconds: float = 0.0
    jitter: float = 0.0
    fail_rate: float = 0.0
    fail_times: int = 0
    seed: int = 0

    @classmethod
    def of(cls, values: JsonObject) -> "Simulation":
        options = values.get(KEY, {})
        if not isinstance(options, dict):
            raise Invalid(f"{KEY} must be a map, not {options!r}.")
        return cls(
            seconds=_number(options, "seconds"),
            jitter=_number(options, "jitter"),
            fail_rate=_number(options, "fail_rate", most=1.0),
            fail_times=int(_number(options, "fail_times")),
            seed=int(_number(options, "seed")),
        )

    def random_of(self, run: Run) -> random.Random:
        """Return a source of random numbers: the same for the same attempt of the same noderole, in any process."""
        key = f"{self.seed}/{run.node}/{run.role}/{run.attempt}"
        return random.Random(hashlib.sha256(key.encode()).digest())  # noqa: S311  # to be repeatable, no secret


def _number(options: JsonObject, name: str, most: float = 86400.0 * 30) -> float:
    value: Json = options.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise Invalid(f"{KEY}/{name} must be a number from 0 to {most:g}, not {value!r}.")
    return value


class SimulateJig(Jig):
    kind = "simulate"

    async def run(self, run: Run, log: Log) -> Outcome:
        try:
            simulation = Simulation.of(run.input)
        except Invalid as error:
            return Outcome.failure(error.message)
        numbers = simulation.random_of(run)
        seconds = simulation.seconds + simulation.jitter * numbers.random()
        fails = numbers.random() < simulation.fail_rate or run.attempt <= simulation.fail_times
        log(f"{run.role} on {run.node}, attempt {run.attempt}: this will take {seconds:.3f} s\n")
        await asyncio.sleep(seconds)
        if fails:
            log("and fails, as it was told to\n")
            return Outcome.failure(f"simulated failure of attempt {run.attempt}")
        log("done\n")
        return Outcome.success({"simulated": {"seconds": round(seconds, 3), "attempt": run.attempt}})
