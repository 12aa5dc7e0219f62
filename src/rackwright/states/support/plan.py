"""The plan of one state: what would change, and the steps that change it.

Check makes the plan, apply carries it out, so a dry run and a real one cannot differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List

from ..module import Arguments, Check, Context, Result


@dataclass
class Plan:
    """The changes to show, and the steps that make them, in the order in which they are done."""

    changes: Dict[str, Any] = field(default_factory=dict)
    steps: List[Callable[[], object]] = field(default_factory=list)
    outputs: Dict[str, Any] = field(default_factory=dict)

    def step(self, action: Callable[[], object], **changes: Any) -> None:
        """Add a step and the changes that it makes."""
        self.steps.append(action)
        self.changes.update(changes)

    def check(self, already: str, would: str) -> Check:
        """Return the check with this plan; the comment is `would` if there are changes, else `already`."""
        return Check(self.changes, would if self.changes else already, self.outputs, found=self)


def carry_out(arguments: Arguments, check: Check, context: Context) -> Result:
    """Carry out the plan of a check: the `apply` of every function whose check makes a plan."""
    plan: Plan = check.found
    for step in plan.steps:
        step()
    return Result(True, check.changes, check.comment.replace("would be ", "was "), plan.outputs)
