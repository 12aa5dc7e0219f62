"""The hammer for virtual machines on the server's own host, over QEMU's control socket. For a lab without BMCs.

It can do what QMP can: a QEMU process that has ended cannot be started here, its keeper does that.
"""

import asyncio
import json
import re
from pathlib import Path
from typing import Any, Self

from rackwright.hammers.base import BootDevice, Hammer, HammerFailed, HammerNode, Power
from rackwright.hammers.ports import HammerPorts

SECONDS = 10.0
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
FIRST, SECOND, ASIDE, NO_INDEX = 1, 2, 8, -1
NETWORK_CARD, DISK = "net0", "disk0"
"""Names of the devices, as the lab gives them."""


async def qmp(path: Path, *commands: dict[str, Any]) -> list[Any]:
    """Send commands to the QEMU that listens at `path`, and return its result for each; raise HammerFailed without."""
    try:
        async with asyncio.timeout(SECONDS):
            reader, writer = await asyncio.open_unix_connection(path)
            try:
                await reader.readline()  # its greeting
                sent = ({"execute": "qmp_capabilities"}, *commands)
                return [await _execute(reader, writer, command) for command in sent][1:]
            finally:
                writer.close()
    except (OSError, ValueError) as error:  # TimeoutError is an OSError
        raise HammerFailed(f"QEMU does not answer at {path.name}: {error or type(error).__name__}") from None


async def _execute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, command: dict[str, Any]) -> Any:
    writer.write(json.dumps(command).encode() + b"\n")
    await writer.drain()
    while line := await reader.readline():
        answer = json.loads(line)
        if not isinstance(answer, dict):
            raise HammerFailed(f"QEMU answers {command['execute']} with something that is no QMP")
        if "error" in answer:
            raise HammerFailed(f"QEMU refuses {command['execute']}: {answer['error']}")
        if "return" in answer:
            return answer["return"]
    if command["execute"] == "quit":
        return None
    raise ConnectionResetError("it hung up")


def boot_order(first: str | None) -> list[dict[str, Any]]:
    """Return the commands that make a machine boot from `first` at its next reset; None: as its firmware decides.

    Both devices are moved aside first, because no two devices may ever share a boot index.
    """
    if first is None:
        boot_indexes = [(NETWORK_CARD, NO_INDEX), (DISK, NO_INDEX)]
    else:
        second = DISK if first == NETWORK_CARD else NETWORK_CARD
        boot_indexes = [(first, ASIDE), (second, ASIDE + 1), (first, FIRST), (second, SECOND)]
    return [
        {
            "execute": "qom-set",
            "arguments": {"path": f"/machine/peripheral/{device}", "property": "bootindex", "value": boot_index},
        }
        for device, boot_index in boot_indexes
    ]


class QemuHammer(Hammer):
    """The hammer for QEMU. `folder` holds the sockets; `settings["bmc"]["address"]` is a name in it, never a path."""

    kind = "qemu"
    description = "Virtual machines of a lab, over QEMU's control socket"
    priority = 40
    bmc = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def make(cls, ports: HammerPorts) -> Self | None:
        return None if ports.qemu_sockets is None else cls(ports.qemu_sockets)

    async def status(self, node: HammerNode) -> Power:
        try:
            [answer] = await qmp(self._socket(node), {"execute": "query-status"})
        except HammerFailed:
            return Power.OFF
        return Power.ON if isinstance(answer, dict) and answer.get("running") else Power.OFF

    async def on(self, node: HammerNode) -> None:
        if await self.status(node) is not Power.ON:
            await qmp(self._socket(node), {"execute": "cont"})

    async def off(self, node: HammerNode) -> None:
        if await self.status(node) is Power.ON:
            await qmp(self._socket(node), {"execute": "stop"}, {"execute": "system_reset"})

    async def shut_down(self, node: HammerNode) -> bool:
        """Return False: QEMU's process would end with the system, and could not be started here."""
        return False

    async def reset(self, node: HammerNode) -> None:
        await qmp(self._socket(node), {"execute": "system_reset"}, {"execute": "cont"})

    async def boot_device(self, node: HammerNode, device: BootDevice) -> None:
        await qmp(self._socket(node), *boot_order(NETWORK_CARD if device is BootDevice.NETWORK else DISK))

    def _socket(self, node: HammerNode) -> Path:
        bmc = node.settings.get("bmc")
        name = bmc.get("address") if isinstance(bmc, dict) else None
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise HammerFailed(f"{node.name} has no QEMU socket name as its BMC address")
        return self._folder / name
