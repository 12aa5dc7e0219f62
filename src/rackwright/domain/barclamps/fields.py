"""A reader for the fields of one mapping in a barclamp file, which checks each for its type and shape.

Every error names the jig, role or the like that it is about and carries the line of the value. The keys, and what they
mean together, are in `barclamp_file.py`.
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches

from rackwright.domain.barclamps.marked_values import MarkedValue
from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.errors import BarclampInvalid

MAX_NAME = 63
MAX_MAP = 16
_NAME = re.compile(r"[a-z][a-z0-9_-]*")
_STEP = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def suggest_name(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for the known name that is most like `word`; an empty text if none is."""
    matches = get_close_matches(word, list(known), 1)
    return f"; did you mean {matches[0]!r}?" if matches else ""


def shorten_value(value: Json) -> str:
    """Return a value as messages show it, cut off if it is long."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


class FieldReader:
    """Reads the fields of one mapping; raises BarclampInvalid for a field that is unknown or of the wrong type."""

    def __init__(self, marked: MarkedValue, file: str, what: str, known: tuple[str, ...]) -> None:
        self.file = file
        self.what = what
        """What the mapping describes, as messages name it: "a jig", "role 'dns-server'"."""
        if not isinstance(marked.value, dict):
            raise BarclampInvalid(file, marked.line, f"{what.capitalize()} must be a mapping of keys to values.")
        self._entries = marked.value
        self._line = marked.line
        for key, value in self._entries.items():
            if key not in known:
                reason = f"There is no key {shorten_value(key)} in {what}{suggest_name(key, known) or '.'}"
                raise BarclampInvalid(file, value.key_line, f"{reason} The keys are: {', '.join(known)}.")

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def marked(self, key: str) -> MarkedValue:
        return self._entries[key]

    def line(self, key: str) -> int:
        return self._entries[key].line if key in self._entries else self._line

    def line_of(self, key: str, name: str) -> int:
        """Return the line of `name` in the list at `key`."""
        return next((line for text, line in self.texts(key) if text == name), self.line(key))

    def wrong(self, key: str, reason: str) -> BarclampInvalid:
        return BarclampInvalid(self.file, self.line(key), reason)

    def _mistyped(self, key: str, words: str) -> BarclampInvalid:
        return self.wrong(key, f"{key!r} of {self.what} must be {words}, not {_type_words(self._entries[key])}.")

    def text(self, key: str) -> str:
        if key not in self._entries:
            return ""
        value = self._entries[key].value
        if not isinstance(value, str):
            raise self._mistyped(key, "text (a number in quotes)")
        return value

    def boolean(self, key: str, default: bool) -> bool:
        value = self._entries[key].value if key in self._entries else default
        if not isinstance(value, bool):
            raise self._mistyped(key, "true or false")
        return value

    def number(self, key: str, default: int, lowest: int, highest: int) -> int:
        value = self._entries[key].value if key in self._entries else default
        if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
            raise self._mistyped(key, f"a whole number from {lowest} to {highest}")
        return value

    def seconds(self, key: str, highest: int) -> float | None:
        if key not in self._entries:
            return None
        value = self._entries[key].value
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= highest:
            raise self._mistyped(key, f"a number of seconds above 0 and up to {highest}")
        return float(value)

    def mapping(self, key: str) -> JsonObject:
        if key not in self._entries:
            return {}
        value = self._entries[key].plain()
        if not isinstance(value, dict):
            raise self._mistyped(key, "a mapping")
        return value

    def items(self, key: str) -> list[MarkedValue]:
        if key not in self._entries:
            return []
        value = self._entries[key].value
        if not isinstance(value, list):
            raise self._mistyped(key, "a list")
        return value

    def texts(self, key: str) -> list[tuple[str, int]]:
        """Return the texts listed at `key`, each with its line; refuse one that is there twice."""
        seen: dict[str, int] = {}
        for item in self.items(key):
            if not isinstance(item.value, str):
                raise BarclampInvalid(
                    self.file, item.line, f"{key!r} of {self.what} must list text only, not {_type_words(item)}."
                )
            if item.value in seen:
                raise BarclampInvalid(self.file, item.line, f"{item.value!r} is twice in {key!r} of {self.what}.")
            seen[item.value] = item.line
        return list(seen.items())

    def name(self, key: str) -> str:
        if key not in self._entries:
            raise BarclampInvalid(self.file, self._line, f"The key {key!r} is missing in {self.what}.")
        return self._checked_name(key, self.text(key), self.line(key))

    def optional_name(self, key: str) -> str | None:
        return self.name(key) if key in self._entries else None

    def names(self, key: str) -> tuple[str, ...]:
        return tuple(self._checked_name(key, text, line) for text, line in self.texts(key))

    def _checked_name(self, key: str, text: str, line: int) -> str:
        if not _NAME.fullmatch(text) or len(text) > MAX_NAME:
            raise BarclampInvalid(
                self.file,
                line,
                f"{shorten_value(text)} in {key!r} of {self.what} is no name: a name is lower-case letters, digits, -"
                f" and _, starts with a letter and has at most {MAX_NAME} characters.",
            )
        return text

    def path(self, key: str) -> tuple[str, ...]:
        """Return the path into attribute data at `key`, such as `crowbar/target_os`."""
        if key not in self._entries:
            raise BarclampInvalid(self.file, self._line, f"The key {key!r} is missing in {self.what}.")
        steps = tuple(self.text(key).split("/"))
        if len(steps) > MAX_MAP:
            raise self.wrong(key, f"{key!r} of {self.what} has more than {MAX_MAP} steps.")
        for step in steps:
            if not _STEP.fullmatch(step):
                raise self.wrong(
                    key,
                    f"{shorten_value(step)} in {key!r} of {self.what} is no step of a path: write steps of letters,"
                    " digits, _, - and . with one / between them, as in crowbar/target_os.",
                )
            if step.isdigit():
                raise self.wrong(
                    key,
                    f"{step!r} in {key!r} of {self.what} could be a key or a place in a list, and places in lists are"
                    " not merged: map the whole list.",
                )
        return steps


def _type_words(marked: MarkedValue) -> str:
    """Return the type of a value in words for messages, or a simple value itself."""
    value = marked.value
    if value is None:
        return "empty (leave the key out instead)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return shorten_value(value)
