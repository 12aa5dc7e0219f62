"""The layouts that have a name: each is a document that nobody has to write."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rackwright.domain.installs.disks import Disk
from rackwright.domain.installs.request import Problem
from rackwright.domain.installs.storage.items import (
    ATTRIB,
    DISK_ATTRIB,
    MIB,
    DiskItem,
    FormatItem,
    GroupItem,
    Item,
    MountItem,
    PartitionItem,
    RaidItem,
    Reference,
    VolumeItem,
)

ESP_BYTES = 512 * MIB
DOS_REACH = 2 << 40
"""Bytes of a disk that a `dos` partition table can address."""
RAID10_LEAST = 4


@dataclass(frozen=True)
class LayoutRequest:
    """What decides how a named layout looks on a machine."""

    disks: Sequence[Disk]
    is_uefi: bool
    chosen_disk: str = ""
    """The disk that people chose; empty: none."""


@dataclass(frozen=True)
class NamedLayout:
    """A layout on one machine: what it declares, or why it does not fit."""

    items: tuple[Item, ...] = ()
    problem: Problem | None = None


def build_layout(name: str, request: LayoutRequest) -> NamedLayout:
    """Return what a named layout declares on a machine."""
    if not request.disks:
        return _refuse("no disk of the machine is known: let it be discovered first")
    return LAYOUTS[name](request)


def _refuse(reason: str, attrib: str = ATTRIB) -> NamedLayout:
    return NamedLayout(problem=Problem(attrib, reason))


def _flat(request: LayoutRequest) -> NamedLayout:
    first = _first_disk(request)
    on_dos = not request.is_uefi and (first.bytes or 0) <= DOS_REACH
    label, flag = ("dos", "boot") if on_dos else ("gpt", "")
    items: list[Item] = [_disk_item("disk", request, first, label)]
    if not on_dos:
        items += _boot_partitions(request, "disk")
    return NamedLayout((*items, PartitionItem("system", device=Reference("disk"), flag=flag), *_root_on("system")))


def _lvm(request: LayoutRequest) -> NamedLayout:
    return NamedLayout(
        (
            _disk_item("disk", request, _first_disk(request), "gpt"),
            *_boot_partitions(request, "disk"),
            PartitionItem("system", device=Reference("disk"), flag="lvm"),
            GroupItem("group", devices=(Reference("system"),), name="system"),
            VolumeItem("volume", group=Reference("group"), name="root"),
            *_root_on("volume"),
        )
    )


def _raid1(request: LayoutRequest) -> NamedLayout:
    if request.chosen_disk:
        return _refuse("raid1 is on two disks; choose them with a document of provisioner-storage", DISK_ATTRIB)
    pair = _pair(request.disks)
    if pair is None:
        return _refuse(
            f"raid1 needs two disks, and of more than two a pair of equal size; the machine has {_show(request.disks)}."
            " Choose them with a document of provisioner-storage"
        )
    return NamedLayout(_mirrored(request, pair, 1))


def _raid10(request: LayoutRequest) -> NamedLayout:
    if request.chosen_disk:
        return _refuse("raid10 is on all disks; choose some with a document of provisioner-storage", DISK_ATTRIB)
    if len(request.disks) < RAID10_LEAST:
        return _refuse(f"raid10 needs {RAID10_LEAST} disks; the machine has {_show(request.disks)}")
    return NamedLayout(_mirrored(request, request.disks, 10))


def _mirrored(request: LayoutRequest, disks: Sequence[Disk], level: int) -> tuple[Item, ...]:
    """Return an array on partitions of several disks, each of which boots."""
    items: list[Item] = []
    members = []
    for number, disk in enumerate(disks):
        items += [
            DiskItem(f"disk{number}", name=disk.name, label="gpt"),
            *_boot_partitions(request, f"disk{number}", number),
            PartitionItem(f"member{number}", device=Reference(f"disk{number}"), flag="raid"),
        ]
        members.append(Reference(f"member{number}"))
    return (*items, RaidItem("array", devices=tuple(members), name="system", level=level), *_root_on("array"))


def _disk_item(item_id: str, request: LayoutRequest, disk: Disk, label: str) -> DiskItem:
    name = request.chosen_disk or disk.name
    return DiskItem(item_id, name=name, label=label, attrib=DISK_ATTRIB if request.chosen_disk else ATTRIB)


def _first_disk(request: LayoutRequest) -> Disk:
    """Return the chosen disk, else the first that discovery found."""
    return next((disk for disk in request.disks if disk.name == request.chosen_disk), request.disks[0])


def _boot_partitions(request: LayoutRequest, disk: str, number: int = 0) -> list[Item]:
    """Return what the firmware starts from on a disk. The first ESP is mounted, the others are kept equal to it."""
    reference = Reference(disk)
    if not request.is_uefi:
        return [PartitionItem(f"bios{number}", device=reference, size=MIB, flag="bios_grub")]
    esp = f"esp{number}"
    items: list[Item] = [
        PartitionItem(esp, device=reference, size=ESP_BYTES, flag="boot"),
        FormatItem(f"{esp}-fs", volume=Reference(esp), file_system="vfat", label="ESP"),
    ]
    return (
        [*items, MountItem(f"{esp}-mount", format=Reference(f"{esp}-fs"), path="/boot/efi")] if number == 0 else items
    )


def _root_on(volume: str) -> tuple[Item, ...]:
    return (
        FormatItem("root-fs", volume=Reference(volume), file_system="ext4", label="root"),
        MountItem("root", format=Reference("root-fs"), path="/"),
    )


def _pair(disks: Sequence[Disk]) -> Sequence[Disk] | None:
    """Return the two disks of a mirror: all there are, else the smallest two of equal size."""
    if len(disks) == 2:
        return disks
    sizes = sorted({disk.bytes for disk in disks if disk.bytes is not None})
    pairs = ([disk for disk in disks if disk.bytes == size] for size in sizes)
    return next((pair[:2] for pair in pairs if len(pair) >= 2), None)


def _show(disks: Sequence[Disk]) -> str:
    return ", ".join(disk.name for disk in disks[:12])


LAYOUTS: dict[str, Callable[[LayoutRequest], NamedLayout]] = {
    "flat": _flat,
    "lvm": _lvm,
    "raid1": _raid1,
    "raid10": _raid10,
}
