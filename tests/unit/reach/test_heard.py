"""What is heard of the state engine: lines for people, and events in pieces of any size."""

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from rackwright.domain.runs import Outcome
from rackwright.reach import state_events as module
from rackwright.reach.state_events import Heard

END = {"event": "end", "state": {"id": "a", "outcome": "changed", "function": "cmd.run", "comment": "ran"}}
SAID = (
    'no event\n{"event": "planned", "states": 1}\n{"event": "log", "line": "one"}\n{"event": "log", "line": ""}\n'
    + json.dumps({**END, "outputs": {"stdout": "x" * 20_000}})
    + "\nunended"
)
SHOWN = "no event\none\n\nchanged: a (cmd.run) ran\nunended\n"


@given(st.lists(st.integers(0, len(SAID)), max_size=6))
def test_every_line_has_an_end_whatever_the_pieces(cuts: list[int]) -> None:
    log: list[str] = []
    heard = Heard(log.append)
    for start, end in itertools.pairwise([0, *sorted(cuts), len(SAID)]):
        heard(SAID[start:end])
    heard.end()
    assert "".join(log) == SHOWN
    assert heard.judge(Outcome.success()).wall == {"states": {"a": {"stdout": "x" * 20_000}}}


def test_a_line_without_end_is_not_kept() -> None:
    log: list[str] = []
    heard = Heard(log.append)
    for _ in range(5):
        heard("x" * (module.LONGEST_EVENT // 4))
    assert len("".join(log)) == 5 * module.LONGEST_EVENT // 4 + 1
