"""The options that every state may have, whatever its function: how they are checked and what they mean.

`order` is used by the graph; here are `unless`, `onlyif`, `creates`, `check_cmd`, `retry`, `failhard`, `parallel`, and
the two that only a mesh run heeds: `sync` and `serialize`.
"""

from __future__ import annotations

import os
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from .combine import State
from .module import Arguments, Command
from .refusal import Problem, did_you_mean
from .shelltext import environment_of

DEFAULT_SHELL = "/bin/sh"


class Retry(NamedTuple):
    """How often a state is tried, until which result, and how many seconds apart (splay: random seconds on top)."""

    attempts: int = 2
    until: bool = True
    interval: int = 30
    splay: int = 0


_RETRY_TYPES: Dict[str, type] = {"attempts": int, "until": bool, "interval": int, "splay": int}


def parse_retry(options: Dict[str, Any]) -> Optional[Retry]:
    """Return how a state is retried; None if it is not. `true` is twice, half a minute apart."""
    value = options.get("retry")
    if value is None:
        return None
    if value is False:
        return Retry(attempts=0)
    return Retry(**value) if isinstance(value, dict) else Retry()


def check_options(state: State) -> Iterator[Problem]:
    """Return all problems of a state's options."""
    for key, message in _find_problems(state):
        file, line = state.lines.get(key, (state.file, state.line))
        yield Problem(f"{state.id!r}: {key}: {message}", file, line)


def _find_problems(state: State) -> Iterator[Tuple[str, str]]:
    options = state.options
    order = state.order
    if isinstance(order, bool) or not (order is None or isinstance(order, (int, float)) or order in ("first", "last")):
        yield "order", f"takes a number, `first` or `last`, not {order!r}"
    for key in ("unless", "onlyif", "check_cmd", "creates"):
        if key in options:
            entries = _as_list(options[key])
            if not all(isinstance(entry, str) for entry in entries):
                yield (
                    key,
                    "takes " + ("paths" if key == "creates" else "shell commands") + ": one text or a list of them",
                )
            elif key == "check_cmd" and not entries:
                yield key, "is empty"
    for key in ("failhard", "parallel", "no_log", "sync"):
        if key in options and not isinstance(options[key], bool):
            yield key, f"is true or false, not {options[key]!r}"
    serialize = options.get("serialize", 1)
    if isinstance(serialize, bool) or not isinstance(serialize, int) or serialize < 1:
        yield "serialize", f"is how many servers may run it at a time, from 1 on, not {serialize!r}"
    if "retry" in options:
        yield from (("retry", message) for message in _find_retry_problems(options["retry"]))


def _find_retry_problems(retry: Any) -> Iterator[str]:
    if isinstance(retry, bool):
        return
    if not isinstance(retry, dict):
        yield "takes true, false or a mapping of attempts, until, interval and splay"
        return
    for key, value in retry.items():
        kind = _RETRY_TYPES.get(str(key))
        if kind is None:
            yield f"has no {key!r}{did_you_mean(str(key), _RETRY_TYPES)}"
        elif kind is bool and not isinstance(value, bool):
            yield f"{key} must be true or false, not {value!r}"
        elif kind is int and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            yield f"{key} must be a whole number from 0 on, not {value!r}"


def _as_list(value: Any) -> List[Any]:
    return value if isinstance(value, list) else [value]


class Condition(NamedTuple):
    """One of `onlyif`, `unless` and `creates` with its commands or paths."""

    option: str
    commands: List[str]


def conditions(options: Dict[str, Any]) -> List[Condition]:
    return [Condition(key, _as_list(options[key])) for key in ("onlyif", "unless", "creates") if key in options]


def creates_skip_reason(paths: List[str], alone: bool) -> Optional[str]:
    """Return why `creates` skips the state; None if a path is still to be created."""
    if not all(os.path.exists(path) for path in paths):
        return None
    return f"{paths[0]} exists" if alone else "All files in creates exist"


def condition_command(text: str, arguments: Arguments, use_arguments: bool = True) -> Command:
    """Return the shell command of a condition.

    With `use_arguments` it runs like the state's own command: same directory, user, environment and timeout.
    """
    shell = arguments.get("shell") if use_arguments else None
    argv = (shell if isinstance(shell, str) else DEFAULT_SHELL, "-c", text)
    outputs = environment_of(text)
    if not use_arguments:
        return Command(argv, merge_environment(outputs))
    env, cwd, user = arguments.get("env"), arguments.get("cwd"), arguments.get("runas")
    timeout, umask = arguments.get("timeout"), arguments.get("umask")
    return Command(
        argv,
        merge_environment({**(env if isinstance(env, dict) else {}), **outputs}),
        cwd if isinstance(cwd, str) else None,
        user if isinstance(user, str) else None,
        int(umask, 8) if isinstance(umask, str) and umask != "keep" else None,
        timeout=float(timeout) if isinstance(timeout, (int, float)) and not isinstance(timeout, bool) else None,
    )


def merge_environment(additions: Optional[Dict[str, Any]]) -> Optional[Dict[str, str]]:
    """Return the engine's environment with additions, or None without any. A value of None or false removes a name."""
    if not additions:
        return None
    merged = dict(os.environ)
    for key, value in additions.items():
        if value is None or value is False:
            merged.pop(str(key), None)
        else:
            merged[str(key)] = str(value)
    return merged
