"""The jig that calls the role's own code: `do_transition` of its class in `roles.py`, in a worker process.

What the method prints is the run's log. It may take as long as the run may; a run that is cancelled, or lost its lease,
ends with its process.
"""

from typing import Self

from rackwright.domain.errors import RackwrightError
from rackwright.domain.runs import Outcome, Run
from rackwright.jigs.base import Jig
from rackwright.jigs.ports import JigPorts, Transitions
from rackwright.reach.run_log import Log


class TransitionFailed(RackwrightError):
    """do_transition did not come to an outcome."""

    type = "transition-failed"


class RoleProvidedJig(Jig):
    """Calls `do_transition`. It keeps nothing of nodes: its roles have hooks for that."""

    kind = "role-provided"
    runs_files = True

    def __init__(self, transitions: Transitions) -> None:
        self._transitions = transitions

    @classmethod
    def make(cls, ports: JigPorts) -> Self:
        return cls(ports.transitions)

    async def run(self, run: Run, log: Log) -> Outcome:
        try:
            return await self._transitions.do_transition(run, log)
        except TransitionFailed as error:
            return Outcome.failure(f"{run.role}: {error.message}")
