"""The hammer for machines with a Redfish controller, through sushy: one request to a controller at a time.

A controller may be hostile: its responses are bounded, and no other host is called on its behalf.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import sushy
import sushy.connector
import sushy.exceptions
from requests.exceptions import RequestException

from rackwright.domain.foreign import storable_text
from rackwright.domain.machines.power import has_bmc_login
from rackwright.hammers.base import BootDevice, ControllerUnreachable, Hammer, HammerFailed, HammerNode, Power
from rackwright.hammers.controller_http import ControllerAdapter

T = TypeVar("T")

DEADLINE = 60.0
SWITCH_SECONDS = 45.0
"""Seconds a machine may take to be off after its controller took the order. Many confirm first, and switch then."""
POLL_SECONDS = 1.0
THREADS = 32
"""Threads for calls to controllers only: whatever controllers do, the server has its other threads for logins and large
answers."""
LONGEST_REASON = 500
"""Characters of a controller's error that are shown."""
DEVICES = {BootDevice.NETWORK: sushy.BOOT_SOURCE_TARGET_PXE, BootDevice.DISK: sushy.BOOT_SOURCE_TARGET_HDD}
OFFS = (sushy.RESET_TYPE_FORCE_OFF, sushy.RESET_TYPE_GRACEFUL_SHUTDOWN)
RESTARTS = (sushy.RESET_TYPE_FORCE_RESTART, sushy.RESET_TYPE_POWER_CYCLE)
"""Ways to the same end, the surest first: a controller says which it offers."""
POWERS = {sushy.SYSTEM_POWER_STATE_ON: Power.ON, sushy.SYSTEM_POWER_STATE_OFF: Power.OFF}


class _StillOn(Exception):
    """The machine is not off, and was to be."""


class RedfishHammer(Hammer):
    """The hammer for Redfish.

    It takes from `settings["bmc"]`: address, username, password; `plain` for HTTP and `insecure` for a certificate
    nobody signed, both for a network of its own only.
    """

    kind = "redfish"
    description = "Power and boot device through a Redfish BMC"
    priority = 10
    bmc = True

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="redfish")
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def reaches(self, node: HammerNode) -> bool:
        return has_bmc_login(node.settings.get("bmc"))

    async def status(self, node: HammerNode) -> Power:
        return await self._with_system(node, lambda system: POWERS.get(system.power_state, Power.UNKNOWN))

    async def on(self, node: HammerNode) -> None:
        def switch_on(system: Any) -> None:
            if system.power_state == sushy.SYSTEM_POWER_STATE_POWERING_OFF:
                _wait_until_off(system)  # an order to switch on would be lost
            if system.power_state != sushy.SYSTEM_POWER_STATE_ON:
                system.reset_system(sushy.RESET_TYPE_ON)

        await self._with_system(node, switch_on)

    async def off(self, node: HammerNode) -> None:
        def switch_off(system: Any) -> None:
            if system.power_state != sushy.SYSTEM_POWER_STATE_OFF:
                _order_off(system)
                _wait_until_off(system)

        await self._with_system(node, switch_off)

    async def shut_down(self, node: HammerNode) -> bool:
        def ask(system: Any) -> bool:
            if sushy.RESET_TYPE_GRACEFUL_SHUTDOWN not in system.get_allowed_reset_system_values():
                return False
            if system.power_state != sushy.SYSTEM_POWER_STATE_OFF:
                system.reset_system(sushy.RESET_TYPE_GRACEFUL_SHUTDOWN)
            return True

        return await self._with_system(node, ask)

    async def reset(self, node: HammerNode) -> None:
        """Restart the machine; one that is off is switched on."""

        def restart(system: Any) -> None:
            is_on = system.power_state == sushy.SYSTEM_POWER_STATE_ON
            if system.power_state == sushy.SYSTEM_POWER_STATE_POWERING_OFF:
                _wait_until_off(system)
            system.reset_system(_offered(system, RESTARTS) if is_on else sushy.RESET_TYPE_ON)

        await self._with_system(node, restart)

    async def boot_device(self, node: HammerNode, device: BootDevice) -> None:
        await self._with_system(
            node,
            lambda system: system.set_system_boot_options(DEVICES[device], enabled=sushy.BOOT_SOURCE_ENABLED_ONCE),
        )

    async def _with_system(self, node: HammerNode, do: Callable[[Any], T]) -> T:
        """Call `do` with the machine's system, in a thread because sushy blocks; the deadline is for the whole call."""
        controller = _controller_of(node)
        turn = self._turns.setdefault(controller.address, asyncio.Lock())
        loop = asyncio.get_running_loop()
        ends = loop.time() + DEADLINE
        adapter = ControllerAdapter(controller.root, loop, ends)
        try:
            async with asyncio.timeout_at(ends), turn:
                return await loop.run_in_executor(self._threads, _call, controller, adapter, do)
        except TimeoutError:
            raise _failure(adapter, f"the BMC of {node.name} did not answer within {DEADLINE:g} s") from None


@dataclass(frozen=True)
class _Controller:
    """One controller, and its login."""

    node: str
    address: str
    root: str
    auth: Any
    verify: bool


def _controller_of(node: HammerNode) -> _Controller:
    bmc = node.settings.get("bmc")
    address = bmc.get("address") if isinstance(bmc, dict) else None
    if not isinstance(bmc, dict) or not isinstance(address, str):
        raise HammerFailed(f"{node.name} has no BMC address. Give it one: rackwright node bmc {node.name}")
    scheme = "http" if bmc.get("plain") is True else "https"
    auth = sushy.auth.BasicAuth(str(bmc.get("username", "")), str(bmc.get("password", "")))
    return _Controller(
        node.name, address, f"{scheme}://{address}/redfish/v1", auth, verify=bmc.get("insecure") is not True
    )


def _connector(controller: _Controller, adapter: ControllerAdapter) -> Any:
    # A BMC that is away for longer is tried again by the caller.
    connector = sushy.connector.Connector(controller.root, verify=controller.verify, server_side_retries=2)
    for scheme in ("http://", "https://"):
        connector._session.mount(scheme, adapter)
    return connector


def _call(controller: _Controller, adapter: ControllerAdapter, do: Callable[[Any], T]) -> T:
    """Call `do` with the controller's only system; raise HammerFailed with the reason if that fails."""
    where = f"the BMC of {controller.node} at {controller.address}"
    try:
        root = sushy.Sushy(controller.root, auth=controller.auth, connector=_connector(controller, adapter))
        systems = root.get_system_collection().get_members()
        if len(systems) != 1:
            raise HammerFailed(f"{where} speaks for {len(systems)} systems, not for one")
        return do(systems[0])
    except _StillOn as error:
        raise HammerFailed(f"{where}: {error}") from None
    except sushy.exceptions.AccessError:
        raise HammerFailed(f"{where} refuses the user name or the password") from None
    except (sushy.exceptions.SushyError, RequestException) as error:
        raise _failure(adapter, f"{where}: {_reason(error)}") from None
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:  # what sushy makes of nonsense
        raise HammerFailed(f"{where} answers what is no Redfish ({type(error).__name__}: {_reason(error)})") from error


def _offered(system: Any, resets: tuple[Any, ...]) -> Any:
    """Return the first of the resets that the controller offers; if it offers none, the first, for it to refuse."""
    offered = system.get_allowed_reset_system_values()
    return next((reset for reset in resets if reset in offered), resets[0])


def _order_off(system: Any) -> None:
    """Have the machine switched off. One that went off by itself in between is off, whatever is answered to that."""
    try:
        system.reset_system(_offered(system, OFFS))
    except sushy.exceptions.SushyError:
        system.refresh()
        if system.power_state not in (sushy.SYSTEM_POWER_STATE_OFF, sushy.SYSTEM_POWER_STATE_POWERING_OFF):
            raise


def _wait_until_off(system: Any) -> None:
    """Wait until the controller says that the machine is off: who switches it on before would find it still on."""
    ends = time.monotonic() + SWITCH_SECONDS
    while True:
        system.refresh()
        power = system.power_state
        if power == sushy.SYSTEM_POWER_STATE_OFF:
            return
        if time.monotonic() >= ends:
            shown = power.value if isinstance(power, sushy.PowerState) else "unknown"
            raise _StillOn(f"it took the order to switch off, but after {SWITCH_SECONDS:g} s its power is {shown}")
        time.sleep(POLL_SECONDS)


def _failure(adapter: ControllerAdapter, reason: str) -> HammerFailed:
    return HammerFailed(reason) if adapter.has_answered else ControllerUnreachable(reason)


def _reason(error: Exception) -> str:
    return storable_text(str(error), LONGEST_REASON)
