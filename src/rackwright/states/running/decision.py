"""Decides whether a state may run: a pure function of how the targets of its requisites ended.

The rules are Salt's, down to what wins when several kinds of requisite disagree.
"""

from __future__ import annotations

from enum import Enum
from typing import Dict, List, Optional, Set

from ..reading.keywords import WEIGHT


class Ending:
    """How a state ended, as far as the states that wait for it need to know."""

    __slots__ = ("changed", "ran", "result")

    def __init__(self, result: Optional[bool], changed: bool, ran: bool) -> None:
        self.result = result
        """None in a dry run if it would change."""
        self.changed = changed
        self.ran = ran
        """False if requisites kept it from being called at all."""


class Decision(Enum):
    """What is done with a state; where it does not run, the value is the comment of its record."""

    RUN = "run"
    REACT = "run, and if nothing changes, react to the change of what it watches"
    BLOCKED = "One or more requisite failed"
    NO_CHANGE_AHEAD = "No changes detected"
    NOTHING_FAILED = "State was not run because onfail req did not change"
    NOTHING_CHANGED = "State was not run because none of the onchanges reqs changed"


class _Signal(Enum):
    """What the end of one target means for a state that waits for it."""

    MET = 0
    FAILED = 1
    CHANGED = 2
    ONFAIL_NOT_FAILED = 3
    """An onfail target that did not fail."""
    ONCHANGES_UNCHANGED = 4
    """An onchanges target that did not change."""
    ONCHANGES_CHANGED = 5
    """An onchanges target that changed."""
    WILL_CHANGE = 6
    WILL_NOT_CHANGE = 7


def decide(targets: Dict[str, List[Ending]]) -> Decision:
    """Return the decision for a state. `targets` has the endings of its requisites' targets, by kind of requisite."""
    signals: Set[_Signal] = set()
    for kind, endings in targets.items():
        if kind in WEIGHT:
            signals |= _signals_of_kind(kind, endings)
    if _Signal.FAILED in signals:
        return Decision.BLOCKED
    if _Signal.WILL_NOT_CHANGE in signals:
        return Decision.RUN if _Signal.WILL_CHANGE in signals else Decision.NO_CHANGE_AHEAD
    if _Signal.ONFAIL_NOT_FAILED in signals and _Signal.ONCHANGES_CHANGED not in signals:
        return Decision.NOTHING_FAILED
    if _Signal.ONCHANGES_UNCHANGED in signals and _Signal.ONCHANGES_CHANGED not in signals:
        return Decision.NOTHING_CHANGED
    if _Signal.CHANGED in signals:
        return Decision.REACT
    return Decision.NOTHING_FAILED if _Signal.ONFAIL_NOT_FAILED in signals else Decision.RUN


def _signals_of_kind(kind: str, endings: List[Ending]) -> Set[_Signal]:
    base = kind.partition("_")[0]
    signals = {signal for signal in (_signal_of_ending(base, ending) for ending in endings) if signal is not None}
    if kind == "onfail_all":
        if _Signal.ONFAIL_NOT_FAILED in signals:
            signals.discard(_Signal.MET)
    elif kind == "onfail" or kind.endswith("_any"):
        # One target is enough: signals of the others against it do not count.
        if signals & {_Signal.MET, _Signal.CHANGED}:
            signals.discard(_Signal.FAILED)
        if _Signal.ONCHANGES_CHANGED in signals:
            signals -= {_Signal.ONCHANGES_UNCHANGED, _Signal.FAILED}
        if _Signal.MET in signals:
            signals.discard(_Signal.ONFAIL_NOT_FAILED)
    return signals


def _signal_of_ending(base: str, ending: Ending) -> Optional[_Signal]:
    if base == "onchanges":
        return (
            _Signal.ONCHANGES_CHANGED if ending.result is not False and ending.changed else _Signal.ONCHANGES_UNCHANGED
        )
    if base == "onfail":
        if ending.result is True:
            return _Signal.ONFAIL_NOT_FAILED
    elif ending.result is False:
        return _Signal.FAILED
    elif base == "watch" and ending.changed:
        return _Signal.CHANGED
    elif base == "prereq":
        return _Signal.WILL_CHANGE if ending.result is None else _Signal.WILL_NOT_CHANGE
    return _Signal.MET if ending.ran else None
