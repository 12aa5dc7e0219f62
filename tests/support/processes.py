"""Looking at processes from outside."""

from pathlib import Path

import psutil

AS_NOBODY = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
"""To be put before a command; only root can."""


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


def starts_naming(text: str) -> list[int]:
    """Return those of `processes_naming` that none of the others started: a process that was just forked still has the
    command line of its parent."""
    pids = processes_naming(text)
    return [pid for pid in pids if _parent_of(pid) not in (None, *pids)]


def _parent_of(pid: int) -> int | None:
    """Return the process that started another; None if that one has ended."""
    try:
        return int(psutil.Process(pid).ppid())
    except psutil.NoSuchProcess:
        return None


def processes_naming(text: str) -> list[int]:
    """Every living process with `text` in its command line: what a test left behind of something in its own folder."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        if process.info["status"] != psutil.STATUS_ZOMBIE and text in " ".join(process.info["cmdline"] or ()):
            found.append(process.pid)
    return found
