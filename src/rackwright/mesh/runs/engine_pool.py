"""The pool of an agent's engines: child processes that check and run states, with a spare one started in advance.

Loading the engine's modules takes longer than most runs. What the processes do is `engine_process.py`; what is done
with their output is `run_execution.py`.
"""

import asyncio
import contextlib
import fcntl
import json
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from rackwright.child_process import ask_to_end, kill_group
from rackwright.parent_death import DIES_WITH_US

PIPE_BYTES = 1024 * 1024
PACE_SECONDS = 0.01
"""How long an engine's output may gather before it is read: a thousand states a second must not be a thousand reads."""
IDLE_SECONDS = 1.0
"""Between the end of a run and the start of the next engine: reporting the run's end comes first."""

STOP_SECONDS = 3.0
"""How long an engine may take to end what it has started."""


class Engine:
    """A process for a single job, with its own scratch folder, which is deleted with it."""

    def __init__(self, process: asyncio.subprocess.Process, output: int, log: Path, scratch: Path) -> None:
        self._process, self._output, self.log, self._scratch = process, output, log, scratch

    @classmethod
    async def start(cls, log: Path, folder: Path) -> "Engine":
        scratch = Path(tempfile.mkdtemp(dir=folder))
        output, write_end = os.pipe()
        try:
            with contextlib.suppress(OSError):  # the user may not have such a pipe; a smaller one is slower
                fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
            os.set_blocking(output, False)
            with log.open("ab") as errors:
                process = await asyncio.create_subprocess_exec(
                    *(*DIES_WITH_US, sys.executable, "-m", "rackwright.mesh.runs.engine_process", scratch),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=write_end,
                    stderr=errors,
                    start_new_session=True,
                )
        except BaseException:
            os.close(output)
            shutil.rmtree(scratch)
            raise
        finally:
            os.close(write_end)
        return cls(process, output, log, scratch)

    @property
    def running(self) -> bool:
        return self._process.returncode is None

    async def send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            await self._process.stdin.drain()

    async def lines(self) -> AsyncIterator[list[bytes]]:
        """Yield the lines of its output, some at a time, until the engine has ended.

        Not until the pipe is closed: processes that the engine has started may keep it open for longer.
        """
        ending = asyncio.ensure_future(self._process.wait())
        partial = b""
        try:
            while True:
                has_ended = await self._wait_for_output(ending)
                while read := self._read():
                    *lines, partial = (partial + read).split(b"\n")
                    yield lines
                if has_ended or read == b"":
                    return
        finally:
            ending.cancel()

    async def _wait_for_output(self, ending: "asyncio.Future[int]") -> bool:
        """Wait until there is output, and a moment longer for more of it; return whether the engine has ended."""
        loop = asyncio.get_running_loop()
        readable = loop.create_future()
        loop.add_reader(self._output, lambda: None if readable.done() else readable.set_result(None))
        try:
            await asyncio.wait({readable, ending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            loop.remove_reader(self._output)
            readable.cancel()
        if not ending.done():
            await asyncio.wait({ending}, timeout=PACE_SECONDS)
        return ending.done()

    def _read(self) -> bytes | None:
        """Read the waiting output: None if there is none now, empty if the pipe is closed and there will be none."""
        try:
            return os.read(self._output, PIPE_BYTES)
        except BlockingIOError:
            return None

    async def wait(self) -> int:
        """Wait until the engine has ended; return its exit status."""
        return await self._process.wait()

    async def stop(self) -> None:
        """Ask the engine to end its commands and itself: commands run in their own sessions, so they survive a kill."""
        await ask_to_end(self._process, STOP_SECONDS)

    async def kill(self) -> None:
        """Kill the engine's process group if it still runs, and delete its scratch folder."""
        if self.running:
            await kill_group(self._process)
        if self._output >= 0:
            os.close(self._output)
            self._output = -1
            await asyncio.to_thread(shutil.rmtree, self._scratch)


class EnginePool:
    """The engines of an agent. `folder` is theirs alone: what an agent that was killed left in it is deleted."""

    def __init__(self, log: Path, folder: Path) -> None:
        self.log, self.folder = log, folder
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(mode=0o700)
        self._spare: Engine | None = None
        self._stocking = asyncio.Lock()

    async def take(self) -> Engine:
        """Return an engine for a single job. The caller ends it with `kill`."""
        async with self._stocking:
            spare, self._spare = self._spare, None
        if spare is not None and spare.running:
            return spare
        if spare is not None:
            await spare.kill()
        return await Engine.start(self.log, self.folder)

    async def stock(self, seconds: float = 0.0) -> None:
        """Start a spare engine, after so many seconds."""
        await asyncio.sleep(seconds)
        async with self._stocking:
            if self._spare is None:
                with contextlib.suppress(OSError):  # `take` tries again, and raises the error
                    self._spare = await Engine.start(self.log, self.folder)

    async def close(self) -> None:
        async with self._stocking:
            if self._spare is not None:
                await self._spare.kill()
                self._spare = None
