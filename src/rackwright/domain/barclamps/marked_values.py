"""The values of a YAML file, each with its line, so that a mistake can be shown where it was made.

`read_yaml` returns only values that JSON can hold, by the rules of YAML 1.2 (`yes`, `on` and `12:30` are text). Tags,
anchors, aliases and doubled keys are refused, and so is anything too big or too deep: the text may come from a
stranger. The meaning of the values is not known here. How the parser's events become a tree is
`states/reading/yaml_lines.py`, which state files share.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import yaml

from rackwright.domain.catalogue import Json
from rackwright.domain.errors import BarclampInvalid
from rackwright.states.reading.yaml_lines import YamlMessages, YamlReader

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
class MarkedValue:
    """One value of the file, with its line."""

    value: "Plain | list[MarkedValue] | dict[str, MarkedValue]"
    line: int
    key_line: int
    """The line of the key that names this value; the value's own line if it has no key."""

    def plain(self) -> Json:
        """Return the value without its lines. Recursion is safe: no tree is deeper than MAX_DEPTH."""
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value

    def at(self, path: Iterable[str | int]) -> "MarkedValue":
        """Return the value at the end of `path`, or the last one along the path that exists."""
        current = self
        for step in path:
            if isinstance(current.value, dict) and step in current.value:
                current = current.value[str(step)]
            elif isinstance(current.value, list) and isinstance(step, int) and step < len(current.value):
                current = current.value[step]
            else:
                break
        return current

    def find(self, path: Iterable[str]) -> "MarkedValue | None":
        """Return the value at the end of `path` through mappings; None if there is none."""
        current = self
        for step in path:
            if not isinstance(current.value, dict) or step not in current.value:
                return None
            current = current.value[step]
        return current


def read_yaml(text: str, file: str) -> MarkedValue:
    """Return the one document in `text`; raise BarclampInvalid for everything that is not one."""
    text = text.removeprefix("\ufeff")
    _check_characters(text, file)
    document = _Reader(file).read(text)
    if document is None:
        raise BarclampInvalid(file, 1, "The file is empty; it needs at least a name.")
    return document


def _check_characters(text: str, file: str) -> None:
    if len(text) > MAX_CHARACTERS:
        raise BarclampInvalid(file, 1, f"The file is larger than {MAX_CHARACTERS // 1024**2} MiB; split the barclamp.")
    match = _FORBIDDEN.search(text)
    if match:
        line = text.count("\n", 0, match.start()) + 1
        code = ord(match.group())
        raise BarclampInvalid(file, line, f"The character U+{code:04X} is not allowed in YAML; remove it.")


class _Reader(YamlReader[MarkedValue, str]):
    """Builds the tree of values of one file."""

    messages = YamlMessages(
        second_document="A second document starts here; a barclamp file has only one.",
        collection_as_key="A key must be text, not a list or a mapping.",
        doubled_key="The key {key!r} is here twice; the first is on line {first}.",
        too_deep=f"This is nested deeper than {MAX_DEPTH} levels.",
    )
    depth_limit = MAX_DEPTH

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = file

    def refusal(self, text: str, line: int) -> BarclampInvalid:
        return BarclampInvalid(self.file, line, text)

    def invalid(self, context: str, problem: str, line: int | None) -> BarclampInvalid:
        return self.refusal(f"This is no valid YAML: {problem or context or 'it cannot be read'}.", line or 1)

    def check(self, event: yaml.Event, line: int) -> None:
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise self.refusal("Anchors and aliases (& and *) are not allowed; repeat the value.", line)
        if tag := getattr(event, "tag", None):
            raise self.refusal(f"Tags ({tag}) are not allowed; write the value alone, text in quotes.", line)

    def scalar(self, event: yaml.ScalarEvent, line: int, key_line: int) -> MarkedValue:
        return MarkedValue(self._resolved(event, line), line, key_line)

    def key(self, event: yaml.ScalarEvent | yaml.AliasEvent, line: int) -> str:
        assert isinstance(event, yaml.ScalarEvent)  # `check` lets no alias in
        key = self._resolved(event, line)
        if not isinstance(key, str):
            raise self.refusal(f"The key {event.value!r} is not text; put it in quotes.", line)
        return key

    def alias(self, event: yaml.AliasEvent, line: int) -> MarkedValue:
        raise NotImplementedError  # `check` lets no alias in

    def begin(self, event: yaml.CollectionStartEvent, is_mapping: bool, line: int, key_line: int) -> MarkedValue:
        return MarkedValue({} if is_mapping else [], line, key_line)

    def first_line(self, mapping: MarkedValue, key: str) -> int | None:
        value = mapping.find([key])
        return None if value is None else value.key_line

    def put(self, mapping: MarkedValue, key: str, value: MarkedValue, key_line: int) -> None:
        assert isinstance(mapping.value, dict)
        mapping.value[key] = value

    def append(self, sequence: MarkedValue, value: MarkedValue, line: int) -> None:
        assert isinstance(sequence.value, list)
        sequence.value.append(value)

    def _resolved(self, event: yaml.ScalarEvent, line: int) -> Plain:
        return self._plain(event.value, line) if event.implicit[0] else self._text(event.value, line)

    def _text(self, text: str, line: int) -> str:
        if "\0" in text:  # written as "\0"; PostgreSQL cannot keep it
            raise self.refusal("Text may not contain the character NUL.", line)
        return text

    def _plain(self, text: str, line: int) -> Plain:
        """Return the value that an unquoted scalar stands for."""
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
            raise self.refusal(f"{text} is no number that JSON can hold; put text in quotes.", line)
        return self._text(text, line)

    def _integer(self, text: str, line: int) -> int:
        digits = text.lstrip("+-")
        if len(digits) > 1 and digits.startswith("0"):
            # YAML 1.1 reads 0755 as 493 and YAML 1.2 as 755: the author may have meant either.
            raise self.refusal(
                f"{text} could be octal or decimal: write it in quotes, as 0o..., or without the zero.", line
            )
        return self._in_range(int(text), line) if len(digits) <= 20 else self._too_large(line)

    def _in_range(self, number: int, line: int) -> int:
        return number if abs(number) <= MAX_INTEGER else self._too_large(line)

    def _too_large(self, line: int) -> int:
        raise self.refusal("This number does not fit in 64 bits; put it in quotes if it is text.", line)
