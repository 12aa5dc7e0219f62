"""The catalogue of state modules: loads them by name, validates their arguments and formats their documentation.

A module is loaded when a state first names it. Built-in modules are files of `modules/`. Extension modules are handed
in by the caller, who has verified them; they may not have the name of a built-in module.
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
"""The options of every state that are shell commands."""


class Catalogue:
    """The state functions of the built-in and extension modules, by module and name."""

    def __init__(
        self,
        extensions: Optional[Mapping[str, Sequence[StateFunction]]] = None,
        fetch: Optional[Callable[[str], Optional[Sequence[StateFunction]]]] = None,
    ) -> None:
        """`fetch` is called for each module that a state names and that is neither built in nor among `extensions`."""
        self._extensions = dict(extensions or {})
        self._fetch = fetch
        self._loaded: Dict[str, Optional[Dict[str, StateFunction]]] = {}

    def module_names(self) -> List[str]:
        """Return the names of all built-in modules and of the extensions that were handed in."""
        from pkgutil import iter_modules

        from . import modules

        built_in = [module.name for module in iter_modules(modules.__path__) if not module.name.startswith("_")]
        return sorted({*built_in, *self._extensions})

    def functions(self, module: str) -> Optional[Dict[str, StateFunction]]:
        """Return the functions of a module by name; None if there is no such module."""
        if module not in self._loaded:
            module_functions: Optional[Sequence[StateFunction]] = None
            if module.isidentifier() and not module.startswith("_"):
                name = f"{__package__}.modules.{module}"
                try:
                    module_functions = import_module(name).FUNCTIONS
                except ModuleNotFoundError as error:
                    if error.name != name:
                        raise
            if module_functions is None:
                module_functions = self._extensions.get(module)
            if module_functions is None and self._fetch is not None:
                module_functions = self._fetch(module)
            self._loaded[module] = (
                None if module_functions is None else {function.name: function for function in module_functions}
            )
        return self._loaded[module]

    def find(self, module: str, function: str) -> Tuple[Optional[StateFunction], str]:
        """Return a state function, or None and the error text for the person."""
        functions = self.functions(module)
        if functions is None:
            return None, f"there is no module {module!r}{did_you_mean(module, self.module_names())}"
        state_function = functions.get(function)
        if state_function is None:
            suggestion = did_you_mean(function, functions) or f"; it has {', '.join(sorted(functions))}"
            return None, f"the module {module!r} has no function {function!r}{suggestion}"
        return state_function, ""


class Schema:
    """The arguments of one state function, prepared for validating many states."""

    def __init__(self, function: StateFunction) -> None:
        self.function = function
        self.arguments: Dict[str, Argument] = {argument.name: argument for argument in function.arguments}
        self.name = self.arguments.get("name") or Argument("name")
        self.secrets = [argument.name for argument in function.arguments if argument.secret]

    def read_by(self, key: str) -> str:
        """Return what reads an argument or option as more than a value (a shell, a template); empty if nothing does."""
        argument = self.arguments.get(key)
        return argument.read_by if argument is not None else SHELL if key in SHELL_OPTIONS else ""

    def validate(
        self, values: Dict[str, Any], deferred: Sequence[str] = ()
    ) -> Tuple[Dict[str, Any], List[Tuple[str, str]]]:
        """Return the arguments with defaults, and the problems, each with the name of its argument.

        `deferred` names arguments whose value is known only when the state runs.
        """
        problems: List[Tuple[str, str]] = []
        arguments: Dict[str, Any] = {}
        for key in values:
            if key not in self.arguments and key != "name":
                problems.append(
                    (key, f"has no argument {key!r}{did_you_mean(key, [*self.arguments, *ENGINE_KEYWORDS])}")
                )
        for name, argument in self.arguments.items():
            value = values.get(name)
            if name in deferred:
                arguments[name] = value
            elif value is None:
                if argument.required:
                    problems.append((name, f"needs the argument {name!r}"))
                arguments[name] = argument.default
            else:
                arguments[name], expected = convert_value(value, argument)
                if expected:
                    shown = "" if argument.secret else f", not {value!r}"
                    problems.append((name, f"argument {name!r} must be {expected}{shown}"))
        arguments.setdefault("name", values["name"])
        if not problems and not deferred and self.function.validate is not None:
            problems.extend(("name", problem) for problem in self.function.validate(arguments))
        return arguments, problems


def convert_value(value: Any, argument: Argument) -> Tuple[Any, str]:
    """Return the value in the argument's type, and what the value must be if it cannot be converted."""
    type_name = argument.type
    converted, expected = value, ""
    if type_name == "str":
        if isinstance(value, int) and not isinstance(value, bool):
            converted = str(value)
        elif not isinstance(value, str):
            expected = "text (put it in quotes)"
    elif type_name == "int":
        if isinstance(value, bool) or not isinstance(value, int):
            expected = "a whole number"
    elif type_name == "float":
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            expected = "a number"
    elif type_name == "bool":
        if not isinstance(value, bool):
            expected = "true or false"
    elif type_name == "list":
        if not isinstance(value, list):
            converted, expected = [value], "a list" if isinstance(value, dict) else ""
    elif type_name == "dict":
        converted, expected = _convert_mapping(value)
    elif type_name == "mode":
        converted, expected = _convert_mode(value)
    if not expected and argument.choices and converted not in argument.choices:
        expected = "one of " + ", ".join(repr(choice) for choice in argument.choices)
    return converted, expected


def _convert_mapping(value: Any) -> Tuple[Any, str]:
    """Convert a mapping, also in the form of a list of one-key mappings that users of Salt write for `env`."""
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


def format_documentation(catalogue: Catalogue, topic: str = "") -> Optional[str]:
    """Return the documentation of all modules, one module or one function; None if the topic is unknown.

    The text comes from the functions' docstrings and argument tables.
    """
    module, _, function = topic.partition(".")
    if not topic:
        return "\n".join(line for name in catalogue.module_names() for line in _format_summary(catalogue, name))
    functions = catalogue.functions(module)
    if functions is None:
        return None
    if not function:
        return "\n\n".join(_format_function(module, state_function) for state_function in functions.values())
    return _format_function(module, functions[function]) if function in functions else None


def _format_summary(catalogue: Catalogue, module: str) -> List[str]:
    functions = catalogue.functions(module) or {}
    return [f"{module}.{name}: {_first_line(function.doc)}" for name, function in functions.items()]


def _first_line(doc: str) -> str:
    return doc.strip().split("\n", 1)[0]


def _format_function(module: str, function: StateFunction) -> str:
    from textwrap import dedent, indent

    first_line, _, body = function.doc.strip().partition("\n")
    text = (first_line + "\n" + dedent(body)).strip()
    lines = [f"{module}.{function.name}", indent(text, "  "), ""]
    for argument in function.arguments:
        details = [argument.type]
        if argument.required:
            details.append("required")
        elif argument.default is not None:
            details.append(f"default {argument.default!r}")
        if argument.choices:
            details.append("one of " + ", ".join(repr(choice) for choice in argument.choices))
        if argument.secret:
            details.append("secret")
        lines.append(f"  {argument.name} ({', '.join(details)})")
        if argument.help:
            lines.append(f"      {argument.help}")
    if function.watch is not None:
        lines.append("  Reacts to watch and listen.")
    return "\n".join(lines).rstrip()
