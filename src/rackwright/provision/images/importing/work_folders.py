"""Folders for what lies on the disk while an image is imported. Those of a process that was killed go with the next."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX, NEW = "rackwright-import-", ".rackwright-import-"
"""How folders are called, and how they are until they are locked."""


@contextmanager
def work_folder() -> Iterator[Path]:
    """Make a folder that is removed at the end of the block, and remove those whose process was killed."""
    remove_abandoned()
    new = Path(tempfile.mkdtemp(prefix=NEW))
    folder, descriptor = new.with_name(new.name.removeprefix(".")), _open(new)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        new.rename(folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(new, ignore_errors=True)
        os.close(descriptor)


def remove_abandoned() -> None:
    """Remove this user's folders that nobody has locked."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            descriptor = _open(path)
        except OSError:  # it is just removed, is no folder, or is not ours
            continue
        try:
            if os.fstat(descriptor).st_uid == os.geteuid():
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:
            continue
        finally:
            os.close(descriptor)


def _open(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
