"""Problems that refuse a run: each with its file and line and, if a known word is similar, the suggestion of that word.

Everything that can be wrong with a tree of states is collected as problems before anything is touched; what goes wrong
while a state runs is a `StateError` of that state instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import List, NamedTuple


class Problem(NamedTuple):
    """One mistake in the state files or the job that has to be corrected."""

    text: str
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        if not self.file:
            return self.text
        return f"{self.file}:{self.line}: {self.text}" if self.line else f"{self.file}: {self.text}"


class RunRefused(Exception):
    """The run is refused because of these problems; nothing was touched."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: List[Problem] = list(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def refuse(text: str, file: str = "", line: int = 0) -> RunRefused:
    """Return the exception for a single problem, to be raised by the caller."""
    return RunRefused([Problem(text, file, line)])


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` if a known word is similar, else an empty text."""
    from difflib import get_close_matches

    matches = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {matches[0]!r}?" if matches else ""
