"""The files that a server runs: taken from the database by their digest, and kept on its own disk for the next time.

They are never taken from the folder that a barclamp was imported from: another server does not have it, and what lies
there may have changed since. What is kept is held against its digest before each use, and taken anew if it differs.
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
    """The barclamps' files of one server, below its home."""

    def __init__(self, store: Store, home: Path) -> None:
        self._store = store
        self._folder = home / "barclamps"
        self._taking: dict[str, asyncio.Lock] = {}

    async def of_role(self, stored: StoredCatalogue, role: str) -> Path:
        """The folder with the files of a role's barclamp, as it is imported now."""
        known = stored.catalogue.roles.get(role)
        return await self.folder(stored.digests.get(role, ""), known.barclamp if known else "", role)

    async def folder(self, digest: str, barclamp: str, role: str) -> Path:
        """The folder with the files of this digest; FilesMissing, for people, if they cannot be had."""
        if not digest:
            raise FilesMissing(
                f"The files of barclamp {barclamp!r} are not in the database: it was imported by an older version, or "
                f"as data alone. Role {role} has nothing to run. Import it again: rackwright barclamp import FOLDER"
            )
        async with self._taking.setdefault(digest, asyncio.Lock()):
            folder = self._folder / digest
            if not await asyncio.to_thread(_is_whole, folder, digest):
                await self._take(digest, barclamp, role)
            return folder

    async def _take(self, digest: str, barclamp: str, role: str) -> None:
        async with self._store.read() as session:
            archive = await read_content(session, digest)
        if archive is None:
            raise FilesMissing(
                f"The database no longer has the files {digest[:12]} of barclamp {barclamp!r}, which role {role} is to "
                "run. Import it again: rackwright barclamp import FOLDER. Then retry."
            )
        try:
            await asyncio.to_thread(_put, archive, digest, self._folder)
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

    def tidy(self, kept: Collection[str]) -> None:
        """Remove what no barclamp consists of any more, and what a killed server left half written."""
        if self._folder.is_dir():
            for entry in self._folder.iterdir():
                if entry.name not in kept:
                    shutil.rmtree(entry, ignore_errors=True)


def _is_whole(folder: Path, digest: str) -> bool:
    if not folder.is_dir():
        return False
    try:
        if folder_digest(folder) == digest:
            return True
    except (OSError, BarclampInvalid) as error:
        log.debug("%s cannot be used as it is: %s", folder, error)
    log.warning("%s is not what it was; its files are taken from the database again", folder)
    return False


def _put(archive: bytes, digest: str, parent: Path) -> None:
    """Write the files beside their place, then move them there: killed at any moment, nobody finds half of them."""
    entries = unpack(archive, digest)
    make_private_folder(parent)
    aside = parent / f".{digest}.{os.getpid()}.{secrets.token_hex(4)}"
    broken = aside.with_suffix(".broken")
    try:
        write_entries(entries, aside)
        place = parent / digest
        if place.exists():
            place.rename(broken)
        aside.rename(place)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        shutil.rmtree(broken, ignore_errors=True)
