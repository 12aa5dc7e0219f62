"""Reading single values of a storage layout: each is checked by its type, bounded, and allow-listed.

What passes here becomes words of the steps that a shell on the machine reads, and lines of /etc/fstab.
"""

import re

from rackwright.domain.catalogue import Json
from rackwright.domain.installs.documents import BadValue
from rackwright.domain.installs.storage.items import DiskMatch, SizeBound

UNITS = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
LARGEST = 1 << 60
_SIZE = re.compile(r"([0-9]{1,18})(\.[0-9]{1,3})?\s?([KMGTP]?)(i?B)?")
_BOUND = re.compile(r"(>=|<=|>|<)\s*(\S+)")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,63}")
_DISK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+-]{0,127}")
_SERIAL = re.compile(r"[!-~]([ -~]{0,126}[!-~])?")
_WORD = re.compile(r"[a-z0-9_-]{1,16}")
_RAID_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,30}")
_LVM_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")
_LVM_OWN = re.compile(
    "(snapshot|pvmove).*|.*_(cdata|cmeta|corig|cvol|iorig|imeta|mimage|mlog|pmspare|rimage|rmeta|tdata|tmeta|vdata"
    "|vorigin|wcorig).*"
)
"""Names that LVM gives itself to parts of volumes."""
_TAKEN_IN_DEV = re.compile(
    "block|bsg|bus|char|core|cpu|disk|dri|fd|hugepages|input|kvm|loop|mapper|mqueue|net|pts|raw|shm|snd|vfio"
    "|(dm-|loop|md|nvme|sd|tty|vd).*"
)
"""Names that are in /dev, where each volume group has a folder."""
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,15}")
_PATH = re.compile(r"/([A-Za-z0-9_][A-Za-z0-9._-]{0,62}(/[A-Za-z0-9_][A-Za-z0-9._-]{0,62}){0,15})?")
_OPTIONS = re.compile(r"[a-z][A-Za-z0-9=._:+/-]{0,63}(,[a-z][A-Za-z0-9=._:+/-]{0,63}){0,15}")
MERGED = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")
"""Folders below / that are links to those of the same names below /usr, in systems with a merged /usr."""
OF_THE_ROOT = ("dev", "etc", "proc", "run", "sys", *MERGED)
"""Folders below / that cannot be file systems of their own: the system needs them before it mounts any."""
LINKS = {"/var/lock": "/run/lock", "/var/run": "/run"}
"""Folders that are links in every system: where something is mounted, the image's link cannot be unpacked."""


def take_size(value: Json) -> int:
    """Return a size in bytes. Units are powers of 1024, as in curtin."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= LARGEST:
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is not None:
        unit = UNITS[match[3]]
        size = int(match[1]) * unit + (int(float(match[2]) * unit) if match[2] else 0)
        if 0 < size <= LARGEST:
            return size
    raise BadValue("is no size; write it like 512M, 100G or 1.5T (powers of 1024)")


def take_rest_or_size(value: Json) -> int | None:
    """Return a size in bytes; None: all that is left, which curtin writes as -1."""
    return None if value == -1 and not isinstance(value, bool) else take_size(value)


def take_match_size(value: Json) -> DiskMatch:
    """Return what a disk's size has to be: `smallest`, `largest`, or one or two bounds."""
    if value in ("smallest", "largest"):
        return DiskMatch(extreme=str(value))
    words = _BOUND.findall(value) if isinstance(value, str) else []
    if isinstance(value, str) and words and len(words) <= 2 and not _BOUND.sub("", value).strip(" ,"):
        return DiskMatch(bounds=tuple(SizeBound(comparison, take_size(size.rstrip(","))) for comparison, size in words))
    raise BadValue('is neither smallest nor largest, nor bounds like ">=100G" or ">=100G <2T"')


def take_count(value: Json) -> int | None:
    """Return how many disks an item stands for; None: the rest."""
    if value == "rest":
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 256:
        return value
    raise BadValue("is neither a number from 1 to 256 nor rest")


def take_id(value: Json) -> str:
    return _take_text(value, _ID, "is no id: letters, digits, '_', '.', ':', '/' and '-', at most 64 characters")


def take_disk_name(value: Json) -> str:
    """Return the stable name of a disk, also from its path."""
    if isinstance(value, str):
        value = value.removeprefix("/dev/disk/by-id/")
    return _take_text(
        value,
        _DISK_NAME,
        "is no stable name of a disk; discovery shows them, such as virtio-..., nvme-... or wwn-0x...",
    )


def take_serial(value: Json) -> str:
    return _take_text(value, _SERIAL, "is no printable text of at most 128 characters")


def take_bus(value: Json) -> str:
    return _take_text(value, _WORD, "is no bus: nvme, virtio, scsi, ata or usb")


def take_raid_name(value: Json) -> str:
    return _take_text(value, _RAID_NAME, "is no name of an array: letters, digits, '_' and '-', at most 31 characters")


def take_lvm_name(value: Json) -> str:
    if isinstance(value, str) and _LVM_NAME.fullmatch(value) and not _LVM_OWN.fullmatch(value):
        return value
    raise BadValue(
        "is no name that LVM takes: letters, digits, '_', '.' and '-', at most 63 characters, and none of its own"
    )


def take_group_name(value: Json) -> str:
    name = take_lvm_name(value)
    if _TAKEN_IN_DEV.fullmatch(name):
        raise BadValue("is the name of something in /dev")
    return name


def take_label(value: Json) -> str:
    return _take_text(value, _LABEL, "is no label: letters, digits, '_', '.' and '-', at most 16 characters")


def take_path(value: Json) -> str:
    if isinstance(value, str) and _PATH.fullmatch(value) and len(value) <= 255:
        folders = value.split("/")[1:]
        if folders[0] in OF_THE_ROOT:
            raise BadValue("belongs to the file system of /")
        if folders[0] == "usr" and folders[1:2] and folders[1] in MERGED:
            raise BadValue("belongs to the file system of /usr: the system starts from it, before it mounts others")
        link = "/" + "/".join(folders[:2])
        if link in LINKS:
            raise BadValue(f"is no place for a file system: {link} is a link to {LINKS[link]}")
        return value
    raise BadValue("is no path: an absolute one of letters, digits, '.', '_' and '-', without / at its end")


def take_options(value: Json) -> str:
    return _take_text(value, _OPTIONS, "is no list of mount options, like noatime,nodev")


def _take_text(value: Json, pattern: re.Pattern[str], otherwise: str) -> str:
    if isinstance(value, str) and pattern.fullmatch(value):
        return value
    raise BadValue(otherwise)
