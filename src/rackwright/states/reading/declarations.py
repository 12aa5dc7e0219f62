"""Reads the declarations of state files: renders and parses each SLS, follows its includes, and keeps files and lines.

The result is what the files say, one by one; `combine.py` then makes states of all of them.
"""

from __future__ import annotations

import fnmatch
import re
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

from ..refusal import Problem, RunRefused, did_you_mean, refuse
from .render import Renderer
from .sls import Map, Seq, line_of, parse_yaml
from .tree import Tree

FIRST_ORDER = 10000
"""States without an `order` are numbered from here, so that small numbers come before all of them."""


class Item(NamedTuple):
    """One argument, option or requisite as written in a file."""

    key: str
    value: Any
    file: str
    line: int


class Block:
    """The part of a declaration that belongs to one module: its function and items."""

    __slots__ = ("file", "function", "items", "line", "module")

    def __init__(self, module: str, function: str, items: List[Item], file: str, line: int) -> None:
        self.module = module
        self.function = function
        self.items = items
        self.file = file
        self.line = line

    def keys(self) -> Set[str]:
        return {item.key for item in self.items}


class Declaration:
    """One ID of an SLS and the blocks below it."""

    __slots__ = ("blocks", "file", "id", "included_from", "line", "sls")

    def __init__(self, identity: str, sls: str, file: str, line: int) -> None:
        self.id = identity
        self.sls = sls
        self.file = file
        self.line = line
        self.blocks: Dict[str, Block] = {}
        self.included_from: List[str] = []


class Exclusion(NamedTuple):
    """An entry of `exclude`: an ID or an SLS that does not take part in the run."""

    kind: str
    """id or sls"""
    value: str


class DeclaredStates:
    """Everything that the selected SLS declare, in the order that decides ties."""

    def __init__(self) -> None:
        self.declarations: Dict[str, Declaration] = {}
        self.extends: List[Declaration] = []
        self.excludes: List[Exclusion] = []
        self._named: Optional[Dict[Tuple[str, Any], List[Declaration]]] = None

    def named(self, module: str, name: str) -> List[Declaration]:
        """Return the declarations that give a state of this module this `name:`."""
        if self._named is None:
            self._named = {}
            for declaration in self.declarations.values():
                for block in declaration.blocks.values():
                    for item in block.items:
                        if item.key == "name" and isinstance(item.value, str):
                            self._named.setdefault((block.module, item.value), []).append(declaration)
        return self._named.get((module, name), [])


class Reader:
    """Reads the SLS of one tree."""

    def __init__(self, tree: Tree, renderer: Renderer) -> None:
        self._tree = tree
        self._renderer = renderer
        self._seen: Set[str] = set()
        self._next_order = FIRST_ORDER
        self.problems: List[Problem] = []
        self.files: Set[str] = set()

    def read(self, patterns: List[str]) -> DeclaredStates:
        """Return the declarations of these SLS (globs allowed) and of all that they include. Raises RunRefused."""
        declared = DeclaredStates()
        for pattern in patterns:
            for sls in self._matching(pattern):
                if sls not in self._seen:
                    self._merge(declared, self._read_sls(sls, "", 0))
        if self.problems:
            raise RunRefused(self.problems)
        return declared

    def _matching(self, pattern: str) -> List[str]:
        if any(character in pattern for character in "*?["):
            return fnmatch.filter(self._tree.names(), pattern) or [pattern]
        return [pattern]

    def _read_sls(self, sls: str, included_by: str, include_line: int) -> DeclaredStates:
        self._seen.add(sls)
        declared = DeclaredStates()
        path = self._tree.path_of(sls)
        if path is None:
            self.problems.append(Problem(self._tree.missing_message(sls), included_by, include_line))
            return declared
        self.files.add(path)
        try:
            text, lines = self._renderer.render(path, self._tree.read(path))
            document = parse_yaml(text, path, lines)
        except RunRefused as refused:
            self.problems.extend(refused.problems)
            return declared
        if document is None:
            return declared
        if not isinstance(document, Map):
            self.problems.append(Problem("an SLS is a mapping of IDs to states", path, line_of(document, 1)))
            return declared
        self._read_document(declared, document, sls, path)
        self._read_includes(declared, document, sls, path)
        self._number_states(declared)
        return declared

    def _read_document(self, declared: DeclaredStates, document: Map, sls: str, path: str) -> None:
        for key, body in document.items():
            line = document.line_of(key)
            if key == "include":
                continue
            if key == "extend":
                self._read_extend(declared, body, sls, path, line)
            elif key == "exclude":
                self._read_exclude(declared, body, path, line)
            elif not isinstance(key, str):
                self._add_problem(f"the ID {key!r} is a {type(key).__name__}; put it in quotes", path, line)
            elif not key.startswith("__"):
                declaration = self._read_declaration(key, body, sls, path, line)
                if declaration is not None:
                    declared.declarations[key] = declaration

    def _read_declaration(self, key: str, body: Any, sls: str, path: str, line: int) -> Optional[Declaration]:
        declaration = Declaration(key, sls, path, line)
        if isinstance(body, str) and "." in body:
            module, _, function = body.partition(".")
            declaration.blocks[module] = Block(module, function, [], path, line)
            return declaration
        if not isinstance(body, Map):
            self._add_problem(f"the ID {key!r} needs `module.function:` below it", path, line)
            return None
        for name, arguments in body.items():
            if not isinstance(name, str):
                self._add_problem(f"{name!r} in {key!r} is not `module.function`", path, body.line_of(name))
                continue
            if name.startswith("__"):
                continue
            block = self._read_block(key, name, arguments, path, body.line_of(name))
            if block is None:
                continue
            if block.module in declaration.blocks:
                message = (
                    f"the ID {key!r} has two states of the module {block.module!r}; give one of them an ID of its own"
                )
                self._add_problem(message, path, body.line_of(name))
            declaration.blocks[block.module] = block
        return declaration

    def _read_block(self, state_id: str, name: str, arguments: Any, path: str, line: int) -> Optional[Block]:
        module, _, function = name.partition(".")
        if arguments is None:
            message = f"{name!r} in {state_id!r} ends in a colon but has no arguments; leave the colon out"
            self._add_problem(message, path, line)
            return None
        if not isinstance(arguments, Seq):
            self._add_problem(
                f"the arguments of {name!r} in {state_id!r} are not a list (each starts with -)", path, line
            )
            return None
        functions = [function] if function else []
        items: List[Item] = []
        for index, entry in enumerate(arguments):
            entry_line = line_of(entry, arguments.line_of(index))
            if isinstance(entry, str):
                if " " in entry.strip():
                    message = f"{entry!r} in {state_id!r} is no function (it has a blank); is a colon missing?"
                    self._add_problem(message, path, entry_line)
                functions.append(entry)
            elif isinstance(entry, Map):
                for key, value in entry.items():
                    items.append(Item(str(key), value, path, entry.line_of(key)))
            else:
                self._add_problem(
                    f"{entry!r} in {state_id!r} is neither a function nor `name: value`", path, entry_line
                )
        if len(functions) > 1:
            self._add_problem(f"{state_id!r} names several functions of {module!r}: {', '.join(functions)}", path, line)
        return Block(module, functions[0] if functions else "", items, path, line)

    def _read_extend(self, declared: DeclaredStates, body: Any, sls: str, path: str, line: int) -> None:
        if not isinstance(body, Map):
            self._add_problem("extend: takes a mapping of IDs", path, line)
            return
        for key, inner in body.items():
            if not isinstance(inner, Map) or not isinstance(key, str):
                self._add_problem(f"extend: {key!r} needs `module:` with a list below it", path, body.line_of(key))
                continue
            extension = self._read_declaration(key, inner, sls, path, body.line_of(key))
            if extension is not None and extension.blocks:
                declared.extends.append(extension)

    def _read_exclude(self, declared: DeclaredStates, body: Any, path: str, line: int) -> None:
        if not isinstance(body, list):
            self._add_problem("exclude: takes a list of SLS, `sls: name` or `id: name`", path, line)
            return
        for entry in body:
            if isinstance(entry, str):
                declared.excludes.append(Exclusion("sls", entry))
            elif isinstance(entry, dict) and len(entry) == 1 and next(iter(entry)) in ("id", "sls"):
                kind, value = next(iter(entry.items()))
                declared.excludes.append(Exclusion(kind, str(value)))
            else:
                self._add_problem(
                    f"exclude: {entry!r} is neither an SLS nor `id:` or `sls:`", path, line_of(entry, line)
                )

    def _read_includes(self, declared: DeclaredStates, document: Map, sls: str, path: str) -> None:
        included = document.get("include", Seq(document.line))
        if not isinstance(included, Seq):
            self._add_problem("include: takes a list of SLS", path, document.line_of("include"))
            return
        for index, entry in enumerate(included):
            line = included.line_of(index)
            if isinstance(entry, dict) and len(entry) == 1:
                entry = next(iter(entry.values()))
            if not isinstance(entry, str):
                self._add_problem(f"include: {entry!r} is not the name of an SLS", path, line)
                continue
            name = self._resolve_relative(entry, sls, path, line)
            if name is None:
                continue
            for target in self._matching(name):
                if target in self._seen:
                    continue
                nested = self._read_sls(target, path, line)
                for declaration in nested.declarations.values():
                    declaration.included_from.append(sls)
                self._merge(declared, nested)

    def _resolve_relative(self, name: str, sls: str, path: str, line: int) -> Optional[str]:
        """Return the full name of an included SLS: `.sibling` and `..uncle` are relative to the including SLS."""
        match = re.match(r"(\.+)(.*)", name)
        if match is None:
            return name
        levels, remainder = len(match.group(1)), match.group(2)
        parts = sls.split(".")
        if path.endswith("/init.sls"):
            parts.append("init")
        if levels > len(parts):
            self._add_problem(f"include: {name!r} goes above the top of the tree", path, line)
            return None
        return ".".join([*parts[:-levels], remainder])

    def _merge(self, declared: DeclaredStates, other: DeclaredStates) -> None:
        declared.extends.extend(other.extends)
        declared.excludes.extend(other.excludes)
        for state_id, declaration in other.declarations.items():
            existing = declared.declarations.get(state_id)
            if existing is not None and existing is not declaration:
                message = (
                    f"the ID {state_id!r} is declared in {existing.file}:{existing.line} already; "
                    "IDs are unique in a run"
                )
                self._add_problem(message, declaration.file, declaration.line)
            declared.declarations[state_id] = declaration

    def _number_states(self, declared: DeclaredStates) -> None:
        """Number the states that have no `order`.

        Included states were numbered before, when their own file was read, so they come first.
        """
        for declaration in declared.declarations.values():
            for block in declaration.blocks.values():
                if not any(item.key == "order" for item in block.items):
                    block.items.append(Item("order", self._next_order, block.file, block.line))
                    self._next_order += 1

    def _add_problem(self, text: str, file: str, line: int) -> None:
        self.problems.append(Problem(text, file, line))


def select_top_sls(tree: Tree, renderer: Renderer, node: Dict[str, Any], environment: str = "base") -> List[str]:
    """Return the SLS that `top.sls` selects for this node."""
    text, lines = renderer.render("top.sls", tree.read("top.sls"))
    document = parse_yaml(text, "top.sls", lines)
    if not isinstance(document, Map):
        raise refuse("top.sls is a mapping of environments", "top.sls", 1)
    if environment not in document:
        suggestion = did_you_mean(environment, [str(key) for key in document])
        raise refuse(f"top.sls has no environment {environment!r}{suggestion}", "top.sls", document.line)
    targets = document[environment]
    if not isinstance(targets, Map):
        raise refuse("an environment is a mapping of targets to SLS", "top.sls", document.line_of(environment))
    selected: List[str] = []
    for target, entries in targets.items():
        line = targets.line_of(target)
        if not isinstance(entries, list):
            raise refuse(f"the target {target!r} needs a list of SLS", "top.sls", line)
        match_kind, names = _split_top_entries(entries, line)
        if _matches_node(str(target), match_kind, node, line):
            selected.extend(name for name in names if name not in selected)
    if not selected:
        raise refuse(f"top.sls has nothing for the node {node.get('id')!r}", "top.sls")
    return selected


def _split_top_entries(entries: List[Any], line: int) -> Tuple[str, List[str]]:
    match_kind, names = "glob", []
    for entry in entries:
        if isinstance(entry, str):
            names.append(entry)
        elif isinstance(entry, dict) and set(entry) <= {"match", "ignore_missing"}:
            match_kind = str(entry.get("match", match_kind))
        else:
            raise refuse(f"{entry!r} is neither an SLS nor `match:`", "top.sls", line_of(entry, line))
    return match_kind, names


def _matches_node(target: str, match_kind: str, node: Dict[str, Any], line: int) -> bool:
    name = str(node.get("id", ""))
    if match_kind == "glob":
        return fnmatch.fnmatchcase(name, target)
    if match_kind == "list":
        return name in [part.strip() for part in target.split(",")]
    if match_kind == "pcre":
        return re.match(target, name) is not None
    if match_kind == "grain":
        path, _, pattern = target.rpartition(":")
        value: Any = node
        for part in path.split(":"):
            value = value.get(part) if isinstance(value, dict) else None
        values = value if isinstance(value, list) else [value]
        return any(fnmatch.fnmatchcase(str(fact), pattern) for fact in values if fact is not None)
    raise refuse(f"match: {match_kind!r} is not known; glob, list, pcre and grain are", "top.sls", line)
