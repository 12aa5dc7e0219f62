"""The items of a storage layout as they are declared, each with the line that declares it."""

from dataclasses import dataclass

from rackwright.domain.installs.disks import Disk

ATTRIB = "provisioner-storage"
DISK_ATTRIB = "provisioner-disk"
MIB = 1 << 20


@dataclass(frozen=True)
class Reference:
    """The id of another item, and the line where it stands."""

    id: str
    line: int | None = None


@dataclass(frozen=True)
class SizeBound:
    """A bound of a disk's size, such as `>=100G`."""

    comparison: str
    bytes: int

    def admits(self, size: int) -> bool:
        match self.comparison:
            case ">=":
                return size >= self.bytes
            case "<=":
                return size <= self.bytes
            case ">":
                return size > self.bytes
            case _:
                return size < self.bytes


@dataclass(frozen=True)
class DiskMatch:
    """What a disk has to be, to be chosen."""

    bounds: tuple[SizeBound, ...] = ()
    extreme: str = ""
    """`smallest` or `largest` of those that are left; empty: neither."""
    bus: str = ""
    rotational: bool | None = None

    def admits(self, disk: Disk) -> bool:
        if self.bus and disk.bus != self.bus:
            return False
        if self.rotational is not None and disk.rotational is not self.rotational:
            return False
        if self.bounds or self.extreme:
            return disk.bytes is not None and all(bound.admits(disk.bytes) for bound in self.bounds)
        return True


@dataclass(frozen=True)
class Item:
    """What all items have."""

    id: str
    line: int | None = None


@dataclass(frozen=True)
class DiskItem(Item):
    """A disk, or several disks that all get the same."""

    serial: str = ""
    wwn: str = ""
    name: str = ""
    match: DiskMatch | None = None
    count: int | None = 1
    """How many disks it stands for; None: all that match and that no other item takes."""
    label: str = ""
    """Its partition table, `gpt` or `dos`; empty: none, unless it has partitions."""
    starts_bios: bool = False
    """Whether a BIOS is to start from it; without any such item, the disks below /boot."""
    attrib: str = ATTRIB
    """The attribute that chose it."""


@dataclass(frozen=True)
class PartitionItem(Item):
    device: Reference = Reference("")
    size: int | None = None
    """In bytes; None: all that is left."""
    flag: str = ""
    number: int | None = None


@dataclass(frozen=True)
class RaidItem(Item):
    devices: tuple[Reference, ...] = ()
    name: str = ""
    level: int = 1


@dataclass(frozen=True)
class GroupItem(Item):
    """A volume group of LVM."""

    devices: tuple[Reference, ...] = ()
    name: str = ""


@dataclass(frozen=True)
class VolumeItem(Item):
    """A logical volume of LVM."""

    group: Reference = Reference("")
    name: str = ""
    size: int | None = None


@dataclass(frozen=True)
class FormatItem(Item):
    volume: Reference = Reference("")
    file_system: str = ""
    label: str = ""


@dataclass(frozen=True)
class MountItem(Item):
    format: Reference = Reference("")
    path: str = ""
    """Empty: swap, which is not mounted."""
    options: str = ""


def references_of(item: Item) -> tuple[Reference, ...]:
    """Return the items that an item stands on."""
    match item:
        case PartitionItem():
            return (item.device,)
        case RaidItem() | GroupItem():
            return item.devices
        case VolumeItem():
            return (item.group,)
        case FormatItem():
            return (item.volume,)
        case MountItem():
            return (item.format,)
        case _:
            return ()


TYPE_NAMES: dict[type[Item], str] = {
    DiskItem: "disk",
    PartitionItem: "partition",
    RaidItem: "raid",
    GroupItem: "lvm_volgroup",
    VolumeItem: "lvm_partition",
    FormatItem: "format",
    MountItem: "mount",
}
"""How curtin calls each item."""
