"""The health of this server's own software: the declared checks, the built-in ones, and a check of the agent's parts.

How checks run is `health_runner.py`; how the reports of other servers are read is `software.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rackwright.mesh.errors import BadSettings
from rackwright.mesh.health.health_checks import (
    BadCheck,
    Check,
    CheckReport,
    CheckResult,
    Status,
    built_in_checks,
    parse_checks,
)
from rackwright.mesh.health.health_runner import HealthRunner
from rackwright.mesh.metrics import Metrics

AGENT_CHECK = Check(name="agent", interval=5.0, timeout=1.0, failures=1)
"""The check of the agent's own parts, which all servers see as the health of its software."""


class OwnHealth:
    """This server's checks. `runner` runs them within `async with`; a new report is counted and all are published."""

    def __init__(
        self,
        declared: Sequence[Mapping[str, Any]],
        failing_parts: Callable[[], dict[str, str]],
        publish: Callable[[bytes], None],
        metrics: Metrics,
    ) -> None:
        self._failing_parts, self._publish, self._metrics = failing_parts, publish, metrics
        self.runner = HealthRunner(_all_checks(declared), self._report_changed, [(AGENT_CHECK, self._check_parts)])

    async def _check_parts(self) -> CheckResult:
        failing = self._failing_parts()
        return CheckResult(not failing, "; ".join(f"{part} failed: {why}" for part, why in failing.items()))

    def _report_changed(self, report: CheckReport) -> None:
        self._metrics.checks.labels(report.name).set(report.status is Status.PASSING)
        self._publish(self.runner.packed())


def _all_checks(declared: Sequence[Mapping[str, Any]]) -> list[Check]:
    """Return the declared checks, and the built-in checks that no declaration replaces."""
    try:
        checks = parse_checks(declared)
    except BadCheck as problem:
        raise BadSettings(f"agent.yml: {problem}") from problem
    names = {check.name for check in checks}
    if AGENT_CHECK.name in names:
        raise BadSettings(f"agent.yml: the check {AGENT_CHECK.name!r} is the agent's own; give yours another name")
    return checks + [check for check in built_in_checks() if check.name not in names]
