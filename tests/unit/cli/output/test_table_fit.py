"""Which columns of a table a terminal shows, and how wide."""

import pytest

from rackwright.cli.output.table_fit import Column, Fit, fit_columns

CASES = [
    ("all of it fits", {"name": 10, "state": 6}, 80, {"name": 10, "state": 6}, []),
    ("the widest gives first", {"name": 30, "error": 100}, 80, {"name": 30, "error": 48}, []),
    ("then all that are wide", {"name": 60, "node": 60, "id": 4}, 50, {"name": 21, "node": 21, "id": 4}, []),
    ("what is short stays whole", {"name": 40, "state": 10, "alive": 5}, 40, {"name": 21, "state": 10, "alive": 5}, []),
    ("the last ones go", {"name": 30, "a": 30, "b": 30, "c": 30}, 36, {"name": 18, "a": 16}, ["b", "c"]),
    ("the first always stays", {"name": 100, "a": 30}, 12, {"name": 12}, ["a"]),
    ("half of a time is none", {"name": 30, "at": 19}, 36, {"name": 30}, ["at"]),
]


@pytest.mark.parametrize(
    ("widths", "room", "shown", "left_out"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_columns_fit(widths: dict[str, int], room: int, shown: dict[str, int], left_out: list[str]) -> None:
    columns = [Column(name, width, rigid=name == "at") for name, width in widths.items()]
    assert fit_columns(columns, room) == Fit(shown, left_out)
