"""Resolving a layout on the disks of a machine: what is done to each, in which order, or why it cannot be done."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rackwright.domain.catalogue import Json
from rackwright.domain.installs.disks import Disk, DiskContent, read_disks
from rackwright.domain.installs.documents import Problems
from rackwright.domain.installs.request import InstallRequest, Problem
from rackwright.domain.installs.storage.blocks import Array, Blocks, Group, Table, Volume
from rackwright.domain.installs.storage.boot import BootPlan, plan_boot
from rackwright.domain.installs.storage.choose import choose_disks, disks_by_id
from rackwright.domain.installs.storage.files import FileSystem, plan_file_systems
from rackwright.domain.installs.storage.items import ATTRIB, DiskItem, GroupItem, Item, references_of
from rackwright.domain.installs.storage.layouts import LAYOUTS, LayoutRequest, build_layout
from rackwright.domain.installs.storage.read import read_layout

DEFAULT_LAYOUT = "flat"


@dataclass(frozen=True)
class ResolvedStorage:
    """The disks of one machine after an install, with nothing left to find out."""

    disks: tuple[Disk, ...]
    """Those that are written to; a device `disk2p1` is on the third of them."""
    is_uefi: bool
    tables: tuple[Table, ...]
    arrays: tuple[Array, ...]
    groups: tuple[Group, ...]
    volumes: tuple[Volume, ...]
    file_systems: tuple[FileSystem, ...]
    boot: BootPlan
    is_flat: bool = False
    """Whether it is the layout of that name."""


@dataclass
class _Wanted:
    """What is wanted of a machine's disks."""

    items: Sequence[Item] = ()
    is_flat: bool = False
    problems: Problems = field(default_factory=lambda: Problems(ATTRIB))


def resolve_storage(request: InstallRequest) -> tuple[ResolvedStorage | None, tuple[Problem, ...]]:
    """Return what an install does to the disks of its machine; None, and why, if it cannot be done."""
    disks = read_disks(request.facts.get("disks"))
    is_uefi = _is_uefi(request.facts.get("firmware"))
    wanted = _read_wanted(request, disks, is_uefi=is_uefi)
    problems = wanted.problems
    items = {item.id: item for item in wanted.items}
    if not problems.listed:
        _check_references(items, problems)
    if problems.listed:
        return None, tuple(problems.listed)
    disk_items = [item for item in wanted.items if isinstance(item, DiskItem)]
    chosen, choice_problems = choose_disks(disk_items, disks)
    if choice_problems:
        return None, tuple(choice_problems)
    blocks = Blocks(items, chosen, disks_by_id(chosen), problems)
    blocks.work_out()
    _check_kept_groups(blocks, disks)
    file_systems = [] if problems.listed else plan_file_systems(blocks, is_uefi=is_uefi)
    boot = None if problems.listed else plan_boot(blocks, file_systems, is_uefi=is_uefi)
    if problems.listed or boot is None:
        return None, tuple(problems.listed)
    return (
        ResolvedStorage(
            tuple(blocks.disks),
            is_uefi,
            tuple(blocks.tables),
            tuple(blocks.arrays),
            tuple(blocks.groups),
            tuple(blocks.volumes),
            tuple(file_systems),
            boot,
            wanted.is_flat,
        ),
        (),
    )


def _is_uefi(firmware: Json) -> bool:
    """Return whether discovery found a machine to boot by UEFI; one that says nothing of it does not."""
    return isinstance(firmware, dict) and firmware.get("mode") == "uefi"


def _read_wanted(request: InstallRequest, disks: Sequence[Disk], *, is_uefi: bool) -> _Wanted:
    layout, disk = request.setting("storage"), request.setting("disk")
    chosen_disk = disk if isinstance(disk, str) else ""
    name = layout.strip() if isinstance(layout, str) else ""
    if layout is None or layout == {} or (isinstance(layout, str) and not name):
        name = DEFAULT_LAYOUT
    wanted = _Wanted()
    if name in LAYOUTS:
        built = build_layout(name, LayoutRequest(disks, is_uefi, chosen_disk))
        wanted.items = built.items
        wanted.is_flat = name == DEFAULT_LAYOUT
        wanted.problems.listed += [built.problem] if built.problem is not None else []
    elif isinstance(layout, str) and "\n" not in name and ":" not in name:
        listed = ", ".join(LAYOUTS)
        reason = "Rackwright makes no ZFS" if name == "zfs" else f"there are {listed}, or a document of storage v1"
        wanted.problems.add(f"there is no layout {name[:40]!r}: {reason}")
    else:
        wanted.items, wanted.problems = read_layout(layout)
    return wanted


def _check_references(items: Mapping[str, Item], problems: Problems) -> None:
    for item in items.values():
        for reference in references_of(item):
            if reference.id not in items:
                problems.add(f"{item.id}: there is no item {reference.id!r}", reference.line or item.line)
    if problems.listed:
        return
    for item in items.values():
        circle = _find_circle(item, items)
        if circle:
            problems.add(f"{' -> '.join(circle)} is a circle", item.line)
            return
    for item in items.values():
        if isinstance(item, DiskItem) and not item.label and not any(_refer_to(item, items)):
            problems.add(f"{item.id}: nothing uses this disk; leave it out, and it is kept", item.line)


def _check_kept_groups(blocks: Blocks, disks: Sequence[Disk]) -> None:
    """Refuse a volume group of a name that one on a disk has which is kept: they would be in each other's way."""
    kept = {
        content.label: disk
        for disk in disks
        if disk not in blocks.disks
        for content in disk.contents
        if _is_lvm(content)
    }
    for item in blocks.items.values():
        if isinstance(item, GroupItem) and item.name in kept:
            blocks.problems.add(
                f"{item.id}: there is a volume group {item.name} on {kept[item.name].name}, which is kept; choose"
                " another name, with a document of provisioner-storage",
                item.line,
            )


def _is_lvm(content: DiskContent) -> bool:
    return content.type == "LVM2_member"


def _refer_to(item: Item, items: Mapping[str, Item]) -> Iterator[Item]:
    for other in items.values():
        if any(reference.id == item.id for reference in references_of(other)):
            yield other


def _find_circle(start: Item, items: Mapping[str, Item]) -> list[str]:
    """Return the way from an item back to itself; empty: there is none."""
    ways: list[list[str]] = [[start.id]]
    seen: set[str] = set()
    while ways:
        way = ways.pop()
        for reference in references_of(items[way[-1]]):
            if reference.id == start.id:
                return [*way, start.id]
            if reference.id not in seen:
                seen.add(reference.id)
                ways.append([*way, reference.id])
    return []
