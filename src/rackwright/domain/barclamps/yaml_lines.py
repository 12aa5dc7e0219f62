"""YAML text as a tree of values that know their lines, so that a mistake can be shown where it was made.

Only what JSON can hold comes out, by the rules of YAML 1.2 (`yes`, `on` and `12:30` are text). Tags, anchors, aliases
and doubled keys are refused, and so is anything too big or too deep: the text may come from a stranger. What the values
mean is not known here.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import yaml

from rackwright.domain.catalogue import Json
from rackwright.domain.errors import BarclampInvalid

MAX_CHARACTERS = 4 * 1024 * 1024
MAX_DEPTH = 32
MAX_INTEGER = 2**63 - 1

_INTEGER = re.compile(r"[-+]?[0-9]+")
_OTHER_BASE = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NO_NUMBER = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
# What YAML forbids in a file; a lone surrogate is no character at all.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

Plain = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Marked:
    """One value of the file."""

    value: "Plain | list[Marked] | dict[str, Marked]"
    line: int
    key_line: int
    """Where the key stands that names this value; its own line if nothing does."""

    def plain(self) -> Json:
        """The value without its lines. Recursion is safe: no tree is deeper than MAX_DEPTH."""
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value

    def at(self, path: Iterable[str | int]) -> "Marked":
        """What lies at the end of `path`, or as far along it as there is something."""
        here = self
        for step in path:
            if isinstance(here.value, dict) and step in here.value:
                here = here.value[str(step)]
            elif isinstance(here.value, list) and isinstance(step, int) and step < len(here.value):
                here = here.value[step]
            else:
                break
        return here

    def find(self, path: Iterable[str]) -> "Marked | None":
        """What lies at the end of `path` through mappings; None if there is nothing."""
        here = self
        for step in path:
            if not isinstance(here.value, dict) or step not in here.value:
                return None
            here = here.value[step]
        return here


def read_yaml(text: str, file: str) -> Marked:
    """The one document in `text`; BarclampInvalid for everything that is not one."""
    text = text.removeprefix("\ufeff")
    _check_characters(text, file)
    builder = _Builder(file)
    try:
        # Events, not nodes: they come one by one, so that depth is bounded before anything recurses.
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = error.problem or error.context or "it cannot be read"
        raise BarclampInvalid(file, mark.line + 1 if mark else 1, f"This is no valid YAML: {reason}.") from None
    if builder.root is None:
        raise BarclampInvalid(file, 1, "The file is empty; it needs at least a name.")
    return builder.root


def _check_characters(text: str, file: str) -> None:
    if len(text) > MAX_CHARACTERS:
        raise BarclampInvalid(file, 1, f"The file is larger than {MAX_CHARACTERS // 1024**2} MiB; split the barclamp.")
    bad = _FORBIDDEN.search(text)
    if bad:
        line = text.count("\n", 0, bad.start()) + 1
        raise BarclampInvalid(file, line, f"The character U+{ord(bad.group()):04X} is not allowed in YAML; remove it.")


class _Open:
    """A list or mapping whose end has not been read."""

    def __init__(self, line: int, key_line: int, mapping: bool) -> None:
        self.line = line
        self.key_line = key_line
        self.mapping = mapping
        self.items: list[Marked] = []
        self.entries: dict[str, Marked] = {}
        self.key: str | None = None
        self.next_key_line = 0

    def close(self) -> Marked:
        return Marked(self.entries if self.mapping else self.items, self.line, self.key_line)


class _Builder:
    """Turns the parser's events into one tree, iteratively."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.root: Marked | None = None
        self.stack: list[_Open] = []

    def take(self, event: yaml.Event) -> None:
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.DocumentStartEvent) and self.root is not None:
            raise BarclampInvalid(self.file, line, "A second document starts here; a barclamp file has only one.")
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise BarclampInvalid(self.file, line, "Anchors and aliases (& and *) are not allowed; repeat the value.")
        tag = getattr(event, "tag", None)
        if tag:
            raise BarclampInvalid(
                self.file, line, f"Tags ({tag}) are not allowed; write the value alone, text in quotes."
            )
        if isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            self._open(line, isinstance(event, yaml.MappingStartEvent))
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            self._place(self.stack.pop().close())
        elif isinstance(event, yaml.ScalarEvent):
            self._scalar(event, line)

    def _open(self, line: int, mapping: bool) -> None:
        if len(self.stack) == MAX_DEPTH:
            raise BarclampInvalid(self.file, line, f"This is nested deeper than {MAX_DEPTH} levels.")
        if self._at_key():
            raise BarclampInvalid(self.file, line, "A key must be text, not a list or a mapping.")
        self.stack.append(_Open(line, self._key_line(line), mapping))

    def _at_key(self) -> bool:
        return bool(self.stack) and self.stack[-1].mapping and self.stack[-1].key is None

    def _key_line(self, line: int) -> int:
        return self.stack[-1].next_key_line if self.stack and self.stack[-1].mapping else line

    def _scalar(self, event: yaml.ScalarEvent, line: int) -> None:
        value = self._resolve(event.value, line) if event.implicit[0] else self._text(event.value, line)
        if not self._at_key():
            self._place(Marked(value, line, self._key_line(line)))
            return
        mapping = self.stack[-1]
        if not isinstance(value, str):
            raise BarclampInvalid(self.file, line, f"The key {event.value!r} is not text; put it in quotes.")
        if value in mapping.entries:
            first = mapping.entries[value].key_line
            raise BarclampInvalid(self.file, line, f"The key {value!r} is here twice; the first is on line {first}.")
        mapping.key = value
        mapping.next_key_line = line

    def _place(self, child: Marked) -> None:
        if not self.stack:
            self.root = child
            return
        parent = self.stack[-1]
        if parent.key is None:
            parent.items.append(child)
        else:
            parent.entries[parent.key] = child
            parent.key = None

    def _text(self, text: str, line: int) -> str:
        if "\0" in text:  # written as "\0"; PostgreSQL cannot keep it
            raise BarclampInvalid(self.file, line, "Text may not contain the character NUL.")
        return text

    def _resolve(self, text: str, line: int) -> Plain:
        """What an unquoted scalar stands for."""
        if text in _WORDS:
            return _WORDS[text]
        if _INTEGER.fullmatch(text):
            return self._integer(text, line)
        if _OTHER_BASE.fullmatch(text):
            return self._in_range(int(text, 0), line) if len(text) <= 24 else self._too_large(line)
        if _FLOAT.fullmatch(text):
            number = float(text)
            return number if abs(number) != float("inf") else self._too_large(line)
        if _NO_NUMBER.fullmatch(text):
            raise BarclampInvalid(self.file, line, f"{text} is no number that JSON can hold; put text in quotes.")
        return self._text(text, line)

    def _integer(self, text: str, line: int) -> int:
        digits = text.lstrip("+-")
        if len(digits) > 1 and digits.startswith("0"):
            # YAML 1.1 reads 0755 as 493 and YAML 1.2 as 755: whoever wrote it may have meant either.
            raise BarclampInvalid(
                self.file, line, f"{text} could be octal or decimal: write it in quotes, as 0o..., or without the zero."
            )
        return self._in_range(int(text), line) if len(digits) <= 20 else self._too_large(line)

    def _in_range(self, number: int, line: int) -> int:
        return number if abs(number) <= MAX_INTEGER else self._too_large(line)

    def _too_large(self, line: int) -> int:
        raise BarclampInvalid(self.file, line, "This number does not fit in 64 bits; put it in quotes if it is text.")
