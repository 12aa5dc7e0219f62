"""The health of this server's own software: the declared and built-in checks, and one of the agent's own parts.

How checks run is `health_runner.py`; how the results of others are read is `software.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rackwright.mesh.errors import BadSettings
from rackwright.mesh.health.health_checks import BadCheck, Check, Outcome, Result, Status, built_in_checks, parse_checks
from rackwright.mesh.health.health_runner import HealthRunner
from rackwright.mesh.metrics import Metrics

AGENT_CHECK = Check(name="agent", interval=5.0, timeout=1.0, failures=1)
"""The agent's own parts, shown to all servers as the health of its software."""


class OwnHealth:
    """`runner` runs the checks within `async with`; each new result is counted and published with all the others."""

    def __init__(
        self,
        declared: Sequence[Mapping[str, Any]],
        failing_parts: Callable[[], dict[str, str]],
        publish: Callable[[bytes], None],
        metrics: Metrics,
    ) -> None:
        self._failing_parts, self._publish, self._metrics = failing_parts, publish, metrics
        self.runner = HealthRunner(_checks(declared), self._checked, [(AGENT_CHECK, self._check_parts)])

    async def _check_parts(self) -> Outcome:
        failing = self._failing_parts()
        return Outcome(not failing, "; ".join(f"{part} failed: {why}" for part, why in failing.items()))

    def _checked(self, result: Result) -> None:
        self._metrics.checks.labels(result.name).set(result.status is Status.PASSING)
        self._publish(self.runner.packed())


def _checks(declared: Sequence[Mapping[str, Any]]) -> list[Check]:
    """Return what was declared, and the built-in checks that were not declared in another way."""
    try:
        checks = parse_checks(declared)
    except BadCheck as problem:
        raise BadSettings(f"agent.yml: {problem}") from problem
    names = {check.name for check in checks}
    if AGENT_CHECK.name in names:
        raise BadSettings(f"agent.yml: the check {AGENT_CHECK.name!r} is the agent's own; give yours another name")
    return checks + [check for check in built_in_checks() if check.name not in names]
