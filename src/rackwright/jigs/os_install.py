"""The jig of `provisioner-os-install`: it opens an install attempt and answers "accepted".

The jig does not wait: the attempt is a stored state machine that any server advances, and that ends the run.
"""

from typing import Self

from rackwright.domain.attributes import MISSING, read_at_path
from rackwright.domain.runs import Outcome, Run
from rackwright.jigs.base import Jig
from rackwright.jigs.ports import JigPorts, OpenAttempt
from rackwright.reach.run_log import Log


class BadInstall(Exception):
    """Something that the install needs is missing. The machine was not touched; the text says what to do."""


class OsInstallJig(Jig):
    kind = "os-install"
    own_log = True
    """The log of its runs is written with the steps of their attempts."""

    def __init__(self, open_attempt: OpenAttempt) -> None:
        self._open_attempt = open_attempt

    @classmethod
    def make(cls, ports: JigPorts) -> Self:
        return cls(ports.open_attempt)

    async def run(self, run: Run, log: Log) -> Outcome:
        target_os = read_at_path(run.input, ("provisioner", "target_os"))
        if target_os is MISSING or not isinstance(target_os, str) or not target_os:
            return Outcome.failure("No operating system is chosen: set provisioner-target-os on the deployment-role.")
        try:
            await self._open_attempt(run, target_os)
        except BadInstall as error:
            return Outcome.failure(str(error))
        return Outcome.accepted()
