"""May a state run? One pure function from how its requisites' targets ended to what is to be done with it.

The rules are Salt's, down to what wins when several kinds of requisite disagree.
"""

from __future__ import annotations

from enum import Enum
from typing import Dict, List, Optional, Set

from ..reading.words import WEIGHT


class Ending:
    """How a state ended, as far as others care."""

    __slots__ = ("changed", "ran", "result")

    def __init__(self, result: Optional[bool], changed: bool, ran: bool) -> None:
        self.result = result
        """None: it would change (in a dry run)."""
        self.changed = changed
        self.ran = ran
        """False if requisites kept it from being called at all."""


class Verdict(Enum):
    RUN = "run"
    REACT = "run, and if nothing changes, react to the change of what it watches"
    BLOCKED = "One or more requisite failed"
    NO_CHANGE_AHEAD = "No changes detected"
    NOTHING_FAILED = "State was not run because onfail req did not change"
    NOTHING_CHANGED = "State was not run because none of the onchanges reqs changed"


class _Sign(Enum):
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


def judge(targets: Dict[str, List[Ending]]) -> Verdict:
    """The verdict for a state whose requisites' targets ended so, by kind of requisite."""
    signs: Set[_Sign] = set()
    for kind, endings in targets.items():
        if kind in WEIGHT:
            signs |= _signs(kind, endings)
    if _Sign.FAILED in signs:
        return Verdict.BLOCKED
    if _Sign.WILL_NOT_CHANGE in signs:
        return Verdict.RUN if _Sign.WILL_CHANGE in signs else Verdict.NO_CHANGE_AHEAD
    if _Sign.WELL in signs and _Sign.MOVED not in signs:
        return Verdict.NOTHING_FAILED
    if _Sign.STILL in signs and _Sign.MOVED not in signs:
        return Verdict.NOTHING_CHANGED
    if _Sign.CHANGED in signs:
        return Verdict.REACT
    return Verdict.NOTHING_FAILED if _Sign.WELL in signs else Verdict.RUN


def _signs(kind: str, endings: List[Ending]) -> Set[_Sign]:
    base = kind.partition("_")[0]
    signs = {sign for sign in (_sign(base, ending) for ending in endings) if sign is not None}
    if kind == "onfail_all":
        if _Sign.WELL in signs:
            signs.discard(_Sign.MET)
    elif kind == "onfail" or kind.endswith("_any"):
        # One target is enough: what the others say against it does not count.
        if signs & {_Sign.MET, _Sign.CHANGED}:
            signs.discard(_Sign.FAILED)
        if _Sign.MOVED in signs:
            signs -= {_Sign.STILL, _Sign.FAILED}
        if _Sign.MET in signs:
            signs.discard(_Sign.WELL)
    return signs


def _sign(base: str, ending: Ending) -> Optional[_Sign]:
    if base == "onchanges":
        return _Sign.MOVED if ending.result is not False and ending.changed else _Sign.STILL
    if base == "onfail":
        if ending.result is True:
            return _Sign.WELL
    elif ending.result is False:
        return _Sign.FAILED
    elif base == "watch" and ending.changed:
        return _Sign.CHANGED
    elif base == "prereq":
        return _Sign.WILL_CHANGE if ending.result is None else _Sign.WILL_NOT_CHANGE
    return _Sign.MET if ending.ran else None
