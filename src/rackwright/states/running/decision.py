"""May a state run? One pure function from how its requisites' targets ended to what is to be done with it.

The rules are Salt's, down to what wins when several kinds of requisite disagree.
"""

from __future__ import annotations

from enum import Enum
from typing import Dict, List, Optional, Set

from ..reading.keywords import WEIGHT


class Ending:
    """How a state ended, as far as others care."""

    __slots__ = ("changed", "ran", "result")

    def __init__(self, result: Optional[bool], changed: bool, ran: bool) -> None:
        self.result = result
        """None: it would change (in a dry run)."""
        self.changed = changed
        self.ran = ran
        """False if requisites kept it from being called at all."""


class Decision(Enum):
    RUN = "run"
    REACT = "run, and if nothing changes, react to the change of what it watches"
    BLOCKED = "One or more requisite failed"
    NO_CHANGE_AHEAD = "No changes detected"
    NOTHING_FAILED = "State was not run because onfail req did not change"
    NOTHING_CHANGED = "State was not run because none of the onchanges reqs changed"


class _Signal(Enum):
    """What one target tells about a state that waits for it."""

    MET = 0
    FAILED = 1
    CHANGED = 2
    WELL = 3
    """An onfail target that did not fail."""
    STILL = 4
    """An onchanges target that did not change."""
    MOVED = 5
    """An onchanges target that changed."""
    WILL_CHANGE = 6
    WILL_NOT_CHANGE = 7


def decide(targets: Dict[str, List[Ending]]) -> Decision:
    """The verdict for a state whose requisites' targets ended so, by kind of requisite."""
    signs: Set[_Signal] = set()
    for kind, endings in targets.items():
        if kind in WEIGHT:
            signs |= _signals_of_kind(kind, endings)
    if _Signal.FAILED in signs:
        return Decision.BLOCKED
    if _Signal.WILL_NOT_CHANGE in signs:
        return Decision.RUN if _Signal.WILL_CHANGE in signs else Decision.NO_CHANGE_AHEAD
    if _Signal.WELL in signs and _Signal.MOVED not in signs:
        return Decision.NOTHING_FAILED
    if _Signal.STILL in signs and _Signal.MOVED not in signs:
        return Decision.NOTHING_CHANGED
    if _Signal.CHANGED in signs:
        return Decision.REACT
    return Decision.NOTHING_FAILED if _Signal.WELL in signs else Decision.RUN


def _signals_of_kind(kind: str, endings: List[Ending]) -> Set[_Signal]:
    base = kind.partition("_")[0]
    signs = {sign for sign in (_signal_of_ending(base, ending) for ending in endings) if sign is not None}
    if kind == "onfail_all":
        if _Signal.WELL in signs:
            signs.discard(_Signal.MET)
    elif kind == "onfail" or kind.endswith("_any"):
        # One target is enough: what the others say against it does not count.
        if signs & {_Signal.MET, _Signal.CHANGED}:
            signs.discard(_Signal.FAILED)
        if _Signal.MOVED in signs:
            signs -= {_Signal.STILL, _Signal.FAILED}
        if _Signal.MET in signs:
            signs.discard(_Signal.WELL)
    return signs


def _signal_of_ending(base: str, ending: Ending) -> Optional[_Signal]:
    if base == "onchanges":
        return _Signal.MOVED if ending.result is not False and ending.changed else _Signal.STILL
    if base == "onfail":
        if ending.result is True:
            return _Signal.WELL
    elif ending.result is False:
        return _Signal.FAILED
    elif base == "watch" and ending.changed:
        return _Signal.CHANGED
    elif base == "prereq":
        return _Signal.WILL_CHANGE if ending.result is None else _Signal.WILL_NOT_CHANGE
    return _Signal.MET if ending.ran else None
