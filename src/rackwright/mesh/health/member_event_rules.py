"""The rules for which events to publish about a member: it died, came back, left, or software on it fails.

Pure functions: from what was last published about a member and what is observed now they compute the events to publish
and the new record of what was published. `mesh/runs/member_events.py` observes members and writes the events.
"""

import json
import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rackwright.mesh.bounded_json import read_object
from rackwright.mesh.errors import Unreadable
from rackwright.mesh.health.health_checks import CheckReport, Status
from rackwright.mesh.health.software import read_software
from rackwright.mesh.membership.member import LIVE, Entry, State

FLAP_SECONDS = 300.0
FLAP_EVENTS = 6
"""How many changes of a check, or of a member's state, are published in `FLAP_SECONDS`.

The state after that is published when the limit allows an event again.
"""
MEMBER_EVENTS = 40
"""The same limit for all events of a member: a rogue member could give its checks ever new names."""
STATE = ""
"""The key for events about the member's own state, in place of the name of a check."""
ALIVE, DEAD, LEFT, REMOVED = "alive", "dead", "left", "removed"
_STATES = {State.DEAD: DEAD, State.LEFT: LEFT} | dict.fromkeys(LIVE, ALIVE)


@dataclass(frozen=True)
class ObservedMember:
    """A member as the observing server knows it now."""

    name: str
    state: str
    address: str = ""
    session: int = 0
    incarnation: int = 0
    reports: tuple[CheckReport, ...] = ()
    complete: bool = True
    """Whether `reports` are all of the member's checks"""
    revoked: int = 0
    """The issue number up to which certificates of the member's name are refused"""


@dataclass(frozen=True)
class LastReport:
    """What was last published about a member. Stored in the datastore under these field names."""

    state: str = ""
    session: int = 0
    incarnation: int = 0
    revoked: int = 0
    failing: tuple[str, ...] = ()
    told: dict[str, list[float]] = field(default_factory=dict)
    """Times of the events about its state (`STATE`) and about each check, as far as `FLAP_SECONDS` counts them"""
    at: float = 0.0

    def dump(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True).encode()


NO_REPORT = LastReport()


@dataclass(frozen=True)
class MemberEvent:
    """An event to publish: its kind and its fields."""

    kind: str
    fields: dict[str, Any]


def observe_member(entry: Entry, revoked: int = 0) -> ObservedMember:
    record, software = entry.record, read_software(entry.record)
    reports = software.reports
    complete = (
        bool(reports) and not software.left_out and all(report.status is not Status.UNKNOWN for report in reports)
    )
    state = _STATES[entry.state]
    return ObservedMember(
        record.name, state, record.address, record.session, record.incarnation, reports, complete, revoked
    )


def read_last_report(value: bytes) -> LastReport:
    """Read what was last published about a member from the datastore.

    Return `NO_REPORT` for a value that cannot be read: another member may have written it.
    """
    try:
        content = read_object(value, "what was told of a server")
        failing, event_times = content["failing"], content["told"]
        times = {str(name): [float(moment) for moment in moments] for name, moments in event_times.items()}
        last = LastReport(
            str(content["state"]),
            int(content["session"]),
            int(content["incarnation"]),
            int(content["revoked"]),
            tuple(str(name) for name in failing),
            times,
            float(content["at"]),
        )
    except (Unreadable, KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return NO_REPORT
    finite = all(math.isfinite(moment) for moments in times.values() for moment in moments)
    return last if finite and math.isfinite(last.at) else NO_REPORT


def events_since(last: LastReport, member: ObservedMember, now: float) -> tuple[list[MemberEvent], LastReport]:
    """Return the events to publish, and the new record of what was published. The same observation again has no events.

    `now` is the wall clock, which all servers that may observe share.
    """
    if member.state != REMOVED and last.state != REMOVED and member.incarnation < last.incarnation:
        # This server has not received yet what another server has published already.
        return [], last
    budget = _EventBudget(last.told, now)
    events: list[MemberEvent] = []
    state, failing = last.state, last.failing
    if kind := _state_event_kind(last, member):
        if not budget.has_budget(STATE):
            return [], last
        address = {"address": member.address} if member.address else {}
        events.append(MemberEvent(kind, {"member": member.name, **address, **budget.spend(STATE)}))
        state = member.state
    if member.state == state == ALIVE:
        changes, failing = _check_events(last, member, budget)
        events += changes
    if not events:
        return [], last
    failing = () if member.state == REMOVED else failing
    return events, LastReport(state, member.session, member.incarnation, member.revoked, failing, budget.times, now)


def _state_event_kind(last: LastReport, member: ObservedMember) -> str:
    """Return the kind of the event for the member's new state; empty if that state was published already."""
    if member.state == REMOVED:
        # After a restart, a member that was admitted again is missing in member tables for a while, and still listed as
        # revoked.
        return "member_removed" if last.state not in ("", REMOVED) and member.revoked > last.revoked else ""
    if member.state == last.state:
        restarted = member.state == ALIVE and 0 < last.session < member.session
        return "member_restarted" if restarted else ""
    if member.state == ALIVE:
        if last.state in ("", REMOVED):
            return "member_joined"
        # A dead member that comes back has a higher incarnation; without it the observation is old.
        return "member_alive" if member.incarnation > last.incarnation else ""
    # Nobody expects a member that has left, nor one that left before anything was published about it.
    return f"member_{member.state}" if last.state == ALIVE or (not last.state and member.state == DEAD) else ""


def _check_events(
    last: LastReport, member: ObservedMember, budget: "_EventBudget"
) -> tuple[list[MemberEvent], tuple[str, ...]]:
    reported = {report.name for report in member.reports}
    failing = set(last.failing)
    events = []
    for report in member.reports:
        is_failing, was_failing = report.status is Status.FAILING, report.name in failing
        if report.status is Status.UNKNOWN or is_failing == was_failing or not budget.has_budget(report.name):
            continue
        why = {"why": report.reason} if is_failing else {}
        kind = "check_failing" if is_failing else "check_passing"
        events.append(
            MemberEvent(kind, {"member": member.name, "check": report.name, **why, **budget.spend(report.name)})
        )
        failing ^= {report.name}
    for name in sorted(failing - reported) if member.complete else ():
        if budget.has_budget(name):
            events.append(MemberEvent("check_removed", {"member": member.name, "check": name, **budget.spend(name)}))
            failing.remove(name)
    return events, tuple(sorted(failing))


class _EventBudget:
    """How many events about a member may be published now, so that a state that flaps does not flood the events."""

    def __init__(self, event_times: dict[str, list[float]], now: float) -> None:
        self.now = now
        # A time in the future was written by a server with another clock, and does not count.
        counted = {
            name: [at for at in moments if 0 <= now - at < FLAP_SECONDS] for name, moments in event_times.items()
        }
        self.times = {name: moments for name, moments in counted.items() if moments}

    def has_budget(self, name: str) -> bool:
        if len(self.times.get(name, ())) >= FLAP_EVENTS:
            return False
        # Checks cannot use up the member's limit: its own state is published beyond it.
        return name == STATE or sum(map(len, self.times.values())) < MEMBER_EVENTS

    def spend(self, name: str) -> dict[str, bool]:
        """Count an event. Return the fields that mark the last event within the limit."""
        moments = self.times.setdefault(name, [])
        moments.append(self.now)
        return {"flapping": True} if len(moments) == FLAP_EVENTS else {}


def is_settled(last: LastReport, member: ObservedMember) -> bool:
    """Return whether no event is held back, so that there is nothing to publish until the member changes."""
    return not events_since(replace(last, told={}), member, last.at)[0]


def is_long_gone(last: LastReport, before: float) -> bool:
    """Return whether what was published about a member that is in no member table any more may be deleted."""
    return last.state != ALIVE and last.at < before
