"""Images in a registry: what one says of itself is read, and judged, before any of it is fetched.

What is fetched then is named by the digest of the manifest that was judged, so it cannot be another image by then.
"""

import hashlib
import json
import platform
import re
from dataclasses import dataclass
from pathlib import Path

from rackwright.domain.architectures import name_architecture
from rackwright.provision.images.disk_space import require_space, show_size
from rackwright.provision.images.importing.bounded import Limits, require_success, run_bounded
from rackwright.provision.images.packages import BuildFailed
from rackwright.provision.images.root_archive import MOST_BYTES

LARGEST_DOCUMENT = 4 << 20
MOST_LAYERS = 1000
MOST_MANIFESTS = 200
INSPECT_LIMITS = Limits(seconds=300, memory=16 << 30, output=LARGEST_DOCUMENT, file_size=LARGEST_DOCUMENT + 1)
REFERENCE = re.compile(r"docker:(?P<name>//[^@]+?)(:(?P<tag>[\w.-]+))?(@(?P<digest>sha256:[0-9a-f]{64}))?")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")

Document = dict[str, object]


@dataclass(frozen=True)
class Fetched:
    """What is to be fetched."""

    source: str
    size: int
    """Bytes of it, as they are fetched."""
    digest: str | None = None
    """Of its manifest in the registry; None: it is in none."""


def check_image(source: str, sha256: str | None, work: Path, shelf_folder: Path) -> Fetched:
    """Return what is fetched of an image in a registry; BuildFailed if it is another than expected, too much, or has
    no room."""
    reference = REFERENCE.fullmatch(source)
    if reference is None:
        raise BuildFailed(f"{source[:200]!r} is no reference to an image: docker://HOST/NAME:TAG")
    name = f"docker:{reference['name']}"
    digest, manifest = _inspect(source, work)
    seen = [digest]
    if "manifests" in manifest:
        digest, manifest = _inspect(f"{name}@{_choose(source, manifest)}", work)
        seen.append(digest)
    if sha256 is not None and f"sha256:{sha256}" not in seen:
        raise BuildFailed(
            f"The manifest of {source} has the digest {digest}, not sha256:{sha256}. Nothing was imported."
        )
    size = sum(_size(entry) for entry in (manifest.get("config"), *list_layers(manifest)))
    if size > MOST_BYTES:
        raise BuildFailed(f"{source} has {show_size(size)}; the most is {show_size(MOST_BYTES)}.")
    require_space({work: 4 * size, shelf_folder: size})
    return Fetched(f"{name}@{digest}", size, digest)


def list_layers(manifest: Document) -> list[Document]:
    """Return the layers of an image; BuildFailed if its manifest has none, or is none."""
    layers = manifest.get("layers")
    if not isinstance(layers, list) or not layers or not all(isinstance(layer, dict) for layer in layers):
        raise BuildFailed("The manifest of the image lists no layers that can be read.")
    if len(layers) > MOST_LAYERS:
        raise BuildFailed(f"The image has {len(layers)} layers; the most are {MOST_LAYERS}.")
    return layers


def read_document(path: Path) -> Document:
    """Return a document of an image; BuildFailed if it is none, or too large."""
    if not path.is_file():
        raise BuildFailed("The image lacks one of its documents.")
    if path.stat().st_size > LARGEST_DOCUMENT:
        raise BuildFailed(f"The manifest of the image has {show_size(path.stat().st_size)}.")
    return _parse(path.read_bytes())


def _parse(content: bytes) -> Document:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise BuildFailed("The manifest of the image cannot be read: it is no JSON object.")
    return document


def _inspect(source: str, work: Path) -> tuple[str, Document]:
    """Return the digest of a manifest, and what it says."""
    command = ["skopeo", "--tmpdir", str(work), "inspect", "--raw", source]
    content = require_success("skopeo", run_bounded(command, work, INSPECT_LIMITS))
    return f"sha256:{hashlib.sha256(content).hexdigest()}", _parse(content)


def _choose(source: str, index: Document) -> str:
    """Return the digest of the image for machines like this host among those for several kinds, as skopeo does."""
    manifests = index["manifests"]
    wanted = name_architecture(platform.machine())
    for entry in manifests[:MOST_MANIFESTS] if isinstance(manifests, list) else []:
        described = entry.get("platform") if isinstance(entry, dict) else None
        found = described if isinstance(described, dict) else {}
        digest = str(entry.get("digest")) if isinstance(entry, dict) else ""
        if (found.get("os"), found.get("architecture")) == ("linux", wanted) and DIGEST.fullmatch(digest):
            return digest
    raise BuildFailed(f"{source} has no image of Linux for {wanted}.")


def _size(entry: object) -> int:
    size = entry.get("size") if isinstance(entry, dict) else None
    if not isinstance(size, int) or size < 0:
        raise BuildFailed("The manifest of the image does not say how large it is.")
    return size
