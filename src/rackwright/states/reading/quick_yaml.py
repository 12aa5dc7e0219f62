"""Reads the plain part of YAML that nearly all state files are written in, many times faster than a whole YAML parser.

Blocks of mappings and lists, quoted and unquoted scalars on one line, `|` texts and flow collections on one line. What
goes beyond raises `Beyond`, and the whole parser reads the file instead; so this never has to guess, and never reports
an error itself. It is what makes a run start fast, most of all on nodes, where PyYAML is pure Python.
"""

from __future__ import annotations

import re
from typing import Any, Callable, List, Optional, Tuple

from .sls import Map, Seq, parse_plain_scalar

_UNSUPPORTED = re.compile("[\t\r\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff]|^(?:---|\\.\\.\\.|%)", re.M)
# The blanks between an unquoted key and its colon are part of `plain`, or they would be looked at again and again.
_KEY = re.compile(
    r"""(?:"(?P<double>[^"\\]*)"\s*|'(?P<single>[^']*)'\s*|(?P<plain>[^\s"'?:,\[\]{}#&*!|>%@`-][^#]*?|-[^\s#][^#]*?)):(?:\s+|$)"""
)
_INDICATORS = frozenset("?:,[]{}#&*!|>%@`\"'")
_FLOW_TOKEN = re.compile(
    r"""\s*(?:([\[\]{},])|("[^"\\]*"|'[^']*')(\s*:)?|([^\s\[\]{},:#'"&*!|>%@`?-][^\[\]{},:#'"]*|-[^\s\[\]{},:#'"]+)(:(?=\s))?)"""
)
_DEPTH_LIMIT = 40


class NeedsFullParser(Exception):
    """This text needs a whole YAML parser."""


def read_plain_yaml(text: str, source_line: Callable[[int], int]) -> Any:
    """The document in a text. Raises Beyond if it uses more of YAML than this reads."""
    if _UNSUPPORTED.search(text):
        raise NeedsFullParser
    return _PlainYamlReader(text, source_line).document()


class _PlainYamlReader:
    def __init__(self, text: str, source_line: Callable[[int], int]) -> None:
        self._raw = text.split("\n")
        self._source_line = source_line
        self._at = 0
        """The line being read."""
        self._indent = 0
        self._content = ""
        self._advance()

    def document(self) -> Any:
        if self._at >= len(self._raw):
            return None
        read = self._block(self._indent, 0, -1)
        if self._at < len(self._raw):
            raise NeedsFullParser
        return read

    def _advance(self) -> None:
        """To the next line that says something."""
        raw, at, end = self._raw, self._at, len(self._raw)
        while at < end:
            line = raw[at]
            content = line.strip()
            if content and content[0] != "#":
                self._indent = len(line) - len(line.lstrip())
                self._content = content
                self._at = at
                return
            at += 1
        self._at = end
        self._indent = -1

    def _next(self) -> None:
        self._at += 1
        self._advance()

    def _block(self, indent: int, depth: int, parent: int) -> Any:
        """What starts on this line, within something that is indented as much as `parent`."""
        if depth > _DEPTH_LIMIT:
            raise NeedsFullParser
        content = self._content
        if content[0] == "-" and (len(content) == 1 or content[1] == " "):
            return self._sequence(indent, depth)
        if content[0] not in "|[{" and parent >= 0 and _KEY.match(content) is None:
            return self._value(content, parent)
        return self._mapping(indent, depth)

    def _sequence(self, indent: int, depth: int) -> Seq:
        sequence = Seq(self._source_line(self._at))
        while (
            self._indent == indent and self._content[0] == "-" and (len(self._content) == 1 or self._content[1] == " ")
        ):
            sequence.lines.append(self._source_line(self._at))
            rest = self._content[1:].lstrip()
            if not rest or rest[0] == "#":
                self._next()
                if self._indent > indent:
                    sequence.lines[-1] = self._source_line(self._at)
                    sequence.append(self._block(self._indent, depth + 1, indent))
                else:
                    sequence.append(None)
            elif (rest[0] == "-" and rest[1:2] in ("", " ")) or (rest[0] not in "[{" and _KEY.match(rest)):
                # A block that starts behind the dash: the rest of the line is its first line.
                self._indent += len(self._content) - len(rest)
                self._content = rest
                sequence.append(self._block(self._indent, depth + 1, indent))
            else:
                sequence.append(self._value(rest, indent))
        if self._indent > indent:
            raise NeedsFullParser
        return sequence

    def _mapping(self, indent: int, depth: int) -> Map:
        mapping = Map(self._source_line(self._at))
        while self._indent == indent:
            match = _KEY.match(self._content)
            if match is None:
                raise NeedsFullParser
            key = (
                parse_plain_scalar(match.group("plain").rstrip())
                if match.group("plain") is not None
                else match.group("double") or match.group("single") or ""
            )
            # A key that is there twice is the whole parser's to complain about; so is a merge.
            if key in mapping or key == "<<" or isinstance(key, float):
                raise NeedsFullParser
            line = self._source_line(self._at)
            if mapping:
                if mapping.lines is None:
                    mapping.lines = {next(iter(mapping)): mapping.line}
                mapping.lines[key] = line
            rest = self._content[match.end() :]
            if not rest or rest[0] == "#":
                self._next()
                dash = self._indent == indent and self._content[0] == "-" and self._content[1:2] in ("", " ")
                mapping[key] = self._block(self._indent, depth + 1, indent) if self._indent > indent or dash else None
            else:
                mapping[key] = self._value(rest, indent)
        if self._indent > indent:
            raise NeedsFullParser
        return mapping

    def _value(self, rest: str, indent: int) -> Any:
        """What stands behind a key or a dash on the same line; leaves the line behind."""
        first = rest[0]
        if first == "|":
            return self._text(rest, indent)
        if first in "\"'":
            value: Any = _parse_quoted(rest)
        elif first in "[{":
            value = self._flow(rest)
        else:
            value = _parse_unquoted(rest)
        self._next()
        if self._indent > indent:
            # The scalar goes on on the next line.
            raise NeedsFullParser
        return value

    def _text(self, rest: str, indent: int) -> str:
        if rest not in ("|", "|-"):
            raise NeedsFullParser
        raw, at = self._raw, self._at + 1
        lines: List[str] = []
        inner: Optional[int] = None
        while at < len(raw):
            line = raw[at]
            stripped = line.lstrip(" ")
            if not stripped:
                if len(line) > (0 if inner is None else inner):
                    raise NeedsFullParser
                lines.append("")
            else:
                depth = len(line) - len(stripped)
                if inner is None:
                    if depth <= indent:
                        break
                    inner = depth
                if depth < inner:
                    if depth > indent:
                        raise NeedsFullParser
                    break
                lines.append(line[inner:])
            at += 1
        while lines and not lines[-1]:
            lines.pop()
        self._at = at
        self._advance()
        text = "\n".join(lines)
        return text + "\n" if lines and rest == "|" else text

    # Flow collections on one line

    def _flow(self, rest: str) -> Any:
        value, end = self._flow_value(rest, 0, 0)
        behind = rest[end:].strip()
        if behind and not (behind[0] == "#" and rest[end] == " "):
            raise NeedsFullParser
        return value

    def _flow_value(self, rest: str, at: int, depth: int) -> Tuple[Any, int]:
        match = _FLOW_TOKEN.match(rest, at)
        if match is None or depth > _DEPTH_LIMIT:
            raise NeedsFullParser
        sign, quoted, colon, bare, bare_colon = match.groups()
        if colon or bare_colon:
            raise NeedsFullParser
        if sign == "[":
            return self._flow_list(rest, match.end(), depth)
        if sign == "{":
            return self._flow_map(rest, match.end(), depth)
        if sign is not None:
            raise NeedsFullParser
        return (quoted[1:-1] if quoted is not None else _parse_bare(bare)), match.end()

    def _flow_list(self, rest: str, at: int, depth: int) -> Tuple[Seq, int]:
        line = self._source_line(self._at)
        sequence = Seq(line)
        while True:
            match = _FLOW_TOKEN.match(rest, at)
            if match is not None and match.group(1) == "]" and not sequence:
                return sequence, match.end()
            value, at = self._flow_value(rest, at, depth + 1)
            sequence.append(value)
            sequence.lines.append(line)
            match = _FLOW_TOKEN.match(rest, at)
            if match is None or match.group(1) not in (",", "]"):
                raise NeedsFullParser
            at = match.end()
            if match.group(1) == "]":
                return sequence, at

    def _flow_map(self, rest: str, at: int, depth: int) -> Tuple[Map, int]:
        mapping = Map(self._source_line(self._at))
        while True:
            match = _FLOW_TOKEN.match(rest, at)
            if match is None:
                raise NeedsFullParser
            if match.group(1) == "}" and not mapping:
                return mapping, match.end()
            if not (match.group(3) or match.group(5)):
                raise NeedsFullParser
            key = match.group(2)[1:-1] if match.group(2) is not None else _parse_bare(match.group(4))
            if key in mapping or key == "<<" or isinstance(key, float):
                raise NeedsFullParser
            mapping[key], at = self._flow_value(rest, match.end(), depth + 1)
            match = _FLOW_TOKEN.match(rest, at)
            if match is None or match.group(1) not in (",", "}"):
                raise NeedsFullParser
            at = match.end()
            if match.group(1) == "}":
                return mapping, at


def _parse_bare(text: str) -> Any:
    return parse_plain_scalar(text.rstrip())


_DOUBLE = re.compile(r'"([^"\\]*)"\s*(?:\s#.*)?$')
_SINGLE = re.compile(r"'((?:[^']|'')*)'\s*(?:\s#.*)?$")


def _parse_quoted(rest: str) -> str:
    match = (_DOUBLE if rest[0] == '"' else _SINGLE).match(rest)
    if match is None:
        raise NeedsFullParser
    return match.group(1) if rest[0] == '"' else match.group(1).replace("''", "'")


def _parse_unquoted(rest: str) -> Any:
    if rest[0] in _INDICATORS or (rest[0] == "-" and rest[1:2] in ("", " ")):
        raise NeedsFullParser
    comment = rest.find(" #")
    if comment >= 0:
        rest = rest[:comment].rstrip()
    if ": " in rest or rest[-1] == ":":
        raise NeedsFullParser
    return parse_plain_scalar(rest)
