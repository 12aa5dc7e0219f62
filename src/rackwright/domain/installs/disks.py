"""The disks of a machine as discovery reported them, with what is on each. Pure.

A machine says all of this of itself, so it may be anything: what does not fit is left out, and every text is bounded
and printable.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from rackwright.domain.catalogue import Json, JsonObject

MOST_DISKS = 256
MOST_CONTENTS = 128
LONGEST_TEXT = 128
MOST_BYTES = 2**63 - 1
UNREADABLE = "something unreadable"
"""The type of what a machine reports as the content of a disk, and what is none that can be read."""


@dataclass(frozen=True)
class DiskContent:
    """One thing that is on a disk: a partition table, a file system, a member of something larger."""

    device: str
    """The kernel's name of the disk or partition that holds it."""
    type: str
    """As blkid names it: `ext4`, `LVM2_member`, `linux_raid_member`, `crypto_LUKS`, `ceph_bluestore`, `gpt`."""
    label: str = ""
    """Its label, or the name of the volume group or array that it belongs to."""
    uuid: str = ""
    bytes: int | None = None
    mounted_on: str = ""
    """Where it was mounted last, if the file system tells."""
    mounted_at: int | None = None
    """When, in seconds of the epoch."""

    def __str__(self) -> str:
        words = [self.device, self.type] if self.device else [self.type]
        if self.label:
            words.append(f"“{self.label}”")
        if self.bytes is not None:
            words.append(show_bytes(self.bytes))
        text = " ".join(words)
        mounted = f"last mounted on {self.mounted_on}" if self.mounted_on else ""
        if self.mounted_at is not None:
            mounted = f"{mounted or 'last mounted'} {datetime.fromtimestamp(self.mounted_at, UTC):%Y-%m-%d}"
        return f"{text}, {mounted}" if mounted else text


@dataclass(frozen=True)
class Disk:
    """A disk of a machine."""

    name: str
    """The name that stays: by its serial number or world wide name."""
    device: str = ""
    """The kernel's name at the last discovery; another may have it after the next boot."""
    bytes: int | None = None
    serial: str = ""
    wwn: str = ""
    bus: str = ""
    """`nvme`, `virtio`, `scsi`, `ata`, `usb`; empty: unknown."""
    rotational: bool | None = None
    sector_bytes: int | None = None
    """Its logical sectors: 512, or 4096 on a disk that is called 4Kn."""
    contents: tuple[DiskContent, ...] = ()
    fingerprint: str = ""
    """A digest of what is on it, made by the machine; the installer makes it again before it writes."""
    namesakes: tuple[str, ...] = ()
    """The kernel's names of other disks that were reported by the same name: the installer tells none of them apart."""


def read_disks(reported: Json) -> tuple[Disk, ...]:
    """Return the disks in what a machine reported, in its order, each name once.

    A name that is there twice, as of two namespaces of one NVMe controller, stays with the first and is marked on it.
    """
    disks: dict[str, Disk] = {}
    for entry in _read_list(reported, MOST_DISKS):
        disk = _read_disk(entry) if isinstance(entry, dict) else None
        if disk is None:
            continue
        first = disks.setdefault(disk.name, disk)
        if first is not disk:
            disks[disk.name] = replace(first, namesakes=(*first.namesakes, disk.device or "no device"))
    return tuple(disks.values())


def _read_disk(entry: JsonObject) -> Disk | None:
    name = _read_text(entry.get("name"))
    if not name:
        return None
    reported = entry.get("contents")
    listed = reported[:MOST_CONTENTS] if isinstance(reported, list) else [] if reported is None else [reported]
    rotational = entry.get("rotational")
    return Disk(
        name=name,
        device=_read_text(entry.get("device")),
        bytes=_read_number(entry.get("bytes")),
        serial=_read_text(entry.get("serial")),
        wwn=_read_text(entry.get("wwn")),
        bus=_read_text(entry.get("bus")),
        rotational=rotational if isinstance(rotational, bool) else None,
        sector_bytes=_read_number(entry.get("sector_bytes")) or None,
        contents=tuple(map(_read_content, listed)),
        fingerprint=_read_text(entry.get("fingerprint")),
    )


def _read_content(entry: Json) -> DiskContent:
    """Return something that is on a disk. None is left out: a disk without contents is taken to be empty."""
    if not isinstance(entry, dict):
        return DiskContent("", UNREADABLE)
    return DiskContent(
        device=_read_text(entry.get("device")),
        type=_read_text(entry.get("type")) or UNREADABLE,
        label=_read_text(entry.get("label")),
        uuid=_read_text(entry.get("uuid")),
        bytes=_read_number(entry.get("bytes")),
        mounted_on=_read_text(entry.get("mounted_on")),
        mounted_at=_read_time(entry.get("mounted_at")),
    )


def _read_list(value: Json, most: int) -> list[Json]:
    return value[:most] if isinstance(value, list) else []


def _read_text(value: Json) -> str:
    if not isinstance(value, str):
        return ""
    return "".join(letter for letter in value[:LONGEST_TEXT] if letter.isprintable()).strip()


def _read_number(value: Json) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= MOST_BYTES else None


def _read_time(value: Json) -> int | None:
    """Return a time that a clock can show; a file system that was never mounted says 0."""
    seconds = _read_number(value)
    return seconds if seconds and seconds < 2**34 else None


def show_bytes(size: int) -> str:
    """Return a number of bytes for people, in powers of ten, as disks are sold."""
    for unit, factor in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} bytes"
