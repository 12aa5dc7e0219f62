"""Services that are plain processes: a command that is started in the background, and a pidfile to find it again.

For containers and small machines without a service manager. The pidfile holds the process id, and on a second line
the time the process started: the id alone may belong to another process by the next run.
"""

from __future__ import annotations

import os
import shlex
import signal
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from ...module import StateError
from ..files import Owner, make_folder, missing_parents, read_bytes, remove_all, write_whole
from ..process import run
from .base import Manager, Status

FOLDER = "/run/rackwright"
SURVIVE_SECONDS = 0.2
"""A command that is wrong ends at once; one that lives this long counts as started."""


class Process(Manager):
    """One command as a service, with its pidfile."""

    name = "process"

    def __init__(self, arguments: Dict[str, Any]) -> None:
        command = arguments.get("command") or []
        self.command: List[str] = shlex.split(command) if isinstance(command, str) else [str(part) for part in command]
        self.pidfile = str(arguments.get("pidfile") or f"{FOLDER}/{arguments['name']}.pid")
        self.timeout = float(arguments.get("timeout") or 10)

    def status(self, service: str) -> Status:
        return Status(
            exists=bool(self.command) or self._find_process() is not None, running=self._find_process() is not None
        )

    def start(self, service: str) -> None:
        if not self.command:
            raise StateError(f"{service}: no command is given, so it can be watched and stopped but not started")
        for folder in missing_parents(self.pidfile):
            make_folder(folder, Owner(mode=0o755))
        # The shell is gone at once and the process belongs to init; setsid keeps our terminal's signals away from it.
        script = 'setsid "$@" </dev/null >/dev/null 2>&1 & echo $!'
        pid = int(run(["/bin/sh", "-c", script, "sh", *self.command], f"starting {service}", cwd="/"))
        started = started_at(pid)
        write_whole(self.pidfile, f"{pid}\n{started or ''}\n".encode(), Owner(mode=0o644))
        if started is None or _wait_for(lambda: started_at(pid) != started, SURVIVE_SECONDS):
            raise StateError(
                f"{service} ended as soon as it was started; run it by hand to see why: {shlex.join(self.command)}"
            )

    def stop(self, service: str) -> None:
        process = self._find_process()
        if process is None:
            return
        pid, started = process
        os.kill(pid, signal.SIGTERM)
        if not _wait_for(lambda: started_at(pid) != started, self.timeout):
            os.kill(pid, signal.SIGKILL)
            if not _wait_for(lambda: started_at(pid) != started, self.timeout):
                raise StateError(
                    f"{service} (process {pid}) did not end within {self.timeout:g} s, not even when killed"
                )
        remove_all(self.pidfile)

    def reload(self, service: str) -> None:
        process = self._find_process()
        if process is None:
            raise StateError(f"{service} is not running, so it cannot reload")
        os.kill(process[0], signal.SIGHUP)

    def _find_process(self) -> Optional[Tuple[int, str]]:
        """Return id and start time of the pidfile's process; None if that process has ended."""
        lines = (read_bytes(self.pidfile) or b"").decode("ascii", "replace").split()
        if not lines or not lines[0].isdigit():
            return None
        pid = int(lines[0])
        started = started_at(pid)
        # A pidfile that the daemon wrote itself has no second line; then only the id is compared.
        if started is None or (len(lines) > 1 and lines[1] != started):
            return None
        return pid, started


def started_at(pid: int) -> Optional[str]:
    """Return when a process started, in the kernel's ticks; None if there is none or it is a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else fields[19]


def _wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
