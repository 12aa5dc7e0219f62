"""The modules there are: found when first named, their arguments validated, their documentation written out.

Built-in modules are files of `modules/`. Extension modules, already verified by whoever brings them, are handed in and
may not take a built-in's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Dict, List, Optional, Tuple

from .module import Argument, StateFunction
from .reading.keywords import ENGINE_KEYWORDS
from .refusal import did_you_mean
from .shelltext import SHELL

MASK = "********"
SHELL_OPTIONS = frozenset(("unless", "onlyif", "check_cmd"))
"""Options of every state that a shell reads."""


class Catalogue:
    """Finds state functions by module and name."""

    def __init__(
        self,
        extensions: Optional[Mapping[str, Sequence[StateFunction]]] = None,
        fetch: Optional[Callable[[str], Optional[Sequence[StateFunction]]]] = None,
    ) -> None:
        """`fetch` is asked for each module that a state names and that is neither built in nor among `extensions`."""
        self._extensions = dict(extensions or {})
        self._fetch = fetch
        self._loaded: Dict[str, Optional[Dict[str, StateFunction]]] = {}

    def modules(self) -> List[str]:
        from pkgutil import iter_modules

        from . import modules

        built_in = [found.name for found in iter_modules(modules.__path__) if not found.name.startswith("_")]
        return sorted({*built_in, *self._extensions})

    def functions(self, module: str) -> Optional[Dict[str, StateFunction]]:
        """The functions of a module, or None if there is no such module."""
        if module not in self._loaded:
            found: Optional[Sequence[StateFunction]] = None
            if module.isidentifier() and not module.startswith("_"):
                name = f"{__package__}.modules.{module}"
                try:
                    found = import_module(name).FUNCTIONS
                except ModuleNotFoundError as error:
                    if error.name != name:
                        raise
            if found is None:
                found = self._extensions.get(module)
            if found is None and self._fetch is not None:
                found = self._fetch(module)
            self._loaded[module] = None if found is None else {function.name: function for function in found}
        return self._loaded[module]

    def find(self, module: str, function: str) -> Tuple[Optional[StateFunction], str]:
        """The function, or None and what to tell the person."""
        functions = self.functions(module)
        if functions is None:
            return None, f"there is no module {module!r}{did_you_mean(module, self.modules())}"
        found = functions.get(function)
        if found is None:
            near = did_you_mean(function, functions) or f"; it has {', '.join(sorted(functions))}"
            return None, f"the module {module!r} has no function {function!r}{near}"
        return found, ""


class Schema:
    """The arguments of one function, ready to validate many states with."""

    def __init__(self, function: StateFunction) -> None:
        self.function = function
        self.arguments: Dict[str, Argument] = {argument.name: argument for argument in function.arguments}
        self.name = self.arguments.get("name") or Argument("name")
        self.secrets = [argument.name for argument in function.arguments if argument.secret]

    def read_by(self, key: str) -> str:
        """Who reads an argument, or an option of the state, as more than a value; empty for nobody."""
        argument = self.arguments.get(key)
        return argument.read_by if argument is not None else SHELL if key in SHELL_OPTIONS else ""

    def validate(
        self, given: Dict[str, Any], waiting: Sequence[str] = ()
    ) -> Tuple[Dict[str, Any], List[Tuple[str, str]]]:
        """The arguments with defaults, and the problems, each with the argument it is about.

        `waiting` names arguments whose value is known only when the state runs.
        """
        problems: List[Tuple[str, str]] = []
        filled: Dict[str, Any] = {}
        for key in given:
            if key not in self.arguments and key != "name":
                problems.append(
                    (key, f"has no argument {key!r}{did_you_mean(key, [*self.arguments, *ENGINE_KEYWORDS])}")
                )
        for name, argument in self.arguments.items():
            value = given.get(name)
            if name in waiting:
                filled[name] = value
            elif value is None:
                if argument.required:
                    problems.append((name, f"needs the argument {name!r}"))
                filled[name] = argument.default
            else:
                filled[name], told = convert_value(value, argument)
                if told:
                    shown = "" if argument.secret else f", not {value!r}"
                    problems.append((name, f"argument {name!r} must be {told}{shown}"))
        filled.setdefault("name", given["name"])
        if not problems and not waiting and self.function.validate is not None:
            problems.extend(("name", told) for told in self.function.validate(filled))
        return filled, problems


def convert_value(value: Any, argument: Argument) -> Tuple[Any, str]:
    """The value in the argument's type, and what it must be if it is not."""
    kind = argument.type
    converted, told = value, ""
    if kind == "str":
        if isinstance(value, int) and not isinstance(value, bool):
            converted = str(value)
        elif not isinstance(value, str):
            told = "text (put it in quotes)"
    elif kind == "int":
        if isinstance(value, bool) or not isinstance(value, int):
            told = "a whole number"
    elif kind == "float":
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            told = "a number"
    elif kind == "bool":
        if not isinstance(value, bool):
            told = "true or false"
    elif kind == "list":
        if not isinstance(value, list):
            converted, told = [value], "a list" if isinstance(value, dict) else ""
    elif kind == "dict":
        converted, told = _convert_mapping(value)
    elif kind == "mode":
        converted, told = _convert_mode(value)
    if not told and argument.choices and converted not in argument.choices:
        told = "one of " + ", ".join(repr(choice) for choice in argument.choices)
    return converted, told


def _convert_mapping(value: Any) -> Tuple[Any, str]:
    """A mapping, also in the form of a list of single ones that Salt's users write for `env`."""
    if isinstance(value, dict):
        return value, ""
    if isinstance(value, list) and all(isinstance(part, dict) for part in value):
        return {key: inner for part in value for key, inner in part.items()}, ""
    return value, "a mapping"


def _convert_mode(value: Any) -> Tuple[Any, str]:
    if value == "keep":
        return value, ""
    text = str(value)
    text = text[2:] if text.startswith("0o") else text
    if isinstance(value, bool) or not text.isdigit() or len(text) > 5 or set(text) - set("01234567"):
        return value, "an octal file mode such as '0644'"
    return f"{int(text, 8):04o}", ""


# Documentation


def format_documentation(catalogue: Catalogue, wanted: str = "") -> Optional[str]:
    """The documentation of everything, of one module or of one function, from docstring and schema; None if unknown."""
    module, _, function = wanted.partition(".")
    if not wanted:
        return "\n".join(line for name in catalogue.modules() for line in _format_summary(catalogue, name))
    functions = catalogue.functions(module)
    if functions is None:
        return None
    if not function:
        return "\n\n".join(_format_function(module, found) for found in functions.values())
    return _format_function(module, functions[function]) if function in functions else None


def _format_summary(catalogue: Catalogue, module: str) -> List[str]:
    functions = catalogue.functions(module) or {}
    return [f"{module}.{name}: {_first_line(function.doc)}" for name, function in functions.items()]


def _first_line(doc: str) -> str:
    return doc.strip().split("\n", 1)[0]


def _format_function(module: str, function: StateFunction) -> str:
    from textwrap import dedent, indent

    first, _, rest = function.doc.strip().partition("\n")
    text = (first + "\n" + dedent(rest)).strip()
    lines = [f"{module}.{function.name}", indent(text, "  "), ""]
    for argument in function.arguments:
        facts = [argument.type]
        if argument.required:
            facts.append("required")
        elif argument.default is not None:
            facts.append(f"default {argument.default!r}")
        if argument.choices:
            facts.append("one of " + ", ".join(repr(choice) for choice in argument.choices))
        if argument.secret:
            facts.append("secret")
        lines.append(f"  {argument.name} ({', '.join(facts)})")
        if argument.help:
            lines.append(f"      {argument.help}")
    if function.watch is not None:
        lines.append("  Reacts to watch and listen.")
    return "\n".join(lines).rstrip()
