"""The base class of all hammers, and the protocol of probes."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Protocol, Self, runtime_checkable

if TYPE_CHECKING:  # the command line only lists the kinds of hammers, and need not import these
    from rackwright.domain.catalogue import Json, JsonObject
    from rackwright.hammers.ports import HammerPorts


class Power(StrEnum):
    ON = "on"
    OFF = "off"
    UNKNOWN = "unknown"


class BootDevice(StrEnum):
    NETWORK = "network"
    DISK = "disk"


class HammerFailed(Exception):
    """The machine's controller did not carry out a request; the text says what it answered."""

    answers = False
    """Whether the machine answers, but does not let the server in."""


class ControllerUnreachable(HammerFailed):
    """Nothing answered this server at the controller's address, so nothing was done. Another server may reach it, and
    gives the order: so this is never raised once a controller was given one, whether it confirmed it or not."""


class NoTrustedAddress(HammerFailed):
    """No address of the machine is known, or only one that must not be trusted."""


class NotAdmitted(HammerFailed):
    """The machine answers, but does not let the server in, or nobody has said yet that it is the right one."""

    answers = True


@dataclass(frozen=True)
class HammerNode:
    """What a hammer knows of a machine."""

    id: int
    name: str
    settings: "JsonObject"
    """The address of its controller and how to reach it, as people set them."""
    reported_bmc: "Json" = None
    """The address of its controller, as the machine itself reports it. A proposal for people; the server connects to it
    in a lab only, on its own host."""
    priorities: Mapping[str, int] = field(default_factory=dict)
    """Priorities of hammers by kind, as barclamps set them; for a kind without one, the hammer's own counts."""


class Hammer(ABC):
    """A way to a machine's power.

    A hammer is one file of this package: a class with a `kind` of its own is found (`registry.py`). The values here are
    read from that file without importing it, so a hammer writes them as literals.
    """

    kind: ClassVar[str]
    description: ClassVar[str] = ""
    """One sentence for `rackwright hammer list`."""
    priority: ClassVar[int] = 100
    """Of several that can reach a machine, the lowest number is preferred, unless a barclamp says other numbers."""
    bmc: ClassVar[bool] = False
    """Whether people may choose this kind for a machine's BMC."""
    lab_only: ClassVar[bool] = False
    """Whether only a server for simulated machines (`--lab`) has it."""

    @classmethod
    def make(cls, ports: "HammerPorts") -> Self | None:
        """Make the hammer of a server from what the server gives; None where it lacks what this hammer needs."""
        return cls()

    def reaches(self, node: HammerNode) -> bool:
        """Return whether this hammer can reach a machine for whose BMC no kind was chosen."""
        return False

    @abstractmethod
    async def status(self, node: HammerNode) -> Power: ...

    @abstractmethod
    async def on(self, node: HammerNode) -> None: ...

    @abstractmethod
    async def off(self, node: HammerNode) -> None: ...

    async def shut_down(self, node: HammerNode) -> bool:
        """Ask the system that runs there to shut down by itself; False if the controller cannot ask for that."""
        return False

    @abstractmethod
    async def reset(self, node: HammerNode) -> None: ...

    @abstractmethod
    async def boot_device(self, node: HammerNode, device: BootDevice) -> None:
        """Boot from `device` the next time, once."""


def bmc_kind(bmc: "Json") -> str | None:
    """Return the kind of a BMC, as its settings or the machine's report name it; None if they do not."""
    kind = bmc.get("kind") if isinstance(bmc, dict) else None
    return kind if isinstance(kind, str) else None


BOOT_ID = re.compile(r"[A-Za-z0-9-]{1,64}")
DEVICE = re.compile(r"[A-Za-z0-9/_.:=+-]{0,255}")


@dataclass(frozen=True)
class BootedSystem:
    """The system that a machine has booted, as the machine itself answers; raises HammerFailed for invalid values."""

    boot_id: str
    root_device: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.boot_id, str) or not BOOT_ID.fullmatch(self.boot_id):
            raise HammerFailed(f"it says that it has booted {str(self.boot_id)[:80]!r}, which is no boot id")
        if not isinstance(self.root_device, str) or not DEVICE.fullmatch(self.root_device):
            raise HammerFailed(f"it says that its root is on {str(self.root_device)[:80]!r}, which is no device")


@runtime_checkable
class Probe(Protocol):
    """Something that can tell what a machine runs."""

    async def look(self, node: HammerNode) -> BootedSystem:
        """Return what the machine runs; raise HammerFailed if it does not answer."""
        ...
