"""The jig of `network-<name>` roles: the node gets its addresses on that network, and keeps them.

Nothing is done to the node: DHCP hands the addresses out, and whatever configures interfaces takes them from here.
"""

import asyncio
import json
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Self

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.errors import RackwrightError
from rackwright.domain.networks.networks import Address
from rackwright.domain.runs import Outcome, Run
from rackwright.jigs.base import Jig, Log
from rackwright.jigs.ports import Assign, JigPorts

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


async def own_addresses(launcher: Sequence[str] = ()) -> list[tuple[str, Address]]:
    """(interface, address) of this host, as the kernel has them now; nothing where there is no `ip` to ask."""
    try:
        process = await asyncio.create_subprocess_exec(
            *launcher, "ip", "-json", "address", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
    except FileNotFoundError:
        return []
    output, _ = await process.communicate()
    listed = json.loads(output) if process.returncode == 0 and output else []
    return [
        (link["ifname"], ip_address(one["local"]))
        for link in listed
        for one in link.get("addr_info", ())
        if one.get("scope") == "global" and "local" in one
    ]
