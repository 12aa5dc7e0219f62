"""YAML with positions: the text of one file in, mappings and lists that know their lines out.

Scalars follow YAML 1.1 as Salt reads it: an integer with leading zeros stays decimal (`mode: 0644` is 644) and a date
stays text. Tags that build Python objects are refused. Nothing here knows what a state is.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, Optional, Tuple

from ..refusal import refuse


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


def line_of(value: Any, otherwise: int) -> int:
    return value.line if isinstance(value, (Map, Seq)) else otherwise


_INT = re.compile(r"[-+]?(0b[0-1_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*)$")
_FLOAT = re.compile(r"[-+]?([0-9][0-9_]*\.[0-9_]*([eE][-+][0-9]+)?|\.[0-9][0-9_]*([eE][-+][0-9]+)?)$")
_WORDS: Dict[str, Any] = {"": None, "~": None, ".inf": float("inf"), "-.inf": float("-inf"), ".nan": float("nan")}
for _words, _value in (("null", None), ("true yes on", True), ("false no off", False)):
    for _word in _words.split():
        _WORDS.update(dict.fromkeys((_word, _word.capitalize(), _word.upper()), _value))


def plain(text: str) -> Any:
    """The value of an unquoted scalar."""
    if text in _WORDS:
        return _WORDS[text]
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
    "bool": plain,
    "null": lambda _: None,
}


def parse(text: str, file: str, lines: Optional[List[int]] = None) -> Any:
    """The document in `text`. `lines` gives the source line of each line, where a template was rendered in between."""
    from . import quick_yaml

    builder = Builder(file, lines)
    try:
        return quick_yaml.read(text, builder.source_line)
    except quick_yaml.Beyond:
        return parse_whole(text, builder)


def parse_whole(text: str, builder: "Builder") -> Any:
    """The same with all of YAML."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    file = builder.file
    try:
        for event in yaml.parse(text, Loader=loader):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = builder.source_line(mark.line) if mark else 0
        told = " ".join(part for part in (error.context, error.problem) if part)
        raise refuse(f"not valid YAML: {told}", file, line) from None
    except yaml.YAMLError as error:
        raise refuse(f"not valid YAML: {error}", file) from None
    return builder.document


class Builder:
    """Takes YAML events and builds the document, without recursion and without the intermediate tree of nodes."""

    def __init__(self, file: str, lines: Optional[List[int]]) -> None:
        self.file = file
        self.lines = lines
        self.document: Any = None
        self._documents = 0
        self._anchors: Dict[str, Any] = {}
        self._stack: List[Any] = []
        self._keys: List[Tuple[bool, Any, int]] = []
        """Per open mapping: is a key waiting for its value, which, and its line."""
        self._merges: Dict[int, List[Any]] = {}
        """What << brings in, added when the mapping ends, so that its own keys win."""

    def source_line(self, line: int) -> int:
        if self.lines is None:
            return line + 1
        return self.lines[line] if line < len(self.lines) else (self.lines[-1] if self.lines else 1)

    def take(self, event: Any) -> None:
        kind = type(event).__name__
        if kind == "ScalarEvent":
            line = self.source_line(event.start_mark.line)
            value = self._scalar(event, line)
            if event.anchor:
                self._anchors[event.anchor] = value
            self._place(value, line, event.value == "<<" and event.implicit[0])
        elif kind in ("MappingStartEvent", "SequenceStartEvent"):
            self._open(event, kind == "MappingStartEvent")
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            self._close()
        elif kind == "AliasEvent":
            line = self.source_line(event.start_mark.line)
            if event.anchor not in self._anchors:
                raise refuse(f"the alias *{event.anchor} has no anchor &{event.anchor} above it", self.file, line)
            self._place(self._anchors[event.anchor], line, False)
        elif kind == "DocumentStartEvent":
            self._documents += 1
            if self._documents > 1:
                line = self.source_line(event.start_mark.line)
                raise refuse("a second document (---) in one file; put it in a file of its own", self.file, line)

    def _open(self, event: Any, mapping: bool) -> None:
        line = self.source_line(event.start_mark.line)
        if event.tag is not None and event.tag not in (_STANDARD + "map", _STANDARD + "seq"):
            raise refuse(f"the tag {event.tag!r} is not allowed in a state file", self.file, line)
        value: Any = Map(line) if mapping else Seq(line)
        if event.anchor:
            self._anchors[event.anchor] = value
        self._place(value, line, False)
        self._stack.append(value)
        if mapping:
            self._keys.append((False, None, line))

    def _close(self) -> None:
        closed = self._stack.pop()
        if type(closed) is Map:
            self._keys.pop()
            for source in self._merges.pop(id(closed), ()):
                for key, merged in source.items():
                    closed.setdefault(key, merged)

    def _scalar(self, event: Any, line: int) -> Any:
        if event.tag is None or event.tag == "!":
            return plain(event.value) if event.implicit[0] else event.value
        make = _TAGS.get(event.tag[len(_STANDARD) :]) if event.tag.startswith(_STANDARD) else None
        if make is None:
            raise refuse(f"the tag {event.tag!r} is not allowed in a state file", self.file, line)
        try:
            return make(event.value)
        except ValueError:
            raise refuse(f"{event.value!r} is not of the type its tag {event.tag!r} says", self.file, line) from None

    def _place(self, value: Any, line: int, merge: bool) -> None:
        if not self._stack:
            self.document = value
            return
        holder = self._stack[-1]
        if type(holder) is Seq:
            holder.append(value)
            holder.lines.append(line)
            return
        waiting, key, key_line = self._keys[-1]
        if not waiting:
            self._keys[-1] = (True, _MERGE if merge else self._key(value, line), line)
            return
        self._keys[-1] = (False, None, line)
        if key is _MERGE:
            self._merge(holder, value, key_line)
        else:
            self._put(holder, key, value, key_line)

    def _key(self, value: Any, line: int) -> Any:
        if isinstance(value, (dict, list)):
            raise refuse("a mapping or a list cannot be a key", self.file, line)
        return value

    def _put(self, holder: Map, key: Any, value: Any, line: int) -> None:
        if key in holder:
            raise refuse(f"{key!r} is there twice (first on line {holder.line_of(key)})", self.file, line)
        if holder:
            if holder.lines is None:
                holder.lines = {next(iter(holder)): holder.line}
            holder.lines[key] = line
        holder[key] = value

    def _merge(self, holder: Map, value: Any, line: int) -> None:
        for source in value if isinstance(value, list) else [value]:
            if not isinstance(source, dict):
                raise refuse("<<: takes a mapping or a list of mappings", self.file, line)
            self._merges.setdefault(id(holder), []).append(source)


_MERGE = object()
