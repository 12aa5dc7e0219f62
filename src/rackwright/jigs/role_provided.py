"""The jig whose work is the role's own: `do_transition` of its class in `roles.py`, in a worker process.

What the method prints is the run's log. It may take as long as the run may; a run that is cancelled, or lost its lease,
ends with its process.
"""

from typing import Protocol

from rackwright.domain.errors import RackwrightError
from rackwright.domain.runs import Outcome, Run
from rackwright.jigs.base import JigNode, Log


class Transitions(Protocol):
    """Who calls `do_transition`: it raises what went wrong, and whatever becomes of it, nothing goes on afterwards."""

    async def do_transition(self, run: Run, log: Log) -> Outcome: ...


class TransitionFailed(RackwrightError):
    """do_transition did not come to an outcome."""

    type = "transition-failed"


class RoleProvidedJig:
    def __init__(self, transitions: Transitions) -> None:
        self._transitions = transitions

    async def node_create(self, node: JigNode) -> None:
        """It keeps nothing of nodes; its roles have hooks for that."""

    async def node_update(self, node: JigNode) -> None:
        """It keeps nothing of nodes; its roles have hooks for that."""

    async def node_delete(self, node: JigNode) -> None:
        """It keeps nothing of nodes; its roles have hooks for that."""

    async def run(self, run: Run, log: Log) -> Outcome:
        try:
            return await self._transitions.do_transition(run, log)
        except TransitionFailed as error:
            return Outcome.failure(f"{run.role}: {error.message}")
