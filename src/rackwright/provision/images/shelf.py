"""The shelf: images by name, each a folder of files with a manifest of their sizes and digests.

What is on the shelf is whole: an image is made aside and put there in one step. Only files that a manifest names are
ever found, so no name that somebody asks for is used as a path.
"""

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

MANIFEST = "manifest.json"
ROOT_FILE = "root.tar.zst"
"""The root file system of an operating system's image."""
NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")
CHUNK = 1 << 20


class NoImage(Exception):
    """There is no such image, or it is not whole; the text says what to do."""


@dataclass(frozen=True)
class ImageFile:
    """One file of an image."""

    path: Path
    size: int
    sha256: str


@dataclass(frozen=True)
class Image:
    name: str
    files: Mapping[str, ImageFile]
    about: Mapping[str, str]
    """What it was made from: for people."""


class Shelf:
    """The images of one server, below its home."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "images"

    def find(self, name: str) -> Image:
        """An image by name."""
        if not NAME.fullmatch(name):
            raise NoImage(f"{name[:64]!r} is no name of an image.")
        folder = self.folder / name
        try:
            manifest = json.loads((folder / MANIFEST).read_text())
        except FileNotFoundError:
            raise NoImage(f"There is no image {name!r}. Make it: rackwright image build {name}") from None
        files = {
            file: ImageFile(folder / file, known["size"], known["sha256"]) for file, known in manifest["files"].items()
        }
        return Image(name, files, manifest["about"])

    def file(self, name: str, file: str) -> ImageFile:
        """A file of an image."""
        found = self.find(name).files.get(file)
        if found is None:
            raise NoImage(f"Image {name!r} has no file {file[:64]!r}.")
        return found

    def all(self) -> list[Image]:
        if not self.folder.is_dir():
            return []
        return [self.find(path.parent.name) for path in sorted(self.folder.glob(f"[a-z0-9]*/{MANIFEST}"))]

    @contextmanager
    def making(self, name: str, about: Mapping[str, str]) -> Iterator[Path]:
        """A folder to make an image in. Without an exception it replaces the one on the shelf, whole."""
        if not NAME.fullmatch(name):
            raise NoImage(f"{name[:64]!r} is no name of an image.")
        self.folder.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=self.folder))
        try:
            yield aside
            _write_manifest(aside, about)
            aside.chmod(0o755)
            self._put(aside, self.folder / name)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise

    def _put(self, made: Path, place: Path) -> None:
        """Folders cannot be exchanged in one step, links can; so the place is a link."""
        before = place.resolve() if place.is_symlink() else None
        link = made.with_name(f"{made.name}.link")
        link.symlink_to(made.name)
        os.replace(link, place)
        if before is not None:
            shutil.rmtree(before)  # who is reading a file of it goes on reading that


def _write_manifest(folder: Path, about: Mapping[str, str]) -> None:
    files = {path.name: asdict(describe(path)) for path in sorted(folder.iterdir())}
    for known in files.values():
        del known["path"]
    (folder / MANIFEST).write_text(json.dumps({"about": dict(about), "files": files}, indent=1) + "\n")


def describe(path: Path) -> ImageFile:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return ImageFile(path, path.stat().st_size, digest.hexdigest())
