"""Chooses the columns of a table, and their widths, so that it fits a terminal. Pure arithmetic."""

from collections.abc import Sequence
from dataclasses import dataclass

GAP = 2
"""Blanks between two columns."""
UNCUT_WIDTH = 10
"""A column that is no wider than this is never made narrower: a number, a state, yes or no."""
FIRST_WIDTH = 18
"""The first column says what a line is about, so it stays as wide as this as long as other columns can be narrower."""


@dataclass(frozen=True)
class Column:
    name: str
    width: int
    """The width of its widest cell or its heading."""
    rigid: bool = False
    """It is shown completely or not at all: half of a time says nothing."""

    def least_width(self, is_first: bool) -> int:
        return self.width if self.rigid else min(self.width, FIRST_WIDTH if is_first else UNCUT_WIDTH)


@dataclass(frozen=True)
class Fit:
    """The columns that are shown with their widths, and the names of those that are left out."""

    widths: dict[str, int]
    left_out: list[str]


def fit_columns(columns: Sequence[Column], room: int) -> Fit:
    """Choose columns and widths so that a line takes no more than `room`.

    Wide columns are made narrower first, down to what is readable; if that is not enough, the last columns are left
    out. The first column always stays.
    """
    shown = list(columns)
    while len(shown) > 1 and _total([column.least_width(shown[0] is column) for column in shown]) > room:
        shown.pop()
    widths = [min(column.width, room) for column in shown]
    least = [min(column.least_width(column is shown[0]), room) for column in shown]
    while _total(widths) > room:
        widest = max(range(len(widths)), key=lambda at: (widths[at] - least[at] > 0, widths[at], at))
        widths[widest] -= 1
    names = [column.name for column in shown]
    return Fit(dict(zip(names, widths, strict=True)), [column.name for column in columns if column not in shown])


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)
