"""Child processes of this one: started so that they die with it, watched until they are ready, and ended for certain.

Which program a child runs, and whether it is started again, is decided by the modules that use this one. This module
imports nothing of Rackwright but `parent_death` and `child_output`. It does not run PostgreSQL: that is the child of a
keeper, which has no event loop and outlives the server that started it (`store/embedded/keeper.py`).
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from rackwright.child_output import MOST_OUTPUT, BoundedOutput, previous_output
from rackwright.parent_death import DIES_WITH_US

OUTPUT_SHOWN = 2000
"""Bytes at the end of the output that are shown of a child that failed."""
LOOK_SECONDS = 0.05
"""Seconds between two checks whether a child is ready."""


class ChildProcess:
    """A program that runs until it is ended, and whose output goes into a file that is bounded."""

    def __init__(self, process: asyncio.subprocess.Process, output: Path, reader: BoundedOutput) -> None:
        self._process = process
        self.output = output
        self._reader = reader

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        output: Path,
        *,
        environment: Mapping[str, str] | None = None,
        append: bool = True,
        most_output: int = MOST_OUTPUT,
    ) -> "ChildProcess":
        """Start a command in a session of its own; without `append`, its output replaces that of the previous child.

        At `most_output` bytes a new file of output is begun, and the one before is kept beside it.

        A command that does not exist is no error here: the child ends with status 127, and says why in its output.
        """
        reader = BoundedOutput(output, append=append, limit=most_output)
        try:
            process = await asyncio.create_subprocess_exec(
                *DIES_WITH_US,
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=reader.write_end,
                stderr=reader.write_end,
                env=environment,
                start_new_session=True,
            )
        except BaseException:
            reader.close()
            raise
        finally:
            os.close(reader.write_end)
        reader.start_reading()
        return cls(process, output, reader)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.returncode is None

    async def wait(self) -> int:
        """Wait until the child has ended and its output is in the file; return its exit status."""
        status = await self._process.wait()
        self._reader.drain()
        return status

    async def wait_ready(self, ready: Callable[[], Awaitable[bool]], every: float = LOOK_SECONDS) -> bool:
        """Wait until `ready` returns True; return False if the child ends before. The caller sets the deadline."""
        while self.running:
            if await ready():
                return True
            await _ends_within(self._process, every)
        self._reader.drain()
        return False

    async def end(self, grace: float) -> None:
        """Ask the child to end, and kill it if it has not ended after `grace` seconds."""
        if not await ask_to_end(self._process, grace):
            await self.kill()
        self._reader.drain()

    async def kill(self) -> None:
        """Kill the child, as if its power were cut, and wait for its end."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        await self.wait()


async def ask_to_end(process: asyncio.subprocess.Process, seconds: float) -> bool:
    """Ask a process to end, wait for at most `seconds`, and return whether it has ended."""
    if process.returncode is not None:
        return True
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    return await _ends_within(process, seconds)


async def kill_group(process: asyncio.subprocess.Process) -> int:
    """Kill a process that has a session of its own, with all processes it started there; return its exit status.

    It also works after the process has ended: the processes that it left in the background are killed.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return await process.wait()


def output_tail(output: Path, limit: int = OUTPUT_SHOWN) -> str:
    """Return the end of the output in a child's file; empty if there is no file."""
    end = _file_tail(output, limit)
    if len(end) < limit:  # it may have been begun a moment ago
        end = _file_tail(previous_output(output), limit - len(end)) + end
    return end.decode(errors="replace").strip()


def last_line(output: Path) -> str:
    """Return the last line of the output in a child's file; empty if there is none."""
    return output_tail(output).rpartition("\n")[2].strip()


def _file_tail(path: Path, limit: int) -> bytes:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - limit))
            return file.read(limit)
    except OSError:
        return b""


async def _ends_within(process: asyncio.subprocess.Process, seconds: float) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await process.wait()
    return process.returncode is not None
