"""The parcel that the script jig sends to a node for a run: one command, and one archive on its standard input.

The archive holds the wrapper, the helpers, the role's scripts and the attributes, so that a run costs one round
trip. The files that run on the node are in `node/`.
"""

import io
import json
import re
import shlex
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rackwright.domain.runs import Run
from rackwright.reach.attribute_lines import attribute_lines

NODE_FILES = Path(__file__).parent / "node"
SCRIPT_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")
FOLDER = re.compile(r"(/[A-Za-z0-9_.-]+)+")
LARGEST = 64 * 2**20
"""Bytes of an archive."""


class BadParcel(ValueError):
    """The run cannot be sent as it is. The message says why."""


@dataclass(frozen=True)
class NodeFolders:
    """Folders of the wrapper on a node. Both belong to the user that scripts run as, and to nobody else."""

    locks: str = "/run/rackwright"
    """The locks that say which run may work. Gone after a reboot, like the processes that hold them."""
    work: str = "/var/lib/rackwright/runs"
    """The scripts while they run. Not below /run, from which many systems execute nothing."""

    def __post_init__(self) -> None:
        for folder in (self.locks, self.work):
            if not FOLDER.fullmatch(folder):
                raise BadParcel(
                    f"{folder!r} is no folder for the script jig: absolute, and letters, digits and _ . - only."
                )


@dataclass(frozen=True)
class Parcel:
    """The command, the archive and the nonce of one run."""

    command: str
    """A line for a shell."""
    archive: bytes
    nonce: str
    """Marks the lines of the wrapper, so that no other line is taken for one."""


def pack(run: Run, scripts: Sequence[Path], folders: NodeFolders, nonce: str) -> Parcel:
    """Return the parcel of a run, with scripts read from files. `nonce` must be new for each."""
    return pack_files(run, _read_scripts(scripts), {}, folders, nonce)


def pack_files(
    run: Run, scripts: Sequence[tuple[str, bytes]], more: Mapping[str, bytes], folders: NodeFolders, nonce: str
) -> Parcel:
    """Return the parcel of a run, with files from memory: scripts in their order, and `more` files to lie beside
    them."""
    files = [(f"scripts/{name}", content, 0o700) for name, content in scripts]
    files += [(f"more/{name}", content, 0o600) for name, content in more.items()]
    files.append(("attrs.json", json.dumps(run.input, ensure_ascii=False, indent=1).encode(errors="replace"), 0o600))
    files.append(("index", "".join(f"{line}\n" for line in attribute_lines(run.input)).encode(errors="replace"), 0o600))
    files.append(("written", b"", 0o600))
    files.append(("lib/environment", _environment(run), 0o600))
    archive = _wrapper_archive() + _archive(files) + bytes(2 * tarfile.BLOCKSIZE)
    if len(archive) > LARGEST:
        raise BadParcel(
            f"Scripts and attributes of role {run.role} for node {run.node} are {len(archive) / 2**20:.0f} MiB;"
            f" at most {LARGEST / 2**20:.0f} can be sent. Let the scripts fetch what is large."
        )
    return Parcel(_command(run.token, nonce, folders, len(archive)), archive, nonce)


def _read_scripts(scripts: Sequence[Path]) -> list[tuple[str, bytes]]:
    named = sorted((path.name, path) for path in scripts)
    for (name, path), (following, other) in zip(named, [*named[1:], ("", Path())], strict=True):
        if name == following:
            raise BadParcel(f"Two scripts of one role have the same name: {path} and {other}. Rename one.")
        if not SCRIPT_NAME.fullmatch(name):
            raise BadParcel(f"Script {path} has an unsafe name; use letters, digits and _ . + - only.")
    return [(name, path.read_bytes()) for name, path in named]


def _environment(run: Run) -> bytes:
    values = {
        "RACKWRIGHT_NODE": run.node,
        "RACKWRIGHT_ROLE": run.role,
        "RACKWRIGHT_RUN": str(run.id),
        "RACKWRIGHT_TRACE": run.trace,
    }
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in values.items()).encode()


def _command(token: int, nonce: str, folders: NodeFolders, size: int) -> str:
    """Return the command: one line in what every shell understands, handed to `sh` whatever the login shell is."""
    locks, work = folders.locks, folders.work
    folder = f"{work}/run-{token}-{nonce}"
    line = (
        f"umask 077; trap 'cd /; rm -rf {folder}; exit 1' HUP INT TERM;"
        f" cd / && mkdir -p {locks} {folder}"
        f" && head -c {size} | tar -x -o -m -f - -C {folder}"
        f" && exec sh {folder}/lib/supervise {token} {nonce} {locks} {work} {folder};"
        f" rm -rf {folder}; echo @{nonce} broken unpack >&2; exit 1"
    )
    return f"exec sh -c {shlex.quote(line)}"


@cache
def _wrapper_archive() -> bytes:
    """Return the part of the archive that is the same for every run."""
    programs = [(f"bin/{path.name}", path.read_bytes(), 0o700) for path in sorted((NODE_FILES / "bin").iterdir())]
    libraries = [(f"lib/{path.name}", path.read_bytes(), 0o600) for path in sorted((NODE_FILES / "lib").iterdir())]
    return _archive(programs + libraries)


def _archive(files: Sequence[tuple[str, bytes, int]]) -> bytes:
    """Return tar entries without the end mark, so that two archives can be joined."""
    target = io.BytesIO()
    for name, content, mode in files:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        entry.mode = mode
        target.write(entry.tobuf(tarfile.USTAR_FORMAT))
        target.write(content)
        target.write(bytes(-len(content) % tarfile.BLOCKSIZE))
    return target.getvalue()
