"""The jig of `network-<name>` roles: assigns a node its addresses on that network, which it keeps.

Nothing is done to the node: DHCP hands the addresses out, and other roles that configure interfaces take them from the
wall.
"""

from typing import Self

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.errors import RackwrightError
from rackwright.domain.runs import Outcome, Run
from rackwright.jigs.base import Jig
from rackwright.jigs.ports import AssignAddresses, JigPorts
from rackwright.reach.run_log import Log

PREFIX = "network-"


class NetworkJig(Jig):
    """Assigns addresses. It keeps nothing of nodes: addresses are released with the noderole."""

    kind = "network"

    def __init__(self, assign_addresses: AssignAddresses) -> None:
        self._assign_addresses = assign_addresses

    @classmethod
    def make(cls, ports: JigPorts) -> Self:
        return cls(ports.assign_addresses)

    async def run(self, run: Run, log: Log) -> Outcome:
        network = run.role.removeprefix(PREFIX)
        try:
            addresses = await self._assign_addresses(run, network)
        except RackwrightError as error:
            return Outcome.failure(error.message)
        log(f"{run.node} on network {network}: {', '.join(addresses) or 'no addresses'}\n")
        wall: JsonObject = {"network": {network: {"addresses": [*addresses]}}}
        return Outcome.success(wall)
