"""The run that a jig is given, and the outcome that the jig returns."""

from dataclasses import dataclass, field
from enum import StrEnum

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.masking import Mask

DEFAULT_DEADLINE = 3600.0
"""Seconds a run may take if neither its role nor its jig says."""


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
    """The work of one noderole, as it is given to a jig."""

    id: int
    node_role_id: int
    node_id: int
    node: str
    role: str
    jig: str
    kind: str
    """The implementation of the jig."""
    input: JsonObject
    deadline: float
    """Seconds the run may take."""
    attempt: int = 1
    refresh: bool = False
    trace: str = ""
    secrets: frozenset[str] = frozenset()
    """The top keys of `input` below which there is a secret in the clear: they must not be shown."""
    mask: Mask = field(default_factory=Mask, repr=False, compare=False)
    """Hides those secrets in what comes back from the run."""
    barclamp: str = ""
    """The barclamp of the run's role."""
    content: str = ""
    """The digest of the barclamp's files as they were when the run started, if the jig runs any."""

    @property
    def token(self) -> int:
        """The fencing token: of two runs on one node the later has the higher one, and only the later may go on."""
        return self.id


class Answer(StrEnum):
    """How a run went, as its jig says."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ACCEPTED = "accepted"
    """The work goes on without a worker: a stored state machine ends the run later."""


@dataclass(frozen=True)
class Outcome:
    """What a jig returns for a run."""

    answer: Answer
    error: str = ""
    wall: JsonObject = field(default_factory=dict)
    """The values that the run found out; they replace the noderole's wall."""

    @classmethod
    def success(cls, wall: JsonObject | None = None) -> "Outcome":
        return cls(Answer.SUCCEEDED, wall=wall or {})

    @classmethod
    def failure(cls, error: str) -> "Outcome":
        return cls(Answer.FAILED, error=error)

    @classmethod
    def accepted(cls) -> "Outcome":
        return cls(Answer.ACCEPTED)
