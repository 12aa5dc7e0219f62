"""Parses the YAML of a state file into mappings and lists that know their lines.

Scalars follow YAML 1.1 as Salt reads it: an integer with leading zeros stays decimal (`mode: 0644` is 644) and a date
stays text. Tags that build Python objects are refused. Nothing here knows what a state is. `yaml_lines.py`
makes a tree of the parser's events; plain files are read faster by `quick_yaml.py`, with the same result.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional

from ..refusal import RunRefused, refuse
from .yaml_lines import YamlMessages, YamlReader

if TYPE_CHECKING:
    import yaml


class Map(Dict[Any, Any]):
    """A mapping with the line of each of its keys. `line` is that of the first one."""

    __slots__ = ("line", "lines")

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line
        self.lines: Optional[Dict[Any, int]] = None

    def line_of(self, key: Any) -> int:
        return self.line if self.lines is None else self.lines.get(key, self.line)


class Seq(List[Any]):
    """A list with the line of each of its items."""

    __slots__ = ("line", "lines")

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line
        self.lines: List[int] = []

    def line_of(self, index: int) -> int:
        return self.lines[index] if index < len(self.lines) else self.line


def line_of(value: Any, default: int) -> int:
    """Return the line of a mapping or list; `default` for a scalar, which does not know its line."""
    return value.line if isinstance(value, (Map, Seq)) else default


_INT = re.compile(r"[-+]?(0b[0-1_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*)$")
_FLOAT = re.compile(r"[-+]?([0-9][0-9_]*\.[0-9_]*([eE][-+][0-9]+)?|\.[0-9][0-9_]*([eE][-+][0-9]+)?)$")
_PLAIN_WORDS: Dict[str, Any] = {"": None, "~": None, ".inf": float("inf"), "-.inf": float("-inf"), ".nan": float("nan")}
for _words, _value in (("null", None), ("true yes on", True), ("false no off", False)):
    for _word in _words.split():
        _PLAIN_WORDS.update(dict.fromkeys((_word, _word.capitalize(), _word.upper()), _value))


def parse_plain_scalar(text: str) -> Any:
    """Return the value of an unquoted scalar."""
    if text in _PLAIN_WORDS:
        return _PLAIN_WORDS[text]
    if text[0] in "0123456789+-.":
        if _INT.match(text):
            return _integer(text)
        if _FLOAT.match(text):
            return float(text.replace("_", ""))
    return text


def _integer(text: str) -> int:
    digits = text.replace("_", "")
    sign = -1 if digits[0] == "-" else 1
    digits = digits.lstrip("+-")
    if digits[:2] == "0b":
        return sign * int(digits[2:], 2)
    if digits[:2] == "0x":
        return sign * int(digits[2:], 16)
    return sign * int(digits)


_STANDARD = "tag:yaml.org,2002:"
_TAGS: Dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": _integer,
    "float": lambda text: float(text.replace("_", "")),
    "bool": parse_plain_scalar,
    "null": lambda _: None,
}


def parse_yaml(text: str, file: str, lines: Optional[List[int]] = None) -> Any:
    """Return the document in a text. `lines` has the source line of each line, if a template was rendered."""
    from . import quick_yaml

    reader = StateFileReader(file, lines)
    try:
        return quick_yaml.read_plain_yaml(text, reader.source_line)
    except quick_yaml.NeedsFullParser:
        return parse_with_pyyaml(text, reader)


def parse_with_pyyaml(text: str, reader: "StateFileReader") -> Any:
    """Return the document in a text, read by PyYAML, which knows all of YAML."""
    return reader.read(text)


_MERGE = object()
"""Stands for the key <<, whose value is merged into the mapping."""


class StateFileReader(YamlReader[Any, Any]):
    """Builds the document of a state file from the events of the YAML parser."""

    messages = YamlMessages(
        second_document="a second document (---) in one file; put it in a file of its own",
        collection_as_key="a mapping or a list cannot be a key",
        doubled_key="{key!r} is there twice (first on line {first})",
    )

    def __init__(self, file: str, lines: Optional[List[int]]) -> None:
        super().__init__()
        self.file = file
        self.lines = lines
        self._anchors: Dict[str, Any] = {}
        self._merges: Dict[int, List[Any]] = {}
        """id of a mapping -> what << merges into it, when the mapping ends, so that its own keys win."""

    def source_line(self, line: int) -> int:
        if self.lines is None:
            return line + 1
        return self.lines[line] if line < len(self.lines) else (self.lines[-1] if self.lines else 1)

    def refusal(self, text: str, line: int) -> RunRefused:
        return refuse(text, self.file, line)

    def invalid(self, context: str, problem: str, line: Optional[int]) -> RunRefused:
        message = " ".join(part for part in (context, problem) if part)
        return refuse(f"not valid YAML: {message}", self.file, line or 0)

    def check(self, event: Any, line: int) -> None:
        """Refuse tags of mappings and lists, except the standard ones; tags of scalars are handled with the scalar."""
        tag = None if hasattr(event, "value") else getattr(event, "tag", None)
        if tag is not None and tag not in (_STANDARD + "map", _STANDARD + "seq"):
            raise self.refusal(f"the tag {tag!r} is not allowed in a state file", line)

    def scalar(self, event: yaml.ScalarEvent, line: int, key_line: int) -> Any:
        value = self._resolve_scalar(event, line)
        if event.anchor:
            self._anchors[event.anchor] = value
        return value

    def _resolve_scalar(self, event: yaml.ScalarEvent, line: int) -> Any:
        if event.tag is None or event.tag == "!":
            return parse_plain_scalar(event.value) if event.implicit[0] else event.value
        construct = _TAGS.get(event.tag[len(_STANDARD) :]) if event.tag.startswith(_STANDARD) else None
        if construct is None:
            raise self.refusal(f"the tag {event.tag!r} is not allowed in a state file", line)
        try:
            return construct(event.value)
        except ValueError:
            raise self.refusal(f"{event.value!r} is not of the type its tag {event.tag!r} says", line) from None

    def alias(self, event: yaml.AliasEvent, line: int) -> Any:
        if event.anchor not in self._anchors:
            raise self.refusal(f"the alias *{event.anchor} has no anchor &{event.anchor} above it", line)
        return self._anchors[event.anchor]

    def key(self, event: Any, line: int) -> Any:
        if hasattr(event, "value"):
            key = self.scalar(event, line, line)
            return _MERGE if event.value == "<<" and event.implicit[0] else key
        key = self.alias(event, line)
        if isinstance(key, (dict, list)):
            raise self.refusal(self.messages.collection_as_key, line)
        return key

    def begin(self, event: yaml.CollectionStartEvent, is_mapping: bool, line: int, key_line: int) -> Any:
        collection: Any = Map(line) if is_mapping else Seq(line)
        if event.anchor:
            self._anchors[event.anchor] = collection
        return collection

    def first_line(self, mapping: Map, key: Any) -> Optional[int]:
        return mapping.line_of(key) if key in mapping else None

    def put(self, mapping: Map, key: Any, value: Any, key_line: int) -> None:
        if key is _MERGE:
            self._merge(mapping, value, key_line)
            return
        if mapping:
            if mapping.lines is None:
                mapping.lines = {next(iter(mapping)): mapping.line}
            mapping.lines[key] = key_line
        mapping[key] = value

    def append(self, sequence: Seq, value: Any, line: int) -> None:
        sequence.append(value)
        sequence.lines.append(line)

    def _merge(self, mapping: Map, value: Any, line: int) -> None:
        for source in value if isinstance(value, list) else [value]:
            if not isinstance(source, dict):
                raise self.refusal("<<: takes a mapping or a list of mappings", line)
            self._merges.setdefault(id(mapping), []).append(source)

    def end(self, collection: Any) -> None:
        for source in self._merges.pop(id(collection), ()):
            for key, merged in source.items():
                collection.setdefault(key, merged)
