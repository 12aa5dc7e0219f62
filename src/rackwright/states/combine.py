"""Turns declarations into states: applies `extend`, the `_in` forms, `use`, `exclude` and `names` in Salt's order.

The result is a flat list of `State`, each with its own requisites and options, in the order in which they enter the
graph. Whether the targets of requisites exist is checked in `graph.py`.
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
    """The index of the target state, where that is known already; -1 otherwise."""


class State:
    """One state of a run: the function to call, its arguments, what the state waits for, and where it was written."""

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
        """File and line of each argument, needed until the arguments are validated."""

    @property
    def qualified_function(self) -> str:
        """The function with its module, for example `file.managed`."""
        return f"{self.module}.{self.function}"

    def __repr__(self) -> str:
        return f"<{self.qualified_function} {self.id}>"


def combine(declared: DeclaredStates) -> List[State]:
    """Return the states of a run. Raises RunRefused with all problems."""
    problems: List[Problem] = []
    _apply_extends(declared, problems)
    _check_requisites(declared, problems)
    if problems:
        raise RunRefused(problems)
    _apply_in_forms(declared, problems)
    _apply_excludes(declared)
    states = list(_create_states(declared, problems))
    if problems:
        raise RunRefused(problems)
    return states


# extend


def _apply_extends(declared: DeclaredStates, problems: List[Problem]) -> None:
    excluded = [exclusion.value for exclusion in declared.excludes if exclusion.kind == "sls"]
    for extension in declared.extends:
        module = next(iter(extension.blocks))
        target = find_declaration(declared, extension.id, module)
        if target is None:
            message = f"extend: no state {module}: {extension.id!r} in this run; is an include missing?"
            message += did_you_mean(extension.id, declared.declarations)
            problems.append(Problem(message, extension.file, extension.line))
        elif extension.sls not in excluded:
            for block in extension.blocks.values():
                existing = target.blocks.get(block.module)
                if existing is None:
                    target.blocks[block.module] = block
                else:
                    if block.function:
                        existing.function = block.function
                    for item in block.items:
                        add_item(existing, item)


def add_item(block: Block, item: Item) -> None:
    """Add one item to a block: a requisite gets more entries, anything else is replaced."""
    is_placed = False
    for index, existing in enumerate(block.items):
        if existing.key == item.key:
            if item.key in REQUISITES and isinstance(existing.value, list) and isinstance(item.value, list):
                block.items[index] = existing._replace(value=[*located_entries(existing), *located_entries(item)])
            else:
                block.items[index] = item
            is_placed = True
        elif item.key == "name" and existing.key == "names":
            block.items[index] = item
            is_placed = True
    if not is_placed:
        block.items.append(item)


class LocatedEntry(NamedTuple):
    """An entry of a requisite with its own file and line, which may differ from those of the list it is in."""

    entry: Any
    file: str
    line: int


def located_entries(item: Item) -> Iterator[LocatedEntry]:
    """Return the entries of a requisite, each with its file and line."""
    for index, entry in enumerate(item.value):
        if isinstance(entry, LocatedEntry):
            yield entry
        else:
            line_at = getattr(item.value, "line_of", None)
            yield LocatedEntry(entry, item.file, line_of(entry, line_at(index) if line_at else item.line))


def find_declaration(declared: DeclaredStates, name: str, module: str) -> Optional[Declaration]:
    """Return the only declaration with this module that has the ID or, if there is none, the `name:`."""
    declaration = declared.declarations.get(name)
    if declaration is not None and (module in declaration.blocks or module == "id"):
        return declaration
    candidates = declared.named(module, name)
    return candidates[0] if len(candidates) == 1 else None


# Requisites as written


def _check_requisites(declared: DeclaredStates, problems: List[Problem]) -> None:
    for declaration in declared.declarations.values():
        for block in declaration.blocks.values():
            for item in block.items:
                if item.key in REQUISITES:
                    _check_requisite(declaration.id, item, problems)


def _check_requisite(state_id: str, item: Item, problems: List[Problem]) -> None:
    if not isinstance(item.value, list):
        problems.append(Problem(f"{item.key}: in {state_id!r} takes a list", item.file, item.line))
        return
    for entry, file, line in located_entries(item):
        message = entry_problem(entry)
        if message:
            problems.append(Problem(f"{item.key}: in {state_id!r}: {message}", file, line))


def entry_problem(entry: Any) -> str:
    """Return what is wrong with one entry of a requisite; empty if nothing is."""
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


def _apply_in_forms(declared: DeclaredStates, problems: List[Problem]) -> None:
    """Apply the `_in` forms, `use` and `use_in`.

    All additions are found in the unchanged declarations first, and only then made: so `use` does not chain.
    """
    additions: List[Tuple[Block, Item]] = []
    for declaration in declared.declarations.values():
        for block in declaration.blocks.values():
            for item in block.items:
                if item.key in IN_FORMS or item.key in ("use", "use_in"):
                    additions.extend(_find_additions(declared, declaration, block, item, problems))
    # Salt makes all additions to one ID in one go, in the order in which the IDs were first targeted.
    first_position: Dict[int, int] = {}
    for position, (target, _) in enumerate(additions):
        first_position.setdefault(id(target), position)
    for target, item in sorted(additions, key=lambda addition: first_position[id(addition[0])]):
        add_item(target, item)


def _find_additions(
    declared: DeclaredStates, declaration: Declaration, block: Block, item: Item, problems: List[Problem]
) -> Iterator[Tuple[Block, Item]]:
    list_item = (
        item._replace(value=[{key: value} for key, value in item.value.items()])
        if isinstance(item.value, dict)
        else item
    )
    if not isinstance(list_item.value, list):
        problems.append(Problem(f"{item.key}: in {declaration.id!r} takes a list", item.file, item.line))
        return
    for entry, file, line in located_entries(list_item):
        message = entry_problem(entry)
        if message:
            problems.append(Problem(f"{item.key}: in {declaration.id!r}: {message}", file, line))
            continue
        requisite = _parse_entry(entry, file, line)
        targets = _find_target_blocks(declared, requisite)
        if not targets:
            problems.append(Problem(_missing_target_message(declared, declaration.id, item.key, requisite), file, line))
        for target in targets:
            if item.key == "use_in":
                yield from ((target, inherited) for inherited in _inheritable_items(block, target))
            elif item.key == "use":
                yield from ((block, inherited) for inherited in _inheritable_items(target, block))
            else:
                reverse_entry = LocatedEntry({block.module: declaration.id}, file, line)
                yield target, Item(IN_FORMS[item.key], [reverse_entry], file, line)


def _find_target_blocks(declared: DeclaredStates, requisite: Requisite) -> List[Block]:
    """Return the blocks that an entry of an `_in` form or of `use` names."""
    if requisite.key == "sls":
        return [
            block
            for candidate in declared.declarations.values()
            if candidate.sls == requisite.value
            for block in candidate.blocks.values()
        ]
    if requisite.key == "id":
        declaration = declared.declarations.get(requisite.value)
        if declaration is not None and declaration.blocks:
            return [next(iter(declaration.blocks.values()))]
        return [
            block
            for candidate in declared.declarations.values()
            for block in candidate.blocks.values()
            if any(item.key == "name" and item.value == requisite.value for item in block.items)
        ][:1]
    declaration = find_declaration(declared, requisite.value, requisite.key)
    return [declaration.blocks[requisite.key]] if declaration is not None else []


def _missing_target_message(declared: DeclaredStates, state_id: str, key: str, requisite: Requisite) -> str:
    message = f"{key}: in {state_id!r}: no state {requisite.key}: {requisite.value!r} in this run"
    return message + did_you_mean(requisite.value, declared.declarations)


def _inheritable_items(source: Block, receiver: Block) -> Iterator[Item]:
    """Return the arguments and options of one block that the block which says `use` does not have itself."""
    own_keys = receiver.keys()
    for item in source.items:
        is_requisite = item.key in REQUISITES or item.key in IN_FORMS or item.key in ("use", "use_in", "listen_in")
        if not is_requisite and item.key not in own_keys and item.key not in ("name", "names"):
            yield item


# exclude


def _apply_excludes(declared: DeclaredStates) -> None:
    for exclusion in declared.excludes:
        if exclusion.kind == "id":
            declared.declarations.pop(exclusion.value, None)
        else:
            excluded = [i for i, d in declared.declarations.items() if fnmatch.fnmatch(d.sls, exclusion.value)]
            for state_id in excluded:
                del declared.declarations[state_id]


# States


def _create_states(declared: DeclaredStates, problems: List[Problem]) -> Iterator[State]:
    index = 0
    for declaration in declared.declarations.values():
        for block in declaration.blocks.values():
            if not block.function:
                message = f"{declaration.id!r} names no function of the module {block.module!r}"
                problems.append(Problem(message, block.file, block.line))
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
    """Return items, name and position of each state of a block: `names` makes several states of one block."""
    names = [item for item in block.items if item.key == "names"]
    if not names:
        yield block.items, None, 0
        return
    shared_items = [item for item in block.items if item.key != "names"]
    position = 0
    for item in names:
        if not isinstance(item.value, list):
            problems.append(Problem(f"names: in {declaration.id!r} takes a list", item.file, item.line))
            continue
        seen_entries: List[Any] = []
        for entry, file, line in located_entries(item):
            if entry in seen_entries:
                continue
            seen_entries.append(entry)
            position += 1
            if isinstance(entry, dict) and len(entry) == 1:
                name, own_entries = next(iter(entry.items()))
                if not isinstance(own_entries, list) or not all(isinstance(part, dict) for part in own_entries):
                    message = f"names: {name!r} in {declaration.id!r} takes a list of `name: value`"
                    problems.append(Problem(message, file, line))
                    continue
                own_items = [
                    Item(str(key), value, file, line_of(part, line))
                    for part in own_entries
                    for key, value in part.items()
                ]
                replaced_keys = {own_item.key for own_item in own_items}
                yield (
                    [shared for shared in shared_items if shared.key not in replaced_keys] + own_items,
                    str(name),
                    position,
                )
            elif isinstance(entry, str):
                yield shared_items, entry, position
            else:
                message = f"names: {entry!r} in {declaration.id!r} is no name; put it in quotes"
                problems.append(Problem(message, file, line))


def _fill_state(state: State, items: List[Item], problems: List[Problem]) -> None:
    for item in items:
        if item.key == "name":
            if isinstance(item.value, str):
                state.name = item.value
                state.lines["name"] = (item.file, item.line)
        elif item.key in REQUISITES:
            if isinstance(item.value, list):
                # If it is written twice, the last one counts, as with any argument.
                requisites = [_parse_entry(*located) for located in located_entries(item)]
                if item.key == "listen":
                    state.listen = requisites
                else:
                    state.requisites[item.key] = requisites
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
        message = entry_problem(entry)
        if message:
            problems.append(Problem(f"listen_in: in {state.id!r}: {message}", file, line))
        else:
            state.listen_in.append(_parse_entry(entry, file, line))


def requisites_in_entry_order(state: State) -> Iterator[Tuple[str, Requisite]]:
    """Return a state's requisites in the order in which they enter the graph."""
    kinds = state.requisites
    for kind in kinds if len(kinds) == 1 else ENTRY_ORDER:
        if kind in kinds:
            for requisite in kinds[kind]:
                yield kind, requisite
