"""The one shape of every hammer, and of a probe."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from rackwright.domain.catalogue import Json, JsonObject


class Power(StrEnum):
    ON = "on"
    OFF = "off"
    UNKNOWN = "unknown"


class BootDevice(StrEnum):
    NETWORK = "network"
    DISK = "disk"


class HammerFailed(Exception):
    """The machine's controller did not do what it was asked; the text says what it answered."""

    answers = False
    """Whether the machine answers, but does not let the server in."""


class NowhereToLook(HammerFailed):
    """Where the machine is, nobody knows, or what was said of it must not be believed."""


class NotAdmitted(HammerFailed):
    """The machine answers, but does not let the server in, or nobody has said yet that it is the right one."""

    answers = True


@dataclass(frozen=True)
class HammerNode:
    """What a hammer is told of a machine."""

    id: int
    name: str
    settings: JsonObject
    """Where its controller is and how to reach it, as people say."""
    reported_bmc: Json = None
    """Where the machine itself says that its controller is. A proposal for people; the server connects to it in a lab
    only, on its own host."""


class Hammer(Protocol):
    async def status(self, node: HammerNode) -> Power: ...

    async def on(self, node: HammerNode) -> None: ...

    async def off(self, node: HammerNode) -> None: ...

    async def shut_down(self, node: HammerNode) -> bool:
        """Ask the system that runs there to shut down by itself; False if the controller cannot ask for that."""
        ...

    async def reset(self, node: HammerNode) -> None: ...

    async def boot_device(self, node: HammerNode, device: BootDevice) -> None:
        """Boot from `device` the next time, once."""
        ...


BOOT_ID = re.compile(r"[A-Za-z0-9-]{1,64}")
DEVICE = re.compile(r"[A-Za-z0-9/_.:=+-]{0,255}")


@dataclass(frozen=True)
class Seen:
    """What a look at a machine found. It is the machine's own answer: HammerFailed if it cannot be one."""

    boot_id: str
    root_device: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.boot_id, str) or not BOOT_ID.fullmatch(self.boot_id):
            raise HammerFailed(f"it says that it has booted {str(self.boot_id)[:80]!r}, which is no boot id")
        if not isinstance(self.root_device, str) or not DEVICE.fullmatch(self.root_device):
            raise HammerFailed(f"it says that its root is on {str(self.root_device)[:80]!r}, which is no device")


class Probe(Protocol):
    async def look(self, node: HammerNode) -> Seen:
        """See for oneself what the machine runs; HammerFailed if it does not answer."""
        ...
