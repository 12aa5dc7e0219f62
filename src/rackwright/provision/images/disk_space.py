"""Room on disks: asked for before something long begins, and said plainly when it runs out."""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rackwright.provision.images.packages import BuildFailed

REST_SHARE, MOST_REST = 50, 1 << 30
"""One part of so many of a disk, and the most bytes of it, that images leave to the server and its database."""


def require_space(needs: dict[Path, int]) -> None:
    """Raise BuildFailed if the file systems of folders have less room than is needed in them, taken together."""
    needed_by_device: dict[int, int] = {}
    for folder, needed in needs.items():
        existing = _existing(folder)
        device = existing.stat().st_dev
        needed_by_device[device] = needed_by_device.get(device, 0) + needed
        free = _free_for_images(existing)
        if needed_by_device[device] > free:
            raise BuildFailed(
                f"This needs about {show_size(needed_by_device[device])} on the file system of {folder}, which has"
                f" {show_size(free)} free. Nothing was begun."
            )


def require_rest(folder: Path, more: int = 0) -> None:
    """Raise BuildFailed if the disk of a folder has less free than is left to the server when `more` bytes are written.

    What is written turns out larger than it was said to be only if somebody means harm.
    """
    existing = _existing(folder)
    if _free_for_images(existing) < more:
        raise BuildFailed(
            f"The disk is full: {folder} has {show_size(shutil.disk_usage(existing).free)} free, which are left to the"
            " server. Nothing of the image is left."
        )


def _free_for_images(existing: Path) -> int:
    usage = shutil.disk_usage(existing)
    return max(usage.free - min(usage.total // REST_SHARE, MOST_REST), 0)


@contextmanager
def full_disk_is_said(folder: Path) -> Iterator[None]:
    """Turn a disk that gets full within the block into a BuildFailed that says so."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        free = shutil.disk_usage(_existing(folder)).free
        raise BuildFailed(
            f"The disk is full ({error.filename or folder}); {folder} has {show_size(free)} free now."
            " Nothing of the image is left."
        ) from None


def show_size(size: float) -> str:
    """Return a number of bytes in words, in powers of ten, as disks are sold."""
    for unit in ("bytes", "kB", "MB"):
        if round(size) < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def _existing(folder: Path) -> Path:
    return next(path for path in (folder, *folder.parents) if path.exists())
