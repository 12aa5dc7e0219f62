"""Every case under cases/ against what Salt 3008 did with it: the same order, results, changes and comments.

`scripts/record-salt-cases` recorded them. `ansible` mode must do exactly the same; the other two must come to the same
results, with every requisite's target ended before its dependant starts.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from rackwright.states.plan import Plan, build_plan
from rackwright.states.reading.tree import Tree
from rackwright.states.refusal import RunRefused
from rackwright.states.running.execution import PlanExecution
from rackwright.states.running.record import Report, StateOutcome

CASES = Path(__file__).parent / "cases"
NAMES = sorted(str(path.relative_to(CASES).with_suffix("")) for path in CASES.glob("*/*.json"))


def planned(case: str) -> Plan:
    return build_plan(Tree(CASES), [case.replace("/", ".")], {}, {"id": "case"})


def run(case: str, mode: str) -> tuple[Plan, Report]:
    text = (CASES / f"{case}.sls").read_text() if (CASES / f"{case}.sls").exists() else ""
    plan = planned(case)
    return plan, PlanExecution(plan, mode, test=text.startswith("# test: true\n")).execute()


def shown(report: Report) -> list[dict[str, Any]]:
    keys = ("id", "name", "function", "result", "changes", "comment")
    states = [{key: record[key] for key in keys} for record in report.as_json()["states"]]
    for state in states:
        state["changes"] = {key: value for key, value in state["changes"].items() if key != "pid"}
    return alike(states)


def alike(states: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Salt names failed requisites in the order of a set."""
    for state in states:
        told, colon, failed = state["comment"].partition("One or more requisite failed: ")
        state["comment"] = told + colon + ", ".join(sorted(failed.split(", ")))
    return states


@pytest.mark.parametrize("case", NAMES)
def test_as_salt_does(case: str) -> None:
    recorded = json.loads((CASES / f"{case}.json").read_text())
    if "errors" in recorded:
        with pytest.raises(RunRefused):
            planned(case)
        return
    assert shown(run(case, "ansible")[1]) == alike(recorded["states"])


@pytest.mark.parametrize("mode", ["justdoit", "genius"])
@pytest.mark.parametrize("case", [name for name in NAMES if not name.startswith("failhard/")])
def test_other_modes_come_to_the_same(case: str, mode: str) -> None:
    recorded = json.loads((CASES / f"{case}.json").read_text())
    if "errors" in recorded:
        return
    plan, report = run(case, mode)

    def key(state: dict[str, Any]) -> str:
        return json.dumps([state["id"], state["name"], state["function"]])

    assert sorted(shown(report), key=key) == sorted(alike(recorded["states"]), key=key)
    ended = {record.state: record for record in report.records if not record.id.startswith("listener_")}
    for state in plan.states:
        if state.index in plan.graph.look and ended[state.index].outcome in (
            StateOutcome.SKIPPED,
            StateOutcome.BLOCKED,
        ):
            continue  # Already settled when it was looked at: it did not run at all.
        for source in plan.graph.incoming(state.index):
            if not plan.graph.is_look(source):
                assert ended[source].end <= ended[state.index].start
