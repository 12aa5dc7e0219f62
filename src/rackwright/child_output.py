"""The output of a child process, read through a pipe and kept in a file that never grows beyond a limit.

Strangers can make daemons talk: each packet that Kea cannot serve is a few lines of it. What no longer fits goes into a
second file, which replaces the one before, so the last output is always there and the disk is never filled.
"""

import asyncio
import contextlib
import os
from fcntl import F_SETPIPE_SZ, fcntl
from pathlib import Path

MOST_OUTPUT = 4 * 1024 * 1024
"""Bytes in the file of a child's output; as many more are kept in the file before."""
PIPE_BYTES = 1024 * 1024
"""Bytes that a child can write before it has to wait for this process; what the kernel gives to every user."""
PAUSE = 0.05
"""Seconds between two reads: a child that writes many lines must not keep the event loop busy."""


class BoundedOutput:
    """Reads what is written to `write_end` into a file, from `start_reading` until nobody can write any more."""

    def __init__(self, path: Path, *, append: bool, limit: int) -> None:
        self._path = path
        self._limit = limit
        if not append:
            previous_output(path).unlink(missing_ok=True)
        self._file = path.open("ab" if append else "wb", buffering=0)
        self._size = self._file.tell()
        self._read_end, self.write_end = os.pipe()
        self._is_open = True
        os.set_blocking(self._read_end, False)
        with contextlib.suppress(OSError):  # this user has many large pipes already
            fcntl(self._read_end, F_SETPIPE_SZ, PIPE_BYTES)

    def start_reading(self) -> None:
        """Read on the event loop that runs, whenever there is output."""
        if self._is_open:
            asyncio.get_running_loop().add_reader(self._read_end, self._read_and_pause)

    def drain(self) -> None:
        """Read what is in the pipe now. After the end of the child, that is the rest of its output."""
        left = PIPE_BYTES  # what the child started may write for ever
        while left > 0 and (size := self._read()):
            left -= size

    def close(self) -> None:
        """Read no more."""
        if self._is_open:
            self._is_open = False
            with contextlib.suppress(RuntimeError):  # no event loop runs any more
                asyncio.get_running_loop().remove_reader(self._read_end)
            os.close(self._read_end)
            self._file.close()

    def _read_and_pause(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._read_end)
        self._read()
        loop.call_later(PAUSE, self.start_reading)

    def _read(self) -> int:
        """Read once, and return how many bytes there were; 0: none, for now or for ever."""
        if not self._is_open:
            return 0
        try:
            output = os.read(self._read_end, PIPE_BYTES)
        except BlockingIOError:
            return 0
        if not output:
            self.close()
            return 0
        # Without room on the disk output is lost, but read: the child would otherwise stop in the middle of its work.
        with contextlib.suppress(OSError):
            self._keep(output)
        return len(output)

    def _keep(self, output: bytes) -> None:
        while output:
            if self._size >= self._limit:
                self._begin_file()
            written = self._file.write(output[: self._limit - self._size]) or 0
            self._size += written
            output = output[written:]

    def _begin_file(self) -> None:
        with contextlib.suppress(FileNotFoundError):  # somebody removed it
            self._path.replace(previous_output(self._path))
        full, self._file = self._file, self._path.open("wb", buffering=0)
        self._size = 0
        full.close()


def previous_output(path: Path) -> Path:
    """Return where the output lies that was in a file before there was too much of it."""
    return path.with_name(f"{path.name}.1")
