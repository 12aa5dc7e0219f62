"""The hammer for machines without a controller, over SSH to the system that runs. It is also the probe.

It can restart a machine, and stop it for good; it cannot start one. It has UEFI boot from the network the next time;
BIOS of such a machine has to try the network first.
"""

import asyncio
import shlex
from collections.abc import Awaitable, Callable
from typing import Self

from rackwright.hammers.base import (
    BootDevice,
    BootedSystem,
    Hammer,
    HammerFailed,
    HammerNode,
    NotAdmitted,
    NoTrustedAddress,
    Power,
)
from rackwright.hammers.ports import HammerPorts
from rackwright.reach.ssh_connections import (
    Connections,
    HostKeyChanged,
    NotLetIn,
    NotTried,
    ShortAnswer,
    Target,
    Unreachable,
)

SECONDS = 20.0
LOOK = "cat /proc/sys/kernel/random/boot_id; awk '$2 == \"/\" { print $1 }' /proc/mounts | tail -n 1"
RESTART = "sync; (sleep 1; systemctl reboot || reboot -f) >/dev/null 2>&1 </dev/null &"
NETWORK_NEXT = r"""
command -v efibootmgr >/dev/null && entries=$(efibootmgr -v 2>/dev/null) || exit 0
for entry in $(printf '%s\n' "$entries" | sed -n 's/^BootOrder: //p' | tr ',' ' '); do
    printf '%s\n' "$entries" | grep -q "^Boot$entry\* .*MAC(" || continue
    efibootmgr -q -n "$entry"
    break
done
exit 0
"""
"""Have UEFI boot from the network the next time, by its first entry for a network card, which has a MAC in its path."""
STOP = "sync; (sleep 1; systemctl poweroff || poweroff -f) >/dev/null 2>&1 </dev/null &"


class SshHammer(Hammer):
    """The hammer for SSH. `targets` returns how a node is reached, and which host key it must show."""

    kind = "ssh"
    description = "Restarts a running system over SSH; for machines without a BMC"
    priority = 30

    def __init__(self, connections: Connections, targets: Callable[[int], Awaitable[Target]]) -> None:
        self._connections = connections
        self._targets = targets

    @classmethod
    def make(cls, ports: HammerPorts) -> Self:
        return cls(ports.connections, ports.targets)

    def reaches(self, node: HammerNode) -> bool:
        """Return True: any machine may have a system that runs."""
        return True

    async def status(self, node: HammerNode) -> Power:
        """Return ON, or UNKNOWN: a machine that does not answer may be off, or not."""
        try:
            await self._run(node, "true", as_root=False)
        except HammerFailed:
            return Power.UNKNOWN
        return Power.ON

    async def on(self, node: HammerNode) -> None:
        if await self.status(node) is not Power.ON:
            raise HammerFailed(
                f"{node.name} has no controller that could switch it on. Somebody has to push the button."
            )

    async def off(self, node: HammerNode) -> None:
        await self._run(node, STOP)
        self._connections.drop(node.id)

    async def shut_down(self, node: HammerNode) -> bool:
        """Switch off: with this hammer, that is a shutdown of the system already."""
        await self.off(node)
        return True

    async def reset(self, node: HammerNode) -> None:
        await self._run(node, RESTART)
        self._connections.drop(node.id)

    async def boot_device(self, node: HammerNode, device: BootDevice) -> None:
        """Set the network for the next boot, if the system can; what it is served there decides.

        Without that, and for the disk, nothing is done: the firmware tries the network first, and is sent to the disk.
        """
        if device is BootDevice.NETWORK:
            await self._run(node, NETWORK_NEXT)

    async def look(self, node: HammerNode) -> BootedSystem:
        words = (await self._run(node, LOOK, as_root=False)).split()
        if not words:
            raise HammerFailed(f"{node.name} lets the server in, but does not say what it has booted")
        return BootedSystem(words[0], words[1] if len(words) > 1 else "")

    async def _run(self, node: HammerNode, command: str, *, as_root: bool = True) -> str:
        answer = ShortAnswer()
        try:
            target = await self._targets(node.id)
            line = f"exec sh -c {shlex.quote(command)}"
            connections = self._connections
            async with connections.command(node.id, target, line, lambda: answer, as_root=as_root) as channel:
                try:
                    async with asyncio.timeout(SECONDS):
                        return await answer.text
                finally:
                    channel.abort()  # a channel that timed out would stay open for as long as the connection does
        except HostKeyChanged as error:  # what answers at that address may not be the machine
            raise HammerFailed(str(error)) from error
        except NotLetIn as error:
            raise NotAdmitted(str(error)) from error
        except NotTried as error:
            raise NoTrustedAddress(str(error)) from error
        except Unreachable as error:
            raise HammerFailed(str(error)) from error
        except TimeoutError:
            self._connections.drop(node.id)
            raise HammerFailed(f"{node.name} did not answer over SSH within {SECONDS:g} s") from None
