"""A daemon that this server runs as a child process: started when needed, again when it dies, ended with the server.

Which daemon (Kea, Knot), its configuration and its protocol are in the modules beside this one.
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
"""Seconds before the daemon is started again; doubled each time that it did not even get ready."""
STOP_SECONDS = 5.0
"""How long the daemon may take to end before it is killed."""
LONGEST_SOCKET = 100
"""Bytes in the path of a socket; the kernel takes little more."""


class DaemonFailed(Exception):
    """The daemon does not do its work; the message says why, for a person."""


OnRestart = Callable[[], Awaitable[None]]


class Daemon:
    """Keeps one process running from the first `ensure_ready` to `stop`."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        socket: Path,
        ready: Callable[[], Awaitable[bool]],
        *,
        environment: Mapping[str, str] | None = None,
        on_failed_start: Callable[[], None] = lambda: None,
        patience: float = 10.0,
    ) -> None:
        self.name = Path(command[-1] if len(command) == 1 else _program(command)).name
        self._command = list(command)
        self._folder = folder
        self._socket = socket
        self._ready = ready
        self._environment = {**os.environ, **(environment or {})}
        self._on_failed_start = on_failed_start
        """Called when the daemon died before it was ready: its configuration may be bad."""
        self._patience = patience
        self.on_restart: OnRestart | None = None
        """Called whenever the daemon is ready again after it was restarted because it had died."""
        self.process: ChildProcess | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_ready = asyncio.Event()
        self._error = ""

    @property
    def running(self) -> bool:
        return self._is_ready.is_set()

    async def ensure_ready(self) -> None:
        """Start the daemon if it does not run, and return once it is ready.

        DaemonFailed, with the last lines of its output, if it is not ready in time.
        """
        if self._task is None:
            self._task = asyncio.create_task(self._keep_running(), name=f"keep {self.name}")
        try:
            async with asyncio.timeout(self._patience):
                await self._is_ready.wait()
        except TimeoutError:
            raise DaemonFailed(self._error or f"{self.name} is not ready after {self._patience:g} s.") from None

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
            if self._socket.parent != self._folder:
                shutil.rmtree(self._socket.parent)
        self._is_ready.clear()

    async def _keep_running(self) -> None:
        pause, first = FIRST_PAUSE, True
        while True:
            try:
                got_ready = await self._run_once(first)
            except DaemonFailed as error:
                self._error, got_ready = str(error), False
            except OSError as error:
                self._error = f"{self.name} cannot be started: {error.strerror or error}. Is its package installed?"
                got_ready = False
            if got_ready:
                pause = FIRST_PAUSE
                log.warning("%s ended and is started again: %s", self.name, self._error)
            else:
                self._on_failed_start()
            first = False
            await asyncio.sleep(pause)
            pause = FIRST_PAUSE if got_ready else min(pause * 2, LONGEST_PAUSE)

    async def _run_once(self, first: bool) -> bool:
        """Start the process and wait until it ends; return whether it ever was ready."""
        make_private_folder(self._folder)
        _make_own_folder(self._socket.parent)
        self._remove_stale_pid_files()
        if shutil.which(self._command[0]) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._command[0])
        output = self._folder / "output.log"
        process = await ChildProcess.start(self._command, output, environment=self._environment, append=False)
        self.process = process
        try:
            got_ready = await process.wait_ready(self._ready)
            if got_ready:
                self._is_ready.set()
                if not first and self.on_restart is not None:
                    await self.on_restart()
            status = await process.wait()
            last_output = output_tail(output) or "it said nothing"
            self._error = f"{self.name} ended with status {status}: {last_output}"
            return got_ready
        finally:
            self._is_ready.clear()
            self.process = None
            await process.end(STOP_SECONDS)

    def _remove_stale_pid_files(self) -> None:
        """Remove the files with process numbers that an earlier process left behind.

        A daemon that was killed, or lost its power, leaves a file with its number, which another process may have by
        now: the next daemon would believe that it runs already, and refuse to start for ever. Only this server runs the
        daemon in this folder.
        """
        for path in self._folder.glob("*.pid"):
            path.unlink(missing_ok=True)


def _program(command: Sequence[str]) -> str:
    """Return the daemon's program, also behind a launcher: the last word before its first option."""
    words = [word for word in command if not word.startswith("-")]
    options = [index for index, word in enumerate(command) if word.startswith("-")]
    return command[options[0] - 1] if options and options[0] > 0 else words[0]


def socket_path(folder: Path, name: str) -> Path:
    """Return the path of a daemon's socket: in its folder or, since paths of sockets must be short, in a folder of this
    user below the temporary one."""
    if len(os.fsencode(folder / name)) <= LONGEST_SOCKET:
        return folder / name
    digest = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"rackwright-{os.getuid()}-{digest}" / name


def _make_own_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.lstat().st_uid != os.getuid():
        raise DaemonFailed(f"{folder} belongs to somebody else. Remove it, or choose a shorter home.")
