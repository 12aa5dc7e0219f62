"""The states of a noderole and the table of all transitions between them.

The store turns these rows into SQL and the annealer into runs; neither has a rule of its own.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, IntEnum


class NodeRoleState(IntEnum):
    """The states of a noderole, ordered so that the worst of several is their maximum.

    Stored as numbers: never renumber.
    """

    ACTIVE = 0
    PROPOSED = 1
    BLOCKED = 2
    TODO = 3
    TRANSITION = 4
    ERROR = 5

    @property
    def label(self) -> str:
        return self.name.lower()


ACTIVE = NodeRoleState.ACTIVE
PROPOSED = NodeRoleState.PROPOSED
BLOCKED = NodeRoleState.BLOCKED
TODO = NodeRoleState.TODO
TRANSITION = NodeRoleState.TRANSITION
ERROR = NodeRoleState.ERROR

COMMITTED = frozenset(NodeRoleState) - {PROPOSED}


class Trigger(Enum):
    """What moves a noderole from one state to another."""

    COMMIT = "its snapshot was committed"
    PARENTS_MET = "its last unmet parent became active"
    PARENT_LOST = "one of its parents is no longer active"
    CLAIM = "the annealer handed it to its jig"
    SUCCEED = "its run succeeded"
    FAIL = "its run failed"
    STALE = "its inputs changed while it ran"
    LOST = "the worker that ran it died"
    UNCHANGED = "its inputs are those of the last success"
    DIRTY = "one of its inputs changed"
    OSCILLATE = "one of its inputs will not come to rest"
    CHANGE = "a commit changed its own intent"
    INPUT_CHANGE = "a commit changed one of its inputs"
    RETRY = "a person asked for another run"
    REINSTALL = "a person asked for a new install"
    REBOOT = "its node booted anew"
    REGROUP = "a cluster it depends on changed its members"


@dataclass(frozen=True)
class Transition:
    """A move from any of `sources` to `target`; `target` None means TODO or BLOCKED, as its parents decide."""

    sources: frozenset[NodeRoleState]
    target: NodeRoleState | None
    spares_destructive: frozenset[NodeRoleState] = frozenset()
    """States that a destructive noderole keeps: it must never run again by itself, not even after a failure."""
    forces: bool = False
    """Whether the noderole then runs even if its inputs are those of the last success."""
    forgets: bool = False
    """Whether the last success is forgotten: what the run left behind is unknown, so inputs of an earlier success no
    longer mean that all is done."""


def _from(*sources: NodeRoleState) -> frozenset[NodeRoleState]:
    return frozenset(sources)


TRANSITIONS: dict[Trigger, Transition] = {
    Trigger.COMMIT: Transition(_from(PROPOSED), None),
    Trigger.PARENTS_MET: Transition(_from(BLOCKED), TODO),
    Trigger.PARENT_LOST: Transition(_from(TODO), BLOCKED),
    Trigger.CLAIM: Transition(_from(TODO), TRANSITION),
    Trigger.SUCCEED: Transition(_from(TRANSITION), ACTIVE),
    Trigger.FAIL: Transition(_from(TRANSITION), ERROR, forgets=True),
    Trigger.STALE: Transition(_from(TRANSITION), None),
    Trigger.LOST: Transition(_from(TRANSITION), None, forces=True),
    Trigger.UNCHANGED: Transition(_from(TODO), ACTIVE),
    Trigger.DIRTY: Transition(_from(ACTIVE), None, spares_destructive=_from(ACTIVE)),
    Trigger.OSCILLATE: Transition(_from(TODO, BLOCKED), ERROR),
    Trigger.CHANGE: Transition(_from(ACTIVE, ERROR, TODO, BLOCKED), None, spares_destructive=_from(ACTIVE)),
    Trigger.INPUT_CHANGE: Transition(
        # What failed may well have failed for what the commit mends.
        _from(ACTIVE, ERROR),
        None,
        spares_destructive=_from(ACTIVE, ERROR),
    ),
    Trigger.RETRY: Transition(_from(ERROR, ACTIVE), TODO, spares_destructive=_from(ACTIVE), forces=True),
    Trigger.REINSTALL: Transition(_from(ERROR, ACTIVE), TODO, forces=True),
    Trigger.REBOOT: Transition(
        # A machine whose install failed reboots: that must not be what wipes it once more.
        _from(ACTIVE, ERROR, TODO, BLOCKED, TRANSITION),
        None,
        spares_destructive=_from(ACTIVE, ERROR),
        forces=True,
    ),
    Trigger.REGROUP: Transition(_from(ACTIVE), BLOCKED, spares_destructive=_from(ACTIVE)),
}


def next_state(
    trigger: Trigger, state: NodeRoleState, *, unmet: int, destructive: bool = False
) -> NodeRoleState | None:
    """Return the state that `trigger` moves a noderole to, or None if it does not move the noderole.

    `unmet` is the number of its parents that are not active.
    """
    transition = TRANSITIONS[trigger]
    if state not in transition.sources:
        return None
    if destructive and state in transition.spares_destructive:
        return None
    if transition.target is not None:
        return transition.target
    return BLOCKED if unmet else TODO


def worst_state(states: Iterable[NodeRoleState]) -> NodeRoleState:
    """Return the state that a node or a deployment shows: the worst of its noderoles; ACTIVE if it has none."""
    return max(states, default=ACTIVE)
