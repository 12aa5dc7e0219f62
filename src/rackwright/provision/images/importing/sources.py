"""What is imported: told by its prefix or its first bytes, checked against its digest, and read as entries."""

import hashlib
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

from rackwright.domain.architectures import SLEDGEHAMMERS
from rackwright.provision.images.chunks import BLOCK
from rackwright.provision.images.disk_space import require_space, show_size
from rackwright.provision.images.importing import disk_images, oci_images, tarballs
from rackwright.provision.images.importing.work_folders import remove_abandoned, work_folder
from rackwright.provision.images.manifest import Image, is_image_name
from rackwright.provision.images.packages import BuildFailed, Say, require_programs
from rackwright.provision.images.root_images import Sign, put_root_image
from rackwright.provision.images.shelf import Shelf


def import_image(
    shelf: Shelf, name: str, source: str, say: Say, *, sha256: str | None = None, sign: Sign | None = None
) -> Image:
    """Import an image under a name, in place of the one that was there; BuildFailed if it must not be.

    `sha256` is the digest of the file; of an OCI image that is no file, that of its manifest.
    """
    if not is_image_name(name) or name in SLEDGEHAMMERS:
        raise BuildFailed(f"{name[:64]!r} is no name for an image that is imported: small letters, digits, - and .")
    require_programs("zstd")
    if sha256 is not None:
        sha256 = _checked_digest(sha256)
    # Before room is asked for: an import that was killed may have left as much as this one needs.
    shelf.clean()
    remove_abandoned()
    transport, _, _ = source.partition(":")
    if transport in oci_images.TRANSPORTS:
        return _import_oci(shelf, name, source, sha256, say, sign)
    path = Path(source)
    if not path.is_file():
        raise BuildFailed(
            f"There is no file {source}. What is no file begins with one of: {', '.join(oci_images.TRANSPORTS)}."
        )
    with path.open("rb") as file:
        digest = check_digest(file, path, sha256, say)
        about = {"from": path.name, "sha256": digest}
        head = file.read(disk_images.HEAD)
        file.seek(0)
        if disk_images.looks_like_disk(head):
            return _import_disk(shelf, name, path, about, say, sign)
        form = tarballs.find_form(head)
        if form is None:
            raise BuildFailed(
                f"{source} is neither a disk image (qcow2, raw) nor a tar archive (plain, gzip, xz, zstd)."
            )
        size = path.stat().st_size
        # What is compressed already stays about as large; a plain archive becomes a third.
        require_space({shelf.folder: size if form.command else size // 2})
        with closing(tarballs.read_tarball(file, form, size, say)) as entries:
            return put_root_image(shelf, name, about, entries, say, sign=sign, imported=True)


def check_digest(file: BinaryIO, path: Path, sha256: str | None, say: Say) -> str:
    """Return the digest of a file, which is then at its beginning; BuildFailed if it is another than expected."""
    size = path.stat().st_size
    say(f"reading {path.name} ({show_size(size)})")
    digest = hashlib.sha256()
    while block := file.read(BLOCK):
        digest.update(block)
    file.seek(0)
    found = digest.hexdigest()
    if sha256 is not None and found != sha256:
        raise BuildFailed(f"{path} has the SHA-256 {found}, not {sha256}. Nothing was imported.")
    return found


def _checked_digest(text: str) -> str:
    digest = text.removeprefix("sha256:").lower()
    if len(digest) != 64 or set(digest) - set("0123456789abcdef"):
        raise BuildFailed(f"{text[:80]!r} is no SHA-256: it has 64 hexadecimal digits.")
    return digest


def _import_disk(shelf: Shelf, name: str, path: Path, about: dict[str, str], say: Say, sign: Sign | None) -> Image:
    with work_folder() as folder:
        disk = disk_images.open_disk(path, folder, shelf.folder, say)
        about["kind"] = disk.kind
        with closing(disk_images.read_root(disk, folder, say)) as entries:
            return put_root_image(shelf, name, about, entries, say, sign=sign, imported=True)


def _import_oci(shelf: Shelf, name: str, source: str, sha256: str | None, say: Say, sign: Sign | None) -> Image:
    def check_file(path: Path) -> None:
        with path.open("rb") as file:
            check_digest(file, path, sha256, say)

    with work_folder() as folder:
        image = oci_images.fetch_image(source, folder, shelf.folder, check_file, sha256, say)
        about = {"from": source, "sha256": image.digest, "kind": "OCI image"}
        with closing(oci_images.read_image(image, folder, say)) as entries:
            return put_root_image(shelf, name, about, entries, say, sign=sign, imported=True)
