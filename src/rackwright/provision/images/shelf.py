"""The shelf: images by name, each a folder of files with a manifest of their sizes and digests.

An image on the shelf is always complete: it is made in a folder aside and put there in one step. Only files that a
manifest names are ever found, so no name that a client asks for is used as a path. Root file systems are kept in chunks
that images share; their manifests say which.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rackwright.domain.architectures import build_command
from rackwright.private_files import sync_folder, write_private_file
from rackwright.provision.images.chunks import BLOCK, Chunk, ChunkStore
from rackwright.provision.images.manifest import (
    CHUNKS_FOLDER,
    MANIFEST,
    SIGNATURE,
    BadManifest,
    Image,
    ImageFile,
    is_image_name,
    read_manifest,
    write_manifest,
)
from rackwright.provision.images.signatures import BadSignature, check_signature

__all__ = ["CLOUD_SCHEMA_FILE", "ROOT_FILE", "Image", "ImageFile", "NoImage", "Shelf"]

ROOT_FILE = "root.tar.zst"
"""The root file system of an operating system's image."""
CLOUD_SCHEMA_FILE = "cloud-config.schema.json"
"""The schema of user-data, as the cloud-init in the image has it."""
REPLACED_KEPT = 2 * 3600.0
"""Seconds for which the chunks of an image that was replaced are kept: installs that began before may still be under
way. Those that take longer are named by the server, see `Shelf.keep_named`."""
REPLACED, INSTALLING = ".replaced", ".installing.json"
"""Where the digests of such chunks are: of images that were replaced, and of installs that have not ended."""

UNFINISHED = re.compile(r"\.[a-z0-9][a-z0-9.-]{0,62}\.[a-z0-9_]{8}(\.link)?")
"""The names of folders in which images are made, and of the links to them before they get their place."""
READABLE = 0o644


class NoImage(Exception):
    """An image does not exist, or must not be used; the text says what to do."""


class Shelf:
    """The images of one server, below its home."""

    def __init__(self, home: Path, signing_keys: Sequence[str] = ()) -> None:
        self.folder = home / "images"
        self.signing_keys = signing_keys
        """The minisign public keys of which one must have signed an image; none: images need no signature."""
        self.chunks = ChunkStore(self.folder / CHUNKS_FOLDER)

    def find(self, name: str) -> Image:
        """Return an image by name, or raise NoImage."""
        if not is_image_name(name):
            raise NoImage(f"{name[:64]!r} is no name of an image.")
        # All is read from the folder that the link leads to now, so that nothing is mixed with what replaces it.
        folder, before = (self.folder / name).resolve(), None
        while folder != before:
            try:
                return _read_image(name, folder)
            except FileNotFoundError:
                folder, before = (self.folder / name).resolve(), folder
        raise NoImage(f"There is no image {name!r}. Make it: {build_command(name)}")

    def file(self, name: str, file: str) -> ImageFile:
        """Return a file of an image, or raise NoImage."""
        image_file = self.find(name).files.get(file)
        if image_file is None:
            raise NoImage(f"Image {name!r} has no file {file[:64]!r}.")
        return image_file

    def installable(self, name: str) -> Image:
        """Return an image that machines may be installed with now, or raise NoImage with what is in the way."""
        image = self.find(name)
        root = image.files.get(ROOT_FILE)
        if root is None:
            raise NoImage(f"Image {name!r} has no root file system: machines cannot be installed with it.")
        if not root.chunks:
            raise NoImage(
                f"Image {name!r} was made by an earlier version. Make it again: rackwright image build {name}"
            )
        self.check_trusted(image)
        return image

    def find_problem(self, name: str) -> str | None:
        """Return why machines cannot be installed with an image; None: they can."""
        try:
            self.installable(name)
        except NoImage as error:
            return str(error)
        return None

    def check_trusted(self, image: Image) -> None:
        """Raise NoImage if images have to be signed and this one is not, by any of the keys."""
        if not self.signing_keys:
            return
        if image.signature is None:
            raise NoImage(
                f"Image {image.name!r} is not signed, and the setting image_signing_keys asks for it."
                f" Sign it: rackwright image sign {image.name} --sign-with FILE"
            )
        try:
            check_signature(image.statement, image.signature, self.signing_keys)
        except BadSignature as error:
            raise NoImage(f"The signature of image {image.name!r} does not hold: {error}.") from None

    def all(self) -> list[Image]:
        if not self.folder.is_dir():
            return []
        images = []
        for path in sorted(self.folder.glob(f"[a-z0-9]*/{MANIFEST}")):
            try:
                images.append(self.find(path.parent.name))
            except NoImage:
                if path.parent.is_symlink():  # else it was deleted in between
                    raise
        return images

    def read(self, file: ImageFile, first: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yield the bytes of a file, from offset `first` up to, not including, offset `end`."""
        if file.chunks:
            yield from self.chunks.read(file.chunks, first, end)
            return
        left = (file.size if end is None else end) - first
        with file.path.open("rb") as opened:
            opened.seek(first)
            while left > 0 and (block := opened.read(min(BLOCK, left))):
                left -= len(block)
                yield block

    @contextmanager
    def making(
        self,
        name: str,
        about: Mapping[str, str],
        chunked: Mapping[str, ImageFile] | None = None,
        sign: Callable[[Image], str] | None = None,
    ) -> Iterator[Path]:
        """Yield a folder to make an image in. Without an exception, it replaces the image on the shelf in one step.

        The files put into the folder become the image's, and those of `chunked`, which are chunks of this shelf. Both
        mappings are read at the end of the block. After an exception nothing of it is left. `sign` returns the image's
        signature; where images have to be signed, nothing is begun without it.
        """
        if not is_image_name(name):
            raise NoImage(f"{name[:64]!r} is no name of an image.")
        if self.signing_keys and sign is None:
            raise NoImage(
                "The setting image_signing_keys has every image signed. Say with which key (--sign-with FILE), or give"
                " the signature that there is (--signature FILE)."
            )
        with self._changing():
            staging = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=self.folder))
            try:
                yield staging
                files = {path.name: describe(path) for path in sorted(staging.iterdir())} | dict(chunked or {})
                image = Image(name, files, about)
                (staging / MANIFEST).write_text(write_manifest(image))
                if sign is not None:
                    signature = sign(image)
                    self.check_trusted(replace(image, signature=signature))
                    (staging / SIGNATURE).write_text(signature)
                staging.chmod(0o755)
                self._publish(staging, self.folder / name, image)
            except BaseException:
                if not self._is_published(staging, name):
                    shutil.rmtree(staging, ignore_errors=True)
                raise

    def sign(self, image: Image, signature: str) -> None:
        """Put a signature beside the manifest of an image, if it holds and the image is still the one on the shelf."""
        self.check_trusted(replace(image, signature=signature))
        with self._publishing():
            now = self.find(image.name)
            if now.statement != image.statement:
                raise NoImage(f"Image {image.name!r} was replaced while it was being signed. Sign it again.")
            write_private_file((self.folder / image.name).resolve() / SIGNATURE, signature.encode(), READABLE)

    def delete(self, name: str) -> int:
        """Remove an image, and the chunks that nobody else has; return how many bytes that freed."""
        path = self.folder / name
        with self._changing(), self._publishing():
            self.find(name)
            own, _ = own_and_shared(self.all())[name]
            before = path.resolve()
            path.unlink()
            sync_folder(self.folder)
            shutil.rmtree(before, ignore_errors=True)
        return own

    def clean(self) -> None:
        """Remove what was left by an import or a build that was killed, unless somebody makes an image now."""
        if self.folder.is_dir():
            self._remove_unused()

    def keep_named(self, digests: Collection[str]) -> None:
        """Keep the chunks with these digests, until this is called again: installs that have not ended name them."""
        content = json.dumps(sorted(digests)).encode()
        path = self.folder / INSTALLING
        with contextlib.suppress(FileNotFoundError):
            if path.read_bytes() == content:
                return
        if digests or path.exists():
            write_private_file(path, content, READABLE)

    def _remove_unused(self) -> None:
        """Remove the chunks that no image has, no install names, and no image that was replaced a short time ago had;
        and folders in which nobody makes an image any more.

        While somebody else makes an image, nothing is removed: it is done at the end of that. Nor is any chunk if a
        manifest cannot be read, since its chunks are not known.
        """
        with (self.folder / ".lock").open("w") as lock, contextlib.suppress(BlockingIOError, NoImage):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._remove_unfinished()
            used = {chunk.sha256 for image in self.all() for file in image.files.values() for chunk in file.chunks}
            self.chunks.remove_unused(used | self._replaced_chunks() | self._named_chunks())

    def _remove_unfinished(self) -> None:
        """Remove folders and links that no name leads to: the process that made an image there was killed."""
        published = {os.readlink(path) for path in self.folder.iterdir() if _is_name_link(path)}
        for path in self.folder.iterdir():
            if UNFINISHED.fullmatch(path.name) and path.name not in published:
                path.unlink() if path.is_symlink() else shutil.rmtree(path, ignore_errors=True)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Keep all chunks until the end of the block, those of no image too: they may be of one that is being made."""
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with (self.folder / ".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH)
                yield
        finally:
            self._remove_unused()

    @contextmanager
    def _publishing(self) -> Iterator[None]:
        """Let no other process change what names lead to until the end of the block."""
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _publish(self, folder: Path, path: Path, image: Image) -> None:
        """Make `path` lead to a finished folder, all of which is on the disk before.

        Folders cannot be exchanged in one step, links can; so `path` is a link. A process that is killed at any line
        leaves the image that was there or the new one; what else is left is removed by the next that makes an image.
        """
        _sync_files(folder)
        self.chunks.sync(chunk for file in image.files.values() for chunk in file.chunks)
        with self._publishing():
            before = path.resolve() if path.is_symlink() else None
            if before is not None:
                self._remember_replaced(path.name)
            link = folder.with_name(f"{folder.name}.link")
            link.symlink_to(folder.name)
            os.replace(link, path)
            sync_folder(self.folder)
        if before is not None:
            # A process that reads a file of it goes on reading that.
            shutil.rmtree(before, ignore_errors=True)

    def _is_published(self, folder: Path, name: str) -> bool:
        """Return whether a name leads to a folder; what was interrupted after that must not take the folder away."""
        path = self.folder / name
        return path.is_symlink() and os.readlink(path) == folder.name

    def _remember_replaced(self, name: str) -> None:
        """Keep the digests of the chunks of an image that is replaced now."""
        try:
            files = self.find(name).files.values()
        except NoImage:
            return
        digests = [chunk.sha256 for file in files for chunk in file.chunks]
        (self.folder / REPLACED).mkdir(exist_ok=True)
        path = self.folder / REPLACED / f"{name}.{os.urandom(8).hex()}.json"
        write_private_file(path, json.dumps(digests).encode(), READABLE)

    def _replaced_chunks(self) -> set[str]:
        """Return the digests of chunks of images that were replaced a short time ago, and forget the others."""
        digests: set[str] = set()
        for path in (self.folder / REPLACED).glob("*.json"):
            if time.time() - path.stat().st_mtime > REPLACED_KEPT:
                path.unlink()
            else:
                digests.update(_read_digests(path))
        return digests

    def _named_chunks(self) -> set[str]:
        """Return the digests of chunks that installs name which have not ended."""
        path = self.folder / INSTALLING
        return _read_digests(path) if path.is_file() else set()


def _read_image(name: str, folder: Path) -> Image:
    """Return the image in a folder; FileNotFoundError if there is none, NoImage if it cannot be read."""
    text = (folder / MANIFEST).read_text(errors="replace")
    # What is no text is no signature either, and is said to be none where one is needed.
    signature = (folder / SIGNATURE).read_text(errors="replace") if (folder / SIGNATURE).is_file() else None
    try:
        return read_manifest(text, name, folder, signature)
    except BadManifest as error:
        raise NoImage(f"The manifest of image {name!r} is broken: {error}. Make the image again.") from None


def _read_digests(path: Path) -> set[str]:
    """Return a list of digests; NoImage if it cannot be read, so that nothing is removed that it may name."""
    try:
        return {str(digest) for digest in json.loads(path.read_bytes())}
    except (ValueError, TypeError) as error:
        raise NoImage(f"{path} is broken: {error}.") from None


def _is_name_link(path: Path) -> bool:
    return path.is_symlink() and is_image_name(path.name)


def _sync_files(folder: Path) -> None:
    """Write a folder and the files in it to the disk."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    sync_folder(folder)


def describe(path: Path) -> ImageFile:
    """Return a file with its size and digest."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return ImageFile(path, path.stat().st_size, digest.hexdigest())


def own_and_shared(images: Sequence[Image]) -> dict[str, tuple[int, int]]:
    """Return how many bytes each image has for itself, and how many it shares with others, by name."""
    holders: dict[Chunk, set[str]] = {}
    for image in images:
        for file in image.files.values():
            for chunk in file.chunks:
                holders.setdefault(chunk, set()).add(image.name)
    sizes = {}
    for image in images:
        chunks = {chunk for file in image.files.values() for chunk in file.chunks}
        plain = sum(file.size for file in image.files.values() if not file.chunks)
        shared = sum(chunk.size for chunk in chunks if len(holders[chunk]) > 1)
        sizes[image.name] = (plain + sum(chunk.size for chunk in chunks) - shared, shared)
    return sizes
