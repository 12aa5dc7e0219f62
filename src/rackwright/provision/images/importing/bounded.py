"""Running programs that read a stranger's image: within limits of time, memory, output and room on the disk.

A program that reaches a limit is ended with all that it started. It ends with this process too, however that ends.
"""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rackwright.provision.images.disk_space import require_rest
from rackwright.provision.images.packages import BuildFailed
from rackwright.provision.images.root_archive import MOST_BYTES

PROGRAMS = ("prlimit", "setpriv")
LOOK_EVERY = 0.5
"""Seconds between two looks at what a program has done so far."""


@dataclass(frozen=True)
class Limits:
    """What a program may use."""

    seconds: float = 60.0
    memory: int = 2 << 30
    output: int = 64 << 20
    """Bytes that it says."""
    file_size: int = MOST_BYTES
    """Bytes of each file that it writes."""


@dataclass(frozen=True)
class Finished:
    """How a program ended that reached no limit."""

    status: int
    output: bytes
    errors: str
    """The last of what it said of its errors."""


def run_bounded(command: Sequence[str], work: Path, limits: Limits, stdin: bytes = b"") -> Finished:
    """Run a program to its end; BuildFailed if it reaches a limit. Its temporary files lie in `work`."""
    program = command[0]
    with (
        tempfile.TemporaryFile(dir=work) as output,
        tempfile.TemporaryFile(dir=work) as errors,
        tempfile.TemporaryFile(dir=work) as given,
    ):
        given.write(stdin)
        given.seek(0)
        process = subprocess.Popen(
            [*_prefix(limits), *command],
            stdin=given,
            stdout=output,
            stderr=errors,
            start_new_session=True,
            env=_environment(os.environ, work),
        )
        try:
            deadline = time.monotonic() + limits.seconds
            while process.poll() is None:
                _check_said(program, limits, output, errors)
                if time.monotonic() > deadline:
                    raise BuildFailed(f"{program} did not end within {limits.seconds:g} s and was ended.")
                require_rest(work)
                _wait(process)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        _check_said(program, limits, output, errors)
        output.seek(0)
        errors.seek(max(os.fstat(errors.fileno()).st_size - 4000, 0))
        return Finished(process.returncode, output.read(), errors.read().decode(errors="replace").strip())


def _check_said(program: str, limits: Limits, *files: IO[bytes]) -> None:
    if any(os.fstat(file.fileno()).st_size > limits.output for file in files):
        raise BuildFailed(f"{program} said more than {limits.output >> 20} MiB.")


def require_success(program: str, finished: Finished) -> bytes:
    """Return what a program said; BuildFailed, with its last words, if it failed."""
    if finished.status != 0:
        words = " ".join(finished.errors.splitlines()[-3:])
        raise BuildFailed(f"{program} ended with status {finished.status}: {words[:700]}")
    return finished.output


def _prefix(limits: Limits) -> list[str]:
    cpu = int(limits.seconds) + 1
    return [
        *("setpriv", "--pdeathsig", "KILL", "--"),
        *("prlimit", f"--as={limits.memory}", f"--cpu={cpu}", f"--fsize={limits.file_size}", "--core=0", "--"),
    ]


def _environment(given: Mapping[str, str], work: Path) -> dict[str, str]:
    return {**given, "TMPDIR": str(work), "LC_ALL": "C.UTF-8"}


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(LOOK_EVERY)
    except subprocess.TimeoutExpired:
        return
