"""Reading the documents that people write as attributes of an install, in YAML or JSON.

Each value is checked by its type, bounded, and allow-listed. Each mistake is told with its line, and the reading goes
on. What the keys mean is not known here: `node_network/` and `storage/` read their documents with this.
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TypeVar

from rackwright.domain.barclamps.marked_values import MarkedValue, read_yaml
from rackwright.domain.catalogue import Json
from rackwright.domain.errors import BarclampInvalid
from rackwright.domain.installs.request import Problem

T = TypeVar("T")
D = TypeVar("D")

LONGEST_TEXT = 64 * 1024
MOST_ITEMS = 64
SHOWN = 60


class BadValue(ValueError):
    """A value is not what its key takes. The text says what the key takes."""


@dataclass
class Problems:
    """Collects what is wrong with the document of an attribute, each with its line."""

    attrib: str
    listed: list[Problem] = field(default_factory=list)

    def add(self, reason: str, line: int | None = None, *, waits: bool = False) -> None:
        self.listed.append(Problem(self.attrib, reason, line, waits))


def read_document(value: Json, problems: Problems) -> MarkedValue | None:
    """Return the document in a text, or the one that came as JSON; None if it is none, which is told."""
    if not isinstance(value, str):
        return mark_json(value)
    if len(value) > LONGEST_TEXT:
        problems.add(f"the document has more than {LONGEST_TEXT} characters")
        return None
    try:
        return read_yaml(value, problems.attrib)
    except BarclampInvalid as error:
        problems.add(error.reason, error.line)
        return None


@dataclass(frozen=True)
class ValueReader:
    """Reads values and collects what is wrong with them."""

    problems: Problems

    def mapping(self, value: MarkedValue, what: str) -> Mapping[str, MarkedValue]:
        if isinstance(value.value, dict) and len(value.value) <= MOST_ITEMS:
            return value.value
        if value.value is not None:
            self.problems.add(f"{what} is a mapping of at most {MOST_ITEMS} keys, not {_show(value)}", line_of(value))
        return {}

    def items(self, value: MarkedValue, what: str) -> list[MarkedValue]:
        if isinstance(value.value, list) and len(value.value) <= MOST_ITEMS:
            return value.value
        self.problems.add(f"{what} is a list of at most {MOST_ITEMS}, not {_show(value)}", line_of(value))
        return []

    def take(
        self, mapping: Mapping[str, MarkedValue], key: str, take: Callable[[Json], T], default: D, where: str
    ) -> T | D:
        """Return the value of a key, or its default if it is not there or is wrong."""
        if key not in mapping:
            return default
        try:
            return take(mapping[key].plain())
        except BadValue as error:
            self.problems.add(f"{where}: {key}: {_show(mapping[key])} {error}", line_of(mapping[key]))
            return default

    def refuse_others(
        self,
        mapping: Mapping[str, MarkedValue],
        known: AbstractSet[str],
        where: str,
        refused: AbstractSet[str] = frozenset(),
    ) -> None:
        """Tell of each key of a mapping that is not known; why those in `refused` are not taken is told elsewhere."""
        for key, value in mapping.items():
            if key not in known and key not in refused:
                listed = ", ".join(sorted(known))
                self.problems.add(f"{key[:40]!r} is not known {where}; there are {listed}", line_of(value))


def line_of(value: MarkedValue) -> int | None:
    """Return the line of a value; None if it does not come from a text."""
    return value.key_line or None


def mark_json(value: Json) -> MarkedValue:
    """Return a value that came as JSON, in which no line is known."""
    if isinstance(value, dict):
        return MarkedValue({key: mark_json(child) for key, child in value.items()}, 0, 0)
    if isinstance(value, list):
        return MarkedValue([mark_json(child) for child in value], 0, 0)
    return MarkedValue(value, 0, 0)


def _show(value: MarkedValue) -> str:
    return repr(value.plain())[:SHOWN]


def take_flag(value: Json) -> bool:
    if isinstance(value, bool):
        return value
    raise BadValue("is neither true nor false")


def take_number(least: int, most: int) -> Callable[[Json], int]:
    def take(value: Json) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        raise BadValue(f"is no number from {least} to {most}")

    return take


def take_word(*words: str) -> Callable[[Json], str]:
    def take(value: Json) -> str:
        if isinstance(value, str) and value in words:
            return value
        raise BadValue(f"is none of {', '.join(words)}")

    return take
