"""A rack of virtual machines and the server that provisions them, in the namespaces this process is in.

It is meant to be the first process of a PID namespace: when it ends, however it ends, so does all of it.
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
from rackwright.lab.network import BRIDGE, SERVER, add_tap, make_bridge
from rackwright.lab.serving import Serving, in_this_process
from rackwright.lab.virtual import Hardware, VirtualMachine, check_programs
from rackwright.server.listener import listening
from rackwright.server.settings import Options
from rackwright.store.store import Store

log = logging.getLogger(__name__)

PORT, MACHINE_PORT = 8090, 8091
ADDRESS = f"http://{SERVER}:{PORT}"
KERNEL_ARGUMENTS = "console=ttyS0 quiet no_timer_check panic=10"
"""What a machine says is on its serial line, where `lab console` shows it. An emulated timer is late when this computer
is busy, which the kernel takes for a broken one, and gives up; so it is told not to look. One that gives up all the
same starts again."""


NETWORK = {
    "name": "admin",
    "category": "admin",
    "description": "The machines of the lab",
    "v4_subnet": "10.77.0.0/24",
    "ranges": [
        {"name": "admin", "use": "admin", "first": SERVER, "last": "10.77.0.9"},
        {"name": "host", "use": "host", "first": "10.77.0.10", "last": "10.77.0.99"},
        {"name": "strangers", "use": "dynamic", "first": "10.77.0.100", "last": "10.77.0.199"},
    ],
}
"""What DHCP serves there: strangers get an address of the last range, accepted machines one of their own."""


@dataclass(frozen=True)
class Racked:
    """A machine and its BMC."""

    machine: VirtualMachine
    bmc: str
    login: Login = field(repr=False)


@dataclass(frozen=True)
class Rack:
    store: Store
    """The server's."""
    machines: Sequence[Racked]
    api: AsyncApiClient
    """As the administrator."""

    async def introduce(self) -> None:
        """Tell the server where the BMC of each machine is, once it is known there. Ends when all are."""
        missing = {one.machine.hardware.mac: one for one in self.machines}
        while missing:
            # Without an answer it asks again: the server may be busy, or just be started anew.
            with contextlib.suppress(NoAnswer):
                for node in await self.api.pages("/nodes"):
                    for mac in missing.keys() & set(node["macs"]):
                        await self._tell_bmc(node["name"], missing[mac])
                        del missing[mac]
            await asyncio.sleep(0.5)

    async def _tell_bmc(self, node: str, one: Racked) -> None:
        await self.api.put(f"/nodes/{node}/bmc", self.bmc_settings(one), check_unchanged=False)

    def bmc_settings(self, one: Racked) -> JsonObject:
        """How the BMC of a machine is reached."""
        return {
            "kind": "redfish",
            "address": one.bmc,
            "username": one.login.username,
            "password": one.login.password,
            "plain": True,
        }


@asynccontextmanager
async def running_rack(
    home: Path, folder: Path, hardware: Sequence[Hardware], serving: Serving = in_this_process, **others: Any
) -> AsyncIterator[Rack]:
    """Server and machines; the machines are off. `home` is the server's, `folder` is for the machines' files."""
    check_programs({one.firmware for one in hardware})
    options = Options(
        home,
        host=SERVER,
        port=PORT,
        insecure_http=True,
        provision_address=SERVER,
        provision_port=MACHINE_PORT,
        provision_interface=BRIDGE,
        dhcp_interfaces=[BRIDGE],
        dns_address=SERVER,
        kernel_arguments=KERNEL_ARGUMENTS,
        **others,
    )
    async with AsyncExitStack() as stack:
        await make_bridge()
        store = await stack.enter_async_context(serving(options))
        racked = [await _rack_up(stack, one, folder) for one in hardware]
        api = await stack.enter_async_context(AsyncApiClient(access_of_home(ADDRESS, home)))
        rack = Rack(store, racked, api)
        await api.post("/networks", NETWORK)
        introducing = asyncio.create_task(rack.introduce())
        try:
            yield rack
        finally:
            introducing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await introducing


async def _rack_up(stack: AsyncExitStack, hardware: Hardware, folder: Path) -> Racked:
    tap = f"tap{hardware.number}"
    await add_tap(tap)
    machine = VirtualMachine(hardware, folder / hardware.name, tap)
    stack.push_async_callback(machine.off)
    login = Login("admin", secrets.token_urlsafe(12))
    bmc = await stack.enter_async_context(listening(create_bmc(machine, login)))
    return Racked(machine, bmc.removeprefix("http://"), login)
