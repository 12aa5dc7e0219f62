"""The hammer of simulated machines: their BMCs are one HTTP address of the lab."""

from typing import Any

import httpx

from rackwright.hammers.base import BootDevice, HammerFailed, HammerNode, Power, Seen


class SimulatedHammer:
    """Also their probe: the lab says what a machine really runs."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def status(self, node: HammerNode) -> Power:
        return Power((await self._call("GET", node, ""))["power"])

    async def on(self, node: HammerNode) -> None:
        await self._call("POST", node, "/power/on")

    async def off(self, node: HammerNode) -> None:
        await self._call("POST", node, "/power/off")

    async def reset(self, node: HammerNode) -> None:
        await self._call("POST", node, "/power/reset")

    async def boot_device(self, node: HammerNode, device: BootDevice) -> None:
        await self._call("POST", node, f"/boot_device/{device}")

    async def look(self, node: HammerNode) -> Seen:
        found = await self._call("GET", node, "")
        return Seen(found["boot_id"], found["root_device"] or "")

    async def _call(self, method: str, node: HammerNode, path: str) -> Any:
        bmc = node.settings.get("bmc")
        address = bmc.get("address") if isinstance(bmc, dict) else None
        if not isinstance(address, str):
            raise HammerFailed(f"{node.name} has no BMC address")
        try:
            answer = await self._client.request(method, address + path)
            answer.raise_for_status()
        except httpx.HTTPError as error:
            raise HammerFailed(f"the BMC of {node.name} does not answer: {error or type(error).__name__}") from None
        return answer.json()
