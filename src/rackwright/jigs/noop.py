"""The jig that does nothing and succeeds at once: for roles that only order others in the graph."""

from rackwright.domain.runs import Outcome, Run
from rackwright.jigs.base import Jig
from rackwright.reach.run_log import Log


class NoopJig(Jig):
    kind = "noop"
    instant = True

    async def run(self, run: Run, log: Log) -> Outcome:
        return Outcome.success()
