"""The jig of `network-<name>` roles: the node gets its addresses on that network, and keeps them.

Nothing is done to the node: DHCP hands the addresses out, and whatever configures interfaces takes them from here.
"""

from typing import Self

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.errors import RackwrightError
from rackwright.domain.runs import Outcome, Run
from rackwright.jigs.base import Jig
from rackwright.jigs.ports import Assign, JigPorts
from rackwright.reach.run_log import Log

PREFIX = "network-"


class NetworkJig(Jig):
    """Keeps nothing of nodes: addresses go with the noderole."""

    kind = "network"

    def __init__(self, assign: Assign) -> None:
        self._assign = assign

    @classmethod
    def make(cls, ports: JigPorts) -> Self:
        return cls(ports.assign)

    async def run(self, run: Run, log: Log) -> Outcome:
        network = run.role.removeprefix(PREFIX)
        try:
            addresses = await self._assign(run, network)
        except RackwrightError as error:
            return Outcome.failure(error.message)
        log(f"{run.node} on network {network}: {', '.join(addresses) or 'no addresses'}\n")
        wall: JsonObject = {"network": {network: {"addresses": [*addresses]}}}
        return Outcome.success(wall)
