"""Writes files that a crash never leaves half written, and that their owner alone can read from their first byte on.

Keys, passwords, tokens and all that must survive a restart are written with this module. It imports nothing of
Rackwright, so that every package can use it. The state engine has a writer of its own, `write_whole` in
`states/support/files.py`: the engine is sent alone to nodes with an older Python, so it cannot import this module, and
there it replaces files of other users in their folders, whose owner, mode and attributes have to stay.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

OWNER_ONLY = 0o600
LONGEST_STEM = 200
"""Characters of the file's name that the temporary file's name repeats: a file name has at most 255 bytes."""


def make_private_folder(folder: Path) -> None:
    """Make a folder that only its owner can enter, and its missing parents; an existing folder stays as it is."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)


def write_private_file(path: Path, content: bytes, mode: int = OWNER_ONLY) -> None:
    """Replace a file in one step; it is on disk before this returns. A missing folder is made for its owner alone.

    With another `mode`, others may read the file; the umask counts for it, as for any new file.
    """
    with _temporary_file(path, content, mode) as temporary:
        temporary.replace(path)
    sync_folder(path.parent)


def create_private_file(path: Path, content: bytes) -> bool:
    """Write a file unless it exists; it is on disk before this returns. False: the existing file stays.

    Of several processes that do so at the same time one writes its content, and all find that content.
    """
    with _temporary_file(path, content, OWNER_ONLY) as temporary:
        try:
            path.hardlink_to(temporary)
        except FileExistsError:
            return False
        finally:
            temporary.unlink()
    sync_folder(path.parent)
    return True


def sync_folder(folder: Path) -> None:
    """Write the list of a folder's files to disk; else a file renamed into the folder may be lost when power fails."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _temporary_file(path: Path, content: bytes, mode: int) -> Iterator[Path]:
    """Give a new file beside `path` with the content, on disk; the new file is removed if anything fails.

    Its name is random: a process number could be that of another process after a crash, or in another container.
    """
    make_private_folder(path.parent)
    temporary = path.with_name(f".{path.name[:LONGEST_STEM]}.{os.urandom(8).hex()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
