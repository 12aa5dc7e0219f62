"""A registry of the servers that run on this host: each writes a private file while it serves, and commands read it.

A server writes its file into its home, for all who may read the home, and into a folder of its user, so that a command
finds the one server that runs although it was started with `--home`. A file whose process is gone is removed by the
next command that reads the folder: a server that is killed cannot do so itself.
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
"""The name under which `short_folder` finds the user's folder; no home can have it."""


@dataclass(frozen=True)
class RunningServer:
    """A server that listens: its URL, its home, its process and the certificate to trust."""

    url: str
    home: str
    pid: int
    started: str
    """When the process began, in the kernel's ticks: another process can get the same number later."""
    ca: str | None = None


@contextlib.contextmanager
def announced(home: Path, url: str, ca: Path | None = None) -> Iterator[None]:
    """Tell commands of this host where this process serves `home`, until the end of the block."""
    server = RunningServer(url, str(home), os.getpid(), _start_ticks(os.getpid()), None if ca is None else str(ca))
    registries = _registries()
    name = f"{server.pid}.json"
    try:
        _write(home / FOLDER / name, server)
        for folder in registries:
            with contextlib.suppress(OSError):  # without this file the server is found by its home alone
                _write(folder / name, server)
        yield
    finally:
        (home / FOLDER / name).unlink(missing_ok=True)
        for folder in registries:
            with contextlib.suppress(OSError):
                (folder / name).unlink(missing_ok=True)
                folder.rmdir()  # the last server leaves nothing behind


def servers_of_home(home: Path) -> list[RunningServer]:
    """Return the servers that serve a home now, the one that has run longest first."""
    return _read_servers(home / FOLDER)


def servers_of_user() -> list[RunningServer]:
    """Return all servers that this user runs on this host now, in any home."""
    servers = []
    for folder in _registries():
        servers += _read_servers(folder)
        with contextlib.suppress(OSError):  # the folder is empty if no server runs
            folder.rmdir()
    return servers


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
    """Return the user's folder of running servers; nothing if it cannot be trusted."""
    try:
        return [short_folder(_REGISTRY)]
    except FolderNotOurs:
        return []  # somebody else has made a folder of that name: its content is not believed


def _write(file: Path, server: RunningServer) -> None:
    """Write the file completely or not at all, readable by its owner alone."""
    write_private_file(file, json.dumps(asdict(server)).encode())


def _read_servers(folder: Path) -> list[RunningServer]:
    """Return the servers of a folder that are alive, the oldest first, and remove the files of the others."""
    servers: list[RunningServer] = []
    try:
        files = sorted(folder.glob("*.json"))
    except OSError:
        return []
    for file in files:
        try:
            server = RunningServer(**json.loads(file.read_text()))
            is_alive = _start_ticks(server.pid) == server.started
        except (OSError, ValueError, TypeError):
            is_alive = False
        if is_alive:
            servers.append(server)
        else:
            with contextlib.suppress(OSError):  # another user's home may be readable only
                file.unlink()
    return sorted(servers, key=lambda server: int(server.started))


def _start_ticks(pid: int) -> str:
    """Return when a process began, in the kernel's ticks; ValueError: there is no process of that number."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        raise ValueError(f"there is no process {pid}") from None
