"""The one shape of every hammer, and of a probe."""

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

    async def reset(self, node: HammerNode) -> None: ...

    async def boot_device(self, node: HammerNode, device: BootDevice) -> None:
        """Boot from `device` the next time, once."""
        ...


@dataclass(frozen=True)
class Seen:
    """What a look at a machine found."""

    boot_id: str
    root_device: str = ""


class Probe(Protocol):
    async def look(self, node: HammerNode) -> Seen:
        """See for oneself what the machine runs; HammerFailed if it does not answer."""
        ...
