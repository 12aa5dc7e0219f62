"""Builds pieces of SQL from `domain.states.TRANSITIONS`, for statements that move many noderoles at once.

Each piece is built once, together with the statement that holds it. `nr` stands for the row of `node_roles`.
"""

from rackwright.domain.states import BLOCKED, TODO, TRANSITIONS, NodeRoleState, Trigger

TODO_OR_BLOCKED = f"CASE WHEN nr.unmet > 0 THEN {int(BLOCKED)} ELSE {int(TODO)} END"
"""The state that a transition without a target leads to: TODO or BLOCKED, by the parents."""


def fixed_target(trigger: Trigger) -> NodeRoleState:
    """Return the state that `trigger` leads to, for code that relies on there being only one."""
    target = TRANSITIONS[trigger].target
    if target is None:
        raise ValueError(f"{trigger.name} leads to TODO or BLOCKED, by the parents")
    return target


def target_sql(trigger: Trigger) -> str:
    """Return the expression for the state that `trigger` moves a noderole to."""
    return TODO_OR_BLOCKED if TRANSITIONS[trigger].target is None else str(int(fixed_target(trigger)))


def sources_sql(*triggers: Trigger, state: str = "nr.state") -> str:
    """Return the condition that one of `triggers` can move a noderole, as far as its state is concerned."""
    sources = sorted(frozenset[NodeRoleState]().union(*(TRANSITIONS[trigger].sources for trigger in triggers)))
    if len(sources) == 1:
        return f"{state} = {int(sources[0])}"
    return f"{state} IN ({', '.join(str(int(source)) for source in sources)})"


def hash_sql(trigger: Trigger) -> str:
    """Return the expression for the inputs' hash that `trigger` leaves, if no run replaces it."""
    return "NULL" if TRANSITIONS[trigger].forgets else "nr.hash"


def event_kind(trigger: Trigger) -> str:
    """Return the kind of event that tells of the state that `trigger` leads to."""
    return f"noderole.{fixed_target(trigger).label}"
