"""OCI images: fetched by skopeo, checked layer by layer, and unpacked by umoci into a folder of ours."""

import dataclasses
import gzip
import os
import re
import stat
import tarfile
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from rackwright.provision.images.disk_space import require_space, show_size
from rackwright.provision.images.importing import registry
from rackwright.provision.images.importing.bounded import PROGRAMS, Limits, require_success, run_bounded
from rackwright.provision.images.importing.ext_reader import Opener
from rackwright.provision.images.importing.progress import Progress
from rackwright.provision.images.importing.registry import Fetched, read_document
from rackwright.provision.images.importing.tarballs import HEAD, find_form, read_tarball
from rackwright.provision.images.packages import BuildFailed, Say, require_programs
from rackwright.provision.images.root_archive import MOST_BYTES, MOST_FILES, Entry
from rackwright.provision.images.tar_reader import read_tar

FILES = ("oci-archive", "docker-archive")
"""Transports of which the image is one file."""
TRANSPORTS = ("oci", *FILES, "docker")
REFERENCE = re.compile(r"[A-Za-z0-9_./:@+-]{1,1000}")
TAG = "image"
LAYER_TYPES = re.compile(r"application/vnd\.(oci\.image|docker\.image\.rootfs)\.(layer|diff)\b.*")
MOST_BLOBS = 10_000
"""Files in the archive of an image: its layers and documents."""
COPY_LIMITS = Limits(seconds=4 * 3600, memory=16 << 30, output=4 << 20)
"""skopeo and umoci are written in Go, which asks for far more memory than it uses."""
SLACK = 64 << 20
"""Bytes that a file may have more than all that was said: of documents, and of what is compressed again."""
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
    require_programs("skopeo", "umoci", *PROGRAMS)
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
    if transport == "docker":
        fetched = registry.check_image(source, sha256, work, shelf_folder)
    else:
        fetched = _check_local(source, path, work, shelf_folder)
    layout = work / "layout"
    say(f"fetching {source}")
    limits = dataclasses.replace(COPY_LIMITS, file_size=fetched.size + SLACK)
    # Its own folder for temporary files is on another disk, and nobody cleans it after a kill.
    copy = ["skopeo", "--tmpdir", str(work), "copy", "--quiet", "--insecure-policy"]
    require_success("skopeo", run_bounded([*copy, fetched.source, f"oci:{layout}:{TAG}"], work, limits))
    digest = _read_digest(layout)
    if transport == "oci" and sha256 is not None and digest != f"sha256:{sha256}":
        raise BuildFailed(
            f"The manifest of {source} has the digest {digest}, not sha256:{sha256}. Nothing was imported."
        )
    return OciImage(layout, fetched.digest or digest, _check_layers(layout, digest, work, shelf_folder))


def _check_local(source: str, path: Path, work: Path, shelf_folder: Path) -> Fetched:
    """Return what is fetched of an image that lies on this host; BuildFailed if it is too much or has no room."""
    files = [file for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file()]
    size = sum(file.stat().st_size for file in files)
    if path.is_file():
        # skopeo unpacks it into files first, all of it, before it looks at anything.
        size = max(size, _count_archive(path))
    if size > MOST_BYTES:
        raise BuildFailed(f"{path} has {show_size(size)}; the most is {show_size(MOST_BYTES)}.")
    require_space({work: 4 * size, shelf_folder: size})
    return Fetched(source, size)


def _count_archive(path: Path) -> int:
    """Return how many bytes the files in an archive have; BuildFailed if there are too many, or it is none."""
    with path.open("rb") as file:
        form = find_form(file.read(HEAD))
        file.seek(0)
        if form is None:
            raise BuildFailed(f"{path} is no tar archive (plain, gzip, xz, zstd).")
        total = 0
        with closing(read_tarball(file, form, path.stat().st_size, lambda _: None)) as entries:
            for number, entry in enumerate(entries):
                total += max(entry.info.size, 0)
                if total > MOST_BYTES or number > MOST_BLOBS:
                    raise BuildFailed(f"{path} has more than {MOST_BYTES >> 30} GiB or {MOST_BLOBS} files.")
    return total


def _read_digest(layout: Path) -> str:
    """Return the digest of the manifest of the image in a layout of ours."""
    manifests = read_document(layout / "index.json").get("manifests")
    first = manifests[0] if isinstance(manifests, list) and manifests else None
    if not isinstance(first, dict):
        raise BuildFailed("The index of the image cannot be read: it names no manifest.")
    return str(first.get("digest"))


def _check_layers(layout: Path, digest: str, work: Path, shelf_folder: Path) -> int:
    """Return how much the layers of an image are unpacked; BuildFailed if that is too much or has no room."""
    total = files = 0
    for layer in registry.list_layers(read_document(_blob(layout, digest))):
        if not LAYER_TYPES.fullmatch(str(layer.get("mediaType"))):
            raise BuildFailed(
                f"The image has a layer of the kind {str(layer['mediaType'])[:100]!r}, which is no tar archive."
            )
        with _blob(layout, str(layer.get("digest"))).open("rb") as file:
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
    limits = dataclasses.replace(COPY_LIMITS, file_size=image.size + SLACK)
    unpack = ["umoci", "unpack", "--image", f"{image.layout}:{TAG}", str(bundle)]
    require_success("umoci", run_bounded(unpack, work, limits))
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
