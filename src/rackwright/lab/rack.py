"""A rack of virtual machines and the server that provisions them, in the namespaces of this process.

The process is meant to be the first of a PID namespace: when it ends, for whatever reason, all the others end too.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rackwright.client.access import access_of_home
from rackwright.client.awaited import AsyncApiClient
from rackwright.client.errors import NoAnswer
from rackwright.domain.catalogue import JsonObject
from rackwright.lab.bmc import Login, create_bmc
from rackwright.lab.hardware import Hardware, check_programs
from rackwright.lab.network import BRIDGE, IPV4, LabNetwork, add_tap, make_bridge
from rackwright.lab.serving import Serving, in_this_process
from rackwright.lab.virtual import VirtualMachine
from rackwright.server.listener import listening
from rackwright.server.settings import Options
from rackwright.store.store import Store

log = logging.getLogger(__name__)

PORT, MACHINE_PORT = 8090, 8091


def kernel_arguments(hardware: Sequence[Hardware]) -> str:
    """Return arguments that send the kernel's output to the serial line, where `lab console` shows it.

    An emulated timer is late when this computer is busy; the kernel takes it for a broken timer and panics, so the
    kernel is told not to check. A kernel that panics all the same starts again.
    """
    consoles = dict.fromkeys(f"console={machine.emulation.serial}" for machine in hardware)
    return " ".join([*consoles, "quiet no_timer_check panic=10"])


@dataclass(frozen=True)
class RackedMachine:
    """A machine, with the address of its BMC and the login for it."""

    machine: VirtualMachine
    bmc: str
    login: Login = field(repr=False)


@dataclass(frozen=True)
class Rack:
    """The running server and its machines."""

    store: Store
    """The server's store"""
    machines: Sequence[RackedMachine]
    api: AsyncApiClient
    """A client of the server, as administrator"""

    async def register_bmcs(self) -> None:
        """Tell the server the BMC of each machine as soon as the machine is discovered. Ends when all are told."""
        missing = {racked.machine.hardware.mac: racked for racked in self.machines}
        while missing:
            # Without an answer it asks again: the server may be busy, or just restarting.
            with contextlib.suppress(NoAnswer):
                for node in await self.api.pages("/nodes"):
                    for mac in missing.keys() & set(node["macs"]):
                        await self._set_bmc(node["name"], missing[mac])
                        del missing[mac]
            await asyncio.sleep(0.5)

    async def _set_bmc(self, node: str, racked: RackedMachine) -> None:
        await self.api.put(f"/nodes/{node}/bmc", self.bmc_settings(racked), check_unchanged=False)

    def bmc_settings(self, racked: RackedMachine) -> JsonObject:
        """Return the settings with which the server reaches the BMC of a machine."""
        return {
            "kind": "redfish",
            "address": racked.bmc,
            "username": racked.login.username,
            "password": racked.login.password,
            "plain": True,
        }


@asynccontextmanager
async def running_rack(
    home: Path,
    folder: Path,
    hardware: Sequence[Hardware],
    serving: Serving = in_this_process,
    network: LabNetwork = IPV4,
    **others: Any,
) -> AsyncIterator[Rack]:
    """Run a server and its machines, which are off at first. `home`: the server's; `folder`: the machines' files."""
    check_programs(hardware)
    options = Options(
        home,
        host=network.server,
        port=PORT,
        insecure_http=True,
        provision_address=[network.server],
        provision_port=MACHINE_PORT,
        provision_interface=BRIDGE,
        dhcp_interfaces=[BRIDGE],
        dns_address=network.server,
        kernel_arguments=kernel_arguments(hardware),
        **others,
    )
    async with AsyncExitStack() as stack:
        await make_bridge(network)
        store = await stack.enter_async_context(serving(options))
        machines = [await _add_machine(stack, machine, folder) for machine in hardware]
        api = await stack.enter_async_context(AsyncApiClient(access_of_home(f"http://{network.host}:{PORT}", home)))
        rack = Rack(store, machines, api)
        await api.post("/networks", network.settings)
        registering = asyncio.create_task(rack.register_bmcs())
        try:
            yield rack
        finally:
            registering.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await registering


async def _add_machine(stack: AsyncExitStack, hardware: Hardware, folder: Path) -> RackedMachine:
    taps = [f"tap{hardware.number}", *(f"tap{hardware.number}-{nic}" for nic in range(1, hardware.nics))]
    for tap in taps:
        await add_tap(tap)
    machine = VirtualMachine(hardware, folder / hardware.name, taps)
    stack.push_async_callback(machine.off)
    login = Login("admin", secrets.token_urlsafe(12))
    bmc = await stack.enter_async_context(listening(create_bmc(machine, login)))
    return RackedMachine(machine, bmc.removeprefix("http://"), login)
