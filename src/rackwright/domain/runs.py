"""The run: what a jig is handed, and what it answers."""

from dataclasses import dataclass, field
from enum import StrEnum

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.masking import Mask

DEFAULT_DEADLINE = 3600.0
"""Seconds a run may take if neither role nor jig says."""


class RunState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    ACCEPTED = "accepted"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"


ENDED = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED, RunState.LOST})
HOLDS_SLOT = frozenset({RunState.RUNNING, RunState.ACCEPTED})
"""While a run is in one of these, no other may start on its node."""


@dataclass(frozen=True)
class Run:
    """One noderole, handed to its jig."""

    id: int
    node_role_id: int
    node_id: int
    node: str
    role: str
    jig: str
    kind: str
    """Which implementation of a jig."""
    input: JsonObject
    deadline: float
    """Seconds it may take."""
    attempt: int = 1
    refresh: bool = False
    trace: str = ""
    secrets: frozenset[str] = frozenset()
    """The top keys of `input` below which there is a secret, now in the clear: not to be shown."""
    mask: Mask = field(default_factory=Mask, repr=False, compare=False)
    """Hides those secrets in what comes back."""
    barclamp: str = ""
    """The barclamp of its role."""
    content: str = ""
    """The digest of the barclamp's files as they were when the run started, if its jig runs any."""

    @property
    def token(self) -> int:
        """Fencing: of two runs on one node the later has the higher token, and only the later may go on."""
        return self.id


class Answer(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ACCEPTED = "accepted"
    """The work goes on without a worker: a stored state machine ends the run later."""


@dataclass(frozen=True)
class Outcome:
    """What a jig says of a run."""

    answer: Answer
    error: str = ""
    wall: JsonObject = field(default_factory=dict)
    """What the run found out; it replaces the noderole's wall."""

    @classmethod
    def success(cls, wall: JsonObject | None = None) -> "Outcome":
        return cls(Answer.SUCCEEDED, wall=wall or {})

    @classmethod
    def failure(cls, error: str) -> "Outcome":
        return cls(Answer.FAILED, error=error)

    @classmethod
    def accepted(cls) -> "Outcome":
        return cls(Answer.ACCEPTED)
