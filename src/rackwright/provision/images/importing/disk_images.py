"""Images of whole disks, qcow2 or raw: finding the root file system in them, and reading it without mounting it.

The kernel's file systems are not made for a stranger's bytes, so they never see them. qemu-img makes a qcow2 raw,
sfdisk reads the partitions, e2fsck repairs a copy of the file system, and debugfs reads it, all within limits.
`docs/decisions/0011-images.md` says why.
"""

import json
import os
import re
import struct
import tarfile
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from rackwright.provision.images.disk_space import full_disk_is_said, require_space, show_size
from rackwright.provision.images.importing.bounded import PROGRAMS, Limits, require_success, run_bounded
from rackwright.provision.images.importing.ext_reader import ExtReader
from rackwright.provision.images.packages import BuildFailed, Say, require_programs
from rackwright.provision.images.root_archive import MOST_BYTES, Entry

QCOW2 = b"QFI\xfb"
MASTER_BOOT_RECORD, BOOT_RECORD_OFFSET = b"\x55\xaa", 510
EXT_MAGIC, EXT_OFFSET = b"\x53\xef", 1024 + 56
HEAD = 2048
"""Bytes of a file that tell what it is."""
SECTOR = 512
LARGEST_DISK = 1 << 40
MOST_PARTITIONS = 128
INFO_LIMITS = Limits()
CONVERT_LIMITS = Limits(seconds=7200, memory=4 << 30, file_size=LARGEST_DISK)
REPAIR_LIMITS = Limits(seconds=1800, memory=4 << 30, file_size=LARGEST_DISK)
QCOW2_HEAD = struct.Struct(">4sIQIIQIIQQIIQQ")
"""Magic, version, offset and length of the backing file's name, cluster bits, size, kind of encryption, two tables with
their sizes and offsets, snapshots, and what a reader must know of (version 3)."""
EXTERNAL_DATA = 1 << 2
"""The bit in the latter for data that lies in another file."""
EXT = ("ext2", "ext3", "ext4")
BOOT_MOUNT = re.compile(
    rb"^[ \t]*(?P<key>UUID|LABEL|PARTUUID)=\"?(?P<value>[A-Za-z0-9_.-]{1,64})\"?\s+/boot\s", re.MULTILINE
)


@dataclass(frozen=True)
class Disk:
    """The image of a disk as a raw file."""

    path: Path
    kind: str
    size: int


@dataclass(frozen=True)
class Partition:
    """A part of a disk, and the file system that is recognised there."""

    number: int
    start: int
    size: int
    tags: dict[str, str]
    """What blkid says: TYPE, UUID, LABEL; and PARTUUID of the table."""

    @property
    def type(self) -> str:
        return self.tags.get("TYPE", "")

    def __str__(self) -> str:
        return f"{self.number} ({self.type or 'nothing that is known'}, {show_size(self.size)})"


def looks_like_disk(head: bytes) -> bool:
    """Return whether a file with this beginning is the image of a disk, or of a file system alone."""
    has_table = head[BOOT_RECORD_OFFSET:].startswith(MASTER_BOOT_RECORD)
    return head.startswith(QCOW2) or has_table or head[EXT_OFFSET:].startswith(EXT_MAGIC)


def open_disk(path: Path, work: Path, shelf_folder: Path, say: Say) -> Disk:
    """Return an image as a raw file: itself, or a copy in `work`. BuildFailed if there is no room for it."""
    require_programs("sfdisk", "blkid", "debugfs", "e2fsck", *PROGRAMS)
    # An absolute path is never taken for a protocol or an option, whatever the file is called.
    path = path.resolve()
    with path.open("rb") as file:
        is_qcow2 = file.read(len(QCOW2)) == QCOW2
    if not is_qcow2:
        _check_size(path, path.stat().st_size)
        used = path.stat().st_blocks * SECTOR
        require_space({work: used, shelf_folder: used // 2})
        return Disk(path, "raw disk image", path.stat().st_size)
    require_programs("qemu-img")
    size = _check_qcow2(path, work)
    used = _count_used(path, work)
    # The raw copy, a copy of its root partition, and the chunks.
    require_space({work: 2 * used, shelf_folder: used // 2})
    raw = work / "disk.raw"
    say(f"unpacking {path.name}: {show_size(used)} of a disk of {show_size(size)}")
    _run(["qemu-img", "convert", "-f", "qcow2", "-O", "raw", str(path), str(raw)], work, CONVERT_LIMITS)
    return Disk(raw, "qcow2 disk image", size)


def _check_qcow2(path: Path, work: Path) -> int:
    """Return the size of the disk in a qcow2 image; BuildFailed if the image refers to other files."""
    # Read here first: qemu-img has opened what an image names while it was only asked about the image.
    with path.open("rb") as file:
        head = file.read(QCOW2_HEAD.size).ljust(QCOW2_HEAD.size, b"\0")
    _, version, backing, *_, incompatible = QCOW2_HEAD.unpack(head)
    encryption = QCOW2_HEAD.unpack(head)[6]
    if version not in (2, 3):
        raise BuildFailed(f"{path} is qcow2 of the version {version}; those that are read are 2 and 3.")
    if backing or (version == 3 and incompatible & EXTERNAL_DATA):
        raise BuildFailed(f"{path} refers to another file, which is not read.")
    if encryption:
        raise BuildFailed(f"{path} is encrypted.")
    info = json.loads(_run(["qemu-img", "info", "-f", "qcow2", "--output=json", str(path)], work))
    data = info.get("format-specific", {}).get("data", {})
    others = [info.get("backing-filename"), info.get("full-backing-filename"), data.get("data-file")]
    if any(others):
        raise BuildFailed(f"{path} refers to another file ({next(filter(None, others))}), which is not read.")
    if info.get("encrypted"):
        raise BuildFailed(f"{path} is encrypted.")
    return _check_size(path, int(info["virtual-size"]))


def _check_size(path: Path, size: int) -> int:
    if size > LARGEST_DISK:
        raise BuildFailed(f"{path} is a disk of {show_size(size)}; the most is {show_size(LARGEST_DISK)}.")
    return size


def _count_used(path: Path, work: Path) -> int:
    """Return how many bytes of the disk in a qcow2 image are not empty."""
    extents = json.loads(_run(["qemu-img", "map", "-f", "qcow2", "--output=json", str(path)], work))
    used = sum(int(extent["length"]) for extent in extents if extent["data"])
    if used > MOST_BYTES:
        raise BuildFailed(f"There are {show_size(used)} on the disk in {path}; the most is {show_size(MOST_BYTES)}.")
    return used


def read_root(disk: Disk, work: Path, say: Say) -> Generator[Entry, None, None]:
    """Yield the root file system of a disk, with that of /boot if it has a partition of its own."""
    partitions = list_partitions(disk, work)
    say(f"partitions: {', '.join(map(str, partitions))}")
    for partition in partitions:
        if partition.type not in EXT:
            continue
        reader = _open_partition(disk, partition, work)
        if not reader.has("etc", "os-release") and not reader.has("usr", "lib", "os-release"):
            reader.remove()
            continue
        say(f"the root file system is partition {partition}")
        boot = _find_boot(reader, partitions)
        if boot is None:
            yield from reader.entries(say)
        else:
            say(f"/boot is partition {boot}")
            yield from (entry for entry in reader.entries(say) if not entry.info.name.startswith("boot/"))
            yield from _below_boot(_open_partition(disk, boot, work), say)
        return
    found = ", ".join(map(str, partitions)) or "none"
    raise BuildFailed(
        f"None of the partitions has a root file system that can be read: ext2, ext3 or ext4 with an os-release."
        f" There are: {found}. Pack the root file system into a tar archive, and import that."
    )


def list_partitions(disk: Disk, work: Path) -> list[Partition]:
    """Return the partitions of a disk; one that begins at the start of it, if there is no table."""
    whole = Partition(0, 0, disk.size, _probe(disk.path, 0, disk.size, work))
    if whole.type in EXT:
        return [whole]
    try:
        table = json.loads(_run(["sfdisk", "--json", str(disk.path)], work))
    except BuildFailed as error:
        raise BuildFailed(f"There are no partitions in this image, nor a file system: {error}") from None
    sector = int(table["partitiontable"].get("sectorsize", SECTOR))
    partitions = []
    for number, entry in enumerate(table["partitiontable"].get("partitions", [])[:MOST_PARTITIONS], 1):
        start, size = int(entry["start"]) * sector, int(entry["size"]) * sector
        if 0 <= start < start + size <= disk.size:
            tags = _probe(disk.path, start, size, work)
            partitions.append(Partition(number, start, size, {**tags, "PARTUUID": str(entry.get("uuid", ""))}))
    _check_apart(partitions)
    return partitions


def _check_apart(partitions: Sequence[Partition]) -> None:
    """Raise BuildFailed if file systems lie over each other: each would be copied, and all of them have no room."""
    readable = sorted((partition for partition in partitions if partition.type in EXT), key=lambda each: each.start)
    for before, after in pairwise(readable):
        if after.start < before.start + before.size:
            raise BuildFailed(f"Partition {after} begins within partition {before}.")


def _probe(path: Path, start: int, size: int, work: Path) -> dict[str, str]:
    """Return what blkid recognises in a part of a file."""
    command = ["blkid", "-p", "-O", str(start), "-S", str(size), "-o", "export", str(path)]
    lines = run_bounded(command, work, INFO_LIMITS).output.decode(errors="replace").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def _open_partition(disk: Disk, partition: Partition, work: Path) -> ExtReader:
    """Copy a partition into a file, have its file system repaired there, and open it."""
    copy = work / f"partition-{partition.number}"
    with full_disk_is_said(work):
        _copy_sparse(disk.path, partition.start, partition.size, copy)
    # What was in use when the image was taken has changes in its journal only; and a stranger's may be broken.
    finished = run_bounded(["e2fsck", "-fy", str(copy)], work, REPAIR_LIMITS)
    if not 0 <= finished.status < 4:
        last = "\n".join(finished.output.decode(errors="replace").strip().splitlines()[-5:])
        raise BuildFailed(f"The file system of partition {partition} is broken beyond repair:\n{last[:2000]}")
    return ExtReader(copy, work)


def _copy_sparse(source: Path, start: int, size: int, target: Path) -> None:
    """Copy a part of a file, and leave out what is a hole."""
    with source.open("rb") as reading, target.open("wb") as writing:
        writing.truncate(size)
        position, end = start, start + size
        while position < end:
            try:
                data = os.lseek(reading.fileno(), position, os.SEEK_DATA)
            except OSError:
                return  # nothing but holes until the end of the file
            hole = min(os.lseek(reading.fileno(), data, os.SEEK_HOLE), end)
            reading.seek(data)
            writing.seek(data - start)
            left = hole - data
            while left > 0 and (block := reading.read(min(1 << 20, left))):
                writing.write(block)
                left -= len(block)
            position = max(hole, data + 1)


def _find_boot(root: ExtReader, partitions: Sequence[Partition]) -> Partition | None:
    """Return the partition that the system mounts at /boot; None if it has none of its own."""
    mount = BOOT_MOUNT.search(root.read("etc", "fstab"))
    if mount is None:
        return None
    key, value = mount["key"].decode(), mount["value"].decode().lower()
    for partition in partitions:
        if partition.type in EXT and partition.tags.get(key, "").lower() == value:
            return partition
    raise BuildFailed(f"The system mounts {key}={value} at /boot, and no partition that can be read is that.")


def _below_boot(reader: ExtReader, say: Say) -> Generator[Entry, None, None]:
    for entry in reader.entries(say):
        moved = tarfile.TarInfo(f"boot/{entry.info.name}")
        for field in ("type", "mode", "uid", "gid", "size", "mtime", "linkname"):
            setattr(moved, field, getattr(entry.info, field))
        if entry.info.islnk():
            moved.linkname = f"boot/{entry.info.linkname}"
        yield replace(entry, info=moved)


def _run(command: Sequence[str], work: Path, limits: Limits = INFO_LIMITS) -> bytes:
    return require_success(command[0], run_bounded(command, work, limits))
