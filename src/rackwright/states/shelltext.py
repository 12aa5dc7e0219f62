"""Puts outputs of other states into commands as values, so that no part of an output is ever read as shell text.

A shell gets each output in an environment variable, and the command only names the variable. So the worst that an
unusual position in a command can do is to show the variable's name or to cut the value into words; the value cannot be
run. Where no environment goes along (words for a program, a line of a crontab) the output is quoted instead, and
positions in which that is not certain are refused. A state that is meant to run an output says so in the shell's own
words: `eval ${ID.stdout}`.
"""

from __future__ import annotations

import enum
import os
import re
import shlex
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from .module import StateError

SHELL, WORDS, CRON, TEMPLATE = "shell", "words", "cron", "template"
"""What reads an argument (`Argument.read_by`): a shell at once, code that cuts it into words, cron's shell, Jinja."""
POSIX_SHELLS = frozenset(("sh", "bash", "dash", "ash", "ksh", "ksh93", "mksh", "zsh", "yash"))
VARIABLE = "RACKWRIGHT_OUTPUT_"
"""How the names of the environment variables with outputs begin."""

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
    """The quoting or syntax that surrounds a position in a shell command."""

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
    """A command for a shell. `variables` must be in its environment; `display` is the text that people see."""

    variables: Dict[str, str]
    display: str

    def __new__(cls, text: str, variables: Dict[str, str], display: str) -> "ShellText":
        instance = super().__new__(cls, text)
        instance.variables, instance.display = variables, display
        return instance


def environment_of(text: str) -> Dict[str, str]:
    """Return the variables that must be in the environment of the shell that runs this text."""
    return text.variables if isinstance(text, ShellText) else {}


def display_text(value: Any) -> str:
    """Return a value as people see it: a command with the outputs in place of their variables."""
    return value.display if isinstance(value, ShellText) else str(value)


def find_problem(text: str, spans: Sequence[Span], read_by: str, shell: Any = None) -> str:
    """Return why outputs cannot be put at these spans; empty if they can."""
    if not spans or read_by == TEMPLATE:
        return ""
    if read_by == SHELL and isinstance(shell, str) and os.path.basename(shell) not in POSIX_SHELLS:
        return f"outputs of other states cannot be quoted for {shell}; hand them over in env: or stdin:"
    forms = _VARIABLE_FORMS if read_by == SHELL else _QUOTED_FORMS
    for context in find_contexts(text, spans, shell_syntax=read_by != WORDS):
        if context not in forms:
            return f"the output of another state cannot be put into {context.value}; hand it over in env: or stdin:"
    return ""


def fill_spans(text: str, spans: Sequence[Span], values: Sequence[str], read_by: str) -> str:
    """Return the text with a value at each span; no value changes how the other parts of the text are read."""
    if any("\0" in value for value in values):
        raise StateError("the output of another state holds a zero byte, which no command can be given")
    contexts = find_contexts(text, spans, shell_syntax=read_by != WORDS)
    if read_by == SHELL:
        return _fill_with_variables(text, spans, values, contexts)
    if read_by == CRON and any("%" in value or "\n" in value for value in values):
        raise StateError("the output of another state has a % or more than one line, which cron reads in its own way")
    return _replace_spans(
        text, spans, [_QUOTED_FORMS[context] % shlex.quote(value) for context, value in zip(contexts, values)]
    )


def _fill_with_variables(
    text: str, spans: Sequence[Span], values: Sequence[str], contexts: Sequence[ShellContext]
) -> ShellText:
    variables: Dict[str, str] = {}
    parts = []
    for number, (context, value) in enumerate(zip(contexts, values), start=1):
        if context is ShellContext.ARITHMETIC or _is_calculated(text, spans, number - 1):
            _check_integer(value)
        name = f"{VARIABLE}{number}"
        variables[name] = value
        parts.append(_VARIABLE_FORMS[context] % name)
    return ShellText(_replace_spans(text, spans, parts), variables, _replace_spans(text, spans, values))


def _is_calculated(text: str, spans: Sequence[Span], number: int) -> bool:
    """Return whether bash would calculate with the value at a span, and so run commands in a subscript of the value."""
    earlier = spans[:number]
    before = _replace_spans(text[: spans[number][0]], earlier, ["0"] * len(earlier)).rpartition("\n")[2]
    words = _split_commands(before)[-1]
    names_variable = words[-1:] == ["-v"] and words[0] in _COMMANDS_WITH_NAMES
    is_calculated = (
        names_variable or words[:1] == ["let"] or _ends_in_subscript(before) or _ends_in_substring_expansion(before)
    )
    is_calculated = is_calculated or any(map(_declares_numbers, _split_commands(text)))
    return is_calculated or is_within_arithmetic(text, spans)[number] or _is_in_number_test(text, spans[number])


def _split_commands(text: str) -> List[List[str]]:
    """Return the words of each command, as far as they can be found without a shell's grammar."""
    commands = []
    for line in text.translate(_COMMAND_SEPARATORS).split("\n"):
        words = [word.strip("\"'") for word in line.split()]
        words = [word for word in words if word]
        while words and words[0] in _COMMAND_PREFIXES:
            words.pop(0)
        commands.append(words)
    return commands


def _declares_numbers(words: List[str]) -> bool:
    """Return whether a command declares variables with which bash calculates when they are set: `declare -i`."""
    flags = (word for word in words[1:] if word.startswith("-"))
    return words[:1] == ["integer"] or (
        bool(words) and words[0] in _DECLARING_COMMANDS and any("i" in flag for flag in flags)
    )


def _ends_in_subscript(before: str) -> bool:
    """Return whether a text ends within a subscript or `$[ ]`."""
    open_brackets = 0
    for at in range(len(before) - 1, 0, -1):
        open_brackets += (before[at] == "[") - (before[at] == "]")
        if open_brackets > 0:
            return before[at - 1] in "$_" or before[at - 1].isalnum()
    return False


def _ends_in_substring_expansion(before: str) -> bool:
    """Return whether a text ends within `${x:from:length}`, and not in `${x:-default}` or the like."""
    start = before.rfind("${")
    _, colon, after_colon = before[start:].partition(":") if start >= 0 else ("", "", "")
    return bool(colon) and "}" not in before[start:] and after_colon[:1] not in ("-", "=", "?", "+")


def _is_in_number_test(text: str, span: Span) -> bool:
    """Return whether a span is in a test that compares numbers: `[[ $x -eq 1 ]]`."""
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


# The context of a position


def find_contexts(text: str, spans: Sequence[Span], shell_syntax: bool = True) -> List[ShellContext]:
    """Return the context of each span of a command.

    Without `shell_syntax` only quotes count, as for code that cuts a text into words.
    """
    return list(_Scanner(text, spans, shell_syntax).find_contexts())


def is_within_arithmetic(text: str, spans: Sequence[Span]) -> List[bool]:
    """Return for each span whether it is somewhere within arithmetic: `$(( $(echo HERE) ))` calculates with it too."""
    scanner = _Scanner(text, spans, shell_syntax=True)
    return [any(context is ShellContext.ARITHMETIC for context, _ in scanner.stack) for _ in scanner.find_contexts()]


class _Scanner:
    """One pass through a command, which knows quotes, substitutions, comments and here-documents, but no grammar."""

    def __init__(self, text: str, spans: Sequence[Span], shell_syntax: bool) -> None:
        self._text = text
        self._spans = dict(spans)
        self._shell_syntax = shell_syntax
        self.stack: List[Tuple[ShellContext, str]] = [(ShellContext.PLAIN, "")]
        """The contexts around the current position, the innermost last, each with the text that ends it."""
        self._here_documents: List[Tuple[str, bool, bool]] = []
        """The here-documents that begin after this line: end word, whether it is quoted, whether tabs before it go"""

    def find_contexts(self) -> Iterator[ShellContext]:
        at = 0
        while at < len(self._text):
            if at in self._spans:
                yield self.stack[-1][0]
                at = self._spans[at]
            elif self._shell_syntax and self._text[at] == "\n" and self._here_documents and self._unquoted:
                end = self._after_here_documents(at + 1)
                yield from self._here_document_contexts(at, end)
                at = end
            elif self._begins_comment(at):
                end = self._line_end(at)
                yield from (ShellContext.COMMENT for start in sorted(self._spans) if at <= start < end)
                at = end
            else:
                at = self._advance(at)

    @property
    def _unquoted(self) -> bool:
        return self.stack[-1][0] in (ShellContext.PLAIN, ShellContext.BACKTICKS)

    def _advance(self, at: int) -> int:
        """Return the position after the character, quote or substitution that begins at `at`."""
        text, (context, end) = self._text, self.stack[-1]
        if text[at] == "\\" and context is not ShellContext.SINGLE:
            return at + 1 if at + 1 in self._spans else at + 2
        if end and text.startswith(end, at):
            self.stack.pop()
            return at + len(end)
        if context in (ShellContext.SINGLE, ShellContext.DOLLAR_SINGLE):
            return at + 1
        return self._enter_quoting(at, context)

    def _enter_quoting(self, at: int, context: ShellContext) -> int:
        text = self._text
        if text[at] == '"' and context is not ShellContext.ARITHMETIC:
            return self._enter(ShellContext.DOUBLE, '"', at + 1)
        if text[at] == "'" and self._unquoted:
            return self._enter(ShellContext.SINGLE, "'", at + 1)
        if not self._shell_syntax:
            return at + 1
        if text[at] == "`":
            return self._enter(ShellContext.BACKTICKS, "`", at + 1)
        if text.startswith("$((", at) or (text.startswith("((", at) and self._unquoted):
            return self._enter(ShellContext.ARITHMETIC, "))", at + (3 if text[at] == "$" else 2))
        if text.startswith("$(", at):
            return self._enter(ShellContext.PLAIN, ")", at + 2)
        if text[at] == "(" and context is not ShellContext.DOUBLE:
            return self._enter(context, ")", at + 1)
        if text.startswith("$'", at) and self._unquoted:
            return self._enter(ShellContext.DOLLAR_SINGLE, "'", at + 2)
        return self._begin_here_document(at) if self._unquoted else at + 1

    def _enter(self, context: ShellContext, end: str, at: int) -> int:
        self.stack.append((context, end))
        return at

    def _begins_comment(self, at: int) -> bool:
        before = self._text[at - 1] if at else "\n"
        return self._shell_syntax and self._text[at] == "#" and self._unquoted and before in " \t\n;&|()"

    def _line_end(self, at: int) -> int:
        end = self._text.find("\n", at)
        return len(self._text) if end < 0 else end

    # Here-documents

    def _begin_here_document(self, at: int) -> int:
        if self._text.startswith("<<<", at):
            return at + 3
        match = _HERE_DOCUMENT.match(self._text, at)
        if match is None:
            return at + 1
        word = match.group(2)
        quoted = any(character in word for character in "'\"\\")
        self._here_documents.append((re.sub(r"['\"\\]", "", word), quoted, bool(match.group(1))))
        return match.end()

    def _after_here_documents(self, at: int) -> int:
        self._bodies: List[Tuple[int, int, bool]] = []
        for end, quoted, tabs in self._here_documents:
            start = at
            while at < len(self._text):
                stop = self._line_end(at)
                line = self._text[at:stop]
                at = stop + 1
                if (line.lstrip("\t") if tabs else line) == end:
                    break
            self._bodies.append((start, at, quoted))
        self._here_documents = []
        return min(at, len(self._text))

    def _here_document_contexts(self, start: int, end: int) -> Iterator[ShellContext]:
        for at in sorted(self._spans):
            if start <= at < end:
                quoted = next(quoted for first, after, quoted in self._bodies if first <= at < after)
                yield ShellContext.LITERAL_HERE if quoted else ShellContext.HERE
