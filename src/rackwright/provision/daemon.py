"""A daemon that this server runs as its child: started when it is needed, again when it dies, and ended with us.

What it is (Kea, Knot), how it is configured and what it is asked is in the modules beside this one.
"""

import asyncio
import errno
import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from rackwright.child_process import ChildProcess, output_tail
from rackwright.private_files import make_private_folder

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0
"""Seconds before it is started again; doubled each time that it did not even get ready."""
STOP_SECONDS = 5.0
"""How long it may take to end before it is killed."""
LONGEST_SOCKET = 100


class DaemonFailed(Exception):
    """The daemon does not do its work; the message says why, for a person."""


Started = Callable[[], Awaitable[None]]


class Daemon:
    """Keeps one process running from the first `ensure` to `stop`."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        socket: Path,
        ready: Callable[[], Awaitable[bool]],
        *,
        environment: Mapping[str, str] | None = None,
        broken: Callable[[], None] = lambda: None,
        patience: float = 10.0,
    ) -> None:
        self.name = Path(command[-1] if len(command) == 1 else _program(command)).name
        self._command = list(command)
        self._folder = folder
        self._socket = socket
        self._ready = ready
        self._environment = {**os.environ, **(environment or {})}
        self._broken = broken
        """Called when it died before it was ready: maybe what it was given is bad."""
        self._patience = patience
        self.started: Started | None = None
        """Called whenever it is ready after a start that nobody waited for."""
        self.process: ChildProcess | None = None
        self._task: asyncio.Task[None] | None = None
        self._up = asyncio.Event()
        self._error = ""

    @property
    def running(self) -> bool:
        return self._up.is_set()

    async def ensure(self) -> None:
        """Return once it is ready; DaemonFailed, with what it said last, if it does not get there in time."""
        if self._task is None:
            self._task = asyncio.create_task(self._keep(), name=f"keep {self.name}")
        try:
            async with asyncio.timeout(self._patience):
                await self._up.wait()
        except TimeoutError:
            raise DaemonFailed(self._error or f"{self.name} is not ready after {self._patience:g} s.") from None

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
            if self._socket.parent != self._folder:
                shutil.rmtree(self._socket.parent)
        self._up.clear()

    async def _keep(self) -> None:
        pause, first = FIRST_PAUSE, True
        while True:
            try:
                got_ready = await self._live(first)
            except DaemonFailed as error:
                self._error, got_ready = str(error), False
            except OSError as error:
                self._error = f"{self.name} cannot be started: {error.strerror or error}. Is its package installed?"
                got_ready = False
            if got_ready:
                pause = FIRST_PAUSE
                log.warning("%s ended and is started again: %s", self.name, self._error)
            else:
                self._broken()
            first = False
            await asyncio.sleep(pause)
            pause = FIRST_PAUSE if got_ready else min(pause * 2, LONGEST_PAUSE)

    async def _live(self, first: bool) -> bool:
        """One life of the process; whether it ever was ready."""
        make_private_folder(self._folder)
        _make_own(self._socket.parent)
        self._forget_earlier_lives()
        if shutil.which(self._command[0]) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._command[0])
        output = self._folder / "output.log"
        process = await ChildProcess.start(self._command, output, environment=self._environment, append=False)
        self.process = process
        try:
            got_ready = await process.wait_ready(self._ready)
            if got_ready:
                self._up.set()
                if not first and self.started is not None:
                    await self.started()
            status = await process.wait()
            said = output_tail(output) or "it said nothing"
            self._error = f"{self.name} ended with status {status}: {said}"
            return got_ready
        finally:
            self._up.clear()
            self.process = None
            await process.end(STOP_SECONDS)

    def _forget_earlier_lives(self) -> None:
        """One that was killed, or lost its power, leaves a file with its number, which may be somebody else's by now:
        the next one would take that for itself, and refuse to start for ever. Nobody but us runs it in this folder."""
        for left in self._folder.glob("*.pid"):
            left.unlink(missing_ok=True)


def _program(command: Sequence[str]) -> str:
    """The daemon itself, also behind what it is launched by: the last word before its first option."""
    words = [word for word in command if not word.startswith("-")]
    options = [place for place, word in enumerate(command) if word.startswith("-")]
    return command[options[0] - 1] if options and options[0] > 0 else words[0]


def socket_path(folder: Path, name: str) -> Path:
    """Where a daemon's socket lies: in its folder, or, the paths of sockets being short, in one of this user's own."""
    if len(os.fsencode(folder / name)) <= LONGEST_SOCKET:
        return folder / name
    mark = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"rackwright-{os.getuid()}-{mark}" / name


def _make_own(folder: Path) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.lstat().st_uid != os.getuid():
        raise DaemonFailed(f"{folder} belongs to somebody else. Remove it, or choose a shorter home.")
