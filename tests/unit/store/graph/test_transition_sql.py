"""The pieces of SQL agree with the domain's table of transitions."""

import pytest

from rackwright.domain.states import ACTIVE, ERROR, TODO, TRANSITION, TRANSITIONS, Trigger
from rackwright.store.graph.transition_sql import (
    TODO_OR_BLOCKED,
    event_kind,
    fixed_target,
    hash_sql,
    sources_sql,
    target_sql,
)


@pytest.mark.parametrize("trigger", Trigger)
def test_a_target_is_that_of_the_table(trigger: Trigger) -> None:
    target = TRANSITIONS[trigger].target
    assert target_sql(trigger) == (TODO_OR_BLOCKED if target is None else str(int(target)))


@pytest.mark.parametrize("trigger", Trigger)
def test_every_source_of_the_table_is_asked_for(trigger: Trigger) -> None:
    named = sources_sql(trigger, state="s").removeprefix("s ").strip("=IN( )").split(", ")
    assert {int(number) for number in named} == {int(source) for source in TRANSITIONS[trigger].sources}


def test_sources_of_several_triggers_are_put_together() -> None:
    assert sources_sql(Trigger.CLAIM) == f"nr.state = {int(TODO)}"
    assert sources_sql(Trigger.CLAIM, Trigger.SUCCEED) == f"nr.state IN ({int(TODO)}, {int(TRANSITION)})"


def test_what_needs_one_target_refuses_a_trigger_without() -> None:
    assert fixed_target(Trigger.FAIL) is ERROR
    with pytest.raises(ValueError, match="STALE leads to TODO or BLOCKED"):
        fixed_target(Trigger.STALE)


def test_only_what_forgets_leaves_no_hash() -> None:
    assert hash_sql(Trigger.FAIL) == "NULL"
    assert hash_sql(Trigger.SUCCEED) == "nr.hash"


def test_an_event_is_named_after_the_state_that_is_reached() -> None:
    assert event_kind(Trigger.SUCCEED) == f"noderole.{ACTIVE.label}"


@pytest.mark.parametrize("trigger", [Trigger.SUCCEED, Trigger.FAIL, Trigger.STALE])
def test_a_run_is_settled_from_the_state_that_means_a_run(trigger: Trigger) -> None:
    """The bulk statement does not ask for the state: a constraint of the table says that a run means TRANSITION."""
    assert TRANSITIONS[trigger].sources == {TRANSITION}
