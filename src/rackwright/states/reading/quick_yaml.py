"""A fast reader for the simple YAML that nearly all state files use, many times faster than a full YAML parser.

It reads blocks of mappings and lists, quoted and unquoted scalars on one line, `|` texts and flow collections on one
line. Anything else raises `NeedsFullParser`, and the full parser reads the file instead; so this reader never has to
guess, and never reports an error itself. It makes a run start fast, above all on nodes, where PyYAML is pure Python.
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
    """The text needs a full YAML parser."""


def read_plain_yaml(text: str, source_line: Callable[[int], int]) -> Any:
    """Return the document in a text. Raises NeedsFullParser if the text uses more of YAML than this reader knows."""
    if _UNSUPPORTED.search(text):
        raise NeedsFullParser
    return _PlainYamlReader(text, source_line).document()


class _PlainYamlReader:
    """Reads one text, line by line."""

    def __init__(self, text: str, source_line: Callable[[int], int]) -> None:
        self._lines = text.split("\n")
        self._source_line = source_line
        self._line_number = 0
        """The index of the line being read."""
        self._indent = 0
        self._content = ""
        self._skip_to_content()

    def document(self) -> Any:
        if self._line_number >= len(self._lines):
            return None
        value = self._block(self._indent, 0, -1)
        if self._line_number < len(self._lines):
            raise NeedsFullParser
        return value

    def _skip_to_content(self) -> None:
        """Go to the next line that is neither blank nor a comment, beginning with the current one."""
        raw, at, end = self._lines, self._line_number, len(self._lines)
        while at < end:
            line = raw[at]
            content = line.strip()
            if content and content[0] != "#":
                self._indent = len(line) - len(line.lstrip())
                self._content = content
                self._line_number = at
                return
            at += 1
        self._line_number = end
        self._indent = -1

    def _next_line(self) -> None:
        self._line_number += 1
        self._skip_to_content()

    def _block(self, indent: int, depth: int, parent: int) -> Any:
        """Return the value that starts on this line, within a mapping or list that is indented by `parent`."""
        if depth > _DEPTH_LIMIT:
            raise NeedsFullParser
        content = self._content
        if content[0] == "-" and (len(content) == 1 or content[1] == " "):
            return self._sequence(indent, depth)
        if content[0] not in "|[{" and parent >= 0 and _KEY.match(content) is None:
            return self._value(content, parent)
        return self._mapping(indent, depth)

    def _sequence(self, indent: int, depth: int) -> Seq:
        sequence = Seq(self._source_line(self._line_number))
        while (
            self._indent == indent and self._content[0] == "-" and (len(self._content) == 1 or self._content[1] == " ")
        ):
            sequence.lines.append(self._source_line(self._line_number))
            remainder = self._content[1:].lstrip()
            if not remainder or remainder[0] == "#":
                self._next_line()
                if self._indent > indent:
                    sequence.lines[-1] = self._source_line(self._line_number)
                    sequence.append(self._block(self._indent, depth + 1, indent))
                else:
                    sequence.append(None)
            elif (remainder[0] == "-" and remainder[1:2] in ("", " ")) or (
                remainder[0] not in "[{" and _KEY.match(remainder)
            ):
                # A block that starts after the dash: the remainder of the line is its first line.
                self._indent += len(self._content) - len(remainder)
                self._content = remainder
                sequence.append(self._block(self._indent, depth + 1, indent))
            else:
                sequence.append(self._value(remainder, indent))
        if self._indent > indent:
            raise NeedsFullParser
        return sequence

    def _mapping(self, indent: int, depth: int) -> Map:
        mapping = Map(self._source_line(self._line_number))
        while self._indent == indent:
            match = _KEY.match(self._content)
            if match is None:
                raise NeedsFullParser
            key = (
                parse_plain_scalar(match.group("plain").rstrip())
                if match.group("plain") is not None
                else match.group("double") or match.group("single") or ""
            )
            # A key that is there twice is reported by the full parser; a merge is read by it.
            if key in mapping or key == "<<" or isinstance(key, float):
                raise NeedsFullParser
            line = self._source_line(self._line_number)
            if mapping:
                if mapping.lines is None:
                    mapping.lines = {next(iter(mapping)): mapping.line}
                mapping.lines[key] = line
            remainder = self._content[match.end() :]
            if not remainder or remainder[0] == "#":
                self._next_line()
                dash = self._indent == indent and self._content[0] == "-" and self._content[1:2] in ("", " ")
                mapping[key] = self._block(self._indent, depth + 1, indent) if self._indent > indent or dash else None
            else:
                mapping[key] = self._value(remainder, indent)
        if self._indent > indent:
            raise NeedsFullParser
        return mapping

    def _value(self, remainder: str, indent: int) -> Any:
        """Return the value after a key or a dash on the same line, and go to the next line."""
        first = remainder[0]
        if first == "|":
            return self._literal_text(remainder, indent)
        if first in "\"'":
            value: Any = _parse_quoted(remainder)
        elif first in "[{":
            value = self._flow(remainder)
        else:
            value = _parse_unquoted(remainder)
        self._next_line()
        if self._indent > indent:
            # The scalar continues on the next line.
            raise NeedsFullParser
        return value

    def _literal_text(self, remainder: str, indent: int) -> str:
        if remainder not in ("|", "|-"):
            raise NeedsFullParser
        raw, at = self._lines, self._line_number + 1
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
        self._line_number = at
        self._skip_to_content()
        text = "\n".join(lines)
        return text + "\n" if lines and remainder == "|" else text

    # Flow collections on one line

    def _flow(self, remainder: str) -> Any:
        value, end = self._flow_value(remainder, 0, 0)
        trailing = remainder[end:].strip()
        if trailing and not (trailing[0] == "#" and remainder[end] == " "):
            raise NeedsFullParser
        return value

    def _flow_value(self, remainder: str, at: int, depth: int) -> Tuple[Any, int]:
        match = _FLOW_TOKEN.match(remainder, at)
        if match is None or depth > _DEPTH_LIMIT:
            raise NeedsFullParser
        sign, quoted, colon, bare, bare_colon = match.groups()
        if colon or bare_colon:
            raise NeedsFullParser
        if sign == "[":
            return self._flow_list(remainder, match.end(), depth)
        if sign == "{":
            return self._flow_map(remainder, match.end(), depth)
        if sign is not None:
            raise NeedsFullParser
        return (quoted[1:-1] if quoted is not None else _parse_bare(bare)), match.end()

    def _flow_list(self, remainder: str, at: int, depth: int) -> Tuple[Seq, int]:
        line = self._source_line(self._line_number)
        sequence = Seq(line)
        while True:
            match = _FLOW_TOKEN.match(remainder, at)
            if match is not None and match.group(1) == "]" and not sequence:
                return sequence, match.end()
            value, at = self._flow_value(remainder, at, depth + 1)
            sequence.append(value)
            sequence.lines.append(line)
            match = _FLOW_TOKEN.match(remainder, at)
            if match is None or match.group(1) not in (",", "]"):
                raise NeedsFullParser
            at = match.end()
            if match.group(1) == "]":
                return sequence, at

    def _flow_map(self, remainder: str, at: int, depth: int) -> Tuple[Map, int]:
        mapping = Map(self._source_line(self._line_number))
        while True:
            match = _FLOW_TOKEN.match(remainder, at)
            if match is None:
                raise NeedsFullParser
            if match.group(1) == "}" and not mapping:
                return mapping, match.end()
            if not (match.group(3) or match.group(5)):
                raise NeedsFullParser
            key = match.group(2)[1:-1] if match.group(2) is not None else _parse_bare(match.group(4))
            if key in mapping or key == "<<" or isinstance(key, float):
                raise NeedsFullParser
            mapping[key], at = self._flow_value(remainder, match.end(), depth + 1)
            match = _FLOW_TOKEN.match(remainder, at)
            if match is None or match.group(1) not in (",", "}"):
                raise NeedsFullParser
            at = match.end()
            if match.group(1) == "}":
                return mapping, at


def _parse_bare(text: str) -> Any:
    return parse_plain_scalar(text.rstrip())


_DOUBLE = re.compile(r'"([^"\\]*)"\s*(?:\s#.*)?$')
_SINGLE = re.compile(r"'((?:[^']|'')*)'\s*(?:\s#.*)?$")


def _parse_quoted(remainder: str) -> str:
    match = (_DOUBLE if remainder[0] == '"' else _SINGLE).match(remainder)
    if match is None:
        raise NeedsFullParser
    return match.group(1) if remainder[0] == '"' else match.group(1).replace("''", "'")


def _parse_unquoted(remainder: str) -> Any:
    if remainder[0] in _INDICATORS or (remainder[0] == "-" and remainder[1:2] in ("", " ")):
        raise NeedsFullParser
    comment = remainder.find(" #")
    if comment >= 0:
        remainder = remainder[:comment].rstrip()
    if ": " in remainder or remainder[-1] == ":":
        raise NeedsFullParser
    return parse_plain_scalar(remainder)
