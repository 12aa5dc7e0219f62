"""Drives one state function as the engine does: arguments validated, check, then apply if something would change."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from rackwright.states.module import Arguments, Check, Context, Result, StateError, StateFunction

TYPES: dict[str, tuple[type, ...]] = {
    "str": (str, int, float),
    "int": (int,),
    "bool": (bool,),
    "float": (float, int),
    "list": (list,),
    "dict": (dict,),
    "mode": (str,),
    "any": (object,),
}


def find(function: str) -> StateFunction:
    module_name, _, name = function.partition(".")
    module = import_module(f"rackwright.states.modules.{module_name}")
    found: dict[str, StateFunction] = {one.name: one for one in module.FUNCTIONS}
    return found[name]


def complete(function: StateFunction, given: dict[str, Any]) -> Arguments:
    """Arguments with types checked and defaults filled in; what is wrong is a StateError."""
    known = {argument.name: argument for argument in function.arguments}
    errors = [f"{name}: no such argument" for name in given if name not in known]
    for name, argument in known.items():
        value = given.get(name)
        if argument.required and value is None:
            errors.append(f"{name}: is required")
        if value is not None and not isinstance(value, TYPES[argument.type]):
            errors.append(f"{name}: is no {argument.type}")
        if value is not None and argument.choices and value not in argument.choices:
            errors.append(f"{name}: must be one of {argument.choices}")
    arguments = {name: given[name] if given.get(name) is not None else one.default for name, one in known.items()}
    if not errors and function.validate is not None:
        errors = function.validate(arguments)
    if errors:
        raise StateError("; ".join(errors))
    return arguments


@dataclass
class Run:
    """One run of states: the tree, its variables and what is shared by the functions called in it."""

    root: Path = Path("/nonexistent")
    variables: dict[str, Any] = field(default_factory=dict)
    once: dict[str, Any] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    lock: Any = field(default_factory=threading.RLock)

    def context(self, test: bool = False) -> Context:
        return Context(
            test,
            self.root,
            self.variables,
            self.once,
            self.lock,
            self.lines.append,
            node={"id": "me", "kernel": "Linux"},
        )

    def check(self, function: str, test: bool = True, **given: Any) -> Check:
        """What a dry run of the state would say."""
        found = find(function)
        return found.check(complete(found, given), self.context(test=test))

    def apply(self, function: str, **given: Any) -> Result:
        """Bring the state about. A second check must find nothing left to do: states are idempotent."""
        found = find(function)
        arguments = complete(found, given)
        context = self.context()
        check = found.check(arguments, context)
        if not check.changes:
            return Result(True, {}, check.comment, check.outputs)
        result = found.apply(arguments, check, context)
        assert isinstance(result, Result)
        if result.ok:
            left = found.check(arguments, context).changes
            assert not left, f"{function} is not idempotent: {left}"
        return result

    def watch(self, function: str, **given: Any) -> Result:
        found = find(function)
        assert found.watch is not None
        result = found.watch(complete(found, given), self.context())
        assert isinstance(result, Result)
        return result

    def batch(self, function: str, *given: dict[str, Any]) -> list[Result]:
        found = find(function)
        assert found.batch is not None
        return found.batch([complete(found, one) for one in given], self.context())
