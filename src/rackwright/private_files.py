"""Writes files that a crash never leaves half written, and that their owner alone can read from their first byte on.

Keys, passwords, tokens and all that must be known again after a restart are written with this module. It imports
nothing of Rackwright, so that every package can use it. The state engine has a writer of its own, `write_whole` in
`states/support/files.py`: it travels alone to nodes with an older Python, so it cannot import this one, and there it
replaces files of others in folders of others, whose owner, mode and attributes have to stay.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

OWNER_ONLY = 0o600
LONGEST_STEM = 200
"""Characters of the file's name that the temporary one repeats: a name of a file has at most 255 bytes."""


def make_private_folder(folder: Path) -> None:
    """Make a folder that only its owner can enter; one that is there stays as it is. Missing parents are made, too."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)


def write_private_file(path: Path, content: bytes, mode: int = OWNER_ONLY) -> None:
    """Replace a file in one step, on disk before this returns; a missing folder is made for its owner alone.

    A file that others may read (`mode`) is written in the same way; the umask counts for it, as for any new file.
    """
    with _written_aside(path, content, mode) as aside:
        aside.replace(path)
    sync_folder(path.parent)


def create_private_file(path: Path, content: bytes) -> bool:
    """Write a file unless there is one, on disk before this returns; False: the one that is there stays.

    Of several processes that come at the same time one writes its content, and all find that one.
    """
    with _written_aside(path, content, OWNER_ONLY) as aside:
        try:
            path.hardlink_to(aside)
        except FileExistsError:
            return False
        finally:
            aside.unlink()
    sync_folder(path.parent)
    return True


def sync_folder(folder: Path) -> None:
    """Bring to disk which files a folder has: without it, a file renamed into the folder may be lost with the power."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _written_aside(path: Path, content: bytes, mode: int) -> Iterator[Path]:
    """Give a new file beside `path` with the content, on disk; it is removed if anything fails.

    Its name is random: a number of a process would be that of another one after a crash, or in another container.
    """
    make_private_folder(path.parent)
    aside = path.with_name(f".{path.name[:LONGEST_STEM]}.{os.urandom(8).hex()}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield aside
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
