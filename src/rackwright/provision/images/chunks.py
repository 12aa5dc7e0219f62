"""Chunks: pieces of files, stored once by their digests, whichever images they belong to.

A chunk is a file named by the SHA-256 of its bytes. It is complete or not there: it is written aside and renamed. What
no manifest names any more is removed by `remove_unused`, which the shelf calls while nobody makes an image.
"""

import contextlib
import hashlib
import os
import re
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rackwright.private_files import sync_folder

DIGEST = re.compile(r"[0-9a-f]{64}")
BLOCK = 1 << 20
"""Bytes that are read at a time."""


@dataclass(frozen=True)
class Chunk:
    """A piece of a file."""

    size: int
    sha256: str


class ChunkStore:
    """The chunks of all images of a shelf, below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, sha256: str) -> Path | None:
        """Return the file of a chunk; None if the digest is none, or there is no such chunk."""
        if not DIGEST.fullmatch(sha256):
            return None
        path = self._place(sha256)
        return path if path.is_file() else None

    def put(self, content: bytes) -> Chunk:
        """Store a piece, unless just these bytes are there already."""
        chunk = Chunk(len(content), hashlib.sha256(content).hexdigest())
        path = self._place(chunk.sha256)
        with contextlib.suppress(FileNotFoundError):
            if path.read_bytes() == content:
                return chunk
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, aside = tempfile.mkstemp(prefix=".", dir=path.parent)
        try:
            with open(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(aside, 0o644)
            os.replace(aside, path)
        except BaseException:
            Path(aside).unlink(missing_ok=True)
            raise
        return chunk

    def sync(self, chunks: Iterable[Chunk]) -> None:
        """Write the lists of the folders of chunks to the disk: their files are there already."""
        folders = {self._place(chunk.sha256).parent for chunk in chunks}
        for folder in sorted(folders):
            sync_folder(folder)
        if folders:
            sync_folder(self.folder)

    def read(self, chunks: Sequence[Chunk], first: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yield the bytes of a file that consists of chunks, from offset `first` up to, not including, offset `end`."""
        offset = 0
        for chunk in chunks:
            begin, stop = max(first - offset, 0), chunk.size if end is None else min(end - offset, chunk.size)
            if begin < stop:
                with self._place(chunk.sha256).open("rb") as file:
                    file.seek(begin)
                    while begin < stop and (block := file.read(min(BLOCK, stop - begin))):
                        begin += len(block)
                        yield block
            offset += chunk.size

    def remove_unused(self, used: Collection[str]) -> int:
        """Remove all chunks but the `used` ones, and what was left half written; return how many bytes that freed."""
        freed = 0
        for path in self.folder.glob("[0-9a-f][0-9a-f]/*") if self.folder.is_dir() else ():
            if path.name not in used:
                freed += path.stat().st_size
                path.unlink()
        return freed

    def _place(self, sha256: str) -> Path:
        return self.folder / sha256[:2] / sha256
