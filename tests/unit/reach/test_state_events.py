"""The events of the state engine are read in pieces of any size: lines for people, outputs for the wall."""

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from rackwright.domain.runs import Outcome
from rackwright.reach import state_events as module
from rackwright.reach.state_events import StateEventReader

END = {"event": "end", "state": {"id": "a", "outcome": "changed", "function": "cmd.run", "comment": "ran"}}
RECEIVED = (
    'no event\n{"event": "planned", "states": 1}\n{"event": "log", "line": "one"}\n{"event": "log", "line": ""}\n'
    + json.dumps({**END, "outputs": {"stdout": "x" * 20_000}})
    + "\nunended"
)
SHOWN = "no event\none\n\nchanged: a (cmd.run) ran\nunended\n"


@given(st.lists(st.integers(0, len(RECEIVED)), max_size=6))
def test_every_line_has_an_end_whatever_the_pieces(cuts: list[int]) -> None:
    log: list[str] = []
    reader = StateEventReader(log.append)
    for start, end in itertools.pairwise([0, *sorted(cuts), len(RECEIVED)]):
        reader(RECEIVED[start:end])
    reader.end()
    assert "".join(log) == SHOWN
    assert reader.conclude(Outcome.success()).wall == {"states": {"a": {"stdout": "x" * 20_000}}}


def test_a_line_without_end_is_not_kept() -> None:
    log: list[str] = []
    reader = StateEventReader(log.append)
    for _ in range(5):
        reader("x" * (module.LONGEST_EVENT // 4))
    assert len("".join(log)) == 5 * module.LONGEST_EVENT // 4 + 1
