"""Registration of the kinds of a package (jigs, hammers): every class in it that assigns `kind = "..."` is one.

The files are read, not imported: listing the kinds of hammers loads no Redfish library. Only the values that the body
of a class assigns as literals are read. A class is imported when an instance of it is to be made.
"""

import ast
import gc
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module


class BadRegistration(Exception):
    """A file declares its kind in a way that cannot be used; the text says which file and why."""


@dataclass(frozen=True)
class Registration:
    """A kind, as the class in its file declares it."""

    kind: str
    module: str
    class_name: str
    base: type
    """The base class of all kinds of the package. It has the values that a kind does not assign."""
    values: Mapping[str, object]
    """The literals that the body of the class assigns, by name."""

    @property
    def full_name(self) -> str:
        return f"{self.module}.{self.class_name}"

    def value(self, name: str) -> object:
        """Return a value that the class assigns, or else that of the base class."""
        return self.values[name] if name in self.values else getattr(self.base, name)

    def load(self) -> type:
        """Import the class; raise BadRegistration if its values are not those that were read from its file."""
        loaded = getattr(import_module(self.module), self.class_name)
        if not (isinstance(loaded, type) and issubclass(loaded, self.base)):
            raise BadRegistration(f"{self.full_name} declares the kind {self.kind!r}, but is no {self.base.__name__}")
        for name in vars(self.base).get("__annotations__", ()):
            if hasattr(self.base, name) and getattr(loaded, name) != self.value(name):
                raise BadRegistration(
                    f"{self.full_name} must assign {name} itself, as a literal: it is read before import"
                )
        return loaded


def find_kinds(package: str, base: type) -> tuple[Registration, ...]:
    """Return all kinds of the package, sorted by name; raise BadRegistration if two classes declare the same one."""
    # The path is part of the cache's key: a package whose path was extended has its new folders searched, too.
    return _find_on_path(package, base, tuple(import_module(package).__path__))


@cache
def _find_on_path(package: str, base: type, path: tuple[str, ...]) -> tuple[Registration, ...]:
    by_kind: dict[str, Registration] = {}
    for module in pkgutil.iter_modules(path, f"{package}."):
        for registration in _registrations_in(module, base):
            first = by_kind.setdefault(registration.kind, registration)
            if first is not registration:
                raise BadRegistration(
                    f"{first.full_name} and {registration.full_name} both declare the kind {registration.kind!r}: "
                    "rename one"
                )
    return tuple(by_kind[kind] for kind in sorted(by_kind))


def _registrations_in(module: pkgutil.ModuleInfo, base: type) -> Iterator[Registration]:
    for statement in _parse(_source_of(module)).body:
        if isinstance(statement, ast.ClassDef) and "kind" in (values := dict(_assignments(statement))):
            kind = _literal(values["kind"])
            if not isinstance(kind, str):
                raise BadRegistration(f"{module.name}.{statement.name}: its kind must be written as a text in quotes")
            literals = {name: value for name in values if (value := _literal(values[name])) is not _NO_LITERAL}
            yield Registration(kind, module.name, statement.name, base, literals)


def _parse(source: str) -> ast.Module:
    """Parse a file while no garbage is collected.

    A finalizer that fails meanwhile has its traceback printed, for which Python 3.11 parses, too: then the parsing here
    ends with "SystemError: AST constructor recursion depth mismatch".
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(source)
    finally:
        if was_enabled:
            gc.enable()


def _source_of(module: pkgutil.ModuleInfo) -> str:
    spec = module.module_finder.find_spec(module.name, None)
    get_source = getattr(spec.loader, "get_source", None) if spec else None
    source = get_source(module.name) if get_source else None
    if not isinstance(source, str):
        raise BadRegistration(f"the source of {module.name} cannot be read, so its kinds are not known")
    return source


def _assignments(class_definition: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    """Yield the plain names that the body of a class assigns, each with the expression of its value."""
    for statement in class_definition.body:
        if isinstance(statement, ast.Assign):
            yield from ((target.id, statement.value) for target in statement.targets if isinstance(target, ast.Name))
        elif (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and statement.value is not None
        ):
            yield statement.target.id, statement.value


_NO_LITERAL = object()


def _literal(value: ast.expr) -> object:
    try:
        return ast.literal_eval(value)
    except ValueError:
        return _NO_LITERAL
