"""What every benchmark prints: one JSON object with its figures and its goals.

These machines are shared and noisy, so a goal compares two figures of one run; nothing here is a timed test.
"""

import json
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Goal:
    name: str
    value: float
    target: float
    met: bool


def at_most(name: str, value: float, target: float) -> Goal:
    return Goal(name, round(value, 4), target, value <= target)


def at_least(name: str, value: float, target: float) -> Goal:
    return Goal(name, round(value, 4), target, value >= target)


def emit(bench: str, figures: dict[str, Any], goals: list[Goal], write: Callable[[str], object] = print) -> None:
    """Print the report. The exit status is the caller's: a missed goal is a figure to read, not a failed test."""
    write(
        json.dumps(
            {
                "bench": bench,
                "python": platform.python_version(),
                "machine": f"{platform.machine()} {sys.platform}",
                "figures": figures,
                "goals": [asdict(goal) for goal in goals],
            },
            indent=2,
        )
    )
