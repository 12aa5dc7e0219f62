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
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rackwright.provision.images.chunks import BLOCK, Chunk, ChunkStore
from rackwright.provision.images.manifest import (
    MANIFEST,
    NAME,
    SIGNATURE,
    BadManifest,
    Image,
    ImageFile,
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
way, and end within an hour."""


class NoImage(Exception):
    """An image does not exist, or must not be used; the text says what to do."""


class Shelf:
    """The images of one server, below its home."""

    def __init__(self, home: Path, signing_keys: Sequence[str] = ()) -> None:
        self.folder = home / "images"
        self.signing_keys = signing_keys
        """The minisign public keys of which one must have signed an image; none: images need no signature."""
        self.chunks = ChunkStore(self.folder / "chunks")

    def find(self, name: str) -> Image:
        """Return an image by name, or raise NoImage."""
        if not NAME.fullmatch(name):
            raise NoImage(f"{name[:64]!r} is no name of an image.")
        folder = self.folder / name
        try:
            text = (folder / MANIFEST).read_text()
        except FileNotFoundError:
            raise NoImage(f"There is no image {name!r}. Make it: rackwright image build {name}") from None
        signature = (folder / SIGNATURE).read_text() if (folder / SIGNATURE).is_file() else None
        try:
            return read_manifest(text, name, folder, signature)
        except BadManifest as error:
            raise NoImage(f"The manifest of image {name!r} is broken: {error}. Make the image again.") from None

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
        return [self.find(path.parent.name) for path in sorted(self.folder.glob(f"[a-z0-9]*/{MANIFEST}"))]

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
        if not NAME.fullmatch(name):
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
                self._publish(staging, self.folder / name)
            except BaseException:
                shutil.rmtree(staging, ignore_errors=True)
                raise

    def sign(self, image: Image, signature: str) -> None:
        """Put a signature beside the manifest of an image, if it holds."""
        self.check_trusted(replace(image, signature=signature))
        path = self.folder / image.name / SIGNATURE
        aside = path.with_name(f".{SIGNATURE}")
        aside.write_text(signature)
        os.replace(aside, path)

    def delete(self, name: str) -> int:
        """Remove an image, and the chunks that nobody else has; return how many bytes that freed."""
        self.find(name)
        own, _ = own_and_shared(self.all())[name]
        path = self.folder / name
        with self._changing():
            before = path.resolve()
            path.unlink()
            shutil.rmtree(before)
        return own

    def _remove_unused_chunks(self) -> None:
        """Remove the chunks that no image has, nor one that was replaced a short time ago.

        While somebody else makes an image, nothing is removed: it is done at the end of that. Nor if a manifest cannot
        be read, since its chunks are not known.
        """
        with (self.folder / ".lock").open("w") as lock, contextlib.suppress(BlockingIOError, NoImage):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            used = {chunk.sha256 for image in self.all() for file in image.files.values() for chunk in file.chunks}
            self.chunks.remove_unused(used | self._replaced_chunks())

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Keep all chunks until the end of the block, those of no image too: they may be of one that is being made."""
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with (self.folder / ".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH)
                yield
        finally:
            self._remove_unused_chunks()

    def _publish(self, folder: Path, path: Path) -> None:
        """Make `path` lead to a finished folder.

        Folders cannot be exchanged in one step, links can; so `path` is a link.
        """
        before = path.resolve() if path.is_symlink() else None
        if before is not None:
            self._remember_replaced(path.name)
        link = folder.with_name(f"{folder.name}.link")
        link.symlink_to(folder.name)
        os.replace(link, path)
        if before is not None:
            shutil.rmtree(before)  # a process that reads a file of it goes on reading that

    def _remember_replaced(self, name: str) -> None:
        """Keep the digests of the chunks of an image that is replaced now."""
        try:
            files = self.find(name).files.values()
        except NoImage:
            return
        replaced = self.folder / ".replaced"
        replaced.mkdir(exist_ok=True)
        digests = [chunk.sha256 for file in files for chunk in file.chunks]
        descriptor, _ = tempfile.mkstemp(prefix=f"{name}.", suffix=".json", dir=replaced)
        with open(descriptor, "w") as file:
            json.dump(digests, file)

    def _replaced_chunks(self) -> set[str]:
        """Return the digests of chunks of images that were replaced a short time ago, and forget the others."""
        digests: set[str] = set()
        for path in (self.folder / ".replaced").glob("*.json"):
            if time.time() - path.stat().st_mtime > REPLACED_KEPT:
                path.unlink()
            else:
                digests.update(json.loads(path.read_text()))
        return digests


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
