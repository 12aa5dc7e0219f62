"""Puts outputs of other states into commands as values: nothing of them is ever read as shell text.

A shell is given each output in an environment variable, and the command only names the variable. So the worst that an
odd place in a command can do is to show the variable's name or to cut the value into words; it cannot be run. Where no
environment goes along (words for a program, a line of a crontab) the output is quoted instead, and places in which that
is not certain are refused. A state that is meant to run an output says so in the shell's own words:
`eval ${ID.stdout}`.
"""

from __future__ import annotations

import enum
import os
import re
import shlex
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from .module import StateError

SHELL, WORDS, CRON, TEMPLATE = "shell", "words", "cron", "template"
"""What reads an argument (`Argument.read_by`): a shell at once, whoever cuts it into words, cron's shell, Jinja."""
POSIX_SHELLS = frozenset(("sh", "bash", "dash", "ash", "ksh", "ksh93", "mksh", "zsh", "yash"))
VARIABLE = "RACKWRIGHT_OUTPUT_"

_INTEGER = re.compile(r"-?[0-9]{1,18}")
_BASH_TEST = re.compile(r"\[\[.*?(?:\]\]|\Z)", re.S)
_COMPARES_NUMBERS = re.compile(r"\s-(?:eq|ne|lt|le|gt|ge)\s")
_HERE_DOCUMENT = re.compile(r"<<(-?)[ \t]*((?:'[^'\n]*'|\"[^\"\n]*\"|\\.|[^\s'\"\\<>|&;()])+)")
_COMMAND_SEPARATORS = str.maketrans(dict.fromkeys(";&|({", "\n"))
_COMMAND_PREFIXES = frozenset(("then", "do", "else", "elif", "if", "while", "until", "!", "time", "builtin", "command"))
_DECLARING_COMMANDS = frozenset(("declare", "typeset", "local", "readonly", "export"))
_COMMANDS_WITH_NAMES = frozenset(("test", "[", "[[", "printf", "-v"))
Span = Tuple[int, int]


class ShellContext(enum.Enum):
    """What a place in a shell command is part of."""

    PLAIN = "no quotes"
    DOUBLE = "double quotes"
    SINGLE = "single quotes"
    DOLLAR_SINGLE = "$'...'"
    BACKTICKS = "backticks"
    ARITHMETIC = "arithmetic"
    HERE = "a here-document"
    LITERAL_HERE = "a here-document with a quoted end"
    COMMENT = "a comment"


_VARIABLE_FORMS = {
    ShellContext.PLAIN: '"${%s}"',
    ShellContext.BACKTICKS: '"${%s}"',
    ShellContext.DOUBLE: "${%s}",
    ShellContext.SINGLE: "'\"${%s}\"'",
    ShellContext.DOLLAR_SINGLE: "'\"${%s}\"$'",
    ShellContext.ARITHMETIC: "${%s}",
    ShellContext.HERE: "${%s}",
    ShellContext.COMMENT: "${%s}",
}
_QUOTED_FORMS = {ShellContext.PLAIN: "%s", ShellContext.DOUBLE: '"%s"', ShellContext.SINGLE: "'%s'"}


class ShellText(str):
    """A command for a shell. `variables` must be in its environment; `shown` is how people see it."""

    variables: Dict[str, str]
    shown: str

    def __new__(cls, text: str, variables: Dict[str, str], shown: str) -> "ShellText":
        made = super().__new__(cls, text)
        made.variables, made.shown = variables, shown
        return made


def environment_of(text: str) -> Dict[str, str]:
    """What must be in the environment of whoever runs this text."""
    return text.variables if isinstance(text, ShellText) else {}


def display_text(value: Any) -> str:
    return value.shown if isinstance(value, ShellText) else str(value)


def find_problem(text: str, spans: Sequence[Span], read_by: str, shell: Any = None) -> str:
    """Why outputs cannot be put at these places; empty if they can."""
    if not spans or read_by == TEMPLATE:
        return ""
    if read_by == SHELL and isinstance(shell, str) and os.path.basename(shell) not in POSIX_SHELLS:
        return f"outputs of other states cannot be quoted for {shell}; hand them over in env: or stdin:"
    fits = _VARIABLE_FORMS if read_by == SHELL else _QUOTED_FORMS
    for place in find_contexts(text, spans, whole=read_by != WORDS):
        if place not in fits:
            return f"the output of another state cannot be put into {place.value}; hand it over in env: or stdin:"
    return ""


def fill_spans(text: str, spans: Sequence[Span], values: Sequence[str], read_by: str) -> str:
    """The text with a value at each span, none of which changes how the rest of it is read."""
    if any("\0" in value for value in values):
        raise StateError("the output of another state holds a zero byte, which no command can be given")
    where = find_contexts(text, spans, whole=read_by != WORDS)
    if read_by == SHELL:
        return _fill_with_variables(text, spans, values, where)
    if read_by == CRON and any("%" in value or "\n" in value for value in values):
        raise StateError("the output of another state has a % or more than one line, which cron reads in its own way")
    return _replace_spans(
        text, spans, [_QUOTED_FORMS[place] % shlex.quote(value) for place, value in zip(where, values)]
    )


def _fill_with_variables(
    text: str, spans: Sequence[Span], values: Sequence[str], where: Sequence[ShellContext]
) -> ShellText:
    variables: Dict[str, str] = {}
    parts = []
    for number, (place, value) in enumerate(zip(where, values), start=1):
        if place is ShellContext.ARITHMETIC or _is_calculated(text, spans, number - 1):
            _check_integer(value)
        name = f"{VARIABLE}{number}"
        variables[name] = value
        parts.append(_VARIABLE_FORMS[place] % name)
    return ShellText(_replace_spans(text, spans, parts), variables, _replace_spans(text, spans, values))


def _is_calculated(text: str, spans: Sequence[Span], number: int) -> bool:
    """Whether bash would calculate with it, and so run commands that stand in it as a subscript."""
    earlier = spans[:number]
    before = _replace_spans(text[: spans[number][0]], earlier, ["0"] * len(earlier)).rpartition("\n")[2]
    words = _split_commands(before)[-1]
    names_variable = words[-1:] == ["-v"] and words[0] in _COMMANDS_WITH_NAMES
    known = names_variable or words[:1] == ["let"] or _ends_in_subscript(before) or _ends_in_substring_expansion(before)
    known = known or any(map(_declares_numbers, _split_commands(text)))
    return known or is_within_arithmetic(text, spans)[number] or _is_in_number_test(text, spans[number])


def _split_commands(text: str) -> List[List[str]]:
    """The words of each command, as far as that can be told without a shell's grammar."""
    found = []
    for line in text.translate(_COMMAND_SEPARATORS).split("\n"):
        words = [word.strip("\"'") for word in line.split()]
        words = [word for word in words if word]
        while words and words[0] in _COMMAND_PREFIXES:
            words.pop(0)
        found.append(words)
    return found


def _declares_numbers(words: List[str]) -> bool:
    """Whether a command makes variables with which bash calculates when they are set: `declare -i`."""
    flags = (word for word in words[1:] if word.startswith("-"))
    return words[:1] == ["integer"] or (
        bool(words) and words[0] in _DECLARING_COMMANDS and any("i" in flag for flag in flags)
    )


def _ends_in_subscript(before: str) -> bool:
    """Whether it ends within a subscript or `$[ ]`."""
    open_brackets = 0
    for at in range(len(before) - 1, 0, -1):
        open_brackets += (before[at] == "[") - (before[at] == "]")
        if open_brackets > 0:
            return before[at - 1] in "$_" or before[at - 1].isalnum()
    return False


def _ends_in_substring_expansion(before: str) -> bool:
    """Whether it ends within `${x:from:length}`, and not in `${x:-default}` or the like."""
    start = before.rfind("${")
    _, colon, rest = before[start:].partition(":") if start >= 0 else ("", "", "")
    return bool(colon) and "}" not in before[start:] and rest[:1] not in ("-", "=", "?", "+")


def _is_in_number_test(text: str, span: Span) -> bool:
    """Whether it is in a test that compares numbers: `[[ $x -eq 1 ]]`."""
    tests = (match for match in _BASH_TEST.finditer(text) if match.start() < span[0] < match.end())
    return any(_COMPARES_NUMBERS.search(match.group()) for match in tests)


def _check_integer(value: str) -> None:
    if not _INTEGER.fullmatch(value.strip()):
        raise StateError(
            f"a shell is to calculate with an output of another state that is no whole number: {value[:64]!r}"
        )


def _replace_spans(text: str, spans: Sequence[Span], parts: Sequence[str]) -> str:
    pieces, end = [], 0
    for (start, stop), part in zip(spans, parts):
        pieces += [text[end:start], part]
        end = stop
    return "".join([*pieces, text[end:]])


# Where something stands


def find_contexts(text: str, spans: Sequence[Span], whole: bool = True) -> List[ShellContext]:
    """What each span of a command is part of. Without `whole` only quotes count, as for who cuts a text into words."""
    return list(_Scanner(text, spans, whole).places())


def is_within_arithmetic(text: str, spans: Sequence[Span]) -> List[bool]:
    """Whether each span is somewhere within arithmetic: also `$(( $(echo HERE) ))` calculates with it."""
    scanner = _Scanner(text, spans, whole=True)
    return [any(place is ShellContext.ARITHMETIC for place, _ in scanner.inside) for _ in scanner.places()]


class _Scanner:
    """Walks through a command once. It knows quotes, substitutions, comments and here-documents, and no grammar."""

    def __init__(self, text: str, spans: Sequence[Span], whole: bool) -> None:
        self._text = text
        self._spans = dict(spans)
        self._whole = whole
        self.inside: List[Tuple[ShellContext, str]] = [(ShellContext.PLAIN, "")]
        """What we are in, the innermost last, each with what ends it."""
        self._here: List[Tuple[str, bool, bool]] = []
        """Here-documents that begin after this line: end, whether it is quoted, whether tabs in front of it go"""

    def places(self) -> Iterator[ShellContext]:
        at = 0
        while at < len(self._text):
            if at in self._spans:
                yield self.inside[-1][0]
                at = self._spans[at]
            elif self._whole and self._text[at] == "\n" and self._here and self._unquoted:
                end = self._after_here_documents(at + 1)
                yield from self._within(at, end)
                at = end
            elif self._begins_comment(at):
                end = self._line_end(at)
                yield from (ShellContext.COMMENT for start in sorted(self._spans) if at <= start < end)
                at = end
            else:
                at = self._step(at)

    @property
    def _unquoted(self) -> bool:
        return self.inside[-1][0] in (ShellContext.PLAIN, ShellContext.BACKTICKS)

    def _step(self, at: int) -> int:
        """Past what begins here."""
        text, (place, end) = self._text, self.inside[-1]
        if text[at] == "\\" and place is not ShellContext.SINGLE:
            return at + 1 if at + 1 in self._spans else at + 2
        if end and text.startswith(end, at):
            self.inside.pop()
            return at + len(end)
        if place in (ShellContext.SINGLE, ShellContext.DOLLAR_SINGLE):
            return at + 1
        return self._open(at, place)

    def _open(self, at: int, place: ShellContext) -> int:
        text = self._text
        if text[at] == '"' and place is not ShellContext.ARITHMETIC:
            return self._enter(ShellContext.DOUBLE, '"', at + 1)
        if text[at] == "'" and self._unquoted:
            return self._enter(ShellContext.SINGLE, "'", at + 1)
        if not self._whole:
            return at + 1
        if text[at] == "`":
            return self._enter(ShellContext.BACKTICKS, "`", at + 1)
        if text.startswith("$((", at) or (text.startswith("((", at) and self._unquoted):
            return self._enter(ShellContext.ARITHMETIC, "))", at + (3 if text[at] == "$" else 2))
        if text.startswith("$(", at):
            return self._enter(ShellContext.PLAIN, ")", at + 2)
        if text[at] == "(" and place is not ShellContext.DOUBLE:
            return self._enter(place, ")", at + 1)
        if text.startswith("$'", at) and self._unquoted:
            return self._enter(ShellContext.DOLLAR_SINGLE, "'", at + 2)
        return self._here_document(at) if self._unquoted else at + 1

    def _enter(self, place: ShellContext, end: str, at: int) -> int:
        self.inside.append((place, end))
        return at

    def _begins_comment(self, at: int) -> bool:
        before = self._text[at - 1] if at else "\n"
        return self._whole and self._text[at] == "#" and self._unquoted and before in " \t\n;&|()"

    def _line_end(self, at: int) -> int:
        end = self._text.find("\n", at)
        return len(self._text) if end < 0 else end

    # Here-documents

    def _here_document(self, at: int) -> int:
        if self._text.startswith("<<<", at):
            return at + 3
        match = _HERE_DOCUMENT.match(self._text, at)
        if match is None:
            return at + 1
        word = match.group(2)
        quoted = any(mark in word for mark in "'\"\\")
        self._here.append((re.sub(r"['\"\\]", "", word), quoted, bool(match.group(1))))
        return match.end()

    def _after_here_documents(self, at: int) -> int:
        self._bodies: List[Tuple[int, int, bool]] = []
        for end, quoted, tabs in self._here:
            start = at
            while at < len(self._text):
                stop = self._line_end(at)
                line = self._text[at:stop]
                at = stop + 1
                if (line.lstrip("\t") if tabs else line) == end:
                    break
            self._bodies.append((start, at, quoted))
        self._here = []
        return min(at, len(self._text))

    def _within(self, start: int, end: int) -> Iterator[ShellContext]:
        for at in sorted(self._spans):
            if start <= at < end:
                quoted = next(quoted for first, after, quoted in self._bodies if first <= at < after)
                yield ShellContext.LITERAL_HERE if quoted else ShellContext.HERE
