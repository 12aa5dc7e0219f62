"""Root file systems as tar archives: plain, or compressed with gzip, xz or zstd."""

import os
import subprocess
import tempfile
from collections.abc import Generator
from dataclasses import dataclass
from typing import BinaryIO

from rackwright.provision.images.importing.progress import Progress
from rackwright.provision.images.packages import BuildFailed, Say, require_programs
from rackwright.provision.images.root_archive import Entry
from rackwright.provision.images.tar_reader import read_tar

HEAD = 512
"""Bytes at the beginning of an archive that tell how it is compressed."""


@dataclass(frozen=True)
class Form:
    """How an archive is compressed."""

    magic: bytes
    offset: int
    command: tuple[str, ...]
    """The program that uncompresses its standard input, within a limit of memory; empty: it is not compressed."""


FORMS = (
    Form(b"\x1f\x8b", 0, ("gzip", "-dc")),
    Form(b"\xfd7zXZ\x00", 0, ("xz", "-dc", "--memlimit-decompress=512MiB")),
    Form(b"\x28\xb5\x2f\xfd", 0, ("zstd", "-q", "-dc", "--memory=512MB")),
    Form(b"ustar", 257, ()),
)


def find_form(head: bytes) -> Form | None:
    """Return how an archive with this beginning is compressed; None if it is none."""
    return next((form for form in FORMS if head[form.offset :].startswith(form.magic)), None)


def read_tarball(file: BinaryIO, form: Form, size: int, say: Say) -> Generator[Entry, None, None]:
    """Yield what is in an archive, and say how far it is."""
    # The program reads on from the same place in the file, so that place says how far it is.
    progress = Progress("importing", size, say)
    if not form.command:
        for entry in read_tar(file):
            progress.reach(file.tell())
            yield entry
        return
    require_programs(form.command[0])
    os.lseek(file.fileno(), 0, os.SEEK_SET)
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(form.command, stdin=file, stdout=subprocess.PIPE, stderr=errors)
        assert process.stdout is not None
        try:
            for entry in read_tar(process.stdout):
                progress.reach(os.lseek(file.fileno(), 0, os.SEEK_CUR))
                yield entry
            # It read its input to the end, and compared the checksums there.
            _check_status(form, process.wait())
        except BuildFailed as error:
            # It ends by itself: it is at the end of its input, or nobody takes what it writes.
            process.stdout.close()
            process.wait()
            raise BuildFailed(f"{error}{_last_words(errors)}") from None
        finally:
            process.stdout.close()
            process.kill()
            process.wait()


def _check_status(form: Form, status: int) -> None:
    if status != 0:
        raise BuildFailed(f"This archive is cut off, or has more behind its end: {form.command[0]} ended with {status}")


def _last_words(errors: BinaryIO) -> str:
    errors.seek(0)
    words = errors.read(2000).decode(errors="replace").strip()
    return f" ({words})" if words else ""
