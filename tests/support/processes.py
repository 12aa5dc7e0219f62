"""Looking at processes from outside, and waiting for what becomes true."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import psutil

AS_NOBODY = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
"""To be put before a command; only root can."""


def wait_until(holds: Callable[[], bool], what: str, deadline: float = 60.0) -> None:
    end = time.monotonic() + deadline
    while not holds():
        assert time.monotonic() < end, f"not within {deadline:g} s: {what}"
        time.sleep(0.01)


async def until(holds: Callable[[], bool], deadline: float = 60.0) -> None:
    """`wait_until` for what becomes true only while the event loop runs."""
    async with asyncio.timeout(deadline):
        while not holds():  # noqa: ASYNC110 - it comes from other processes, which set no event
            await asyncio.sleep(0.01)


def is_alive(pid: int) -> bool:
    """A zombie is not: it runs no more, whoever has to collect it."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def postmaster_of(home: Path) -> int:
    """The process id of the server of `home`."""
    return int((home / "postgres/18/data/postmaster.pid").read_text().splitlines()[0])


def keeper_of(home: Path) -> int:
    """The process that started the server."""
    return int(psutil.Process(postmaster_of(home)).ppid())


def processes_naming(text: str) -> list[int]:
    """Every living process with `text` in its command line: what a test left behind of something in its own folder."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        if process.info["status"] != psutil.STATUS_ZOMBIE and text in " ".join(process.info["cmdline"] or ()):
            found.append(process.pid)
    return found
