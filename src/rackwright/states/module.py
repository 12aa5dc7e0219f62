"""The interface of state modules: `StateFunction` and the values that go in and out of its check and apply.

Check reads the machine and says what would change, apply changes it. A module is one file in `modules/` (or a verified
extension) with `FUNCTIONS = (StateFunction(...), ...)`; `modules/test.py` has the smallest functions, to copy. Nothing
here knows of requisites, ordering or state files: the engine does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple, Union

Arguments = Dict[str, Any]
"""A function's arguments, validated and with defaults filled in. `name` is always there."""


class StateError(Exception):
    """The state cannot be applied; the text says why and what to do. It fails this state and no other."""


@dataclass(frozen=True)
class Argument:
    """One argument of a state function, checked before anything is run."""

    name: str
    type: str = "str"
    """str, int, bool, float, list, dict, any, or mode: an octal file mode, which arrives as a str such as "0644" """
    help: str = ""
    required: bool = False
    default: Any = None
    choices: Tuple[Any, ...] = ()
    secret: bool = False
    read_by: str = ""
    """What reads it as more than a value (see `shelltext.py`); outputs of other states stay values there"""


@dataclass(frozen=True)
class Resource:
    """Something a state writes. Two states that write one resource are kept in file order."""

    kind: str
    key: str


@dataclass(frozen=True)
class Check:
    """What would change. No changes means that the machine is already as the state wants it."""

    changes: Dict[str, Any]
    comment: str
    outputs: Dict[str, Any] = field(default_factory=dict)
    found: Any = None
    """What check has read of the machine, so that apply does not have to read it again."""


@dataclass(frozen=True)
class Result:
    """What apply or watch has done."""

    ok: bool
    changes: Dict[str, Any]
    comment: str
    outputs: Dict[str, Any] = field(default_factory=dict)
    """More to refer to as ${ID.key}; the changes' own keys are there anyway (`${ID.stdout}`)."""


@dataclass(frozen=True)
class Command:
    """A program for the engine to run, returned by `apply` or `watch` in place of a result.

    It costs no thread: the engine starts the program, waits for it among all the others, and hands its end to the
    function's `settle`.
    """

    argv: Tuple[str, ...]
    env: Optional[Dict[str, str]] = None
    """The whole environment; None is the engine's own."""
    cwd: Optional[str] = None
    user: Optional[str] = None
    umask: Optional[int] = None
    stdin: bytes = b""
    timeout: Optional[float] = None
    """Seconds until the program and its process group are killed."""


@dataclass(frozen=True)
class Finished:
    """A program that has ended (or could not start: then `pid` is 0 and `stderr` says why)."""

    status: int
    stdout: str
    stderr: str
    pid: int
    timed_out: bool = False


@dataclass
class Context:
    """What a state function may use of the run around it."""

    test: bool
    """True in a dry run: the engine calls check only; functions read it where a check would have to read more."""
    root: Path
    """The state tree, for `source:` arguments."""
    variables: Dict[str, Any]
    once: Dict[str, Any]
    """Facts gathered once a run and shared by all states of it (the list of installed packages). Guard with `lock`."""
    lock: Any
    """A threading.RLock for `once` and for what may not run twice at a time (apt)."""
    log: Callable[[str], None]
    """A line of live output of the running state."""
    changed: Tuple[str, ...] = ()
    """For `watch` only: the watched states that changed, each as `module: ID`."""
    node: Dict[str, Any] = field(default_factory=dict)
    """The facts that the state files were rendered with: templates of files see the same."""


def nothing_written(arguments: Arguments) -> List[Resource]:
    return []


@dataclass(frozen=True)
class StateFunction:
    """One state function, for example `file.managed`; `name` is the part after the dot."""

    name: str
    doc: str
    arguments: Tuple[Argument, ...]
    check: Callable[[Arguments, Context], Check]
    apply: Callable[[Arguments, Check, Context], Union[Result, Command]]
    """Called only if check found changes."""
    watch: Optional[Callable[[Arguments, Context], Union[Result, Command]]] = None
    """Salt's mod_watch: called when a watched state changed and this one did not; never in a dry run."""
    validate: Optional[Callable[[Arguments], List[str]]] = None
    """Rules across arguments; each string is an error for the person. Runs before anything is touched."""
    resources: Callable[[Arguments], List[Resource]] = nothing_written
    batch: Optional[Callable[[Sequence[Arguments], Context], List[Result]]] = None
    """Applies several states of this function at once and returns one result for each (`genius` mode)."""
    settle: Optional[Callable[[Arguments, Finished], Result]] = None
    """Reads the end of the command that `apply` or `watch` returned. Functions that return none need none."""
    inline: bool = False
    """True if it never waits for another process: then it is run without a thread of its own."""
