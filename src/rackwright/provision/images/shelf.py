"""The shelf: images by name, each a folder of files with a manifest of their sizes and digests.

An image on the shelf is always complete: it is made in a folder aside and put there in one step. Only files that a
manifest names are ever found, so no name that a client asks for is used as a path.
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
    """An image does not exist, or is not complete; the text says what to do."""


@dataclass(frozen=True)
class ImageFile:
    """One file of an image."""

    path: Path
    size: int
    sha256: str


@dataclass(frozen=True)
class Image:
    """An image on the shelf: its files by name."""

    name: str
    files: Mapping[str, ImageFile]
    about: Mapping[str, str]
    """What the image was made from, for people."""


class Shelf:
    """The images of one server, below its home."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "images"

    def find(self, name: str) -> Image:
        """Return an image by name, or raise NoImage."""
        if not NAME.fullmatch(name):
            raise NoImage(f"{name[:64]!r} is no name of an image.")
        folder = self.folder / name
        try:
            manifest = json.loads((folder / MANIFEST).read_text())
        except FileNotFoundError:
            raise NoImage(f"There is no image {name!r}. Make it: rackwright image build {name}") from None
        files = {
            file: ImageFile(folder / file, entry["size"], entry["sha256"]) for file, entry in manifest["files"].items()
        }
        return Image(name, files, manifest["about"])

    def file(self, name: str, file: str) -> ImageFile:
        """Return a file of an image, or raise NoImage."""
        image_file = self.find(name).files.get(file)
        if image_file is None:
            raise NoImage(f"Image {name!r} has no file {file[:64]!r}.")
        return image_file

    def all(self) -> list[Image]:
        if not self.folder.is_dir():
            return []
        return [self.find(path.parent.name) for path in sorted(self.folder.glob(f"[a-z0-9]*/{MANIFEST}"))]

    @contextmanager
    def making(self, name: str, about: Mapping[str, str]) -> Iterator[Path]:
        """Yield a folder to make an image in. Without an exception, it replaces the image on the shelf in one step."""
        if not NAME.fullmatch(name):
            raise NoImage(f"{name[:64]!r} is no name of an image.")
        self.folder.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=self.folder))
        try:
            yield staging
            _write_manifest(staging, about)
            staging.chmod(0o755)
            self._publish(staging, self.folder / name)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise

    def _publish(self, folder: Path, path: Path) -> None:
        """Make `path` lead to a finished folder.

        Folders cannot be exchanged in one step, links can; so `path` is a link.
        """
        before = path.resolve() if path.is_symlink() else None
        link = folder.with_name(f"{folder.name}.link")
        link.symlink_to(folder.name)
        os.replace(link, path)
        if before is not None:
            shutil.rmtree(before)  # a process that reads a file of it goes on reading that


def _write_manifest(folder: Path, about: Mapping[str, str]) -> None:
    files = {path.name: asdict(describe(path)) for path in sorted(folder.iterdir())}
    for entry in files.values():
        del entry["path"]
    (folder / MANIFEST).write_text(json.dumps({"about": dict(about), "files": files}, indent=1) + "\n")


def describe(path: Path) -> ImageFile:
    """Return a file with its size and digest."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return ImageFile(path, path.stat().st_size, digest.hexdigest())
