"""The hammer of machines with a Redfish controller, by sushy. Each thing done opens a session and ends it."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import sushy
import sushy.exceptions
from requests.exceptions import RequestException

from rackwright.hammers.base import BootDevice, HammerFailed, HammerNode, Power

T = TypeVar("T")

DEADLINE = 60.0
DEVICES = {BootDevice.NETWORK: sushy.BOOT_SOURCE_TARGET_PXE, BootDevice.DISK: sushy.BOOT_SOURCE_TARGET_HDD}
POWERS = {sushy.SYSTEM_POWER_STATE_ON: Power.ON, sushy.SYSTEM_POWER_STATE_OFF: Power.OFF}


class RedfishHammer:
    """`settings["bmc"]`: address, username, password; `plain` for HTTP and `insecure` for a certificate nobody signed,
    both for a network of its own only."""

    async def status(self, node: HammerNode) -> Power:
        return await self._with_system(node, lambda system: POWERS.get(system.power_state, Power.UNKNOWN))

    async def on(self, node: HammerNode) -> None:
        def switch_on(system: Any) -> None:
            if system.power_state != sushy.SYSTEM_POWER_STATE_ON:
                system.reset_system(sushy.RESET_TYPE_ON)

        await self._with_system(node, switch_on)

    async def off(self, node: HammerNode) -> None:
        def switch_off(system: Any) -> None:
            if system.power_state != sushy.SYSTEM_POWER_STATE_OFF:
                system.reset_system(sushy.RESET_TYPE_FORCE_OFF)

        await self._with_system(node, switch_off)

    async def reset(self, node: HammerNode) -> None:
        """Restart; one that is off is switched on."""

        def restart(system: Any) -> None:
            is_on = system.power_state == sushy.SYSTEM_POWER_STATE_ON
            system.reset_system(sushy.RESET_TYPE_FORCE_RESTART if is_on else sushy.RESET_TYPE_ON)

        await self._with_system(node, restart)

    async def boot_device(self, node: HammerNode, device: BootDevice) -> None:
        await self._with_system(
            node,
            lambda system: system.set_system_boot_options(DEVICES[device], enabled=sushy.BOOT_SOURCE_ENABLED_ONCE),
        )

    async def _with_system(self, node: HammerNode, do: Callable[[Any], T]) -> T:
        """sushy waits in its calls, so they have a thread; the deadline bounds how long anybody waits for it."""
        try:
            async with asyncio.timeout(DEADLINE):
                return await asyncio.to_thread(_call, node, do)
        except TimeoutError:
            raise HammerFailed(f"the BMC of {node.name} did not answer within {DEADLINE:g} s") from None


def _call(node: HammerNode, do: Callable[[Any], T]) -> T:
    bmc = node.settings.get("bmc")
    address = bmc.get("address") if isinstance(bmc, dict) else None
    if not isinstance(bmc, dict) or not isinstance(address, str):
        raise HammerFailed(f"{node.name} has no BMC address. Give it one: rackwright node bmc {node.name}")
    try:
        root = sushy.Sushy(
            f"{'http' if bmc.get('plain') is True else 'https'}://{address}/redfish/v1",
            auth=sushy.auth.BasicAuth(str(bmc.get("username", "")), str(bmc.get("password", ""))),
            verify=bmc.get("insecure") is not True,
            # A BMC that is away for long is tried again by whoever asked.
            server_side_retries=2,
        )
        systems = root.get_system_collection().get_members()
        if len(systems) != 1:
            raise HammerFailed(f"the BMC of {node.name} at {address} speaks for {len(systems)} systems, not for one")
        return do(systems[0])
    except sushy.exceptions.AccessError:
        raise HammerFailed(f"the BMC of {node.name} at {address} refuses the user name or the password") from None
    except (sushy.exceptions.SushyError, RequestException) as error:
        raise HammerFailed(f"the BMC of {node.name} at {address}: {error}") from None
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:  # what sushy makes of nonsense
        raise HammerFailed(
            f"the BMC of {node.name} at {address} answers what is no Redfish ({type(error).__name__}: {error})"
        ) from error
