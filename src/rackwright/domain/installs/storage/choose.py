"""Choosing the disks of a machine that the items of a layout stand for."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rackwright.domain.installs.disks import Disk, show_bytes
from rackwright.domain.installs.request import Problem
from rackwright.domain.installs.storage.items import DiskItem

SHOWN = 12
_WWN_PREFIX = re.compile(r"^(wwn-|nvme-)?(0x|naa\.|eui\.)?")


def choose_disks(items: Sequence[DiskItem], disks: Sequence[Disk]) -> tuple[dict[str, tuple[Disk, ...]], list[Problem]]:
    """Return the disks of each item by its id, and why some have none.

    Disks that are named come first, then those that are matched, and last what is left.
    """
    chooser = _Chooser(disks)
    for item in sorted(items, key=_rank):
        chooser.choose(item)
    return chooser.chosen, chooser.problems


def _rank(item: DiskItem) -> int:
    if item.match is None:
        return 0
    return 2 if item.count is None else 1


@dataclass
class _Chooser:
    disks: Sequence[Disk]
    chosen: dict[str, tuple[Disk, ...]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    taken: dict[str, str] = field(default_factory=dict)
    """The item that took a disk, by the disk's name."""

    def choose(self, item: DiskItem) -> None:
        candidates = self._named(item) if item.match is None else self._matched(item)
        for disk in candidates:
            if disk.name in self.taken:
                self._refuse(item, f"{disk.name} is taken by {self.taken[disk.name]} already")
            elif disk.bytes is None:
                self._refuse(item, f"the size of {disk.name} is not known; let the machine be discovered again")
            elif disk.namesakes:
                devices = ", ".join((disk.device or "no device", *disk.namesakes))
                self._refuse(
                    item,
                    f"{1 + len(disk.namesakes)} disks say that they are {disk.name}: {devices}. The installer cannot "
                    "tell them apart: choose another disk, or have the machine boot sledgehammer of today",
                )
            self.taken.setdefault(disk.name, item.id)
        if candidates:
            self.chosen[item.id] = tuple(candidates)

    def _refuse(self, item: DiskItem, reason: str) -> None:
        self.problems.append(Problem(item.attrib, f"{item.id}: {reason}", item.line))

    def _named(self, item: DiskItem) -> list[Disk]:
        if item.serial:
            wanted, matching = f"serial {item.serial}", [disk for disk in self.disks if disk.serial == item.serial]
        elif item.wwn:
            wwn = _bare_wwn(item.wwn)
            wanted, matching = f"wwn {item.wwn}", [disk for disk in self.disks if wwn in _wwns_of(disk)]
        else:
            wanted, matching = f"name {item.name}", [disk for disk in self.disks if disk.name == item.name]
        if len(matching) == 1:
            return matching
        if matching:
            self._refuse(item, f"{len(matching)} disks have {wanted}: {_show(matching)}")
        else:
            self._refuse(item, f"the machine has no disk with {wanted}; it has {_show(self.disks)}")
        return []

    def _matched(self, item: DiskItem) -> list[Disk]:
        match = item.match
        assert match is not None
        matching = [disk for disk in self.disks if disk.name not in self.taken and match.admits(disk)]
        if match.extreme:
            matching.sort(key=lambda disk: disk.bytes or 0, reverse=match.extreme == "largest")
        if item.count is None or len(matching) == item.count:
            if matching:
                return matching
        elif match.extreme and len(matching) > item.count:
            if matching[item.count - 1].bytes != matching[item.count].bytes:
                return matching[: item.count]
            self._refuse(item, f"which is {match.extreme} is undecided, sizes are equal: {_show(matching)}")
            return []
        wanted = "at least one" if item.count is None else str(item.count)
        among = _show(matching) if matching else f"the machine has {_show(self.disks)}"
        self._refuse(item, f"{len(matching)} free disks match, and it is to be {wanted}: {among}")
        return []


def _bare_wwn(wwn: str) -> str:
    return _WWN_PREFIX.sub("", wwn.lower())


def _wwns_of(disk: Disk) -> tuple[str, ...]:
    """Return the world wide names of a disk; the stable name of many has it, too."""
    named = (disk.name,) if disk.name.startswith(("wwn-", "nvme-eui.")) else ()
    return tuple(_bare_wwn(wwn) for wwn in (disk.wwn, *named) if wwn)


def _show(disks: Sequence[Disk]) -> str:
    if not disks:
        return "none that is known"
    shown = [f"{disk.name} ({show_bytes(disk.bytes)})" if disk.bytes is not None else disk.name for disk in disks]
    return ", ".join(shown[:SHOWN]) + (f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else "")


def disks_by_id(chosen: Mapping[str, tuple[Disk, ...]]) -> list[Disk]:
    """Return all chosen disks, each once."""
    return list({disk.name: disk for disks in chosen.values() for disk in disks}.values())
