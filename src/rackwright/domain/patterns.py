"""Regular expressions of people and images: whether one may take very long, and on how long a text it is tried.

Python tries alternatives one by one, holds up the whole process while it does, and cannot be told to stop. So a pattern
whose loops can share out one text in ever more ways is refused before it is used, and the text of others is bounded by
the number of loops that can take the same characters. Pure; `docs/barclamps.md` says it for people.
"""

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from typing import cast

_PARSER = import_module("re._parser")
"""Python's own: no other reads a pattern surely as it is applied. It has no types."""
LONGEST_PATTERN = 1000
LONGEST_TEXTS = (16384, 2048, 256)
"""Characters on which a pattern is tried: without loops that can take the same characters, with one pair, with two."""
LONGEST_UNANCHORED = 4096
"""Characters for one that may begin anywhere, and is tried there."""
LEAST_LONGEST = 64
FEW, NARROW = 4, 64
"""A loop of so few rounds, over so few characters, can share out a text in few ways only."""

Characters = frozenset[int]
Items = Sequence[tuple[object, object]]

_EVERY = frozenset({*range(256), 0x3B1, 0x663, 0x20AC, 0x1F600})
"""What stands for all characters: those of Latin, a letter, a digit and symbols of others."""
_BACKWARDS = ("GROUPREF", "GROUPREF_EXISTS")
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT")
_LOOP = 32
"""Rounds from which on a repetition counts as one without end."""


@lru_cache(maxsize=4096)
def find_pattern_fault(pattern: str) -> str | None:
    """Return why a pattern must not be used; None if it may be. One that is no pattern has no fault here."""
    if len(pattern) > LONGEST_PATTERN:
        return f"it has more than {LONGEST_PATTERN} characters"
    items = _parse(pattern)
    return None if items is None else next(_find_faults(items), None)


@lru_cache(maxsize=4096)
def longest_text(pattern: str) -> int:
    """Return how many characters a text may have that a pattern without a fault is tried on."""
    items = _parse(pattern)
    if items is None:
        return LONGEST_UNANCHORED
    count = _Loops()
    count.read(items)
    longest = LONGEST_TEXTS[count.conflicts] if count.conflicts < len(LONGEST_TEXTS) else LEAST_LONGEST
    return longest if _is_anchored(items) else min(longest, LONGEST_UNANCHORED)


def _parse(pattern: str) -> Items | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return list(_PARSER.parse(pattern))
    except (re.error, OverflowError, RecursionError):
        return None


def _is_anchored(items: Items) -> bool:
    return bool(items) and str(items[0][0]) == "AT" and str(items[0][1]) in ("AT_BEGINNING", "AT_BEGINNING_STRING")


def _find_faults(items: Items) -> Iterator[str]:
    for operation, argument in items:
        name = str(operation)
        if name in _BACKWARDS:
            yield "it refers to what it found before"
        if name in _REPEATS:
            _, most, body = cast("tuple[int, int, Items]", argument)
            if most > 1 and _has_choice(body) and not _is_small(body, most) and not _is_certain(list(body)):
                yield "it repeats what can itself be read in several ways, such as (a+)+"
        for inner in _parts(name, argument):
            yield from _find_faults(inner)


def _parts(name: str, argument: object) -> list[Items]:
    """Return the patterns that an item consists of."""
    if name in (*_REPEATS, "POSSESSIVE_REPEAT"):
        return [list(cast("tuple[int, int, Items]", argument)[2])]
    if name == "SUBPATTERN":
        return [list(cast("tuple[object, int, int, Items]", argument)[3])]
    if name == "BRANCH":
        return [list(branch) for branch in cast("tuple[object, list[Items]]", argument)[1]]
    if name in ("ASSERT", "ASSERT_NOT"):
        return [list(cast("tuple[int, Items]", argument)[1])]
    return [list(cast("Items", argument))] if name == "ATOMIC_GROUP" else []


def _has_choice(items: Items) -> bool:
    """Return whether a pattern can take texts of several lengths, or the same in several ways."""
    for operation, argument in items:
        name = str(operation)
        if name == "BRANCH":
            return True
        if name in _REPEATS and cast("tuple[int, int, Items]", argument)[0] != cast("tuple[int, int]", argument)[1]:
            return True
        if any(_has_choice(part) for part in _parts(name, argument)):
            return True
    return False


def _is_small(body: object, most: int) -> bool:
    _, width = cast("tuple[int, int]", body.getwidth())  # type: ignore[attr-defined]
    return most <= FEW and width <= NARROW


def _is_certain(body: Items) -> bool:
    """Return whether the rounds of a loop are told apart by a character that begins or ends each of them."""
    branches = _branches(body)
    if len(branches) > 1:
        firsts = [_single(branch[0]) if branch else None for branch in branches]
        known = [first for first in firsts if first is not None]
        apart = len(known) == len(firsts) and sum(map(len, known)) == len(frozenset().union(*known))
        return apart and not any(_has_choice(branch) for branch in branches)
    [branch] = branches
    for mark, rest in ((branch[:1], branch[1:]), (branch[-1:], branch[:-1])):
        characters = _single(mark[0]) if mark else None
        if characters and not characters & _characters(rest) and not any(map(_is_unsure, rest)):
            return True
    return False


def _is_unsure(item: tuple[object, object]) -> bool:
    """Return whether an item within a loop is itself a choice that is not told apart: then it is no single loop."""
    name = str(item[0])
    if name in _REPEATS:
        return any(_has_choice(part) for part in _parts(name, item[1]))
    return name == "BRANCH" or (name == "SUBPATTERN" and any(_has_choice(part) for part in _parts(name, item[1])))


def _branches(body: Items) -> list[Items]:
    """Return the alternatives of a loop, groups around all of it taken away."""
    while len(body) == 1 and str(body[0][0]) == "SUBPATTERN":
        [body] = _parts("SUBPATTERN", body[0][1])
    return _parts("BRANCH", body[0][1]) if len(body) == 1 and str(body[0][0]) == "BRANCH" else [body]


@lru_cache(maxsize=1024)
def _matching(source: str) -> Characters:
    return frozenset(code for code in _EVERY if re.fullmatch(source, chr(code), re.DOTALL))


def _single(item: tuple[object, object]) -> Characters | None:
    """Return the characters of which an item takes one; None if it takes none, or several."""
    name, argument = str(item[0]), item[1]
    if name == "LITERAL":
        return frozenset({cast("int", argument)})
    if name == "NOT_LITERAL":
        return _EVERY - {cast("int", argument)}
    if name == "ANY":
        return _EVERY
    return _members(cast("Items", argument)) if name == "IN" else None


def _members(entries: Items) -> Characters:
    members: set[int] = set()
    for operation, argument in entries:
        name = str(operation)
        if name == "LITERAL":
            members.add(cast("int", argument))
        elif name == "RANGE":
            first, last = cast("tuple[int, int]", argument)
            members.update(code for code in _EVERY if first <= code <= last)
            members.update((first, last))
        elif name == "CATEGORY":
            members |= _matching(_CATEGORIES.get(str(argument), "."))
    return _EVERY - members if entries and str(entries[0][0]) == "NEGATE" else frozenset(members)


_CATEGORIES = {
    **{f"CATEGORY_{name}": f"\\{letter}" for name, letter in (("DIGIT", "d"), ("SPACE", "s"), ("WORD", "w"))},
    **{f"CATEGORY_NOT_{name}": f"\\{letter}" for name, letter in (("DIGIT", "D"), ("SPACE", "S"), ("WORD", "W"))},
}


def _characters(items: Items) -> Characters:
    """Return all characters that a pattern can take."""
    found: Characters = frozenset()
    for item in items:
        found |= _single(item) or frozenset()
        if str(item[0]) not in ("ASSERT", "ASSERT_NOT"):
            found = found.union(*map(_characters, _parts(str(item[0]), item[1])))
    return found


@dataclass
class _Loops:
    """Counts the loops of a pattern that can take characters which an earlier one has left."""

    conflicts: int = 0
    open: list[Characters] = field(default_factory=list)
    """What the loops before can take, as far as nothing between says where they end."""

    def read(self, items: Items) -> None:
        for item in items:
            name, argument = str(item[0]), item[1]
            if (characters := _single(item)) is not None:
                self.open = [loop for loop in self.open if loop & characters]
            elif name in _REPEATS and cast("tuple[int, int]", argument)[1] >= _LOOP:
                self._loop(_characters(_parts(name, argument)[0]))
            elif name == "SUBPATTERN":
                self.read(_parts(name, argument)[0])
            elif name not in ("AT", "ASSERT", "ASSERT_NOT"):
                for part in _parts(name, argument):
                    before = list(self.open)
                    self.read(part)
                    self.open = [*before, *(loop for loop in self.open if loop not in before)]

    def _loop(self, characters: Characters) -> None:
        self.conflicts += any(loop & characters for loop in self.open)
        self.open.append(characters)
