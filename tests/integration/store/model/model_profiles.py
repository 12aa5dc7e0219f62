"""How long and where Hypothesis looks for steps after which the store and the naive model differ."""

import os

from hypothesis import HealthCheck, Phase, settings

PROFILES = {
    "default": settings(max_examples=60, stateful_step_count=35, derandomize=True, phases=[Phase.generate]),
    "random": settings(max_examples=150, stateful_step_count=50, phases=[Phase.generate]),
    "thorough": settings(max_examples=1500, stateful_step_count=60, phases=[Phase.generate, Phase.shrink]),
}
CHOSEN = settings(
    PROFILES[os.environ.get("HYPOTHESIS_PROFILE", "default")],
    deadline=None,
    database=None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
