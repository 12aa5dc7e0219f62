"""The files of barclamps that a server runs: fetched from the database by digest, and kept on its own disk.

They are never read from the folder that a barclamp was imported from: another server does not have it, and its files
may have changed since. Files on disk are compared with their digest before each use, and fetched anew if they differ.
"""

import asyncio
import logging
import os
import secrets
import shutil
from collections.abc import Collection
from pathlib import Path

from rackwright.barclamps.content import ContentBroken, folder_digest, unpack, write_entries
from rackwright.domain.errors import BarclampInvalid, RackwrightError
from rackwright.private_files import make_private_folder
from rackwright.store.catalogue.barclamp_files import read_content
from rackwright.store.catalogue.stored_catalogue import StoredCatalogue
from rackwright.store.store import Store

log = logging.getLogger(__name__)


class FilesMissing(RackwrightError):
    """The files of a barclamp cannot be had."""

    type = "files-missing"


class RoleFiles:
    """The files of barclamps on one server, below its home."""

    def __init__(self, store: Store, home: Path) -> None:
        self._store = store
        self._folder = home / "barclamps"
        self._locks: dict[str, asyncio.Lock] = {}

    async def role_folder(self, stored: StoredCatalogue, role: str) -> Path:
        """Return the folder with the files of a role's barclamp, as it is imported now."""
        declared = stored.catalogue.roles.get(role)
        return await self.folder(stored.digests.get(role, ""), declared.barclamp if declared else "", role)

    async def folder(self, digest: str, barclamp: str, role: str) -> Path:
        """Return the folder with the files of this digest; raise FilesMissing, for people, if they cannot be had."""
        if not digest:
            raise FilesMissing(
                f"The files of barclamp {barclamp!r} are not in the database: it was imported by an older version, or "
                f"as data alone. Role {role} has nothing to run. Import it again: rackwright barclamp import FOLDER"
            )
        async with self._locks.setdefault(digest, asyncio.Lock()):
            folder = self._folder / digest
            if not await asyncio.to_thread(_is_intact, folder, digest):
                await self._fetch(digest, barclamp, role)
            return folder

    async def _fetch(self, digest: str, barclamp: str, role: str) -> None:
        async with self._store.read() as session:
            archive = await read_content(session, digest)
        if archive is None:
            raise FilesMissing(
                f"The database no longer has the files {digest[:12]} of barclamp {barclamp!r}, which role {role} is to "
                "run. Import it again: rackwright barclamp import FOLDER. Then retry."
            )
        try:
            await asyncio.to_thread(_write_files, archive, digest, self._folder)
        except ContentBroken as error:
            raise FilesMissing(
                f"The files of barclamp {barclamp!r} in the database are damaged ({error}), so role {role} is not run. "
                "Import it again: rackwright barclamp import FOLDER. Then retry."
            ) from None
        except OSError as error:
            raise FilesMissing(
                f"The files of barclamp {barclamp!r} cannot be written to {self._folder} on this server: "
                f"{error.strerror}. Make room there, or let its user write there, then retry."
            ) from None

    def tidy(self, digests: Collection[str]) -> None:
        """Remove all folders but those in `digests`: old ones, and what a killed server left half written."""
        if self._folder.is_dir():
            for entry in self._folder.iterdir():
                if entry.name not in digests:
                    shutil.rmtree(entry, ignore_errors=True)


def _is_intact(folder: Path, digest: str) -> bool:
    if not folder.is_dir():
        return False
    try:
        if folder_digest(folder) == digest:
            return True
    except (OSError, BarclampInvalid) as error:
        log.debug("%s cannot be used as it is: %s", folder, error)
    log.warning("%s is not what it was; its files are taken from the database again", folder)
    return False


def _write_files(archive: bytes, digest: str, parent: Path) -> None:
    """Write the files to a temporary folder, then rename it: if this is killed, nobody finds half of the files."""
    entries = unpack(archive, digest)
    make_private_folder(parent)
    temporary = parent / f".{digest}.{os.getpid()}.{secrets.token_hex(4)}"
    broken = temporary.with_suffix(".broken")
    try:
        write_entries(entries, temporary)
        target = parent / digest
        if target.exists():
            target.rename(broken)
        temporary.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(broken, ignore_errors=True)
