"""The network devices that a netplan document declares, each with the line that declares it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from rackwright.domain.catalogue import Json
from rackwright.domain.installs.request import Interface
from rackwright.domain.networks.networks import Address, Subnet

ATTRIB = "provisioner-network"


class Kind(StrEnum):
    """What a device is, by the section that declares it."""

    ETHERNET = "ethernets"
    BOND = "bonds"
    VLAN = "vlans"
    BRIDGE = "bridges"


@dataclass(frozen=True)
class LinkMatch:
    """Which link of the machine an ethernet is: by MAC, by name, or by what is at the other end of the cable."""

    mac: str = ""
    name: str = ""
    switch: str = ""
    port: str = ""


@dataclass(frozen=True)
class Reference:
    """The name of another device, and the line where it stands."""

    name: str
    line: int | None = None


@dataclass(frozen=True)
class WantedAddress:
    """An address of a device: written out, or the node's own on a network of ours."""

    literal: Interface | None = None
    network: str = ""
    family: int | None = None
    line: int | None = None


@dataclass(frozen=True)
class Route:
    to: Subnet
    via: Address | None = None
    metric: int | None = None
    on_link: bool = False
    table: int | None = None
    line: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Device:
    """A device as it is declared."""

    name: str
    kind: Kind
    line: int | None = None
    match: LinkMatch = field(default_factory=LinkMatch)
    set_name: str = ""
    members: tuple[Reference, ...] = ()
    """Of a bond or bridge."""
    parent: Reference | None = None
    """Of a VLAN: the device whose frames it tags."""
    vlan_id: int = 0
    parameters: dict[str, Json] = field(default_factory=dict)
    addresses: tuple[WantedAddress, ...] = ()
    routes: tuple[Route, ...] = ()
    name_servers: tuple[Address, ...] = ()
    search_domains: tuple[str, ...] = ()
    mtu: int | None = None
    dhcp4: bool = False
    dhcp6: bool = False
    accept_ra: bool | None = None
    optional: bool = False
    wake_on_lan: bool = False
    mac: str = ""
    """The MAC that the device is given in place of its own."""

    @property
    def below(self) -> tuple[Reference, ...]:
        """The devices that this one stands on."""
        return (*self.members, *((self.parent,) if self.parent else ()))

    @property
    def primary(self) -> str:
        """The member that an active-backup bond prefers; empty: none."""
        chosen = self.parameters.get("primary")
        return chosen if self.kind is Kind.BOND and isinstance(chosen, str) else ""


@dataclass(frozen=True)
class ResolvedDevice:
    """A device on one machine: its link is found, its addresses are known."""

    declared: Device
    mac: str = ""
    """Of an ethernet: the MAC of its link. Of a bond or bridge: the one it is given, its first member's."""
    addresses: tuple[Interface, ...] = ()

    @property
    def name(self) -> str:
        return self.declared.name

    @property
    def kind(self) -> Kind:
        return self.declared.kind


@dataclass(frozen=True)
class ResolvedNetwork:
    """The network of one machine, with nothing left to find out."""

    devices: tuple[ResolvedDevice, ...] = ()

    def master_of(self, name: str) -> Device | None:
        """Return the bond or bridge that a device is a member of."""
        masters = (device.declared for device in self.devices)
        return next((master for master in masters if any(member.name == name for member in master.members)), None)

    def vlans_on(self, name: str) -> Iterator[str]:
        """Yield the names of the VLANs on top of a device."""
        for device in self.devices:
            if device.declared.parent is not None and device.declared.parent.name == name:
                yield device.name
