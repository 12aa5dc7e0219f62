"""Regular expressions of people and images, searched by RE2: its time grows with pattern and text, and never beyond.

Python's own module tries alternatives one by one, holds up the whole process while it does, and cannot be told to stop,
so a pattern of a stranger could stand still on it for years. RE2 has no references to what was found before and no
look-ahead; what else Python writes otherwise is rewritten here. Pure; `docs/barclamps.md` says it for people.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache

import re2

LONGEST_PATTERN = 1000
MOST_MEMORY = 1024 * 1024
"""Bytes of one compiled pattern, with what RE2 remembers while it searches."""
MOST_WORK = 200_000_000
"""The steps of a pattern times the characters of a text, summed up over one check: half a second at worst."""

_TOKEN = re.compile(
    r"(?P<end>\\Z|\(\?!\[(?:\\s\\S|\\S\\s)\]\))|(?P<class>\[\^?\]?(?:\\.|[^\]\\])*+\]?)|(?P<escape>\\.)|(?P<dollar>\$)",
    re.DOTALL,
)
_NUMBER = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8}))|\\.", re.DOTALL)
"""A character by its number, told from an escaped backslash before a letter."""

_work_left: ContextVar[int] = ContextVar("work_left")
"""What the check that is going on may still take."""


class TooMuchWork(Exception):
    """The patterns of a schema take too long on what is checked by it."""


def find_pattern_fault(pattern: str) -> str | None:
    """Return why a pattern cannot be used; None if it can."""
    if len(pattern) > LONGEST_PATTERN:
        return f"it has more than {LONGEST_PATTERN} characters"
    compiled = _compile(pattern)
    return compiled if isinstance(compiled, str) else None


@contextmanager
def bounded_searches() -> Iterator[None]:
    """Count what all searches take together that are done while this is open."""
    before = _work_left.set(MOST_WORK)
    try:
        yield
    finally:
        _work_left.reset(before)


def is_found(pattern: str, text: str) -> bool:
    """Return whether a pattern is somewhere in a text; TooMuchWork if the check has taken too much by now.

    One that has a fault is found nowhere: whoever takes patterns refuses it before.
    """
    compiled = _compile(pattern)
    if isinstance(compiled, str):
        return False
    left = _work_left.get() - compiled.programsize * (len(text) + 1)
    if left < 0:
        raise TooMuchWork("its patterns take too long on a text of this length")
    _work_left.set(left)
    return compiled.search(text.encode("utf-8", "surrogatepass")) is not None


@lru_cache(maxsize=256)
def _compile(pattern: str) -> "re2._Regexp | str":
    """Return a pattern as RE2 has it, or why there is none."""
    options = re2.Options()
    options.max_mem, options.never_capture, options.log_errors = MOST_MEMORY, True, False
    try:
        return re2.compile(_translate(pattern).encode("utf-8", "surrogatepass"), options)
    except re2.error as error:
        reason = error.args[0] if error.args else b""
        return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)


def _translate(pattern: str) -> str:
    """Return what Python understands by a pattern in the words of RE2."""
    return _NUMBER.sub(_translate_number, _TOKEN.sub(_translate_token, pattern))


def _translate_token(token: re.Match[str]) -> str:
    if token["end"]:
        return r"\z"
    if token["dollar"]:
        return r"(?:\n?\z)"
    if token["class"]:  # in which RE2 has names such as [:alpha:], and Python has not
        return "[" + token["class"][1:].replace("[:", r"\[:")
    return token[0]


def _translate_number(escape: re.Match[str]) -> str:
    number = escape[1] or escape[2]
    return rf"\x{{{number}}}" if number else escape[0]
