"""Barclamp folders on disk: `barclamp.yml` and what lies beside it, read, checked and digested.

A folder holds code that runs with the server's rights, so it must be whole in itself: no link out of it, nothing that
is neither file nor folder, no script for a role that it does not declare. What the file says is the domain's; putting
it into the database is the store's. `roles.py` is looked at in a process of its own: nothing of it runs in this one.
"""

import hashlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from rackwright.domain.barclamp import parse_barclamp
from rackwright.domain.catalogue import Barclamp
from rackwright.domain.errors import BarclampInvalid
from rackwright.domain.fields import nearest

FILE = "barclamp.yml"
SCRIPTS = Path("script", "roles")
ROLES = "roles.py"
LOOK_TIME = 30.0
"""Seconds that the import of a `roles.py` may take."""
HERE = Path(__file__).parent


def built_in(test: bool = False, lab: bool = False) -> list[Barclamp]:
    """The barclamps that come with Rackwright, core first.

    On request: `test`, which shows every rule, and `lab`, a workload for simulated machines.
    """
    left_out = {name for name, wanted in (("test", test), ("lab", lab)) if not wanted}
    names = sorted(folder.parent.name for folder in HERE.glob(f"*/{FILE}"))
    names.sort(key=lambda name: name != "core")
    return [_load_built_in(name) for name in names if name not in left_out]


@cache
def _load_built_in(name: str) -> Barclamp:
    """Read once a process: these files come with the program that runs, and looking at their code starts another."""
    return load_folder(HERE / name)


def load_folder(path: Path) -> Barclamp:
    """The barclamp in the folder, with its path; BarclampInvalid for anything in the folder that may not be there."""
    folder = path.resolve()
    file = folder / FILE
    try:
        if not file.is_file():
            raise BarclampInvalid(str(file), 1, "There is no such file; a barclamp folder needs one.")
        for _ in _contents(folder):
            pass  # walking it is the check
        barclamp = replace(parse_barclamp(_read(file), str(file)), path=str(folder))
        _check_scripts(folder, barclamp)
        if (folder / ROLES).exists():
            barclamp = _with_hooks(folder, barclamp)
    except OSError as error:
        raise BarclampInvalid(str(error.filename or folder), 1, f"This cannot be read: {error.strerror}.") from None
    return barclamp


def folder_digest(path: Path) -> str:
    """The SHA-256 of every name, kind, executable bit and content in the folder; where the folder lies is no part."""
    folder = path.resolve()
    whole = hashlib.sha256()
    for entry, mode in _contents(folder):
        name = os.fsencode(entry.relative_to(folder))
        if stat.S_ISLNK(mode):
            kind, content = b"link", hashlib.sha256(os.fsencode(os.readlink(entry))).digest()
        elif stat.S_ISDIR(mode):
            kind, content = b"folder", b""
        else:
            kind = b"program" if mode & stat.S_IXUSR else b"file"
            with entry.open("rb") as opened:
                content = hashlib.file_digest(opened, "sha256").digest()
        # Lengths in front, so that no name can be mistaken for the content before it.
        for part in (name, kind, content):
            whole.update(len(part).to_bytes(8, "big") + part)
    return whole.hexdigest()


def _contents(folder: Path) -> Iterator[tuple[Path, int]]:
    """Everything below the folder with its mode, in one order everywhere; without what Python leaves behind."""
    for root, folders, files in os.walk(folder, onerror=_unreadable):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted([*folders, *files]):
            entry = Path(root, name)
            mode = entry.lstat().st_mode
            if stat.S_ISLNK(mode):
                _check_link(entry, folder)
            elif not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
                raise BarclampInvalid(str(entry), 1, "This is neither a file nor a folder; remove it.")
            yield entry, mode


def _unreadable(error: OSError) -> NoReturn:
    """os.walk would skip a folder that it cannot read, and the digest with it."""
    raise error


def _check_link(link: Path, folder: Path) -> None:
    target = os.readlink(link)
    try:
        inside = link.resolve(strict=True).is_relative_to(folder)
    except (OSError, RuntimeError):  # dangling, or in a circle
        raise BarclampInvalid(str(link), 1, f"This link leads nowhere ({target}); remove it.") from None
    if not inside or os.path.isabs(target):
        raise BarclampInvalid(
            str(link), 1, f"This link leads out of the barclamp's folder ({target}); put a copy in its place."
        )


def _read(file: Path) -> str:
    content = file.read_bytes()
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BarclampInvalid(str(file), line, "This is not UTF-8; save the file as UTF-8.") from None


def _check_scripts(folder: Path, barclamp: Barclamp) -> None:
    """Each folder of scripts belongs to a role of this barclamp and has some: else they would silently never run."""
    scripts = folder / SCRIPTS
    if not scripts.exists():
        return
    if not scripts.is_dir():
        raise BarclampInvalid(str(scripts), 1, "This must be a folder with one folder a role.")
    roles = {role.name for role in barclamp.roles}
    for entry in sorted(scripts.iterdir()):
        if not entry.is_dir():
            raise BarclampInvalid(str(entry), 1, "Only folders belong here, one a role; move this into its role's.")
        if entry.name not in roles:
            hint = nearest(entry.name, roles) or "."
            raise BarclampInvalid(
                str(entry), 1, f"Barclamp {barclamp.name!r} has no role {entry.name!r} for these scripts{hint}"
            )
        if not any(script.is_file() for script in entry.glob("*.sh")):
            raise BarclampInvalid(str(entry), 1, f"There is no *.sh here to run for role {entry.name!r}.")


def _with_hooks(folder: Path, barclamp: Barclamp) -> Barclamp:
    """The barclamp with, for each role, the hooks that its class implements."""
    file = folder / ROLES
    answer = _look(folder, [role.name for role in barclamp.roles])
    hooks = answer.get("hooks")
    if not isinstance(hooks, dict):
        raise BarclampInvalid(str(file), int(answer.get("line") or 1), str(answer.get("error", "It gave no answer.")))
    roles = tuple(replace(role, hooks=frozenset(hooks.get(role.name, ()))) for role in barclamp.roles)
    return replace(barclamp, roles=roles)


def _look(folder: Path, roles: list[str]) -> dict[str, Any]:
    """What a worker process says of the folder's `roles.py`."""
    ours, theirs = socket.socketpair()
    with ours:
        command = [sys.executable, "-m", "rackwright.barclamps.worker", str(theirs.fileno()), str(os.getpid())]
        with theirs:
            worker = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        try:
            ours.settimeout(LOOK_TIME)
            with ours.makefile("rw", encoding="utf-8", newline="\n") as stream:
                stream.write(json.dumps({"path": str(folder), "roles": roles}) + "\n")
                stream.flush()
                line = stream.readline()
        except TimeoutError:
            return {"error": f"It cannot be imported within {LOOK_TIME:g} s."}
        except OSError:
            line = ""
        finally:
            os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()
    answer: dict[str, Any] = json.loads(line) if line else {"error": "The process that imported it died."}
    return answer
