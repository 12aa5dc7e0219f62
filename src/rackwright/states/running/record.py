"""Records of what each state did, the report of a whole run, and the mask that hides secrets in both."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any, Dict, Iterable, List, Optional, Set

from ..catalogue import MASK
from ..combine import State
from .decision import Ending


class StateOutcome(str, Enum):
    """How a state ended. Only append: other programs read these words."""

    UNCHANGED = "unchanged"
    CHANGED = "changed"
    SKIPPED = "skipped"
    FAILED = "failed"
    BLOCKED = "blocked"


class Record:
    """The result of one state, or of one reaction of a listener."""

    __slots__ = (
        "changes",
        "comment",
        "end",
        "function",
        "id",
        "name",
        "outcome",
        "outputs",
        "result",
        "sequence",
        "skipped_by_condition",
        "start",
        "state",
    )

    def __init__(self, state: State, outcome: StateOutcome, result: Optional[bool], comment: str) -> None:
        self.state = state.index
        self.id = state.id
        self.name = state.name
        self.function = state.qualified_function
        self.outcome = outcome
        self.result = result
        self.changes: Dict[str, Any] = {}
        self.comment = comment
        self.outputs: Dict[str, Any] = {}
        self.start = 0.0
        self.end = 0.0
        self.sequence = 0
        self.skipped_by_condition = False
        """True if a condition skipped the state; then it does not react to a watched change either."""

    def ending(self, ran: bool = True) -> Ending:
        return Ending(self.result, bool(self.changes), ran)

    def fields(self) -> Dict[str, Any]:
        """Return the values that `${ID.key}` can refer to."""
        common = {
            "id": self.id,
            "name": self.name,
            "result": self.result,
            "changes": self.changes,
            "comment": self.comment,
            "outcome": self.outcome.value,
        }
        return {**self.changes, **self.outputs, **common}

    def as_json(self, mask: "Mask") -> Dict[str, Any]:
        return {
            "id": mask.text(self.id),
            "name": mask.text(self.name),
            "function": self.function,
            "result": self.result,
            "changes": mask.value(self.changes),
            "comment": mask.text(self.comment),
            "start": round(self.start, 6),
            "end": round(self.end, 6),
            "outcome": self.outcome.value,
        }


class Mask:
    """The secrets of a run, to be hidden in everything that leaves it."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: Set[str] = set()
        self._pattern: Optional["re.Pattern[str]"] = None
        self.add(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        new_secrets = set(secrets) - self._secrets
        if new_secrets:
            self._secrets |= new_secrets
            # The longest first: a secret that begins with another one must be replaced completely.
            alternatives = sorted(self._secrets, key=len, reverse=True)
            self._pattern = re.compile("|".join(re.escape(secret) for secret in alternatives))

    def text(self, text: str) -> str:
        return text if self._pattern is None else self._pattern.sub(MASK, text)

    def value(self, value: Any) -> Any:
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key) if isinstance(key, str) else key: self.value(part) for key, part in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(part) for part in value]
        if isinstance(value, int) and not isinstance(value, bool) and str(value) in self._secrets:
            return MASK
        return value


class Report:
    """The records of a whole run, ready to be shown."""

    def __init__(self, mode: str, test: bool, mask: Mask) -> None:
        self.mode = mode
        self.test = test
        self.records: List[Record] = []
        self.not_run: List[State] = []
        """The states that did not run because `failhard` stopped the run."""
        self.mask = mask
        self.seconds = 0.0

    @property
    def failed(self) -> bool:
        return any(record.result is False for record in self.records)

    def summary(self) -> Dict[str, int]:
        counts = {outcome.value: 0 for outcome in StateOutcome}
        for record in self.records:
            counts[record.outcome.value] += 1
        return counts

    def as_json(self) -> Dict[str, Any]:
        return {
            "states": [record.as_json(self.mask) for record in self.records],
            "not_run": [
                {"id": state.id, "name": state.name, "function": state.qualified_function} for state in self.not_run
            ],
            "mode": self.mode,
            "test": self.test,
            "summary": self.summary(),
            "seconds": round(self.seconds, 6),
        }
