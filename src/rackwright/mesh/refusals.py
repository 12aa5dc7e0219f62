"""Counting and logging of refusals: of input from strangers, from members and out of the datastore."""

from rackwright.mesh.errors import MeshError
from rackwright.mesh.log import Log
from rackwright.mesh.metrics import Metrics


class Refusals:
    """Counts refusals in the metrics and writes them to the log."""

    def __init__(self, log: Log, metrics: Metrics) -> None:
        self._log, self._metrics = log, metrics

    def refuse(self, reason: str, **fields: str) -> None:
        """Count and log one refusal; `reason` is an error's stable code, or a word like one."""
        self._metrics.refused.labels(reason).inc()
        self._log.refused(reason, **fields)

    def refuse_record(self, problem: MeshError) -> None:
        """Count and log a record of the datastore that is not believed or cannot be read."""
        self.refuse(problem.code, source="datastore", why=str(problem))
