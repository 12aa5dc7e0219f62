"""Where the servers of this host listen: each says so in a private file while it serves, and commands look there.

A server writes its file into its home, for whoever may read that, and into a folder of its user, so that a command
finds the one server that runs although it was started with `--home`. A file whose process is gone is taken away by the
next who looks: a server that is killed cannot do so itself.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from ipaddress import ip_address
from pathlib import Path

from rackwright.home import FolderNotOurs, short_folder
from rackwright.private_files import write_private_file

FOLDER = "running"
_REGISTRY = Path("/servers of this user")
"""No home can be this; it is only the name under which `short_folder` finds the user's folder."""


@dataclass(frozen=True)
class RunningServer:
    """A server that listens: where, with whose certificate, and which process it is."""

    url: str
    home: str
    pid: int
    started: str
    """When the process began, in the kernel's ticks: a number of a process is given again to another one."""
    ca: str | None = None


@contextlib.contextmanager
def announced(home: Path, url: str, ca: Path | None = None) -> Iterator[None]:
    """Tell commands of this host where this process serves `home`, until the end of the block."""
    server = RunningServer(url, str(home), os.getpid(), _started(os.getpid()), None if ca is None else str(ca))
    registries = _registries()
    name = f"{server.pid}.json"
    try:
        _write(home / FOLDER / name, server)
        for folder in registries:
            with contextlib.suppress(OSError):  # without it the server is found by its home alone
                _write(folder / name, server)
        yield
    finally:
        (home / FOLDER / name).unlink(missing_ok=True)
        for folder in registries:
            with contextlib.suppress(OSError):
                (folder / name).unlink(missing_ok=True)
                folder.rmdir()  # the last one leaves nothing behind


def servers_of_home(home: Path) -> list[RunningServer]:
    """Return the servers that serve a home now, the one that has run longest first."""
    return _read(home / FOLDER)


def servers_of_user() -> list[RunningServer]:
    """Return all servers that this user runs on this host now, in whatever home."""
    found = []
    for folder in _registries():
        found += _read(folder)
        with contextlib.suppress(OSError):  # it is empty if nobody serves
            folder.rmdir()
    return found


def local_url(scheme: str, host: str, port: int) -> str:
    """Return the URL at which this host reaches a listener; one on all addresses is reached over loopback."""
    try:
        address = ip_address(host)
    except ValueError:
        return f"{scheme}://{host}:{port}"
    if address.is_unspecified:
        address = ip_address("127.0.0.1" if address.version == 4 else "::1")
    return f"{scheme}://[{address}]:{port}" if address.version == 6 else f"{scheme}://{address}:{port}"


def _registries() -> list[Path]:
    try:
        return [short_folder(_REGISTRY)]
    except FolderNotOurs:
        return []  # somebody else has made a folder of that name: what is in it is not believed


def _write(file: Path, server: RunningServer) -> None:
    """Write the file whole, or not at all, and readable by its owner alone."""
    write_private_file(file, json.dumps(asdict(server)).encode())


def _read(folder: Path) -> list[RunningServer]:
    found: list[RunningServer] = []
    try:
        files = sorted(folder.glob("*.json"))
    except OSError:
        return []
    for file in files:
        try:
            server = RunningServer(**json.loads(file.read_text()))
            alive = _started(server.pid) == server.started
        except (OSError, ValueError, TypeError):
            alive = False
        if alive:
            found.append(server)
        else:
            with contextlib.suppress(OSError):  # another's home may be readable only
                file.unlink()
    return sorted(found, key=lambda server: int(server.started))


def _started(pid: int) -> str:
    """Return when a process began; ValueError: there is none of that number."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        raise ValueError(f"there is no process {pid}") from None
