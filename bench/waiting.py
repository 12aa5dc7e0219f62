"""The tests' way of waiting, for benchmarks too: for a condition, with a deadline and an error that names it.

Benchmarks are started as files, so the repository itself is not where Python looks for modules.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.waiting import until, wait_until  # it is found only now

__all__ = ["HOUR", "until", "wait_until"]

HOUR = 3600.0
"""How long what is measured may take; a benchmark is slow where it runs out of this."""
