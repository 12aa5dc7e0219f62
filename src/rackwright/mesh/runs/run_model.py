"""The values of a run across servers: the signed request, its targets, a task for each target, and their etcd keys.

Values and key names only. An operator signs the request, and a target believes nothing else: which states (by the
digest of their tree), on which servers, in which mode, until when.
"""

import enum
import fnmatch
import hashlib
import json
import zlib
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rackwright.mesh.bounded_json import read_object
from rackwright.mesh.errors import BadRequest, Unreadable

EVENTS = "/rackwright/events/"
CLUSTER_EVENTS = f"{EVENTS}cluster/"
OPEN = "/rackwright/open/"
RUNS = "/rackwright/runs/"
FACTS = "/rackwright/facts/"
MODULES = "/rackwright/modules"
TRUST = "/rackwright/trust"
CHUNK = 512 * 1024
MAX_TREE = 64 * 1024 * 1024
EXPIRES_SECONDS = 3600
CLOCK_SECONDS = 300
"""How far the clock of the signer may be ahead of this server's clock."""


def run_events(run: str) -> str:
    return f"{EVENTS}run/{run}/"


def task_key(run: str, target: str) -> str:
    return f"{run_events(run)}task/{target}"


def state_key(run: str, target: str, number: int) -> str:
    return f"{run_events(run)}state/{target}/{number:08d}"


def gate_prefix(run: str, gate: str) -> str:
    return f"{run_events(run)}gate/{gate}/"


def alive_key(run: str, target: str) -> str:
    return f"/rackwright/alive/{run}/{target}"


def task_pointer_prefix(target: str) -> str:
    """Return the key prefix below which a target finds the runs that it has a task in."""
    return f"/rackwright/tasks/{target}/"


class TaskState(enum.StrEnum):
    """The states of a task. Other servers and programs read these words: only append."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"
    LOST = "lost"
    CANCELLED = "cancelled"


FINAL = frozenset({TaskState.DONE, TaskState.FAILED, TaskState.REFUSED, TaskState.LOST, TaskState.CANCELLED})


@dataclass(frozen=True)
class Task:
    """A target's part of a run. A task is run once, or ends as lost; it is never run again."""

    run: str
    target: str
    state: TaskState = TaskState.PENDING
    session: int = 0
    """The session number of the agent that runs the task: which start of the agent it is"""
    why: str = ""
    summary: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    proof: str = ""
    """The target's signature, for a final state that only the target can report (`SIGNED_BY_TARGET`)"""

    def dump(self) -> bytes:
        content = {"kind": "task", **asdict(self)}
        return json.dumps(content if self.proof else {key: content[key] for key in content if key != "proof"}).encode()

    def signed_content(self) -> bytes:
        """Return the bytes that `proof` signs."""
        return replace(self, proof="").dump()


SIGNED_BY_TARGET = frozenset({TaskState.DONE, TaskState.FAILED, TaskState.REFUSED})
"""Final states that only the target itself may report; that a task was lost or cancelled may be reported by others."""
_TASK_TYPES: dict[str, Any] = {"run": str, "target": str, "session": int, "why": str, "summary": dict}
_TASK_TYPES |= {"seconds": (int, float), "proof": str}


def read_task(value: bytes) -> Task:
    content = read_object(value, "a task")
    try:
        task = Task(**{**_without(content, "kind"), "state": TaskState(content["state"])})
    except (ValueError, KeyError, TypeError) as problem:
        raise Unreadable("a task in the datastore cannot be read") from problem
    if not all(isinstance(getattr(task, name), kind) for name, kind in _TASK_TYPES.items()):
        raise Unreadable("a task in the datastore has values of the wrong kind")
    return task


def _without(content: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in content.items() if key != name}


def split_run_key(key: str) -> tuple[str, str, str]:
    """Split a key below `run_events` into run, kind and the remaining path; three empty texts for any other key."""
    prefix = f"{EVENTS}run/"
    run, _, below_run = key.removeprefix(prefix).partition("/") if key.startswith(prefix) else ("", "", "")
    kind, _, path = below_run.partition("/")
    return run, kind, path


@dataclass(frozen=True)
class Targets:
    """Which servers a run is for: those that match any of the names (with globs) and all of the labels and facts."""

    names: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (self.names or self.labels or self.facts):
            raise BadRequest("say on which servers: --on NAME (with * and ?), --label KEY=VALUE or --fact KEY=VALUE")

    def match(self, name: str, labels: Mapping[str, str], facts: Mapping[str, Any]) -> bool:
        if self.names and not any(fnmatch.fnmatchcase(name, pattern) for pattern in self.names):
            return False
        patterns = ((labels, self.labels), (facts, self.facts))
        return all(
            key in values and fnmatch.fnmatchcase(str(values[key]), pattern)
            for values, required in patterns
            for key, pattern in required.items()
        )


def read_targets(content: Mapping[str, Any]) -> Targets:
    return Targets(tuple(content["names"]), dict(content["labels"]), dict(content["facts"]))


@dataclass(frozen=True)
class RunRequest:
    """What an operator signs: which states to run, on which servers, and how."""

    id: str
    cluster: str
    """Fingerprint of the CA: a request signed for a cluster is not valid in another cluster"""
    created: int
    expires: int
    tree: str
    """sha256 of the packed tree"""
    targets: Targets
    sls: list[str] | None = None
    mode: str = "ansible"
    test: bool = False
    parallel: int = 0
    variables: dict[str, Any] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)
    """Names of variables that are never shown"""
    sealed: dict[str, Any] = field(default_factory=dict)
    """The values of the secrets, readable by the targets alone"""
    modules: list[str] = field(default_factory=list)
    """URLs of web folders with extension modules"""
    pins: list[dict[str, str]] = field(default_factory=list)
    """The git commits the tree was taken from"""
    scope: str = ""
    """Of the runs that share a scope, only the run with the highest token goes on (`run_end.py`)"""
    token: int = 0
    lines: int = 0
    """How many characters of what the states print while they run are sent as events; the remainder is left out"""

    def dump(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    def dump_without_sealed(self) -> bytes:
        """Return what the sealed values are bound to: they cannot be unsealed with any other request."""
        return replace(self, sealed={}).dump().encode()


def read_request(text: str) -> RunRequest:
    try:
        content = json.loads(text)
        return RunRequest(targets=read_targets(content.pop("targets")), **content)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise BadRequest(f"the run's request cannot be read: {problem}") from problem


# The tree of states, packed


def pack_tree(root: Path) -> bytes:
    """Pack every file of a tree of states. The same tree always gives the same bytes."""
    files: dict[str, Any] = {}
    size = 0
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        if any(part.startswith(".") for part in relative.parts) or not path.is_file():
            continue
        # Without this a repository could put any file of the packing server, such as its keys, into the datastore.
        if not path.resolve().is_relative_to(root.resolve()):
            raise BadRequest(f"{relative} is a link out of {root}; put the file itself there")
        size += path.stat().st_size
        if size > MAX_TREE:
            raise BadRequest(f"{root} has more than {MAX_TREE >> 20} MB of files; keep what is no state elsewhere")
        content = path.read_bytes()
        mode = 0o700 if path.stat().st_mode & 0o100 else 0o600
        files[relative.as_posix()] = {"base64": b64encode(content).decode(), "mode": mode}
    return zlib.compress(json.dumps(files, sort_keys=True).encode(), 6)


def unpack_tree(packed: bytes, digest: str) -> dict[str, Any]:
    """Return the files of a packed tree. Raises BadRequest if these are not the bytes that were signed."""
    if hashlib.sha256(packed).hexdigest() != digest:
        raise BadRequest("the states are not those that were signed: their sha256 differs")
    decompressor = zlib.decompressobj()
    content = decompressor.decompress(packed, 2 * MAX_TREE)
    if decompressor.unconsumed_tail:
        raise BadRequest("the states unpack to more than a tree of states may be")
    return dict(json.loads(content))


def tree_digest(packed: bytes) -> str:
    return hashlib.sha256(packed).hexdigest()


def split_tree(packed: bytes) -> list[bytes]:
    return [packed[start : start + CHUNK] for start in range(0, len(packed), CHUNK)]


def gate_name(function: str, id: str, twin: int) -> str:
    """Return the name of a state's gate, which is the same on every server, also where the state's name differs.

    It derives from the state's ID and from its position (`twin`) among the states that share the ID.
    """
    return hashlib.sha256(f"{function}\0{id}\0{twin}".encode()).hexdigest()[:24]
