"""How a table is made to fit a terminal: which columns are shown, and how wide each may be. Pure arithmetic."""

from collections.abc import Sequence
from dataclasses import dataclass

GAP = 2
"""Blanks between two columns."""
WHOLE = 10
"""What is no wider than this is never shortened: a number, a state, yes or no."""
READABLE = 18
"""The first column says which thing a line is about, so it stays as wide as this as long as anything else can give."""


@dataclass(frozen=True)
class Column:
    name: str
    width: int
    """As its widest cell or its heading needs."""
    rigid: bool = False
    """It is shown whole or not at all: half of a time says nothing."""

    def least(self, first: bool) -> int:
        return self.width if self.rigid else min(self.width, READABLE if first else WHOLE)


@dataclass(frozen=True)
class Fit:
    """The columns that are shown with their widths, and the names of those that are left out."""

    widths: dict[str, int]
    left_out: list[str]


def fit_columns(columns: Sequence[Column], room: int) -> Fit:
    """Choose columns and widths so that a line takes no more than `room`.

    Wide columns give first, down to what is readable; if that does not do, the last columns are left out. The first
    column always stays.
    """
    shown = list(columns)
    while len(shown) > 1 and _total([column.least(shown[0] is column) for column in shown]) > room:
        shown.pop()
    widths = [min(column.width, room) for column in shown]
    least = [min(column.least(column is shown[0]), room) for column in shown]
    while _total(widths) > room:
        widest = max(range(len(widths)), key=lambda at: (widths[at] - least[at] > 0, widths[at], at))
        widths[widest] -= 1
    names = [column.name for column in shown]
    return Fit(dict(zip(names, widths, strict=True)), [column.name for column in columns if column not in shown])


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)
