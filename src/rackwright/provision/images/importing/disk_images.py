"""Images of whole disks, qcow2 or raw: finding the root file system in them, and reading it without mounting it.

The kernel's file systems are not made for a stranger's bytes, so they never see them. qemu-img makes a qcow2 raw,
sfdisk reads the partitions, e2fsck repairs a copy of the file system, and debugfs reads it, all within limits.
`docs/decisions/0011-images.md` says why.
"""

import json
import os
import re
import subprocess
import tarfile
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rackwright.provision.images.disk_space import full_disk_is_said, require_space, show_size
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
INFO_LIMITS = ("prlimit", "--as=2147483648", "--cpu=60")
"""What asks an image about itself gets so much memory and time, as OpenStack does it."""
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
    require_programs("sfdisk", "blkid", "debugfs", "e2fsck", "prlimit")
    with path.open("rb") as file:
        is_qcow2 = file.read(len(QCOW2)) == QCOW2
    if not is_qcow2:
        used = path.stat().st_blocks * SECTOR
        require_space({work: used, shelf_folder: used // 2})
        return Disk(path, "raw disk image", path.stat().st_size)
    require_programs("qemu-img")
    size = _check_qcow2(path)
    used = _count_used(path)
    # The raw copy, a copy of its root partition, and the chunks.
    require_space({work: 2 * used, shelf_folder: used // 2})
    raw = work / "disk.raw"
    say(f"unpacking {path.name}: {show_size(used)} of a disk of {show_size(size)}")
    limits = ("prlimit", f"--fsize={LARGEST_DISK}")
    _run([*limits, "qemu-img", "convert", "-f", "qcow2", "-O", "raw", str(path), str(raw)], "qemu-img")
    return Disk(raw, "qcow2 disk image", size)


def _check_qcow2(path: Path) -> int:
    """Return the size of the disk in a qcow2 image; BuildFailed if the image refers to other files."""
    info = json.loads(_run([*INFO_LIMITS, "qemu-img", "info", "-f", "qcow2", "--output=json", str(path)], "qemu-img"))
    data = info.get("format-specific", {}).get("data", {})
    others = [info.get("backing-filename"), info.get("full-backing-filename"), data.get("data-file")]
    if any(others):
        raise BuildFailed(f"{path} refers to another file ({next(filter(None, others))}), which is not read.")
    if info.get("encrypted"):
        raise BuildFailed(f"{path} is encrypted.")
    size = int(info["virtual-size"])
    if size > LARGEST_DISK:
        raise BuildFailed(f"{path} is a disk of {show_size(size)}; the most is {show_size(LARGEST_DISK)}.")
    return size


def _count_used(path: Path) -> int:
    """Return how many bytes of the disk in a qcow2 image are not empty."""
    extents = json.loads(_run([*INFO_LIMITS, "qemu-img", "map", "-f", "qcow2", "--output=json", str(path)], "qemu-img"))
    used = sum(int(extent["length"]) for extent in extents if extent["data"])
    if used > MOST_BYTES:
        raise BuildFailed(f"There are {show_size(used)} on the disk in {path}; the most is {show_size(MOST_BYTES)}.")
    return used


def read_root(disk: Disk, work: Path, say: Say) -> Generator[Entry, None, None]:
    """Yield the root file system of a disk, with that of /boot if it has a partition of its own."""
    partitions = list_partitions(disk)
    say(f"partitions: {', '.join(map(str, partitions))}")
    for partition in partitions:
        if partition.type not in EXT:
            continue
        reader = _open_partition(disk, partition, work)
        if not reader.has("etc", "os-release") and not reader.has("usr", "lib", "os-release"):
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


def list_partitions(disk: Disk) -> list[Partition]:
    """Return the partitions of a disk; one that begins at the start of it, if there is no table."""
    whole = Partition(0, 0, disk.size, _probe(disk.path, 0, disk.size))
    if whole.type in EXT:
        return [whole]
    try:
        table = json.loads(_run(["prlimit", "--cpu=60", "sfdisk", "--json", str(disk.path)], "sfdisk"))
    except BuildFailed as error:
        raise BuildFailed(f"There are no partitions in this image, nor a file system: {error}") from None
    sector = int(table["partitiontable"].get("sectorsize", SECTOR))
    partitions = []
    for number, entry in enumerate(table["partitiontable"].get("partitions", [])[:MOST_PARTITIONS], 1):
        start, size = int(entry["start"]) * sector, int(entry["size"]) * sector
        if 0 <= start < start + size <= disk.size:
            tags = _probe(disk.path, start, size)
            partitions.append(Partition(number, start, size, {**tags, "PARTUUID": str(entry.get("uuid", ""))}))
    return partitions


def _probe(path: Path, start: int, size: int) -> dict[str, str]:
    """Return what blkid recognises in a part of a file."""
    command = ["prlimit", "--cpu=60", "blkid", "-p", "-O", str(start), "-S", str(size), "-o", "export", str(path)]
    finished = subprocess.run(command, capture_output=True, check=False)
    lines = finished.stdout.decode(errors="replace").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def _open_partition(disk: Disk, partition: Partition, work: Path) -> ExtReader:
    """Copy a partition into a file, have its file system repaired there, and open it."""
    copy = work / f"partition-{partition.number}"
    with full_disk_is_said(work):
        _copy_sparse(disk.path, partition.start, partition.size, copy)
    # What was in use when the image was taken has changes in its journal only; and a stranger's may be broken.
    finished = subprocess.run(
        ["prlimit", "--cpu=1800", "e2fsck", "-fy", str(copy)], capture_output=True, check=False, text=True
    )
    if finished.returncode >= 4:
        last = "\n".join(finished.stdout.strip().splitlines()[-5:])
        raise BuildFailed(f"The file system of partition {partition} is broken beyond repair:\n{last}")
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


def _run(command: Sequence[str], program: str) -> bytes:
    finished = subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    if finished.returncode != 0:
        words = finished.stderr.decode(errors="replace").strip().splitlines()[-3:]
        raise BuildFailed(f"{program} ended with status {finished.returncode}: {' '.join(words)[:500]}")
    return finished.stdout
