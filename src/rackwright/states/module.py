"""The one shape of every state function: check reads the world and says what would change, apply does it.

A module is one file in `modules/` (or a verified extension) with `FUNCTIONS = (StateFunction(...), ...)`;
`modules/test.py` has the smallest ones, to copy. Nothing here knows of requisites, ordering or files of states: that
is the engine's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

Arguments = Dict[str, Any]
"""A function's arguments, validated and with defaults filled in. `name` is always there."""


class StateError(Exception):
    """The state cannot be brought about; the text says why and what to do. It fails this state and no other."""


@dataclass(frozen=True)
class Argument:
    """One argument of a state function, checked before anything is run."""

    name: str
    type: str = "str"
    """str, int, bool, float, list, dict, mode (an octal file mode) or any"""
    help: str = ""
    required: bool = False
    default: Any = None
    choices: Tuple[Any, ...] = ()
    secret: bool = False


@dataclass(frozen=True)
class Resource:
    """Something a state writes. Two states that write one resource are kept in file order."""

    kind: str
    key: str


@dataclass(frozen=True)
class Check:
    """What would change. No changes means that the world is already as wanted."""

    changes: Dict[str, Any]
    comment: str
    outputs: Dict[str, Any] = field(default_factory=dict)
    found: Any = None
    """What check read of the world and apply should not have to read again."""


@dataclass(frozen=True)
class Result:
    """What was done."""

    ok: bool
    changes: Dict[str, Any]
    comment: str
    outputs: Dict[str, Any] = field(default_factory=dict)
    """More to refer to as ${ID.key}; the changes' own keys are there anyway (`${ID.stdout}`)."""


@dataclass
class Context:
    """What a state function may use of the run around it."""

    test: bool
    """A dry run: the engine calls check only; functions read it where a check would need a costlier look."""
    root: Path
    """The state tree, for `source:` arguments."""
    variables: Dict[str, Any]
    once: Dict[str, Any]
    """Facts gathered once a run and shared by all states of it (the list of installed packages). Guard with `lock`."""
    lock: Any
    """A threading.RLock for `once` and for what may not run twice at a time (apt)."""
    log: Callable[[str], None]
    """A line of live output of the running state."""


def nothing_written(arguments: Arguments) -> List[Resource]:
    return []


@dataclass(frozen=True)
class StateFunction:
    """One state function, for example `file.managed`; `name` is the part after the dot."""

    name: str
    doc: str
    arguments: Tuple[Argument, ...]
    check: Callable[[Arguments, Context], Check]
    apply: Callable[[Arguments, Check, Context], Result]
    watch: Optional[Callable[[Arguments, Context], Result]] = None
    """Salt's mod_watch: called when a watched state changed and this one did not."""
    validate: Optional[Callable[[Arguments], List[str]]] = None
    """Rules across arguments; each string is an error for the person. Runs before anything is touched."""
    resources: Callable[[Arguments], List[Resource]] = nothing_written
    batch: Optional[Callable[[Sequence[Arguments], Context], List[Result]]] = None
    """Brings about several states of this function at once, one result each (`genius` mode)."""
