"""The hammer for simulated machines, whose BMCs are at one HTTP address of the lab. Only a lab's server has it.

Such a machine reports its address itself; so only the server's own host is called, and responses are not trusted.
"""

import json
from typing import Self

import httpx

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.networks.call_targets import simulated_address
from rackwright.hammers.base import BootDevice, BootedSystem, Hammer, HammerFailed, HammerNode, Power, bmc_kind
from rackwright.hammers.ports import HammerPorts

MOST_ANSWER = 16 * 1024


class SimulatedHammer(Hammer):
    """The hammer for simulated machines, and their probe: the lab says what a machine really runs.

    They have no soft shutdown, only a power switch.
    """

    kind = "simulated"
    description = "Simulated machines of a lab"
    lab_only = True

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    @classmethod
    def make(cls, ports: HammerPorts) -> Self:
        return cls(ports.http)

    def reaches(self, node: HammerNode) -> bool:
        """Return whether the machine reports that it is one of the lab."""
        return bmc_kind(node.reported_bmc) == self.kind

    async def status(self, node: HammerNode) -> Power:
        power = (await self._call("GET", node, "")).get("power")
        if power not in (Power.ON, Power.OFF):
            raise HammerFailed(f"the BMC of {node.name} says neither on nor off")
        return Power(power)

    async def on(self, node: HammerNode) -> None:
        await self._call("POST", node, "/power/on")

    async def off(self, node: HammerNode) -> None:
        await self._call("POST", node, "/power/off")

    async def reset(self, node: HammerNode) -> None:
        await self._call("POST", node, "/power/reset")

    async def boot_device(self, node: HammerNode, device: BootDevice) -> None:
        await self._call("POST", node, f"/boot_device/{device}")

    async def look(self, node: HammerNode) -> BootedSystem:
        machine = await self._call("GET", node, "")
        boot_id, device = machine.get("boot_id"), machine.get("root_device") or ""
        # A machine that is off has booted nothing, so there is nothing to return.
        if not isinstance(boot_id, str) or not isinstance(device, str):
            raise HammerFailed(f"{node.name} does not say what it has booted")
        return BootedSystem(boot_id, device)

    async def _call(self, method: str, node: HammerNode, path: str) -> JsonObject:
        address = simulated_address(node.reported_bmc)
        if address is None:
            raise HammerFailed(f"{node.name} is no simulated machine of this host")
        try:
            body = await self._fetch_body(method, address + path)
            answer = json.loads(body)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise HammerFailed(f"the BMC of {node.name} does not answer: {error or type(error).__name__}") from None
        except (ValueError, RecursionError):
            raise HammerFailed(f"the BMC of {node.name} answers something that is no JSON") from None
        return answer if isinstance(answer, dict) else {}

    async def _fetch_body(self, method: str, address: str) -> bytes:
        """Return the body of a response; raise HTTPError if it is too long."""
        body = b""
        async with self._client.stream(method, address) as response:
            response.raise_for_status()
            async for part in response.aiter_bytes():
                body += part
                if len(body) > MOST_ANSWER:
                    raise httpx.HTTPError(f"it sends more than {MOST_ANSWER} bytes")
        return body
