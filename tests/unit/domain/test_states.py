"""The noderole's states: every trigger from every state, written out."""

import pytest

from rackwright.domain.states import TRANSITIONS, NodeRoleState, Trigger, next_state, worst_state

# Columns: from which state. "-": it does not move. "by": TODO or BLOCKED, by its parents. "spare": the same, but a
# destructive one stays where it is. REINSTALL is what moves a destructive ACTIVE one.
TABLE = """
             proposed  blocked  todo        transition  active       error
COMMIT       by        -        -           -           -            -
PARENTS_MET  -         todo     -           -           -            -
PARENT_LOST  -         -        blocked     -           -            -
CLAIM        -         -        transition  -           -            -
SUCCEED      -         -        -           active      -            -
FAIL         -         -        -           error       -            -
STALE        -         -        -           by          -            -
LOST         -         -        -           by          -            -
UNCHANGED    -         -        active      -           -            -
DIRTY        -         -        -           -           by/spare     -
OSCILLATE    -         error    error       -           -            -
CHANGE       -         by       by          -           by/spare     by
INPUT_CHANGE -         -        -           -           by/spare     by/spare
RETRY        -         -        -           -           todo/spare   todo
REINSTALL    -         -        -           -           todo         todo
REBOOT       -         by       by          by          by/spare     by/spare
REGROUP      -         -        -           -           blocked/spare  -
"""

FORCING = {Trigger.RETRY, Trigger.REINSTALL, Trigger.REBOOT, Trigger.LOST}
"""What makes it run even with the inputs of its last success."""


def cases() -> list[tuple[Trigger, NodeRoleState, str]]:
    header, *rows = [line.split() for line in TABLE.strip().splitlines()]
    return [
        (Trigger[name], NodeRoleState[state.upper()], cell)
        for name, *cells in rows
        for state, cell in zip(header, cells, strict=True)
    ]


@pytest.mark.parametrize(("trigger", "state", "cell"), cases(), ids=str)
@pytest.mark.parametrize("unmet", [0, 2])
@pytest.mark.parametrize("destructive", [False, True])
def test_every_trigger_from_every_state(
    trigger: Trigger, state: NodeRoleState, cell: str, unmet: int, destructive: bool
) -> None:
    word, _, spares = cell.partition("/")
    if word == "-" or (spares and destructive):
        expected = None
    elif word == "by":
        expected = NodeRoleState.BLOCKED if unmet else NodeRoleState.TODO
    else:
        expected = NodeRoleState[word.upper()]
    assert next_state(trigger, state, unmet=unmet, destructive=destructive) == expected


def test_the_table_here_has_every_trigger() -> None:
    assert {trigger for trigger, _, _ in cases()} == set(Trigger)


@pytest.mark.parametrize("trigger", Trigger, ids=lambda trigger: trigger.name)
def test_only_these_force_a_run(trigger: Trigger) -> None:
    assert TRANSITIONS[trigger].forces == (trigger in FORCING)


@pytest.mark.parametrize("trigger", Trigger, ids=lambda trigger: trigger.name)
def test_only_a_failure_forgets_the_last_success(trigger: Trigger) -> None:
    assert TRANSITIONS[trigger].forgets == (trigger is Trigger.FAIL)


def test_a_node_shows_the_worst_state_of_its_noderoles() -> None:
    worst_first = ["ERROR", "TRANSITION", "TODO", "BLOCKED", "PROPOSED", "ACTIVE"]
    states = [NodeRoleState[name] for name in worst_first]
    for number, state in enumerate(states):
        assert worst_state(reversed(states[number:])) is state
    assert worst_state([]) is NodeRoleState.ACTIVE
