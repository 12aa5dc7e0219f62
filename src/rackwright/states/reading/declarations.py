"""From files to declarations: renders and reads each SLS, follows its includes, and keeps where everything was written.

The result is what was written, file by file; `combine` then works out what it means together.
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
    """One argument, option or requisite as written."""

    key: str
    value: Any
    file: str
    line: int


class Block:
    """One module's states under one ID."""

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
    """One ID."""

    __slots__ = ("blocks", "file", "id", "included_from", "line", "sls")

    def __init__(self, identity: str, sls: str, file: str, line: int) -> None:
        self.id = identity
        self.sls = sls
        self.file = file
        self.line = line
        self.blocks: Dict[str, Block] = {}
        self.included_from: List[str] = []


class Exclusion(NamedTuple):
    kind: str
    """id or sls"""
    value: str


class DeclaredStates:
    """Everything that the chosen SLS declare, in the order that decides ties."""

    def __init__(self) -> None:
        self.declarations: Dict[str, Declaration] = {}
        self.extends: List[Declaration] = []
        self.excludes: List[Exclusion] = []
        self._named: Optional[Dict[Tuple[str, Any], List[Declaration]]] = None

    def named(self, module: str, name: str) -> List[Declaration]:
        """The declarations that give a state of this module this `name:`."""
        if self._named is None:
            self._named = {}
            for declaration in self.declarations.values():
                for block in declaration.blocks.values():
                    for item in block.items:
                        if item.key == "name" and isinstance(item.value, str):
                            self._named.setdefault((block.module, item.value), []).append(declaration)
        return self._named.get((module, name), [])


class Reader:
    """Reads SLS of one tree."""

    def __init__(self, tree: Tree, renderer: Renderer) -> None:
        self._tree = tree
        self._renderer = renderer
        self._seen: Set[str] = set()
        self._next_order = FIRST_ORDER
        self.problems: List[Problem] = []
        self.files: Set[str] = set()

    def read(self, wanted: List[str]) -> DeclaredStates:
        """The declarations of these SLS (globs allowed) and of all they include."""
        high = DeclaredStates()
        for pattern in wanted:
            for sls in self._matching(pattern):
                if sls not in self._seen:
                    self._absorb(high, self._read_one(sls, "", 0))
        if self.problems:
            raise RunRefused(self.problems)
        return high

    def _matching(self, pattern: str) -> List[str]:
        if any(character in pattern for character in "*?["):
            return fnmatch.filter(self._tree.names(), pattern) or [pattern]
        return [pattern]

    def _read_one(self, sls: str, asker: str, asked_line: int) -> DeclaredStates:
        self._seen.add(sls)
        high = DeclaredStates()
        path = self._tree.path_of(sls)
        if path is None:
            self.problems.append(Problem(self._tree.missing(sls), asker, asked_line))
            return high
        self.files.add(path)
        try:
            text, lines = self._renderer.render(path, self._tree.read(path))
            document = parse_yaml(text, path, lines)
        except RunRefused as refused:
            self.problems.extend(refused.problems)
            return high
        if document is None:
            return high
        if not isinstance(document, Map):
            self.problems.append(Problem("an SLS is a mapping of IDs to states", path, line_of(document, 1)))
            return high
        self._take(high, document, sls, path)
        self._include(high, document, sls, path)
        self._number(high)
        return high

    def _take(self, high: DeclaredStates, document: Map, sls: str, path: str) -> None:
        for key, body in document.items():
            line = document.line_of(key)
            if key == "include":
                continue
            if key == "extend":
                self._take_extend(high, body, sls, path, line)
            elif key == "exclude":
                self._take_exclude(high, body, path, line)
            elif not isinstance(key, str):
                self._problem(f"the ID {key!r} is a {type(key).__name__}; put it in quotes", path, line)
            elif not key.startswith("__"):
                declaration = self._declaration(key, body, sls, path, line)
                if declaration is not None:
                    high.declarations[key] = declaration

    def _declaration(self, key: str, body: Any, sls: str, path: str, line: int) -> Optional[Declaration]:
        declaration = Declaration(key, sls, path, line)
        if isinstance(body, str) and "." in body:
            module, _, function = body.partition(".")
            declaration.blocks[module] = Block(module, function, [], path, line)
            return declaration
        if not isinstance(body, Map):
            self._problem(f"the ID {key!r} needs `module.function:` below it", path, line)
            return None
        for name, run in body.items():
            if not isinstance(name, str):
                self._problem(f"{name!r} in {key!r} is not `module.function`", path, body.line_of(name))
                continue
            if name.startswith("__"):
                continue
            block = self._block(key, name, run, path, body.line_of(name))
            if block is None:
                continue
            if block.module in declaration.blocks:
                told = (
                    f"the ID {key!r} has two states of the module {block.module!r}; give one of them an ID of its own"
                )
                self._problem(told, path, body.line_of(name))
            declaration.blocks[block.module] = block
        return declaration

    def _block(self, identity: str, name: str, run: Any, path: str, line: int) -> Optional[Block]:
        module, _, function = name.partition(".")
        if run is None:
            told = f"{name!r} in {identity!r} ends in a colon but has no arguments; leave the colon out"
            self._problem(told, path, line)
            return None
        if not isinstance(run, Seq):
            self._problem(f"the arguments of {name!r} in {identity!r} are not a list (each starts with -)", path, line)
            return None
        functions = [function] if function else []
        items: List[Item] = []
        for index, entry in enumerate(run):
            entry_line = line_of(entry, run.line_of(index))
            if isinstance(entry, str):
                if " " in entry.strip():
                    told = f"{entry!r} in {identity!r} is no function (it has a blank); is a colon missing?"
                    self._problem(told, path, entry_line)
                functions.append(entry)
            elif isinstance(entry, Map):
                for key, value in entry.items():
                    items.append(Item(str(key), value, path, entry.line_of(key)))
            else:
                self._problem(f"{entry!r} in {identity!r} is neither a function nor `name: value`", path, entry_line)
        if len(functions) > 1:
            self._problem(f"{identity!r} names several functions of {module!r}: {', '.join(functions)}", path, line)
        return Block(module, functions[0] if functions else "", items, path, line)

    def _take_extend(self, high: DeclaredStates, body: Any, sls: str, path: str, line: int) -> None:
        if not isinstance(body, Map):
            self._problem("extend: takes a mapping of IDs", path, line)
            return
        for key, inner in body.items():
            if not isinstance(inner, Map) or not isinstance(key, str):
                self._problem(f"extend: {key!r} needs `module:` with a list below it", path, body.line_of(key))
                continue
            extension = self._declaration(key, inner, sls, path, body.line_of(key))
            if extension is not None and extension.blocks:
                high.extends.append(extension)

    def _take_exclude(self, high: DeclaredStates, body: Any, path: str, line: int) -> None:
        if not isinstance(body, list):
            self._problem("exclude: takes a list of SLS, `sls: name` or `id: name`", path, line)
            return
        for entry in body:
            if isinstance(entry, str):
                high.excludes.append(Exclusion("sls", entry))
            elif isinstance(entry, dict) and len(entry) == 1 and next(iter(entry)) in ("id", "sls"):
                kind, value = next(iter(entry.items()))
                high.excludes.append(Exclusion(kind, str(value)))
            else:
                self._problem(f"exclude: {entry!r} is neither an SLS nor `id:` or `sls:`", path, line_of(entry, line))

    def _include(self, high: DeclaredStates, document: Map, sls: str, path: str) -> None:
        included = document.get("include", Seq(document.line))
        if not isinstance(included, Seq):
            self._problem("include: takes a list of SLS", path, document.line_of("include"))
            return
        for index, entry in enumerate(included):
            line = included.line_of(index)
            if isinstance(entry, dict) and len(entry) == 1:
                entry = next(iter(entry.values()))
            if not isinstance(entry, str):
                self._problem(f"include: {entry!r} is not the name of an SLS", path, line)
                continue
            name = self._resolve(entry, sls, path, line)
            if name is None:
                continue
            for target in self._matching(name):
                if target in self._seen:
                    continue
                nested = self._read_one(target, path, line)
                for declaration in nested.declarations.values():
                    declaration.included_from.append(sls)
                self._absorb(high, nested)

    def _resolve(self, name: str, sls: str, path: str, line: int) -> Optional[str]:
        """`.sibling` and `..uncle` are relative to the SLS that includes them."""
        match = re.match(r"(\.+)(.*)", name)
        if match is None:
            return name
        levels, rest = len(match.group(1)), match.group(2)
        parts = sls.split(".")
        if path.endswith("/init.sls"):
            parts.append("init")
        if levels > len(parts):
            self._problem(f"include: {name!r} goes above the top of the tree", path, line)
            return None
        return ".".join([*parts[:-levels], rest])

    def _absorb(self, high: DeclaredStates, other: DeclaredStates) -> None:
        high.extends.extend(other.extends)
        high.excludes.extend(other.excludes)
        for identity, declaration in other.declarations.items():
            known = high.declarations.get(identity)
            if known is not None and known is not declaration:
                told = f"the ID {identity!r} is declared in {known.file}:{known.line} already; IDs are unique in a run"
                self._problem(told, declaration.file, declaration.line)
            high.declarations[identity] = declaration

    def _number(self, high: DeclaredStates) -> None:
        """Included states were numbered first, when their own file was read, so they come first."""
        for declaration in high.declarations.values():
            for block in declaration.blocks.values():
                if not any(item.key == "order" for item in block.items):
                    block.items.append(Item("order", self._next_order, block.file, block.line))
                    self._next_order += 1

    def _problem(self, text: str, file: str, line: int) -> None:
        self.problems.append(Problem(text, file, line))


def select_top_sls(tree: Tree, renderer: Renderer, node: Dict[str, Any], environment: str = "base") -> List[str]:
    """The SLS that `top.sls` gives to this node."""
    text, lines = renderer.render("top.sls", tree.read("top.sls"))
    document = parse_yaml(text, "top.sls", lines)
    if not isinstance(document, Map):
        raise refuse("top.sls is a mapping of environments", "top.sls", 1)
    if environment not in document:
        known = did_you_mean(environment, [str(key) for key in document])
        raise refuse(f"top.sls has no environment {environment!r}{known}", "top.sls", document.line)
    targets = document[environment]
    if not isinstance(targets, Map):
        raise refuse("an environment is a mapping of targets to SLS", "top.sls", document.line_of(environment))
    chosen: List[str] = []
    for target, entries in targets.items():
        line = targets.line_of(target)
        if not isinstance(entries, list):
            raise refuse(f"the target {target!r} needs a list of SLS", "top.sls", line)
        how, names = _split_top_entries(entries, line)
        if _matches_node(str(target), how, node, line):
            chosen.extend(name for name in names if name not in chosen)
    if not chosen:
        raise refuse(f"top.sls has nothing for the node {node.get('id')!r}", "top.sls")
    return chosen


def _split_top_entries(entries: List[Any], line: int) -> Tuple[str, List[str]]:
    how, names = "glob", []
    for entry in entries:
        if isinstance(entry, str):
            names.append(entry)
        elif isinstance(entry, dict) and set(entry) <= {"match", "ignore_missing"}:
            how = str(entry.get("match", how))
        else:
            raise refuse(f"{entry!r} is neither an SLS nor `match:`", "top.sls", line_of(entry, line))
    return how, names


def _matches_node(target: str, how: str, node: Dict[str, Any], line: int) -> bool:
    name = str(node.get("id", ""))
    if how == "glob":
        return fnmatch.fnmatchcase(name, target)
    if how == "list":
        return name in [part.strip() for part in target.split(",")]
    if how == "pcre":
        return re.match(target, name) is not None
    if how == "grain":
        path, _, pattern = target.rpartition(":")
        value: Any = node
        for part in path.split(":"):
            value = value.get(part) if isinstance(value, dict) else None
        values = value if isinstance(value, list) else [value]
        return any(fnmatch.fnmatchcase(str(one), pattern) for one in values if one is not None)
    raise refuse(f"match: {how!r} is not known; glob, list, pcre and grain are", "top.sls", line)
