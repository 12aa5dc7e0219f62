"""The jig of `provisioner-os-install`: it opens an install attempt and answers "accepted".

Nothing waits here: the attempt is a stored state machine that any server advances, and that ends the run.
"""

from collections.abc import Awaitable, Callable

from rackwright.domain.attributes import MISSING, read
from rackwright.domain.catalogue import JsonObject
from rackwright.domain.runs import Outcome, Run
from rackwright.jigs.base import JigNode, Log

OpenAttempt = Callable[[Run, str, JsonObject], Awaitable[None]]
"""(run, target OS, everything frozen for it)"""


class OsInstallJig:
    def __init__(self, open_attempt: OpenAttempt) -> None:
        self._open_attempt = open_attempt

    async def node_create(self, node: JigNode) -> None:
        """It keeps nothing of nodes."""

    async def node_update(self, node: JigNode) -> None:
        """It keeps nothing of nodes."""

    async def node_delete(self, node: JigNode) -> None:
        """It keeps nothing of nodes."""

    async def run(self, run: Run, log: Log) -> Outcome:
        target_os = read(run.input, ("provisioner", "target_os"))
        if target_os is MISSING or not isinstance(target_os, str) or not target_os:
            return Outcome.failure("No operating system is chosen: set provisioner-target-os on the deployment-role.")
        frozen = run.input.get("provisioner")
        await self._open_attempt(run, target_os, frozen if isinstance(frozen, dict) else {})
        log(f"install of {target_os} begun\n")
        return Outcome.accepted()
