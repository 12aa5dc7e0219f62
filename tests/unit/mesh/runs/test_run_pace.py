"""Gates at which the engine waits for other servers, and the problems between servers found before anything runs."""

from pathlib import Path
from typing import Any

import pytest

from rackwright.mesh.runs.run_check import check_targets
from rackwright.states.combine import State
from rackwright.states.module import StateError
from rackwright.states.plan import build_plan
from rackwright.states.reading.tree import Tree
from rackwright.states.refusal import RunRefused
from rackwright.states.running.execution import PlanExecution
from rackwright.states.running.record import Report

MODES = ["ansible", "justdoit", "genius"]


class SlowGate:
    """Lets a state in at the third time of asking, and on at the second."""

    def __init__(self, refuses: str = "") -> None:
        self.calls: list[str] = []
        self.refuses = refuses

    def enter(self, state: State) -> bool:
        if state.id == self.refuses:
            raise StateError("nobody is left to wait for")
        self.calls.append(f"enter {state.id}")
        return self.calls.count(f"enter {state.id}") >= 3

    def leave(self, state: State) -> bool:
        self.calls.append(f"leave {state.id}")
        return self.calls.count(f"leave {state.id}") >= 2


class SlowServer:
    """Another server whose output is there at the third look."""

    def __init__(self) -> None:
        self.looks = 0

    def problem(self, node: str, reference: str) -> str | None:
        return None

    def ready(self, node: str, reference: str) -> bool:
        self.looks += 1
        return self.looks > 2

    def fetch(self, node: str, reference: str) -> Any:
        return f"{reference} of {node}"


def run(tmp_path: Path, text: str, mode: str, gate: SlowGate | None = None, remote: SlowServer | None = None) -> Report:
    (tmp_path / "init.sls").write_text(text)
    return PlanExecution(build_plan(Tree(tmp_path), ["init"], {}, {}, None, remote), mode, gate=gate).execute()


GATED = """
free:
  test.nop: []
gated:
  test.nop:
    - sync: true
after:
  test.nop:
    - require:
      - test: gated
"""


@pytest.mark.parametrize("mode", MODES)
def test_a_gated_state_is_asked_for_until_it_may_and_others_are_not_asked_about(tmp_path: Path, mode: str) -> None:
    gate = SlowGate()
    report = run(tmp_path, GATED, mode, gate)
    assert gate.calls == ["enter gated"] * 3 + ["leave gated"] * 2
    order = [record.id for record in report.records]
    assert order.index("after") > order.index("gated")


@pytest.mark.parametrize("mode", MODES)
def test_a_gate_that_never_opens_fails_the_state_and_blocks_what_needs_it(tmp_path: Path, mode: str) -> None:
    report = run(tmp_path, GATED, mode, SlowGate(refuses="gated"))
    assert {record.id: record.outcome.value for record in report.records} == {
        "free": "unchanged",
        "gated": "failed",
        "after": "blocked",
    }


def test_without_other_servers_nobody_is_waited_for(tmp_path: Path) -> None:
    assert not run(tmp_path, GATED, "ansible").failed


@pytest.mark.parametrize("mode", MODES)
def test_an_output_of_another_server_is_waited_for(tmp_path: Path, mode: str) -> None:
    server = SlowServer()
    text = "use:\n  test.show_notification:\n    - text: ${node:db/token.stdout}\n"
    report = run(tmp_path, text, mode, remote=server)
    assert report.records[0].comment == "token.stdout of db"
    assert server.looks > 2


@pytest.mark.parametrize("option", ["sync: maybe", "serialize: 0", "serialize: true"])
def test_a_wrong_pace_is_refused(tmp_path: Path, option: str) -> None:
    with pytest.raises(RunRefused, match=option.partition(":")[0]):
        run(tmp_path, f"a:\n  test.nop:\n    - {option}\n", "ansible")


def checked(tmp_path: Path, text: str, mode: str = "ansible") -> dict[str, Any]:
    (tmp_path / "init.sls").write_text(text)
    job = {
        "facts": {"s1": {"id": "s1"}, "s2": {"id": "s2"}},
        "sls": ["init"],
        "variables": {},
        "mode": mode,
        "modules": {},
        "signers": str(tmp_path / "signers"),
        "seen": str(tmp_path / "seen"),
    }
    return check_targets(tmp_path, job)


def test_a_good_run_is_counted_for_every_target(tmp_path: Path) -> None:
    assert checked(tmp_path, GATED) == {"states": {"s1": 3, "s2": 3}}


def test_states_of_one_server_only_are_counted_for_it_only(tmp_path: Path) -> None:
    text = "{% if node['id'] == 's1' %}\na:\n  test.nop: []\n{% endif %}\nb:\n  test.nop: []\n"
    assert checked(tmp_path, text) == {"states": {"s1": 2, "s2": 1}}


def test_an_output_that_nobody_makes_or_of_a_server_that_is_no_target_is_refused(tmp_path: Path) -> None:
    text = "a:\n  test.show_notification:\n    - text: ${{node:{}/{}.stdout}}\n"
    assert "no state of s2" in checked(tmp_path, text.format("s2", "nothing"))["errors"][0]
    assert "no target" in checked(tmp_path, text.format("s3", "a"))["errors"][0]


def test_servers_that_would_wait_for_each_other_are_refused(tmp_path: Path) -> None:
    text = "{% set other = 's2' if node['id'] == 's1' else 's1' %}\n"
    text += "a:\n  test.show_notification:\n    - text: ${node:{{ other }}/a.comment}\n"
    assert "wait for each other" in checked(tmp_path, text)["errors"][0]


def test_in_sequence_servers_wait_for_each_other_where_all_at_once_they_do_not(tmp_path: Path) -> None:
    uses = "{}:\n  test.show_notification:\n    - text: ${{node:{}/{}.comment}}\n"
    nop = "{}:\n  test.nop: []\n"
    text = "{% if node['id'] == 's1' %}\n" + uses.format("a", "s2", "y") + nop.format("b") + "{% else %}\n"
    text += uses.format("x", "s1", "b") + nop.format("y") + "{% endif %}\n"
    assert "wait for each other" in checked(tmp_path, text)["errors"][0]
    assert checked(tmp_path, text, "justdoit") == {"states": {"s1": 2, "s2": 2}}
