"""Reading an ext2, ext3 or ext4 file system in a file, with debugfs, without mounting it.

debugfs is told inodes by number and writes their content to files that are named by number, so that no name in the file
system is ever a path here or part of a command.
"""

import re
import tarfile
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from rackwright.provision.images.importing.bounded import Limits, run_bounded
from rackwright.provision.images.importing.progress import Progress
from rackwright.provision.images.packages import BuildFailed, Say
from rackwright.provision.images.root_archive import LONGEST_NAME, MOST_BYTES, MOST_FILES, MOST_NAMES, Entry

ROOT = 2
"""The inode of the root directory."""
LISTED = re.compile(
    rb"^/(?P<inode>\d{1,10})/(?P<mode>[0-7]{6})/(?P<uid>\d{1,10})/(?P<gid>\d{1,10})/(?P<name>.*?)/(?P<size>\d{0,15})/\n",
    re.MULTILINE | re.DOTALL,
)
MTIME = re.compile(rb"^ ?mtime: 0x(?P<seconds>[0-9a-f]{1,8})", re.MULTILINE)
FAST_LINK = re.compile(rb'^Fast link dest: "(?P<target>.*)"$', re.MULTILINE | re.DOTALL)
PROMPT = b"debugfs: "
KINDS = {0o04: tarfile.DIRTYPE, 0o10: tarfile.REGTYPE, 0o12: tarfile.SYMTYPE}
SPECIAL = tarfile.FIFOTYPE
"""What any other kind is passed on as: it is not stored."""
BATCH_BYTES, BATCH_FILES = 256 << 20, 500
"""So much is written to the disk at a time, before it is read again and removed."""
MOST_DEPTH = 200
LIMITS = Limits(seconds=3600, output=512 << 20)
BATCH_COMMANDS = 5000
"""So many commands are given to debugfs at a time: what it answers is kept in memory."""


@dataclass(frozen=True)
class Node:
    """An entry of a directory."""

    path: str
    inode: int
    mode: int
    uid: int
    gid: int
    size: int

    @property
    def kind(self) -> bytes:
        return KINDS.get(self.mode >> 12, SPECIAL)


class ExtReader:
    """A file system in a file of ours. `work` is a folder of ours for what is read."""

    def __init__(self, image: Path, work: Path) -> None:
        self._image = image
        self._work = work

    def remove(self) -> None:
        """Remove the copy of the file system, which nobody needs any more."""
        self._image.unlink()

    def has(self, *parts: str) -> bool:
        return self._find(parts) is not None

    def read(self, *parts: str) -> bytes:
        """Return the content of a small file; nothing if there is none, or it is large."""
        node = self._find(parts)
        if node is None or node.kind != tarfile.REGTYPE or node.size > 1 << 20:
            return b""
        path = self._dump([node.inode])[node.inode]
        content = path.read_bytes()
        path.unlink()
        return content

    def entries(self, say: Say) -> Generator[Entry, None, None]:
        """Yield all that is in the file system, folders before what is in them."""
        nodes = sorted(self._walk(), key=lambda node: node.path.split("/"))
        total = sum(node.size for node in nodes if node.kind == tarfile.REGTYPE)
        if total > MOST_BYTES:
            raise BuildFailed(f"There is more than {MOST_BYTES >> 30} GiB in the file system.")
        progress, done = Progress("importing", total, say), 0
        times, targets = self._read_inodes({node.inode: node for node in nodes})
        paths: dict[int, str] = {}
        for batch in _batches(nodes):
            contents = self._dump(node.inode for node in batch if node.kind == tarfile.REGTYPE and node.size)
            for node in batch:
                info = tarfile.TarInfo(node.path)
                info.type, info.mode, info.uid, info.gid = node.kind, node.mode & 0o7777, node.uid, node.gid
                info.mtime = times.get(node.inode, 0)
                info.linkname = targets.get(node.inode, "")
                if node.kind == tarfile.REGTYPE and node.inode in paths:
                    info.type, info.linkname = tarfile.LNKTYPE, paths[node.inode]
                elif node.kind == tarfile.REGTYPE:
                    info.size = node.size
                    paths[node.inode] = node.path
                yield Entry(info, Opener(contents.get(node.inode)))
                done += node.size
                progress.reach(done)
            for path in contents.values():
                path.unlink(missing_ok=True)

    def _find(self, parts: Sequence[str]) -> Node | None:
        inode, node = ROOT, None
        for part in parts:
            node = next((child for child in self._list([inode]).get(inode, []) if child.path == part), None)
            if node is None:
                return None
            inode = node.inode
        return node

    def _walk(self) -> Iterator[Node]:
        """Yield everything below the root directory, a level at a time; a directory is entered once."""
        paths, seen, count, letters = {ROOT: ""}, {ROOT}, 0, 0
        for _ in range(MOST_DEPTH):
            below: dict[int, str] = {}
            for inode, children in self._list(list(paths)).items():
                for child in children:
                    count += 1
                    if count > MOST_FILES:
                        raise BuildFailed(f"There are more than {MOST_FILES} files in the file system.")
                    node = Node(
                        f"{paths[inode]}{child.path}", *(child.inode, child.mode, child.uid, child.gid, child.size)
                    )
                    letters += len(node.path)
                    if letters > MOST_NAMES:
                        raise BuildFailed(f"The names in the file system have more than {MOST_NAMES >> 20} MiB.")
                    if node.kind == tarfile.DIRTYPE:
                        if node.inode in seen:
                            raise BuildFailed(f"The directory {node.path[:200]!r} is in the file system twice.")
                        seen.add(node.inode)
                        below[node.inode] = f"{node.path}/"
                    yield node
            if not below:
                return
            paths = below
        raise BuildFailed(f"There are directories deeper than {MOST_DEPTH} in the file system.")

    def _list(self, inodes: Sequence[int]) -> dict[int, list[Node]]:
        """Return what is in directories, by their inodes; the paths are bare names."""
        answers = self._ask([f"ls -p <{inode}>" for inode in inodes])
        return {inode: list(_read_listing(answer)) for inode, answer in zip(inodes, answers, strict=True)}

    def _read_inodes(self, nodes: dict[int, Node]) -> tuple[dict[int, int], dict[int, str]]:
        """Return the times of inodes, and where those lead that are symbolic links."""
        times: dict[int, int] = {}
        targets: dict[int, str] = {}
        answers = self._ask([f"stat <{inode}>" for inode in nodes])
        for (inode, node), answer in zip(nodes.items(), answers, strict=True):
            if mtime := MTIME.search(answer):
                times[inode] = int(mtime["seconds"], 16)
            if node.kind == tarfile.SYMTYPE and (link := FAST_LINK.search(answer)):
                targets[inode] = _decode(link["target"])
        for node in nodes.values():
            if node.kind == tarfile.SYMTYPE and node.size > LONGEST_NAME:
                raise BuildFailed(f"The link {node.path[:200]!r} in the file system has {node.size} letters.")
        slow = [inode for inode, node in nodes.items() if node.kind == tarfile.SYMTYPE and inode not in targets]
        for inode, path in self._dump(slow).items():
            targets[inode] = _decode(path.read_bytes()[:5000]) if path.is_file() else ""
            path.unlink(missing_ok=True)
        return times, targets

    def _dump(self, inodes: Iterable[int]) -> dict[int, Path]:
        """Write the content of inodes to files; return these by inode."""
        paths = {inode: self._work / f"inode-{inode}" for inode in inodes}
        self._ask([f"dump <{inode}> {path}" for inode, path in paths.items()])
        return paths

    def _ask(self, commands: Sequence[str]) -> list[bytes]:
        """Have debugfs carry out commands; return what it answers to each."""
        answers: list[bytes] = []
        for begin in range(0, len(commands), BATCH_COMMANDS):
            batch = commands[begin : begin + BATCH_COMMANDS]
            given = "".join(f"{command}\n" for command in batch).encode()
            finished = run_bounded(["debugfs", "-f", "-", str(self._image)], self._work, LIMITS, given)
            if finished.status < 0:
                raise BuildFailed(f"debugfs was ended by signal {-finished.status} while it read the file system.")
            answers += _split_answers(finished.output, batch)
        return answers


def _split_answers(output: bytes, commands: Sequence[str]) -> Iterator[bytes]:
    """Yield the answer to each command: what is between the echo of it and that of the next."""
    position = 0
    ends = [PROMPT + command.encode() + b"\n" for command in commands]
    for number, echo in enumerate(ends):
        begin = output.find(echo, position)
        if begin < 0:
            raise BuildFailed("debugfs did not answer: is this an ext2, ext3 or ext4 file system?")
        begin += len(echo)
        end = output.find(ends[number + 1], begin) if number + 1 < len(ends) else len(output)
        yield output[begin:end]
        position = end


def _read_listing(answer: bytes) -> Iterator[Node]:
    for match in LISTED.finditer(answer):
        name = _decode(match["name"])
        if name in (".", "..") or not int(match["inode"]):
            continue
        if "/" in name or not name:
            raise BuildFailed(f"There is a file named {name[:200]!r} in the file system.")
        numbers = (int(match["inode"]), int(match["mode"], 8), int(match["uid"]), int(match["gid"]))
        yield Node(name, *numbers, int(match["size"] or 0))


def _batches(nodes: Sequence[Node]) -> Iterator[list[Node]]:
    """Yield nodes in lists that are small enough to lie on the disk at a time."""
    batch: list[Node] = []
    size = 0
    for node in nodes:
        if batch and (size + node.size > BATCH_BYTES or len(batch) >= BATCH_FILES):
            yield batch
            batch, size = [], 0
        batch.append(node)
        size += node.size
    yield batch


@dataclass(frozen=True)
class Opener:
    """Opens the content of a file that was written to the disk; it is closed when it was read."""

    path: Path | None

    def __call__(self) -> BinaryIO | None:
        return None if self.path is None or not self.path.is_file() else self.path.open("rb")


def _decode(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")
