"""Reading a tar archive that a stranger made: once, from its first byte to its last, within limits.

Python's tarfile reads the format. What it does without a limit, or lets pass, is bounded and refused here: headers are
read into memory however long they are, members are remembered, a broken header ends an archive as its end does, and
nobody looks at what follows the end.
"""

import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tarfile import HeaderError
from typing import IO, ClassVar, Self, cast

from rackwright.provision.images.packages import BuildFailed
from rackwright.provision.images.root_archive import MOST_BYTES, MOST_FILES, Entry

LARGEST_HEADER = 1 << 20
"""Bytes of a header that tarfile reads into memory."""
LARGEST_HEADERS = 4 << 20
"""Bytes of all headers of one member: its names, attributes, and the map of a sparse file."""
LARGEST_ATTRIBUTES = 1000
"""Attributes that hold for all members from there on, and are copied for each."""
LARGEST_ARCHIVE = MOST_BYTES + 2048 * MOST_FILES
"""Bytes of all that is read, with headers for as many files as there may be: a sparse file has more than it says."""
LONGEST_END = 16 << 20
"""Bytes of zeros at the end of an archive, which fill up its last record."""
_BLOCK = 1 << 16


class _Source:
    """The bytes of an archive, counted; while `most` is set, no more may be read in all."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._before = self._last = b""
        self.count = 0
        self.most: int | None = None

    def read(self, size: int) -> bytes:
        if self.most is not None and self.count > self.most:
            raise BuildFailed(f"A header of the archive has more than {LARGEST_HEADERS >> 20} MiB.")
        if self.count > LARGEST_ARCHIVE:
            raise BuildFailed(f"There is more than {LARGEST_ARCHIVE >> 30} GiB to read in the archive.")
        block = self._stream.read(size)
        self.count += len(block)
        if len(self._last) < tarfile.BLOCKSIZE:
            self._last += block
        elif block:
            self._before, self._last = self._last, block
        return block

    @contextmanager
    def header(self) -> Iterator[None]:
        """Bound what is read within the block; that of a header within a header is bounded by the outer one."""
        before = self.most
        self.most = self.count + LARGEST_HEADERS if before is None else before
        try:
            yield
        finally:
            self.most = before

    def check_end(self, offset: int) -> None:
        """Read all that follows the last member; BuildFailed if it is anything but zeros."""
        # tarfile reads in blocks, so what it read too much lies in the last one, and the end of the one before.
        kept = self._before + self._last
        block = kept[len(kept) - (self.count - offset) :] if self.count > offset else b""
        length = 0
        while block or (block := self._stream.read(_BLOCK)):
            length += len(block)
            if block.count(0) != len(block):
                raise BuildFailed("There is more behind the end of the tar archive. It was put together, or is broken.")
            if length > LONGEST_END:
                raise BuildFailed(f"The tar archive ends with more than {LONGEST_END >> 20} MiB of zeros.")
            block = b""


class _StrictTarInfo(tarfile.TarInfo):
    """A member of an archive; what is broken in the middle of it is no end of the archive, as it is for tarfile."""

    source: ClassVar[_Source]

    @classmethod
    def fromtarfile(cls, tarfile: tarfile.TarFile) -> Self:
        try:
            with cls.source.header():
                return super().fromtarfile(tarfile)
        except HeaderError as error:
            if str(error) == _END_OF_ARCHIVE:
                raise
            raise BuildFailed(f"This is no tar archive that can be read: {error}") from None

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        info = super().frombuf(buf, encoding, errors)
        if info.size < 0 or (info.type in _EXTENDED and info.size > LARGEST_HEADER):
            raise BuildFailed(f"A header of the archive says that it has {info.size} bytes.")
        return info


_END_OF_ARCHIVE = "end of file header"
"""What tarfile says of the blocks of zeros with which an archive ends."""
_EXTENDED = (
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
)
"""Headers that tarfile reads into memory, however long they say they are."""


def read_tar(stream: IO[bytes]) -> Iterator[Entry]:
    """Yield what is in a tar archive that is read once, from its beginning to the end of the stream."""
    source = _Source(stream)
    member = type("_Member", (_StrictTarInfo,), {"source": source})
    try:
        # Names are bytes, whatever the language of this host is: those that are no UTF-8 go through as they are.
        with tarfile.open(
            fileobj=cast("IO[bytes]", source),
            mode="r|",
            errorlevel=1,
            tarinfo=member,
            encoding="utf-8",
            errors="surrogateescape",
        ) as archive:
            while (info := archive.next()) is not None:
                archive.members.clear()  # type: ignore[attr-defined]  # it remembers all of them
                if len(archive.pax_headers) > LARGEST_ATTRIBUTES:
                    raise BuildFailed(f"The archive gives more than {LARGEST_ATTRIBUTES} attributes to all its files.")
                yield Entry(info, _opener(archive, info))
            source.check_end(archive.offset)
    except RecursionError:
        raise BuildFailed("This is no tar archive that can be read: headers of headers without end") from None
    except (tarfile.TarError, EOFError, OSError, ValueError, OverflowError) as error:
        raise BuildFailed(f"This is no tar archive that can be read: {error}") from None


def _opener(archive: tarfile.TarFile, info: tarfile.TarInfo) -> Callable[[], IO[bytes] | None]:
    return lambda: archive.extractfile(info)
