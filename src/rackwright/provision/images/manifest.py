"""The manifest of an image: its files with their sizes, digests and chunks, and what people want to know of it.

What is signed is the *statement*: name, files, sizes, digests and chunks, in one form for one content. So a signature
holds on every server that has the same bytes under the same name, whoever put them there and when.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rackwright.domain.architectures import Architecture
from rackwright.provision.images.chunks import DIGEST, Chunk

MANIFEST = "manifest.json"
SIGNATURE = "manifest.minisig"
"""The signature of the statement, beside the manifest."""
ARCHITECTURE = "architecture"
"""The key in what an image tells about itself that says for which kind of machine it is."""
NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")
CHUNKS_FOLDER = "chunks"
"""What lies beside the images on a shelf, so that none can have that name."""
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class BadManifest(Exception):
    """A manifest cannot be read; the text says why."""


@dataclass(frozen=True)
class ImageFile:
    """One file of an image."""

    path: Path
    """Where its bytes are. What is kept in chunks is not there, but in these."""
    size: int
    sha256: str
    chunks: tuple[Chunk, ...] = ()


@dataclass(frozen=True)
class Image:
    """An image on the shelf: its files by name."""

    name: str
    files: Mapping[str, ImageFile]
    about: Mapping[str, str]
    """What the image was made from, for people."""
    signature: str | None = None
    """The text of the minisign signature of the statement; None: it has none."""

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files.values())

    @property
    def architecture(self) -> str:
        """The kind of machine that it is for. Images that were made before this was written down are for amd64."""
        return self.about.get(ARCHITECTURE, Architecture.AMD64.value)

    @property
    def statement(self) -> bytes:
        """Return what a signature of this image signs."""
        files = {name: _file_entry(file) for name, file in sorted(self.files.items())}
        return json.dumps({"name": self.name, "files": files}, sort_keys=True, separators=(",", ":")).encode() + b"\n"


def write_manifest(image: Image) -> str:
    """Return the text of a manifest."""
    files = {name: _file_entry(file) for name, file in sorted(image.files.items())}
    return json.dumps({"name": image.name, "about": dict(image.about), "files": files}, indent=1) + "\n"


def read_manifest(text: str, name: str, folder: Path, signature: str | None = None) -> Image:
    """Return the image that a manifest describes; BadManifest if it is none, or that of another image."""
    try:
        stored = json.loads(text)
        if stored.get("name", name) != name:
            raise BadManifest(f"it is the manifest of {stored['name']!r}")
        files = {file: _read_file(folder / file, entry) for file, entry in stored["files"].items()}
        about = {in_letters(str(key)): in_letters(str(value)) for key, value in stored["about"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadManifest(f"it cannot be read ({error!r})") from None
    if not all(FILE_NAME.fullmatch(file) for file in files):
        raise BadManifest("it names a file that no image has")
    return Image(name, files, about, signature)


def in_letters(text: str) -> str:
    """Return a text with ? for what is no letter: file names may have any bytes, JSON may not."""
    return text.encode("utf-8", "replace").decode()


def _file_entry(file: ImageFile) -> dict[str, Any]:
    entry: dict[str, Any] = {"size": file.size, "sha256": file.sha256}
    if file.chunks:
        entry["chunks"] = [{"size": chunk.size, "sha256": chunk.sha256} for chunk in file.chunks]
    return entry


def _read_file(path: Path, entry: Mapping[str, Any]) -> ImageFile:
    chunks = tuple(Chunk(int(chunk["size"]), _digest(chunk["sha256"])) for chunk in entry.get("chunks", ()))
    return ImageFile(path, int(entry["size"]), _digest(entry["sha256"]), chunks)


def _digest(text: object) -> str:
    if not isinstance(text, str) or not DIGEST.fullmatch(text):
        raise ValueError(f"{str(text)[:80]!r} is no SHA-256")
    return text


def is_image_name(name: str) -> bool:
    return NAME.fullmatch(name) is not None and name != CHUNKS_FOLDER
