"""Writing a root file system as chunks: a tar archive in pieces, each compressed by itself.

The pieces begin at files that are chosen by their names, so that two archives with the same run of files have the
same pieces there, whatever is different before. Compressed frames of zstd in a row are one stream, so the chunks in a
row are what `zstd -d | tar -x` reads.

What is written is plain whatever is read: names below the root, no device nodes, numbers for owners, no extended
headers (busybox's tar, which unpacks it, does not read them). A name that leads out of the tree, or through a link, is
refused.
"""

import hashlib
import math
import os
import subprocess
import tarfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import IO

from rackwright.provision.images.chunks import BLOCK, Chunk, ChunkStore
from rackwright.provision.images.disk_space import require_rest
from rackwright.provision.images.manifest import ImageFile
from rackwright.provision.images.packages import BuildFailed

LEAST_PIECE = 8 << 20
MOST_PIECE = 32 << 20
"""Bytes of the archive in a piece. A piece ends before the first chosen file after the least."""
CHOSEN = 64
"""One of so many files begins a piece, once it is large enough."""
COMPRESSION = "-12"
"""Of zstd. Higher levels take far longer to compress, and no less to unpack."""

MOST_BYTES = 64 << 30
MOST_FILES = 2_000_000
MOST_NAMES = 256 << 20
"""Characters of all names of an image, folders and where links lead among them: they are kept in memory."""
LONGEST_NAME = 4096
LARGEST_READ = 1 << 20
"""Bytes of a file that is read for what it says of the system."""
LARGEST_STATUS = 64 << 20
"""Bytes of dpkg's list of packages."""
MOST_READ = LARGEST_STATUS + (32 << 20)
"""Bytes of all files of an image that are read: they are kept in memory."""
MOST_OWNER = (1 << 31) - 1
MADE_HERE = 1704067200
"""The time of what is newer than its build: so the same files made on another day are the same bytes."""

NOT_STORED = ("dev", "proc", "sys", "run", "tmp", "var/tmp", "lost+found")
"""Folders of which only the folder itself is stored: a running system fills them."""
OF_ONE_MACHINE = ("etc/machine-id", "etc/hostname", "etc/resolv.conf", "var/lib/dbus/machine-id")
"""Files that each machine makes itself, or is given."""
HOST_KEYS = "etc/ssh/ssh_host_"


@dataclass(frozen=True)
class Entry:
    """A file, folder or link of a root file system, as it is read."""

    info: tarfile.TarInfo
    open: Callable[[], IO[bytes] | None] = lambda: None
    """Opens the content of a file, once, before the next entry is read."""


@dataclass
class RootFacts:
    """What was seen of a root file system while it was written."""

    kinds: dict[str, bytes] = field(default_factory=dict)
    """The type of every path, without slashes at its ends, as tar writes it."""
    links: dict[str, str] = field(default_factory=dict)
    """Where symbolic links lead."""
    contents: dict[str, bytes] = field(default_factory=dict)
    """The content of the files that were asked for."""
    left_out: int = 0
    """How many device nodes and other special files were not stored."""


class RootArchive:
    """Writes the root file system of an image into the chunks of a shelf."""

    def __init__(
        self, chunks: ChunkStore, wanted: Callable[[str], bool] = lambda _: False, fresh_since: float | None = None
    ) -> None:
        """`wanted` chooses the files whose content is kept in the facts; what is newer than `fresh_since` was made by
        the build, and gets a time that is always the same."""
        self.facts = RootFacts()
        self._wanted = wanted
        self._fresh_since = fresh_since
        self._pieces = _Pieces(chunks)
        self._bytes = self._entries = self._names = self._kept = 0

    def write(self, entries: Iterable[Entry]) -> None:
        """Write entries; BuildFailed if one must not be in an image."""
        for entry in entries:
            name = _checked_name(entry.info.name)
            # What is left out counts too: it is read all the same.
            self._bytes += max(entry.info.size, 0)
            self._entries += 1
            if self._entries > MOST_FILES:
                raise BuildFailed(f"There are more than {MOST_FILES} files in the image.")
            if self._bytes > MOST_BYTES:
                raise BuildFailed(f"There is more than {MOST_BYTES >> 30} GiB in the image, at {name[:200]!r}.")
            if name and not _is_left_out(name):
                self._write_entry(name, entry)

    def add_file(self, name: str, content: bytes, mode: int = 0o644) -> None:
        """Write a file of ours, and the folders above it that are missing."""
        for parent in reversed(PurePosixPath(name).parents[:-1]):
            if str(parent) not in self.facts.kinds:
                self._add(str(parent), tarfile.DIRTYPE, 0o755)
        info = self._plain_info(name, tarfile.REGTYPE, mode)
        info.size = len(content)
        self._record(name, info)
        self._put(info, [content])

    def add_link(self, name: str, target: str) -> None:
        """Write a symbolic link of ours, and the folders above it that are missing; one that is there stays."""
        for parent in reversed(PurePosixPath(name).parents[:-1]):
            if str(parent) not in self.facts.kinds:
                self._add(str(parent), tarfile.DIRTYPE, 0o755)
        if name not in self.facts.kinds:
            self._add(name, tarfile.SYMTYPE, 0o777, target)

    def close(self) -> ImageFile:
        """End the archive, and return the file that its chunks are."""
        self._pieces.write(b"\0" * 2 * tarfile.BLOCKSIZE)
        return self._pieces.close()

    def abort(self) -> None:
        """Stop; the chunks that were written are removed with the next that nobody needs."""
        self._pieces.abort()

    def _add(self, name: str, kind: bytes, mode: int, target: str = "") -> None:
        info = self._plain_info(name, kind, mode)
        info.linkname = target
        self._record(name, info)
        self._put(info, [])

    def _plain_info(self, name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
        info = tarfile.TarInfo(name)
        info.type, info.mode, info.mtime = kind, mode, MADE_HERE
        return info

    def _write_entry(self, name: str, entry: Entry) -> None:
        info = entry.info
        if not (info.isreg() or info.isdir() or info.issym() or info.islnk()):
            self.facts.left_out += 1
            return
        kind = tarfile.REGTYPE if info.isreg() else info.type
        written = self._plain_info(name, kind, info.mode & 0o7777)
        written.uid, written.gid = _checked_owner(name, info.uid), _checked_owner(name, info.gid)
        written.mtime = self._time(info)
        written.linkname = self._checked_link(name, info)
        if kind != tarfile.REGTYPE:
            self._record(name, written)
            self._put(written, [])
            return
        written.size = max(info.size, 0)
        self._record(name, written)
        self._put(written, self._content(name, entry))

    def _time(self, info: tarfile.TarInfo) -> int:
        if self._fresh_since is not None and (not info.isreg() or info.mtime >= self._fresh_since):
            return MADE_HERE
        return min(max(int(info.mtime), 0), (1 << 33) - 1) if math.isfinite(info.mtime) else MADE_HERE

    def _checked_link(self, name: str, info: tarfile.TarInfo) -> str:
        if info.issym():
            if not info.linkname or "\0" in info.linkname or len(info.linkname) > LONGEST_NAME:
                raise BuildFailed(f"The link {name[:200]!r} in the image leads nowhere that can be written.")
            self._count_name(info.linkname)
            self.facts.links[name] = info.linkname
            return info.linkname
        if not info.islnk():
            return ""
        target = _checked_name(info.linkname)
        if self.facts.kinds.get(target) not in (tarfile.REGTYPE, tarfile.LNKTYPE):
            raise BuildFailed(
                f"{name[:200]!r} in the image is the same file as {target[:200]!r}, which is none before it."
            )
        return target

    def _record(self, name: str, info: tarfile.TarInfo) -> None:
        """Remember a path; BuildFailed if writing it would write through something that is no folder."""
        kinds = self.facts.kinds
        parent = name.rpartition("/")[0]
        while parent and kinds.get(parent) != tarfile.DIRTYPE:
            if parent in kinds:
                raise BuildFailed(f"{name[:200]!r} in the image leads through {parent[:200]!r}, which is no folder.")
            self._count_name(parent)
            kinds[parent] = tarfile.DIRTYPE
            parent = parent.rpartition("/")[0]
        if name in kinds and not (kinds[name] == info.type == tarfile.DIRTYPE):
            raise BuildFailed(f"{name[:200]!r} is in the image twice.")
        if len(kinds) >= MOST_FILES:
            raise BuildFailed(f"There are more than {MOST_FILES} files in the image.")
        self._count_name(name)
        kinds[name] = info.type

    def _count_name(self, name: str) -> None:
        """Count a name that is kept in memory; BuildFailed if there are too many and too long ones."""
        self._names += len(name)
        if self._names > MOST_NAMES:
            raise BuildFailed(f"The names of the files in the image have more than {MOST_NAMES >> 20} MiB.")

    def _content(self, name: str, entry: Entry) -> Iterator[bytes]:
        kept = bytearray() if self._wanted(name) else None
        most = LARGEST_STATUS if name.endswith("/status") else LARGEST_READ
        left = max(entry.info.size, 0)
        opened = entry.open() if left else None
        while left:
            try:
                block = opened.read(min(BLOCK, left)) if opened is not None else b""
            except (tarfile.TarError, EOFError):
                block = b""
            if not block:
                raise BuildFailed(f"{name[:200]!r} in the image ends {left} bytes too early.")
            left -= len(block)
            if kept is not None:
                kept += block[: most - len(kept)]
            yield block
        if opened is not None:
            opened.close()
        if kept is not None:
            self._kept += len(kept)
            if self._kept > MOST_READ:
                raise BuildFailed(f"The files that say what the system is have more than {MOST_READ >> 20} MiB.")
            self.facts.contents[name] = bytes(kept)

    def _put(self, info: tarfile.TarInfo, content: Iterable[bytes]) -> None:
        header = info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
        self._pieces.begin_file(info.name)
        self._pieces.write(header)
        for block in content:
            self._pieces.write(block)
        self._pieces.write(b"\0" * (-info.size % tarfile.BLOCKSIZE))


def _checked_name(name: str) -> str:
    """Return a name as a path below the root, empty for the root itself; BuildFailed if it leads out of it."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise BuildFailed(f"{name[:200]!r} in the image leads out of its root.")
    if "\0" in name or len(name) > LONGEST_NAME:
        raise BuildFailed(f"{name[:200]!r} in the image is no name that can be written.")
    return "/".join(parts)


def _checked_owner(name: str, number: int) -> int:
    if not 0 <= number <= MOST_OWNER:
        raise BuildFailed(f"{name[:200]!r} in the image belongs to {number}, which is no user or group.")
    return number


def _is_left_out(name: str) -> bool:
    if name in OF_ONE_MACHINE or name.startswith(HOST_KEYS):
        return True
    return any(name.startswith(f"{folder}/") for folder in NOT_STORED)


class _Pieces:
    """Cuts a stream into pieces, and compresses and stores several of them at a time, in order."""

    def __init__(self, chunks: ChunkStore) -> None:
        self._chunks = chunks
        self._piece = bytearray()
        self._workers = os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self._workers)
        self._pending: deque[Future[bytes]] = deque()
        self._stored: list[Chunk] = []
        self._whole = hashlib.sha256()

    def begin_file(self, name: str) -> None:
        """Cut here if the piece is large enough and the file is a chosen one."""
        encoded = name.encode("utf-8", "surrogateescape")
        if len(self._piece) >= LEAST_PIECE and hashlib.sha256(encoded).digest()[0] % CHOSEN == 0:
            self._cut()

    def write(self, content: bytes) -> None:
        self._piece += content
        while len(self._piece) > MOST_PIECE:
            self._cut(MOST_PIECE)

    def close(self) -> ImageFile:
        try:
            if self._piece:
                self._cut()
            while self._pending:
                self._store()
        finally:
            self.abort()
        size = sum(chunk.size for chunk in self._stored)
        return ImageFile(self._chunks.folder, size, self._whole.hexdigest(), tuple(self._stored))

    def abort(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _cut(self, size: int | None = None) -> None:
        end = len(self._piece) if size is None else size
        piece = bytes(self._piece[:end])
        del self._piece[:end]
        self._pending.append(self._pool.submit(_compress, piece))
        while len(self._pending) > self._workers:
            self._store()

    def _store(self) -> None:
        content = self._pending.popleft().result()
        require_rest(self._chunks.folder, len(content))
        self._whole.update(content)
        self._stored.append(self._chunks.put(content))


def _compress(piece: bytes) -> bytes:
    command = ["zstd", "-q", "-c", COMPRESSION, "-T1", f"--stream-size={len(piece)}"]
    finished = subprocess.run(command, input=piece, capture_output=True, check=False)
    if finished.returncode != 0:
        raise BuildFailed(f"zstd ended with status {finished.returncode}: {finished.stderr.decode(errors='replace')}")
    return finished.stdout
