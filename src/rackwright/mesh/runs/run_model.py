"""What a run across servers is made of: the signed request, its targets, a task for each, and where each is kept.

Values and key names only. The request is what an operator signs, and all that a target believes: which states (by the
digest of the whole tree), on whom, in which mode, until when.
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
"""How far the clock of whoever signed may be ahead of ours."""


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


def pointers(target: str) -> str:
    """Below this a target finds the runs that want it."""
    return f"/rackwright/tasks/{target}/"


class TaskState(enum.StrEnum):
    """Only append: these words are read by others."""

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
    """One target's part of a run. It is run once, or it ends as lost; it is never run again."""

    run: str
    target: str
    state: TaskState = TaskState.PENDING
    session: int = 0
    """The start of the agent that runs it."""
    why: str = ""
    summary: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    proof: str = ""
    """The target's signature, for an end that only the target can tell (`CLAIMED`)"""

    def dump(self) -> bytes:
        content = {"kind": "task", **asdict(self)}
        return json.dumps(content if self.proof else {key: content[key] for key in content if key != "proof"}).encode()

    def claim(self) -> bytes:
        """What its proof is for."""
        return replace(self, proof="").dump()


CLAIMED = frozenset({TaskState.DONE, TaskState.FAILED, TaskState.REFUSED})
"""What a target says of itself, and nobody else can; that it was lost or cancelled may be said by others."""
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


def place_in_run(key: str) -> tuple[str, str, str]:
    """The run, the kind and the rest of a key below `run_events`; empty for another key."""
    run, _, rest = key.removeprefix(f"{EVENTS}run/").partition("/") if key.startswith(f"{EVENTS}run/") else ("", "", "")
    kind, _, place = rest.partition("/")
    return run, kind, place


@dataclass(frozen=True)
class Targets:
    """Who is meant: any of the names (with globs), and all of the labels and facts."""

    names: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (self.names or self.labels or self.facts):
            raise BadRequest("say on which servers: --on NAME (with * and ?), --label KEY=VALUE or --fact KEY=VALUE")

    def match(self, name: str, labels: Mapping[str, str], facts: Mapping[str, Any]) -> bool:
        if self.names and not any(fnmatch.fnmatchcase(name, pattern) for pattern in self.names):
            return False
        given = (*((labels, *pair) for pair in self.labels.items()), *((facts, *pair) for pair in self.facts.items()))
        return all(key in held and fnmatch.fnmatchcase(str(held[key]), wanted) for held, key, wanted in given)


def read_targets(content: Mapping[str, Any]) -> Targets:
    return Targets(tuple(content["names"]), dict(content["labels"]), dict(content["facts"]))


@dataclass(frozen=True)
class Request:
    id: str
    cluster: str
    """Fingerprint of the CA: a request signed for one cluster is none in another."""
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
    """Their values, readable by the targets alone"""
    modules: list[str] = field(default_factory=list)
    """Web folders that have extension modules"""
    pins: list[dict[str, str]] = field(default_factory=list)
    """The git commits the tree was taken from"""
    scope: str = ""
    """Of runs that share one, only the one with the highest token goes on (`run_end.py`)"""
    token: int = 0
    lines: int = 0
    """How many characters of what its states print while they run are told; the rest is left out"""

    def dump(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    def all_but_sealed(self) -> bytes:
        """What its sealed values are bound to: in any other request they do not open."""
        return replace(self, sealed={}).dump().encode()


def read_request(text: str) -> Request:
    try:
        content = json.loads(text)
        return Request(targets=read_targets(content.pop("targets")), **content)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise BadRequest(f"the run's request cannot be read: {problem}") from problem


# The tree of states, as it travels


def pack_tree(root: Path) -> bytes:
    """Every file of a tree; the same tree gives the same bytes."""
    files: dict[str, Any] = {}
    size = 0
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        if any(part.startswith(".") for part in relative.parts) or not path.is_file():
            continue
        # Or a repository could have any file of the server that packs it, such as its keys, put into the datastore.
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
    """The files, if these are the bytes that were signed."""
    if hashlib.sha256(packed).hexdigest() != digest:
        raise BadRequest("the states are not those that were signed: their sha256 differs")
    decompressor = zlib.decompressobj()
    content = decompressor.decompress(packed, 2 * MAX_TREE)
    if decompressor.unconsumed_tail:
        raise BadRequest("the states unpack to more than a tree of states may be")
    return dict(json.loads(content))


def digest_of(packed: bytes) -> str:
    return hashlib.sha256(packed).hexdigest()


def chunks(packed: bytes) -> list[bytes]:
    return [packed[start : start + CHUNK] for start in range(0, len(packed), CHUNK)]


def gate_name(function: str, id: str, twin: int) -> str:
    """The same state has the same gate on every server, also where its name differs: by its ID, and by its place among
    those that share the ID.
    """
    return hashlib.sha256(f"{function}\0{id}\0{twin}".encode()).hexdigest()[:24]
