"""What is asked of one install and known of its machine, and the parts that an install is made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Interface, IPv6Interface

from rackwright.domain.architectures import Architecture
from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.installs.disks import Disk
from rackwright.domain.networks.networks import Network

Interface = IPv4Interface | IPv6Interface
"""An address with the length of its prefix."""


@dataclass(frozen=True)
class CloudInitSchema:
    """The schema that cloud-init of an image validates user-data with."""

    system: str
    """The name of the image."""
    schema: str | None
    """As JSON; None: the image has no cloud-init."""


@dataclass(frozen=True)
class SystemImage:
    """What the system in an image can be installed on."""

    system: str
    starts_by_uefi: bool = True
    starts_from_raid: bool = True
    """Whether its initial file system assembles the array that / is on."""
    assembles_raid: bool = True
    has_lvm: bool = True
    architecture: str = Architecture.AMD64.value
    """The kind of machine that it is for."""


@dataclass(frozen=True)
class InstallRequest:
    """All that decides what an install does."""

    node: str
    settings: JsonObject = field(default_factory=dict)
    """What people chose, below `provisioner`: the attribs of the role that installs."""
    facts: JsonObject = field(default_factory=dict)
    """What discovery found, overridden by what people said of the node. A machine's own words: they may be anything."""
    networks: Mapping[str, Network] = field(default_factory=dict)
    """Every network, by name."""
    addresses: Mapping[str, tuple[Interface, ...]] = field(default_factory=dict)
    """The addresses of the node, by the name of their network."""
    cloud_init: CloudInitSchema | None = None
    """None: no image is known, or needed."""
    image: SystemImage | None = None
    """None: no image is known, or needed."""

    def setting(self, name: str) -> Json:
        """Return what people chose for a setting; None if nobody chose anything."""
        return self.settings.get(name)


@dataclass(frozen=True)
class Problem:
    """Why a machine cannot be installed as it is asked for. Nothing is touched then."""

    attrib: str
    """The attribute in which the mistake is."""
    reason: str
    line: int | None = None
    """The line of the attribute's text, counted from 1; None: it concerns all of it, or is no text."""
    waits: bool = False
    """It may go away without a change of the attribute: the machine was not discovered yet, or has no address yet.

    Such a problem does not keep a commit from being made. The install does not begin while it is there.
    """

    def __str__(self) -> str:
        line = "" if self.line is None else f", line {self.line}"
        return f"{self.attrib}{line}: {self.reason}"


@dataclass(frozen=True)
class RootFile:
    """A file that the installer writes into the new root file system."""

    path: str
    content: str
    mode: int = 0o644


@dataclass(frozen=True)
class InstallPart:
    """What one part of an install (disks, network, first boot) comes to."""

    config: JsonObject = field(default_factory=dict)
    """What the installer is told."""
    files: tuple[RootFile, ...] = ()
    problems: tuple[Problem, ...] = ()
    notes: tuple[Problem, ...] = ()
    """What works, but should be said otherwise."""
    wiped: tuple[Disk, ...] = ()
    """The disks that are written to, as discovery found them; what is on them is lost."""
