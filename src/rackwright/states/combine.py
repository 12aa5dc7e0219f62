"""From declarations to states: `extend`, the `_in` forms, `use`, `exclude` and `names`, in the order Salt applies them.

What comes out is a flat list of `State`, each with its own requisites and options, in the order in which they enter the
graph. Whether the requisites' targets exist is the graph's question.
"""

from __future__ import annotations

import fnmatch
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from .reading.declarations import Block, Declaration, DeclaredStates, Item
from .reading.keywords import ENTRY_ORDER, IN_FORMS, OPTIONS, REQUISITES
from .reading.sls import line_of
from .refusal import Problem, RunRefused, did_you_mean


class Requisite(NamedTuple):
    """One target of one requisite."""

    key: str
    """A module, `id` or `sls`."""
    value: str
    file: str
    line: int
    state: int = -1
    """The one state meant, where that is known already."""


class State:
    """One state of a run: what to call with which arguments, what it waits for, and where it was written."""

    __slots__ = (
        "arguments",
        "file",
        "function",
        "id",
        "included_from",
        "index",
        "line",
        "lines",
        "listen",
        "listen_in",
        "module",
        "name",
        "name_order",
        "options",
        "order",
        "requisites",
        "sls",
    )

    def __init__(self, index: int, declaration: Declaration, block: Block) -> None:
        self.index = index
        self.id = declaration.id
        self.name = declaration.id
        self.module = block.module
        self.function = block.function
        self.arguments: Dict[str, Any] = {}
        self.options: Dict[str, Any] = {}
        self.requisites: Dict[str, List[Requisite]] = {}
        self.listen: List[Requisite] = []
        self.listen_in: List[Requisite] = []
        self.order: Any = None
        self.name_order = 0
        self.sls = declaration.sls
        self.included_from = declaration.included_from
        self.file = block.file
        self.line = block.line
        self.lines: Dict[str, Tuple[str, int]] = {}
        """Where each argument was written, until they are validated."""

    @property
    def full(self) -> str:
        return f"{self.module}.{self.function}"

    def __repr__(self) -> str:
        return f"<{self.full} {self.id}>"


def combine(high: DeclaredStates) -> List[State]:
    """The states of a run. Raises Refused with all that is wrong."""
    problems: List[Problem] = []
    _apply_extends(high, problems)
    _check_requisites(high, problems)
    if problems:
        raise RunRefused(problems)
    _apply_in_forms(high, problems)
    _apply_excludes(high)
    states = list(_create_states(high, problems))
    if problems:
        raise RunRefused(problems)
    return states


# extend


def _apply_extends(high: DeclaredStates, problems: List[Problem]) -> None:
    excluded = [exclusion.value for exclusion in high.excludes if exclusion.kind == "sls"]
    for extension in high.extends:
        module = next(iter(extension.blocks))
        target = find_declaration(high, extension.id, module)
        if target is None:
            told = f"extend: no state {module}: {extension.id!r} in this run; is an include missing?"
            told += did_you_mean(extension.id, high.declarations)
            problems.append(Problem(told, extension.file, extension.line))
        elif extension.sls not in excluded:
            for block in extension.blocks.values():
                known = target.blocks.get(block.module)
                if known is None:
                    target.blocks[block.module] = block
                else:
                    if block.function:
                        known.function = block.function
                    for item in block.items:
                        add_item(known, item)


def add_item(block: Block, item: Item) -> None:
    """Extend a block by one item: a requisite is added to, anything else replaced."""
    found = False
    for index, known in enumerate(block.items):
        if known.key == item.key:
            if item.key in REQUISITES and isinstance(known.value, list) and isinstance(item.value, list):
                block.items[index] = known._replace(value=[*located_entries(known), *located_entries(item)])
            else:
                block.items[index] = item
            found = True
        elif item.key == "name" and known.key == "names":
            block.items[index] = item
            found = True
    if not found:
        block.items.append(item)


class LocatedEntry(NamedTuple):
    """A requisite entry that came from somewhere else than the list it is in."""

    entry: Any
    file: str
    line: int


def located_entries(item: Item) -> Iterator[LocatedEntry]:
    """A requisite's entries, each with its own position."""
    for index, entry in enumerate(item.value):
        if isinstance(entry, LocatedEntry):
            yield entry
        else:
            at = getattr(item.value, "line_of", None)
            yield LocatedEntry(entry, item.file, line_of(entry, at(index) if at else item.line))


def find_declaration(high: DeclaredStates, name: str, module: str) -> Optional[Declaration]:
    """The one declaration with this module that has the ID or, failing that, the `name:`."""
    declaration = high.declarations.get(name)
    if declaration is not None and (module in declaration.blocks or module == "id"):
        return declaration
    named = high.named(module, name)
    return named[0] if len(named) == 1 else None


# Requisites as written


def _check_requisites(high: DeclaredStates, problems: List[Problem]) -> None:
    for declaration in high.declarations.values():
        for block in declaration.blocks.values():
            for item in block.items:
                if item.key in REQUISITES:
                    _check_requisite(declaration.id, item, problems)


def _check_requisite(identity: str, item: Item, problems: List[Problem]) -> None:
    if not isinstance(item.value, list):
        problems.append(Problem(f"{item.key}: in {identity!r} takes a list", item.file, item.line))
        return
    for entry, file, line in located_entries(item):
        told = entry_problem(entry)
        if told:
            problems.append(Problem(f"{item.key}: in {identity!r}: {told}", file, line))


def entry_problem(entry: Any) -> str:
    """What is wrong with one entry of a requisite, or nothing."""
    if isinstance(entry, str):
        return ""
    if not isinstance(entry, dict) or len(entry) != 1:
        return f"{entry!r} is neither a name nor one `module: name`"
    key, value = next(iter(entry.items()))
    if "." in str(key):
        return f"the requisite key {key!r} has a dot; did you mean {str(key).partition('.')[0]!r}?"
    if not isinstance(value, str):
        return f"the value of `{key}:` must be the text of an ID or a name, not {value!r}"
    return ""


def _parse_entry(entry: Any, file: str, line: int) -> Requisite:
    if isinstance(entry, str):
        return Requisite("id", entry, file, line)
    key, value = next(iter(entry.items()))
    return Requisite(str(key), value, file, line)


# The _in forms and use


def _apply_in_forms(high: DeclaredStates, problems: List[Problem]) -> None:
    """Every addition is worked out from the declarations as they were, and only then made: so `use` does not chain."""
    additions: List[Tuple[Block, Item]] = []
    for declaration in high.declarations.values():
        for block in declaration.blocks.values():
            for item in block.items:
                if item.key in IN_FORMS or item.key in ("use", "use_in"):
                    additions.extend(_find_additions(high, declaration, block, item, problems))
    # Salt makes all additions to one ID together, in the order in which the IDs were first aimed at.
    first_aimed: Dict[int, int] = {}
    for position, (target, _) in enumerate(additions):
        first_aimed.setdefault(id(target), position)
    for target, item in sorted(additions, key=lambda addition: first_aimed[id(addition[0])]):
        add_item(target, item)


def _find_additions(
    high: DeclaredStates, declaration: Declaration, block: Block, item: Item, problems: List[Problem]
) -> Iterator[Tuple[Block, Item]]:
    listed = (
        item._replace(value=[{key: value} for key, value in item.value.items()])
        if isinstance(item.value, dict)
        else item
    )
    if not isinstance(listed.value, list):
        problems.append(Problem(f"{item.key}: in {declaration.id!r} takes a list", item.file, item.line))
        return
    for entry, file, line in located_entries(listed):
        told = entry_problem(entry)
        if told:
            problems.append(Problem(f"{item.key}: in {declaration.id!r}: {told}", file, line))
            continue
        wanted = _parse_entry(entry, file, line)
        targets = _find_target_blocks(high, wanted)
        if not targets:
            problems.append(Problem(_missing_target_message(high, declaration.id, item.key, wanted), file, line))
        for target in targets:
            if item.key == "use_in":
                yield from ((target, used) for used in _inheritable_items(block, target))
            elif item.key == "use":
                yield from ((block, used) for used in _inheritable_items(target, block))
            else:
                back = LocatedEntry({block.module: declaration.id}, file, line)
                yield target, Item(IN_FORMS[item.key], [back], file, line)


def _find_target_blocks(high: DeclaredStates, wanted: Requisite) -> List[Block]:
    """The blocks that an `_in` form or `use` means."""
    if wanted.key == "sls":
        return [b for d in high.declarations.values() if d.sls == wanted.value for b in d.blocks.values()]
    if wanted.key == "id":
        declaration = high.declarations.get(wanted.value)
        if declaration is not None and declaration.blocks:
            return [next(iter(declaration.blocks.values()))]
        return [
            block
            for other in high.declarations.values()
            for block in other.blocks.values()
            if any(item.key == "name" and item.value == wanted.value for item in block.items)
        ][:1]
    declaration = find_declaration(high, wanted.value, wanted.key)
    return [declaration.blocks[wanted.key]] if declaration is not None else []


def _missing_target_message(high: DeclaredStates, identity: str, key: str, wanted: Requisite) -> str:
    told = f"{key}: in {identity!r}: no state {wanted.key}: {wanted.value!r} in this run"
    return told + did_you_mean(wanted.value, high.declarations)


def _inheritable_items(source: Block, user: Block) -> Iterator[Item]:
    """The arguments and options of one block that another, which says `use`, does not have itself."""
    own = user.keys()
    for item in source.items:
        requisite = item.key in REQUISITES or item.key in IN_FORMS or item.key in ("use", "use_in", "listen_in")
        if not requisite and item.key not in own and item.key not in ("name", "names"):
            yield item


# exclude


def _apply_excludes(high: DeclaredStates) -> None:
    for exclusion in high.excludes:
        if exclusion.kind == "id":
            high.declarations.pop(exclusion.value, None)
        else:
            gone = [i for i, d in high.declarations.items() if fnmatch.fnmatch(d.sls, exclusion.value)]
            for identity in gone:
                del high.declarations[identity]


# States


def _create_states(high: DeclaredStates, problems: List[Problem]) -> Iterator[State]:
    index = 0
    for declaration in high.declarations.values():
        for block in declaration.blocks.values():
            if not block.function:
                told = f"{declaration.id!r} names no function of the module {block.module!r}"
                problems.append(Problem(told, block.file, block.line))
                continue
            for items, name, position in _expand_names(declaration, block, problems):
                state = State(index, declaration, block)
                state.name_order = position
                _fill_state(state, items, problems)
                if name is not None:
                    state.name = name
                index += 1
                yield state


def _expand_names(
    declaration: Declaration, block: Block, problems: List[Problem]
) -> Iterator[Tuple[List[Item], Optional[str], int]]:
    """One list of items per state: `names` makes several of one block."""
    names = [item for item in block.items if item.key == "names"]
    if not names:
        yield block.items, None, 0
        return
    others = [item for item in block.items if item.key != "names"]
    position = 0
    for item in names:
        if not isinstance(item.value, list):
            problems.append(Problem(f"names: in {declaration.id!r} takes a list", item.file, item.line))
            continue
        seen: List[Any] = []
        for entry, file, line in located_entries(item):
            if entry in seen:
                continue
            seen.append(entry)
            position += 1
            if isinstance(entry, dict) and len(entry) == 1:
                name, own = next(iter(entry.items()))
                if not isinstance(own, list) or not all(isinstance(part, dict) for part in own):
                    told = f"names: {name!r} in {declaration.id!r} takes a list of `name: value`"
                    problems.append(Problem(told, file, line))
                    continue
                mine = [Item(str(key), value, file, line_of(part, line)) for part in own for key, value in part.items()]
                replaced = {one.key for one in mine}
                yield [one for one in others if one.key not in replaced] + mine, str(name), position
            elif isinstance(entry, str):
                yield others, entry, position
            else:
                told = f"names: {entry!r} in {declaration.id!r} is no name; put it in quotes"
                problems.append(Problem(told, file, line))


def _fill_state(state: State, items: List[Item], problems: List[Problem]) -> None:
    for item in items:
        if item.key == "name":
            if isinstance(item.value, str):
                state.name = item.value
                state.lines["name"] = (item.file, item.line)
        elif item.key in REQUISITES:
            if isinstance(item.value, list):
                # Written twice, the last one counts, as with any argument.
                found = [_parse_entry(*located) for located in located_entries(item)]
                if item.key == "listen":
                    state.listen = found
                else:
                    state.requisites[item.key] = found
        elif item.key == "listen_in":
            _fill_listen_in(state, item, problems)
        elif item.key == "order":
            state.order = item.value
            state.lines["order"] = (item.file, item.line)
        elif item.key in OPTIONS:
            state.options[item.key] = item.value
            state.lines[item.key] = (item.file, item.line)
        elif item.key not in IN_FORMS and item.key not in ("use", "use_in"):
            state.arguments[item.key] = item.value
            state.lines[item.key] = (item.file, item.line)


def _fill_listen_in(state: State, item: Item, problems: List[Problem]) -> None:
    if not isinstance(item.value, list):
        problems.append(Problem(f"listen_in: in {state.id!r} takes a list", item.file, item.line))
        return
    for entry, file, line in located_entries(item):
        told = entry_problem(entry)
        if told:
            problems.append(Problem(f"listen_in: in {state.id!r}: {told}", file, line))
        else:
            state.listen_in.append(_parse_entry(entry, file, line))


def requisites_in_entry_order(state: State) -> Iterator[Tuple[str, Requisite]]:
    """A state's requisites in the order in which they enter the graph."""
    kinds = state.requisites
    for kind in kinds if len(kinds) == 1 else ENTRY_ORDER:
        if kind in kinds:
            for requisite in kinds[kind]:
                yield kind, requisite
