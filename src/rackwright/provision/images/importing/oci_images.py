"""OCI images: fetched by skopeo, checked layer by layer, and unpacked by umoci into a folder of ours."""

import gzip
import json
import os
import re
import stat
import subprocess
import tarfile
import zlib
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from rackwright.provision.images.disk_space import require_space, show_size
from rackwright.provision.images.importing.ext_reader import Opener
from rackwright.provision.images.importing.progress import Progress
from rackwright.provision.images.packages import BuildFailed, Say, require_programs
from rackwright.provision.images.root_archive import MOST_BYTES, MOST_FILES, Entry
from rackwright.provision.images.tar_reader import read_tar

FILES = ("oci-archive", "docker-archive")
"""Transports of which the image is one file."""
TRANSPORTS = ("oci", *FILES, "docker")
REFERENCE = re.compile(r"[A-Za-z0-9_./:@+-]{1,1000}")
TAG = "image"
LAYER_TYPES = re.compile(r"application/vnd\.(oci\.image|docker\.image\.rootfs)\.(layer|diff)\b.*")
LARGEST_DOCUMENT = 4 << 20
GZIP = b"\x1f\x8b"
KINDS = {stat.S_IFDIR: tarfile.DIRTYPE, stat.S_IFREG: tarfile.REGTYPE, stat.S_IFLNK: tarfile.SYMTYPE}


@dataclass(frozen=True)
class OciImage:
    """An image that was fetched into a layout of ours."""

    layout: Path
    digest: str
    """Of its manifest."""
    size: int
    """Bytes that it has unpacked."""


def fetch_image(
    source: str, work: Path, shelf_folder: Path, check_file: Callable[[Path], None], sha256: str | None, say: Say
) -> OciImage:
    """Fetch an image into `work`, and check its digest and the size of its layers; BuildFailed if it must not be used.

    `check_file` checks the digest of what is one file.
    """
    require_programs("skopeo", "umoci")
    if os.geteuid() != 0:
        raise BuildFailed("An OCI image is unpacked with the owners of its files, which takes root: run this as root.")
    transport, _, rest = source.partition(":")
    if not REFERENCE.fullmatch(rest):
        raise BuildFailed(f"{source[:200]!r} is no reference to an image.")
    # A tag may follow the path, and has colons too.
    parts = rest.split(":")
    candidates = [Path(":".join(parts[: len(parts) - number])) for number in range(len(parts))]
    path = next((candidate for candidate in candidates if candidate.exists()), Path(rest))
    if transport in FILES:
        if not path.is_file():
            raise BuildFailed(f"There is no file {path}.")
        check_file(path)
    if transport != "docker":
        size = sum(file.stat().st_size for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file())
        require_space({work: 4 * size, shelf_folder: size})
    layout = work / "layout"
    say(f"fetching {source}")
    _run(["skopeo", "copy", "--quiet", "--insecure-policy", source, f"oci:{layout}:{TAG}"])
    index = _read_document(layout / "index.json")
    digest = str(index["manifests"][0]["digest"])
    if transport not in FILES and sha256 is not None and digest != f"sha256:{sha256}":
        raise BuildFailed(
            f"The manifest of {source} has the digest {digest}, not sha256:{sha256}. Nothing was imported."
        )
    return OciImage(layout, digest, _check_layers(layout, digest, work, shelf_folder))


def _check_layers(layout: Path, digest: str, work: Path, shelf_folder: Path) -> int:
    """Return how much the layers of an image are unpacked; BuildFailed if that is too much or has no room."""
    total = files = 0
    for layer in _read_document(_blob(layout, digest))["layers"]:
        if not LAYER_TYPES.fullmatch(str(layer["mediaType"])):
            raise BuildFailed(
                f"The image has a layer of the kind {str(layer['mediaType'])[:100]!r}, which is no tar archive."
            )
        with _blob(layout, str(layer["digest"])).open("rb") as file:
            magic = file.read(2)
            file.seek(0)
            stream = cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if magic == GZIP else file
            try:
                for entry in read_tar(stream):
                    total, files = total + max(entry.info.size, 0), files + 1
                    if total > MOST_BYTES or files > MOST_FILES:
                        raise BuildFailed(
                            f"The layers of the image have more than {MOST_BYTES >> 30} GiB or {MOST_FILES} files."
                        )
            except (zlib.error, EOFError) as error:
                raise BuildFailed(f"A layer of the image cannot be read: {error}") from None
    require_space({work: total, shelf_folder: total // 2})
    return total


def read_image(image: OciImage, work: Path, say: Say) -> Generator[Entry, None, None]:
    """Unpack an image, and yield what is in its root file system."""
    bundle = work / "bundle"
    say(f"unpacking {show_size(image.size)}")
    # Whatever umoci does with an archive that lies about itself: no file gets larger than all of them may be.
    _run(["prlimit", f"--fsize={MOST_BYTES}", "umoci", "unpack", "--image", f"{image.layout}:{TAG}", str(bundle)])
    yield from read_folder(bundle / "rootfs", Progress("importing", image.size, say))


def read_folder(root: Path, progress: Progress) -> Iterator[Entry]:
    """Yield what is in a folder of ours, as its root. No link in it is followed."""
    seen: dict[tuple[int, int], str] = {}
    done = 0
    for folder, folders, files in os.walk(root, onerror=_raise):
        folders.sort()
        for name in sorted([*folders, *files]):
            path = Path(folder) / name
            status = path.lstat()
            info = tarfile.TarInfo(str(path.relative_to(root)))
            info.type = KINDS.get(stat.S_IFMT(status.st_mode), tarfile.FIFOTYPE)
            info.mode, info.uid, info.gid = stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid
            info.mtime = int(status.st_mtime)
            if info.issym():
                info.linkname = os.readlink(path)
            key = (status.st_dev, status.st_ino)
            if info.isreg() and key in seen:
                info.type, info.linkname = tarfile.LNKTYPE, seen[key]
            elif info.isreg():
                info.size = status.st_size
                seen[key] = info.name
                done += info.size
            yield Entry(info, Opener(path))
            progress.reach(done)


def _raise(error: OSError) -> None:
    raise error


def _blob(layout: Path, digest: str) -> Path:
    """Return the file of a blob, whose digest skopeo checked when it copied it; BuildFailed if the digest is none."""
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise BuildFailed(f"{digest[:100]!r} is no digest that an OCI image has.")
    return layout / "blobs/sha256" / digest.removeprefix("sha256:")


def _read_document(path: Path) -> dict[str, list[dict[str, object]]]:
    if path.stat().st_size > LARGEST_DOCUMENT:
        raise BuildFailed(f"The manifest of the image has {show_size(path.stat().st_size)}.")
    document: dict[str, list[dict[str, object]]] = json.loads(path.read_text())
    return document


def _run(command: list[str]) -> None:
    finished = subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    if finished.returncode != 0:
        words = finished.stderr.decode(errors="replace").strip().splitlines()[-3:]
        program = next(word for word in command if word in ("skopeo", "umoci"))
        raise BuildFailed(f"{program} ended with status {finished.returncode}: {' '.join(words)[:700]}")
