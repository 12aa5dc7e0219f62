"""The files of a barclamp: read from a folder, named by a digest, packed into an archive, written to a folder again.

A server runs the files that were imported, not those in some folder now. So the import packs the folder, the database
keeps the archive for all servers, and each server writes it out below its own home. The digest is that of the files, so
any folder can be compared with it, however the folder came about.
"""

import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import NoReturn

from rackwright.domain.errors import BarclampInvalid

MAX_BYTES = 16 * 2**20
MAX_FILES = 2000
LEFT_OUT = frozenset({"__pycache__", ".git"})
"""Names of folders that Python and Git leave beside the files of a barclamp."""


class EntryKind(StrEnum):
    """The kind of an entry."""

    FILE = "file"
    PROGRAM = "program"
    FOLDER = "folder"
    LINK = "link"


@dataclass(frozen=True)
class Entry:
    """One file, folder or link of a barclamp."""

    name: str
    """The path below the barclamp's folder, with slashes."""
    kind: EntryKind
    content: bytes = b""
    """The content of a file; the target of a link."""


class ContentBroken(ValueError):
    """An archive does not hold what its digest says."""


def read_folder(folder: Path) -> list[Entry]:
    """Return all entries of a barclamp's folder; raise BarclampInvalid for one that is not allowed, or for too many."""
    entries: list[Entry] = []
    size = 0
    for path, mode in walk_folder(folder):
        entry = _read_entry(folder, path, mode)
        entries.append(entry)
        size += len(entry.content)
        if size > MAX_BYTES or len(entries) > MAX_FILES:
            raise BarclampInvalid(
                str(path),
                1,
                f"With this the barclamp has more than {MAX_BYTES >> 20} MiB or {MAX_FILES} files, and every server"
                " keeps them all. Let the scripts fetch what is large.",
            )
    return entries


def _read_entry(folder: Path, path: Path, mode: int) -> Entry:
    name = path.relative_to(folder).as_posix()
    if stat.S_ISLNK(mode):
        return Entry(name, EntryKind.LINK, os.fsencode(os.readlink(path)))
    if stat.S_ISDIR(mode):
        return Entry(name, EntryKind.FOLDER)
    with path.open("rb") as opened:
        # One byte too many is enough to be refused, however large the file is.
        return Entry(name, EntryKind.PROGRAM if mode & stat.S_IXUSR else EntryKind.FILE, opened.read(MAX_BYTES + 1))


def folder_digest(path: Path) -> str:
    """Return the SHA-256 of every name, kind, executable bit and content in the folder, but not of its own path."""
    folder = path.resolve()
    return digest_of(_read_entry(folder, entry, mode) for entry, mode in walk_folder(folder))


def digest_of(entries: Iterable[Entry]) -> str:
    digest = hashlib.sha256()
    for entry in entries:
        content = b"" if entry.kind is EntryKind.FOLDER else hashlib.sha256(entry.content).digest()
        # Lengths in front, so that no name can be mistaken for the content before it.
        for part in (os.fsencode(entry.name), entry.kind.encode(), content):
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def walk_folder(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield the path and mode of everything below the folder, in the same order on every host; without LEFT_OUT."""
    for root, folders, files in os.walk(folder, onerror=_raise):
        folders[:] = sorted(name for name in folders if name not in LEFT_OUT)
        for name in sorted([*folders, *files]):
            entry = Path(root, name)
            mode = entry.lstat().st_mode
            if stat.S_ISLNK(mode):
                _check_link(entry, folder)
            elif not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
                raise BarclampInvalid(str(entry), 1, "This is neither a file nor a folder; remove it.")
            yield entry, mode


def _raise(error: OSError) -> NoReturn:
    """Raise the error: os.walk would else skip a folder that it cannot read, and the digest would lack it."""
    raise error


def _check_link(link: Path, folder: Path) -> None:
    target = os.readlink(link)
    try:
        inside = link.resolve(strict=True).is_relative_to(folder)
    except (OSError, RuntimeError):  # dangling, or in a circle
        raise BarclampInvalid(str(link), 1, f"This link leads nowhere ({target}); remove it.") from None
    if not inside or os.path.isabs(target):
        raise BarclampInvalid(
            str(link), 1, f"This link leads out of the barclamp's folder ({target}); put a copy in its place."
        )


# --- packed, and written out again


def pack(entries: Sequence[Entry]) -> bytes:
    """Return the entries as one archive: the same bytes for the same entries."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for entry in entries:
            member = tarfile.TarInfo(entry.name)
            member.mode = 0o700 if entry.kind in (EntryKind.PROGRAM, EntryKind.FOLDER) else 0o600
            if entry.kind is EntryKind.FOLDER:
                member.type = tarfile.DIRTYPE
            elif entry.kind is EntryKind.LINK:
                member.type, member.linkname = tarfile.SYMTYPE, os.fsdecode(entry.content)
            else:
                member.size = len(entry.content)
            archive.addfile(member, io.BytesIO(entry.content))
    return target.getvalue()


def unpack(archive: bytes, digest: str) -> list[Entry]:
    """Return the entries of an archive; raise ContentBroken if they are not those of the digest."""
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as opened:
            entries = [_unpack_member(opened, member) for member in opened]
    except tarfile.TarError as error:
        raise ContentBroken(f"content {digest} is no archive: {error}") from None
    if digest_of(entries) != digest:
        raise ContentBroken(f"content {digest} is not what its digest says")
    return entries


def _unpack_member(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Entry:
    if PurePosixPath(member.name).is_absolute() or ".." in PurePosixPath(member.name).parts:
        raise ContentBroken(f"it has an entry {member.name!r}, which leads out of it")
    if member.isdir():
        return Entry(member.name, EntryKind.FOLDER)
    if member.issym():
        return Entry(member.name, EntryKind.LINK, os.fsencode(member.linkname))
    content = archive.extractfile(member)
    if content is None:
        raise ContentBroken(f"its entry {member.name!r} is neither file, folder nor link")
    return Entry(member.name, EntryKind.PROGRAM if member.mode & stat.S_IXUSR else EntryKind.FILE, content.read())


def write_entries(entries: Iterable[Entry], folder: Path) -> None:
    """Write the entries into a new folder, for this user alone."""
    folder.mkdir(mode=0o700)
    for entry in entries:
        path = folder / entry.name
        if entry.kind is EntryKind.FOLDER:
            path.mkdir(mode=0o700)
        elif entry.kind is EntryKind.LINK:
            path.symlink_to(os.fsdecode(entry.content))
        else:
            mode = 0o700 if entry.kind is EntryKind.PROGRAM else 0o600
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                file.write(entry.content)
