"""Finding the kinds of a package: every class of it that assigns itself a `kind = "..."` is one.

The files are read, not imported: listing the kinds of hammers loads no Redfish library. What is read of a class are the
values that its body assigns as literals. A class is imported when something is to be made of it.
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
    """A kind as its file declares it."""

    kind: str
    module: str
    class_name: str
    base: type
    """The class that all kinds of the package are made from. What a kind does not assign is as it is there."""
    values: Mapping[str, object]
    """What the body of the class assigns, as far as it is literal."""

    @property
    def place(self) -> str:
        return f"{self.module}.{self.class_name}"

    def value(self, name: str) -> object:
        return self.values[name] if name in self.values else getattr(self.base, name)

    def load(self) -> type:
        """Import the class; BadRegistration if it is not what was read of it."""
        loaded = getattr(import_module(self.module), self.class_name)
        if not (isinstance(loaded, type) and issubclass(loaded, self.base)):
            raise BadRegistration(f"{self.place} declares the kind {self.kind!r}, but is no {self.base.__name__}")
        for name in vars(self.base).get("__annotations__", ()):
            if hasattr(self.base, name) and getattr(loaded, name) != self.value(name):
                raise BadRegistration(f"{self.place} must assign {name} itself, as a literal: it is read before import")
        return loaded


def find_kinds(package: str, base: type) -> tuple[Registration, ...]:
    """Return all kinds of the package, by name; BadRegistration if two classes declare the same one."""
    # The path is part of what is cached: whoever extends it has further folders looked through.
    return _find_in(package, base, tuple(import_module(package).__path__))


@cache
def _find_in(package: str, base: type, path: tuple[str, ...]) -> tuple[Registration, ...]:
    found: dict[str, Registration] = {}
    for module in pkgutil.iter_modules(path, f"{package}."):
        for registration in _declared_in(module, base):
            first = found.setdefault(registration.kind, registration)
            if first is not registration:
                raise BadRegistration(
                    f"{first.place} and {registration.place} both declare the kind {registration.kind!r}: rename one"
                )
    return tuple(found[kind] for kind in sorted(found))


def _declared_in(module: pkgutil.ModuleInfo, base: type) -> Iterator[Registration]:
    for node in _parse(_source_of(module)).body:
        if isinstance(node, ast.ClassDef) and "kind" in (values := dict(_assigned(node))):
            kind = _literal(values["kind"])
            if not isinstance(kind, str):
                raise BadRegistration(f"{module.name}.{node.name}: its kind must be written as a text in quotes")
            literals = {name: value for name in values if (value := _literal(values[name])) is not _NO_LITERAL}
            yield Registration(kind, module.name, node.name, base, literals)


def _parse(source: str) -> ast.Module:
    """Parse a file while no garbage is collected.

    A finalizer that fails there has its traceback printed, for which Python 3.11 parses, too: then this one ends with
    "SystemError: AST constructor recursion depth mismatch".
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(source)
    finally:
        if collects:
            gc.enable()


def _source_of(module: pkgutil.ModuleInfo) -> str:
    spec = module.module_finder.find_spec(module.name, None)
    source = getattr(spec.loader, "get_source", None) if spec else None
    text = source(module.name) if source else None
    if not isinstance(text, str):
        raise BadRegistration(f"the source of {module.name} cannot be read, so its kinds are not known")
    return text


def _assigned(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    """The plain names that the body of the class gives a value."""
    for line in node.body:
        if isinstance(line, ast.Assign):
            yield from ((target.id, line.value) for target in line.targets if isinstance(target, ast.Name))
        elif isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and line.value is not None:
            yield line.target.id, line.value


_NO_LITERAL = object()


def _literal(value: ast.expr) -> object:
    try:
        return ast.literal_eval(value)
    except ValueError:
        return _NO_LITERAL
