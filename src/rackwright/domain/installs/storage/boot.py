"""What the firmware of a machine starts a layout from."""

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from rackwright.domain.installs.storage.blocks import Blocks, Table
from rackwright.domain.installs.storage.files import ESP_PATH, FileSystem
from rackwright.domain.installs.storage.items import DiskItem

OF_BIOS_LOADERS = ("/boot/extlinux", "/boot/grub")
"""Folders that the loaders for a BIOS have for themselves."""


@dataclass(frozen=True)
class BootPlan:
    """How a machine starts its system."""

    loader: str
    """`extlinux` or `grub` for a BIOS, `uefi` for UEFI."""
    disks: tuple[int, ...] = ()
    """The numbers of the disks that a BIOS starts from."""
    efi_partitions: tuple[str, ...] = ()
    """The ESPs: the first is mounted, the others are equal to it."""
    read_by_extlinux: str = ""
    """The device of the file system that extlinux reads the kernel from; empty: another boot loader reads it."""


def plan_boot(blocks: Blocks, file_systems: Sequence[FileSystem], *, is_uefi: bool) -> BootPlan | None:
    """Return how a layout is started; None, with a problem, if the firmware could not."""
    at = {fs.path: fs for fs in file_systems}
    kernels = at.get("/boot", at["/"])
    if kernels.type not in ("ext4", "xfs") or kernels.block is None:
        blocks.problems.add("/boot is ext4 or xfs: GRUB reads it, and the links to the newest kernel", kernels.line)
        return None
    if is_uefi:
        return _plan_uefi(blocks, file_systems)
    below = kernels.block.disks
    tables = {table.disk: table for table in blocks.tables}
    chosen = tuple(sorted(_chosen_disks(blocks))) or tuple(sorted(below))
    for disk in chosen:
        reason = _why_no_bios_starts(tables.get(disk))
        if reason:
            name = blocks.disks[disk].name
            blocks.problems.add(f"no BIOS starts from {name}: {reason}", _line_of(blocks, disk) or kernels.line)
    for fs in file_systems:
        if "/".join(fs.path.split("/")[:3]) in OF_BIOS_LOADERS:
            blocks.problems.add(
                f"{fs.path} belongs to the file system of /boot: a BIOS starts a loader from there, which looks for the"
                " kernel on its own file system",
                fs.line,
            )
    if blocks.problems.listed:
        return None
    loader = _bios_loader(kernels, tables, chosen)
    return BootPlan(loader, disks=chosen, read_by_extlinux=kernels.device if loader == "extlinux" else "")


def _bios_loader(kernels: FileSystem, tables: dict[int, Table], chosen: Sequence[int]) -> str:
    """Return extlinux where it is enough: it is there in a moment, but reads plain ext4 on the disk it starts from."""
    block = kernels.block
    assert block is not None
    plain = kernels.type == "ext4" and block.label == "dos" and set(chosen) == block.disks
    active = [partition for table in tables.values() for partition in table.partitions if partition.flag == "boot"]
    is_active = len(active) == 1 and block.flag == "boot"
    return "extlinux" if plain and is_active else "grub"


def _why_no_bios_starts(table: Table | None) -> str:
    if table is None:
        return "it has no partition table"
    if table.label == "gpt" and not any(partition.flag == "bios_grub" for partition in table.partitions):
        return "add a partition of 1M with flag bios_grub, or choose other disks with grub_device: true"
    return ""


def _chosen_disks(blocks: Blocks) -> Iterator[int]:
    for item in blocks.items.values():
        if isinstance(item, DiskItem) and item.starts_bios:
            yield from (blocks.disks.index(disk) for disk in blocks.chosen[item.id])


def _line_of(blocks: Blocks, disk: int) -> int | None:
    """Return the line of the item that stands for a disk."""
    name = blocks.disks[disk].name
    items = [item for item in blocks.items.values() if isinstance(item, DiskItem)]
    return next((item.line for item in items if any(one.name == name for one in blocks.chosen[item.id])), None)


def _plan_uefi(blocks: Blocks, file_systems: Sequence[FileSystem]) -> BootPlan | None:
    partitions = [fs for fs in file_systems if fs.type == "vfat" and fs.block is not None and fs.block.label == "gpt"]
    flagged = [fs for fs in partitions if fs.block is not None and fs.block.flag == "boot"]
    _check_flagged(blocks, {fs.device for fs in flagged})
    if blocks.problems.listed:
        return None
    mounted = [fs for fs in flagged if fs.path == ESP_PATH]
    if not mounted:
        blocks.problems.add(
            "UEFI has nothing to start from: it needs a partition of a gpt table with flag boot, formatted with fat32"
            f" and mounted at {ESP_PATH}"
        )
        return None
    others = [fs for fs in flagged if fs.path == ""]
    return BootPlan("uefi", efi_partitions=tuple(fs.device for fs in (*mounted, *others)))


def _check_flagged(blocks: Blocks, efi_partitions: Set[str]) -> None:
    """Refuse partitions that are flagged for UEFI and used for something else, such as a member of an array.

    The flag says that the machine starts from them too, and the firmware reads nothing but fat32.
    """
    for item in blocks.items.values():
        flagged = [block for block in blocks.blocks.get(item.id, ()) if block.flag == "boot" and block.label == "gpt"]
        devices = {block.device for block in flagged} & blocks.used.keys()
        for device in sorted(devices - efi_partitions)[:1]:
            blocks.problems.add(
                f"{item.id}: UEFI starts from a partition with flag boot if it is fat32 itself, and this one is used by"
                f" {blocks.used[device]}; leave out the flag",
                item.line,
            )
