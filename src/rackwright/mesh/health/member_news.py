"""What is worth an event about a server, decided: it died, came back, left, or software on it fails.

Pure: what was last told of a server and what is seen of it now go in, the events to tell and what has then been told
come out. `mesh/runs/member_events.py` looks and writes.
"""

import json
import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rackwright.mesh.bounded_json import read_object
from rackwright.mesh.errors import Unreadable
from rackwright.mesh.health.health_checks import Result, Status
from rackwright.mesh.health.software import software_of
from rackwright.mesh.membership.member import LIVE, Entry, State

FLAP_SECONDS = 300.0
FLAP_TELLS = 6
"""How many changes of one thing are told in `FLAP_SECONDS`; how it is after that is told when there is room again."""
SERVER_TELLS = 40
"""The same for all that is told of one server: a rogue one could give its checks ever new names."""
STATE = ""
"""Where a check has its name, the server's own state has this."""
ALIVE, DEAD, LEFT, REMOVED = "alive", "dead", "left", "removed"
_STATES = {State.DEAD: DEAD, State.LEFT: LEFT} | dict.fromkeys(LIVE, ALIVE)


@dataclass(frozen=True)
class Seen:
    """A server as it is held now by the one who looks."""

    name: str
    state: str
    address: str = ""
    session: int = 0
    incarnation: int = 0
    results: tuple[Result, ...] = ()
    whole: bool = True
    """Whether `results` are all of its checks"""
    revoked: int = 0
    """The issue number up to which certificates of its name are refused"""


@dataclass(frozen=True)
class LastTold:
    """What the events have said of a server up to now."""

    state: str = ""
    session: int = 0
    incarnation: int = 0
    revoked: int = 0
    failing: tuple[str, ...] = ()
    told: dict[str, list[float]] = field(default_factory=dict)
    """When something was told of its state (`STATE`) and of each check, as far as it counts for `FLAP_SECONDS`"""
    at: float = 0.0

    def dump(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True).encode()


NOTHING = LastTold()


@dataclass(frozen=True)
class News:
    kind: str
    fields: dict[str, Any]


def seen_of(entry: Entry, revoked: int = 0) -> Seen:
    record, software = entry.record, software_of(entry.record)
    results = software.results
    whole = bool(results) and not software.left_out and all(result.status is not Status.UNKNOWN for result in results)
    state = _STATES[entry.state]
    return Seen(record.name, state, record.address, record.session, record.incarnation, results, whole, revoked)


def read_last_told(value: bytes) -> LastTold:
    """What lies in the datastore; as if nothing had been told, if that cannot be read: another member may have
    written it.
    """
    try:
        content = read_object(value, "what was told of a server")
        failing, told = content["failing"], content["told"]
        times = {str(name): [float(moment) for moment in moments] for name, moments in told.items()}
        last = LastTold(
            str(content["state"]),
            int(content["session"]),
            int(content["incarnation"]),
            int(content["revoked"]),
            tuple(str(name) for name in failing),
            times,
            float(content["at"]),
        )
    except (Unreadable, KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return NOTHING
    finite = all(math.isfinite(moment) for moments in times.values() for moment in moments)
    return last if finite and math.isfinite(last.at) else NOTHING


def news_of(last: LastTold, seen: Seen, now: float) -> tuple[list[News], LastTold]:
    """The events to tell, and what has been told with them. The same view again tells nothing.

    `now` is the wall clock, which all who may look share.
    """
    if seen.state != REMOVED and last.state != REMOVED and seen.incarnation < last.incarnation:
        # Whoever looks has not heard yet what another has told already.
        return [], last
    budget = _Budget(last.told, now)
    events: list[News] = []
    state, failing = last.state, last.failing
    if kind := _change_of_state(last, seen):
        if not budget.has_room(STATE):
            return [], last
        where = {"address": seen.address} if seen.address else {}
        events.append(News(kind, {"member": seen.name, **where, **budget.spend(STATE)}))
        state = seen.state
    if seen.state == state == ALIVE:
        changes, failing = _change_of_checks(last, seen, budget)
        events += changes
    if not events:
        return [], last
    failing = () if seen.state == REMOVED else failing
    return events, LastTold(state, seen.session, seen.incarnation, seen.revoked, failing, budget.told, now)


def _change_of_state(last: LastTold, seen: Seen) -> str:
    """The kind of the event for how the server is; empty if that is known."""
    if seen.state == REMOVED:
        # One that was let in again is in nobody's table for a while after a restart, and still on the list.
        return "member_removed" if last.state not in ("", REMOVED) and seen.revoked > last.revoked else ""
    if seen.state == last.state:
        restarted = seen.state == ALIVE and 0 < last.session < seen.session
        return "member_restarted" if restarted else ""
    if seen.state == ALIVE:
        if last.state in ("", REMOVED):
            return "member_joined"
        # Who was dead speaks up with a higher incarnation; without one this is old.
        return "member_alive" if seen.incarnation > last.incarnation else ""
    # Who has left is not expected; nor is who was never heard of and has left.
    return f"member_{seen.state}" if last.state == ALIVE or (not last.state and seen.state == DEAD) else ""


def _change_of_checks(last: LastTold, seen: Seen, budget: "_Budget") -> tuple[list[News], tuple[str, ...]]:
    now = {result.name: result for result in seen.results}
    failing = set(last.failing)
    events = []
    for result in seen.results:
        is_failing, was_failing = result.status is Status.FAILING, result.name in failing
        if result.status is Status.UNKNOWN or is_failing == was_failing or not budget.has_room(result.name):
            continue
        why = {"why": result.reason} if is_failing else {}
        kind = "check_failing" if is_failing else "check_passing"
        events.append(News(kind, {"member": seen.name, "check": result.name, **why, **budget.spend(result.name)}))
        failing ^= {result.name}
    for name in sorted(failing - now.keys()) if seen.whole else ():
        if budget.has_room(name):
            events.append(News("check_removed", {"member": seen.name, "check": name, **budget.spend(name)}))
            failing.remove(name)
    return events, tuple(sorted(failing))


class _Budget:
    """How much may be told of a server now: what changes all the time is not told all the time."""

    def __init__(self, told: dict[str, list[float]], now: float) -> None:
        self.now = now
        # What seems to come was written under another clock.
        counted = {name: [at for at in moments if 0 <= now - at < FLAP_SECONDS] for name, moments in told.items()}
        self.told = {name: moments for name, moments in counted.items() if moments}

    def has_room(self, name: str) -> bool:
        if len(self.told.get(name, ())) >= FLAP_TELLS:
            return False
        # The last places are for the server's own life.
        return name == STATE or sum(map(len, self.told.values())) < SERVER_TELLS

    def spend(self, name: str) -> dict[str, bool]:
        """Count one telling; for the last one there is room for, what the event says of that."""
        moments = self.told.setdefault(name, [])
        moments.append(self.now)
        return {"flapping": True} if len(moments) == FLAP_TELLS else {}


def is_settled(last: LastTold, seen: Seen) -> bool:
    """Whether nothing is held back: as long as the server is seen the same, there is nothing to tell."""
    return not news_of(replace(last, told={}), seen, last.at)[0]


def is_long_gone(last: LastTold, before: float) -> bool:
    """Whether a server that nobody knows any more may be forgotten."""
    return last.state != ALIVE and last.at < before
