"""The engines of an agent: child processes that check and run states, one of them always started before it is needed.

Loading what the engine is made of takes longer than most runs. What the processes do is `engine_process.py`; what
becomes of what they say is `run_execution.py`.
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
"""How long what an engine says may gather before it is read: a thousand states a second are not a thousand reads."""
IDLE_SECONDS = 1.0
"""Between the end of a run and the start of the next engine: who waits for the run's end comes first."""

STOP_SECONDS = 3.0
"""How long an engine may take to end what it has started."""


class Engine:
    """One process for one job, with a folder of its own that goes with it."""

    def __init__(self, process: asyncio.subprocess.Process, said: int, log: Path, scratch: Path) -> None:
        self._process, self._said, self.log, self._scratch = process, said, log, scratch

    @classmethod
    async def start(cls, log: Path, folder: Path) -> "Engine":
        scratch = Path(tempfile.mkdtemp(dir=folder))
        said, write = os.pipe()
        try:
            with contextlib.suppress(OSError):  # more than a user may have; it is slower then
                fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
            os.set_blocking(said, False)
            with log.open("ab") as trouble:
                process = await asyncio.create_subprocess_exec(
                    *(*DIES_WITH_US, sys.executable, "-m", "rackwright.mesh.runs.engine_process", scratch),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=write,
                    stderr=trouble,
                    start_new_session=True,
                )
        except BaseException:
            os.close(said)
            shutil.rmtree(scratch)
            raise
        finally:
            os.close(write)
        return cls(process, said, log, scratch)

    @property
    def running(self) -> bool:
        return self._process.returncode is None

    async def say(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            await self._process.stdin.drain()

    async def lines(self) -> AsyncIterator[list[bytes]]:
        """What it says, some lines at a time, until it has ended: what it has started may hold the pipe for longer."""
        ending = asyncio.ensure_future(self._process.wait())
        rest = b""
        try:
            while True:
                over = await self._something(ending)
                while read := self._read():
                    *lines, rest = (rest + read).split(b"\n")
                    yield lines
                if over or read == b"":
                    return
        finally:
            ending.cancel()

    async def _something(self, ending: "asyncio.Future[int]") -> bool:
        """Wait until it has said something, and a moment longer; True if it has ended."""
        loop = asyncio.get_running_loop()
        readable = loop.create_future()
        loop.add_reader(self._said, lambda: None if readable.done() else readable.set_result(None))
        try:
            await asyncio.wait({readable, ending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            loop.remove_reader(self._said)
            readable.cancel()
        if not ending.done():
            await asyncio.wait({ending}, timeout=PACE_SECONDS)
        return ending.done()

    def _read(self) -> bytes | None:
        """Nothing (but not None) when nobody can say anything any more."""
        try:
            return os.read(self._said, PIPE_BYTES)
        except BlockingIOError:
            return None

    async def end(self) -> int:
        """Its exit status, once it has ended."""
        return await self._process.wait()

    async def stop(self) -> None:
        """Have it end what it has started: its commands, in sessions of their own, outlive an engine that is killed."""
        await ask_to_end(self._process, STOP_SECONDS)

    async def kill(self) -> None:
        """End it and what it has started, if it has not ended."""
        if self.running:
            await kill_group(self._process)
        if self._said >= 0:
            os.close(self._said)
            self._said = -1
            await asyncio.to_thread(shutil.rmtree, self._scratch)


class Engines:
    """`folder` is theirs alone: what an agent that was killed left in it goes."""

    def __init__(self, log: Path, folder: Path) -> None:
        self.log, self.folder = log, folder
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(mode=0o700)
        self._spare: Engine | None = None
        self._stocking = asyncio.Lock()

    async def take(self) -> Engine:
        """An engine for one job. Whoever takes it ends it with `kill`."""
        async with self._stocking:
            spare, self._spare = self._spare, None
        if spare is not None and spare.running:
            return spare
        if spare is not None:
            await spare.kill()
        return await Engine.start(self.log, self.folder)

    async def stock(self, seconds: float = 0.0) -> None:
        """Have one at hand, after so many seconds."""
        await asyncio.sleep(seconds)
        async with self._stocking:
            if self._spare is None:
                with contextlib.suppress(OSError):  # whoever needs one tries again, and is told
                    self._spare = await Engine.start(self.log, self.folder)

    async def close(self) -> None:
        async with self._stocking:
            if self._spare is not None:
                await self._spare.kill()
                self._spare = None
