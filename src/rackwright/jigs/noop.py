"""The jig that does nothing, at once and with success: for roles that are only a place in the graph."""

from rackwright.domain.runs import Outcome, Run
from rackwright.jigs.base import JigNode, Log


class NoopJig:
    async def node_create(self, node: JigNode) -> None:
        """It keeps nothing of nodes."""

    async def node_update(self, node: JigNode) -> None:
        """It keeps nothing of nodes."""

    async def node_delete(self, node: JigNode) -> None:
        """It keeps nothing of nodes."""

    async def run(self, run: Run, log: Log) -> Outcome:
        return Outcome.success()
