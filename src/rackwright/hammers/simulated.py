"""The hammer of simulated machines: their BMCs are one HTTP address of the lab. Only a lab's server has it.

Where such a machine is, it says itself; so nothing is called but this host, and nothing is believed of the answer.
"""

import json
from typing import Self

import httpx

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.networks.call_targets import simulated_address
from rackwright.hammers.base import BootDevice, Hammer, HammerFailed, HammerNode, Power, Seen, bmc_kind
from rackwright.hammers.ports import HammerPorts

MOST_ANSWER = 16 * 1024


class SimulatedHammer(Hammer):
    """Also their probe: the lab says what a machine really runs. Its machines only know a switch."""

    kind = "simulated"
    description = "Simulated machines of a lab"
    lab_only = True

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    @classmethod
    def make(cls, ports: HammerPorts) -> Self:
        return cls(ports.http)

    def reaches(self, node: HammerNode) -> bool:
        """Whether the machine says that it is one of the lab."""
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

    async def look(self, node: HammerNode) -> Seen:
        answer = await self._call("GET", node, "")
        boot_id, device = answer.get("boot_id"), answer.get("root_device") or ""
        # One that is off has booted nothing, and is nothing to be seen.
        if not isinstance(boot_id, str) or not isinstance(device, str):
            raise HammerFailed(f"{node.name} does not say what it has booted")
        return Seen(boot_id, device)

    async def _call(self, method: str, node: HammerNode, path: str) -> JsonObject:
        address = simulated_address(node.reported_bmc)
        if address is None:
            raise HammerFailed(f"{node.name} is no simulated machine of this host")
        try:
            text = await self._answer(method, address + path)
            answer = json.loads(text)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise HammerFailed(f"the BMC of {node.name} does not answer: {error or type(error).__name__}") from None
        except (ValueError, RecursionError):
            raise HammerFailed(f"the BMC of {node.name} answers something that is no JSON") from None
        return answer if isinstance(answer, dict) else {}

    async def _answer(self, method: str, address: str) -> bytes:
        """The body of an answer, as far as it is taken."""
        text = b""
        async with self._client.stream(method, address) as answer:
            answer.raise_for_status()
            async for part in answer.aiter_bytes():
                text += part
                if len(text) > MOST_ANSWER:
                    raise httpx.HTTPError(f"it sends more than {MOST_ANSWER} bytes")
        return text
