"""The loader of barclamp folders: reads and checks `barclamp.yml` and the files beside it.

A folder holds code that runs with the server's rights, so it must be complete in itself: no link out of it, nothing
that is neither file nor folder, no script for a role that it does not declare. `barclamp.yml` is parsed by
`domain/barclamps`; the store puts the result into the database. `roles.py` is imported in a process of its own: nothing
of it runs in this one.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from rackwright.barclamps.content import digest_of, folder_digest, pack, read_folder
from rackwright.domain.barclamps.barclamp_file import KnownKinds, Reserved, parse_barclamp
from rackwright.domain.barclamps.fields import suggest_name
from rackwright.domain.catalogue import Attrib, Barclamp, Flag, Hammer, Jig, JsonObject, Role
from rackwright.domain.errors import BarclampInvalid
from rackwright.domain.networks.networks import BARCLAMP as NETWORKS
from rackwright.hammers.registry import bmc_kinds, hammer_kinds
from rackwright.jigs.registry import jig_kinds, registered_jigs

FILE = "barclamp.yml"
SCRIPTS = Path("script", "roles")
ROLES = "roles.py"
IMPORT_SECONDS = 30.0
"""Seconds that the import of a `roles.py` may take."""
HERE = Path(__file__).parent
PROVISIONER = "provisioner"
"""The barclamp that has the hammers; its attrib BMC_KIND says which hammer a BMC is for."""
BMC_KIND = "bmc-kind"


def built_in(test: bool = False, lab: bool = False) -> list[Barclamp]:
    """Return the barclamps that come with Rackwright, core first.

    On request: `test`, which shows every rule, and `lab`, a workload for simulated machines.
    """
    left_out = {name for name, included in (("test", test), ("lab", lab)) if not included}
    names = sorted(folder.parent.name for folder in HERE.glob(f"*/{FILE}"))
    names.sort(key=lambda name: name != "core")
    return [_load_built_in(name) for name in names if name not in left_out]


@cache
def _load_built_in(name: str) -> Barclamp:
    """Load a barclamp that comes with Rackwright, once a process.

    Its files do not change while the program runs, and importing their code starts another process.
    """
    return load_folder(HERE / name)


@cache
def reserved_names() -> Reserved:
    """Return the names in the barclamps that come with Rackwright, also in those that this server does not import.

    No other barclamp may have one of them, or the next import of one of the two would take it from the other.
    """
    reserved = {("barclamp", NETWORKS): NETWORKS}
    for file in sorted(HERE.glob(f"*/{FILE}")):
        barclamp = _parse_built_in(file)
        reserved["barclamp", barclamp.name] = barclamp.name
        declared: dict[str, Sequence[Role | Jig | Hammer | Attrib]] = {
            "role": barclamp.roles,
            "jig": barclamp.jigs,
            "hammer": barclamp.hammers,
            "attrib": barclamp.attribs,
        }
        reserved |= {(kind, item.name): barclamp.name for kind, items in declared.items() for item in items}
    return reserved


def load_folder(path: Path) -> Barclamp:
    """Return the barclamp in the folder, with all its files; raise BarclampInvalid for anything that is not allowed."""
    folder = path.resolve()
    file = folder / FILE
    try:
        if not file.is_file():
            raise BarclampInvalid(str(file), 1, "There is no such file; a barclamp folder needs one.")
        entries = read_folder(folder)
        digest = digest_of(entries)
        parsed = _parse_built_in(file) if folder.parent == HERE else _parse(file, reserved_names())
        barclamp = replace(parsed, path=str(folder), digest=digest, archive=pack(entries))
        _check_scripts(folder, barclamp)
        _check_role_folders(folder, barclamp)
        if (folder / ROLES).exists():
            barclamp = _with_hooks(folder, barclamp)
        if folder_digest(folder) != digest:
            raise BarclampInvalid(str(file), 1, "The folder changed while it was read. Import it again.")
    except OSError as error:
        raise BarclampInvalid(str(error.filename or folder), 1, f"This cannot be read: {error.strerror}.") from None
    return barclamp


def known_kinds() -> KnownKinds:
    """Return the kinds of jigs and hammers that a barclamp may name."""
    return KnownKinds(jig_kinds(), [kind.name for kind in hammer_kinds()])


def _parse(file: Path, reserved: Reserved) -> Barclamp:
    return parse_barclamp(_read(file), str(file), known_kinds(), reserved)


def _parse_built_in(file: Path) -> Barclamp:
    parsed = _parse(file, {})
    return with_registered_hammers(parsed) if parsed.name == PROVISIONER else parsed


def with_registered_hammers(barclamp: Barclamp) -> Barclamp:
    """Return the barclamp with a hammer for each kind that exists, and with the kinds that people may give a BMC.

    All of it comes from the files of the hammers, so that a new hammer need not be listed anywhere else.
    """
    hammers = tuple(
        Hammer(kind.name, barclamp.name, kind.name, kind.priority, kind.description) for kind in hammer_kinds()
    )
    schema: JsonObject = {"enum": [*bmc_kinds()]}
    attribs = tuple(
        replace(attrib, schema=schema) if attrib.name == BMC_KIND else attrib for attrib in barclamp.attribs
    )
    return replace(barclamp, hammers=hammers, attribs=attribs)


def _read(file: Path) -> str:
    content = file.read_bytes()
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BarclampInvalid(str(file), line, "This is not UTF-8; save the file as UTF-8.") from None


def _check_scripts(folder: Path, barclamp: Barclamp) -> None:
    """Check that each folder of scripts belongs to a role of this barclamp and has some.

    Otherwise scripts would silently never run.
    """
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
            hint = suggest_name(entry.name, roles) or "."
            raise BarclampInvalid(
                str(entry), 1, f"Barclamp {barclamp.name!r} has no role {entry.name!r} for these scripts{hint}"
            )
        if not any(script.is_file() for script in entry.glob("*.sh")):
            raise BarclampInvalid(str(entry), 1, f"There is no *.sh here to run for role {entry.name!r}.")


def _check_role_folders(folder: Path, barclamp: Barclamp) -> None:
    """Check that each role whose jig runs files has a folder of them.

    For a jig that another barclamp declares, only a run can tell.
    """
    by_kind = {registration.kind: registration for registration in registered_jigs()}
    # The jigs that come with Rackwright are named after their kinds.
    by_name = by_kind | {jig.name: by_kind[jig.kind] for jig in barclamp.jigs}
    for role in barclamp.roles:
        jig = by_name.get(role.jig)
        if jig is None or not jig.value("role_folder") or role.has(Flag.ABSTRACT):
            continue  # an abstract role is never bound, so never run
        needed = folder / str(jig.value("role_folder")) / role.name
        if not needed.is_dir():
            reason = f"Role {role.name!r} has the jig {role.jig!r} and {jig.value('role_folder_lacks')}."
            raise BarclampInvalid(str(needed), 1, reason)


def _with_hooks(folder: Path, barclamp: Barclamp) -> Barclamp:
    """Return the barclamp with, for each role, the hooks that its class implements."""
    file = folder / ROLES
    answer = _describe_hooks(folder, [role.name for role in barclamp.roles])
    hooks = answer.get("hooks")
    if not isinstance(hooks, dict):
        raise BarclampInvalid(str(file), int(answer.get("line") or 1), str(answer.get("error", "It gave no answer.")))
    roles = tuple(replace(role, hooks=frozenset(hooks.get(role.name, ()))) for role in barclamp.roles)
    return replace(barclamp, roles=roles)


def _describe_hooks(folder: Path, roles: list[str]) -> dict[str, Any]:
    """Return the hooks of each role, or an error, as a worker process answers that imports the folder's `roles.py`."""
    server_end, worker_end = socket.socketpair()
    with server_end:
        command = [sys.executable, "-m", "rackwright.barclamps.worker", str(worker_end.fileno()), str(os.getpid())]
        with worker_end:
            worker = subprocess.Popen(
                command,
                pass_fds=[worker_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        try:
            server_end.settimeout(IMPORT_SECONDS)
            with server_end.makefile("rw", encoding="utf-8", newline="\n") as stream:
                stream.write(json.dumps({"path": str(folder), "roles": roles}) + "\n")
                stream.flush()
                line = stream.readline()
        except TimeoutError:
            return {"error": f"It cannot be imported within {IMPORT_SECONDS:g} s."}
        except OSError:
            line = ""
        finally:
            os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()
    answer: dict[str, Any] = json.loads(line) if line else {"error": "The process that imported it died."}
    return answer
