"""Writing a cpio archive in the form that the Linux kernel unpacks into its first file system ("newc").

All entries belong to root, whichever user writes them, and have no time: the same content is the same archive.
"""

import stat
from pathlib import Path
from typing import BinaryIO

TRAILER = "TRAILER!!!"


class Cpio:
    """A cpio archive that is written to `out`; `close` ends the archive and leaves `out` open."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._number = 0
        self._folders: set[str] = set()

    def folder(self, name: str, mode: int = 0o755) -> None:
        """Add a folder, and those above it."""
        parent = name.rpartition("/")[0]
        if parent and parent not in self._folders:
            self.folder(parent)
        if name not in self._folders:
            self._folders.add(name)
            self._write(name, stat.S_IFDIR | mode, b"")

    def file(self, name: str, content: bytes, mode: int = 0o644) -> None:
        self._add_parents(name)
        self._write(name, stat.S_IFREG | mode, content)

    def link(self, name: str, to: str) -> None:
        self._add_parents(name)
        self._write(name, stat.S_IFLNK | 0o777, to.encode())

    def device(self, name: str, major: int, minor: int, mode: int = 0o600) -> None:
        self._add_parents(name)
        self._write(name, stat.S_IFCHR | mode, b"", (major, minor))

    def tree(self, source: Path, name: str = "") -> None:
        """Add all files and links below a folder."""
        for path in sorted(source.rglob("*")):
            inside = f"{name}/{path.relative_to(source)}".lstrip("/")
            if path.is_symlink():
                self.link(inside, str(path.readlink()))
            elif path.is_file():
                self.file(inside, path.read_bytes(), path.stat().st_mode & 0o777)

    def close(self) -> None:
        self._write(TRAILER, 0, b"")

    def _add_parents(self, name: str) -> None:
        parent = name.rpartition("/")[0]
        if parent:
            self.folder(parent)

    def _write(self, name: str, mode: int, content: bytes, device: tuple[int, int] = (0, 0)) -> None:
        self._number += 1
        encoded = name.encode() + b"\0"
        links = 2 if stat.S_ISDIR(mode) else 1
        fields = [self._number, mode, 0, 0, links, 0, len(content), 0, 0, *device, len(encoded), 0]
        header = b"070701" + b"".join(b"%08X" % field for field in fields)
        self._out.write(_padded(header + encoded) + _padded(content))


def _padded(part: bytes) -> bytes:
    return part + b"\0" * (-len(part) % 4)
