"""The outputs of the membership machine, which its caller carries out: messages, events, and connections to try."""

import enum
from dataclasses import dataclass

from rackwright.mesh.membership.member import MemberRecord
from rackwright.mesh.membership.messages import Message


class EventKind(enum.Enum):
    """What happened to a member."""

    JOINED = "joined"  # a member that was not known, or had left
    ALIVE = "alive"  # a suspect that refuted, or a dead member that is back
    SUSPECT = "suspect"
    DEAD = "dead"
    LEFT = "left"
    UPDATED = "updated"  # same member, other labels, metadata or address
    CONFLICT = "conflict"  # another process claims this member's name; `member` is the claim


@dataclass(frozen=True, slots=True)
class Send:
    """Send `message` to the member named `to`.

    With `reliable` the transport connects first if it must, and retries until its own timeout; without, it may drop the
    message, for one that is late by a second is worth nothing.
    """

    to: str
    message: Message
    reliable: bool = False


@dataclass(frozen=True, slots=True)
class Event:
    """Something happened to a member, to be told to people."""

    kind: EventKind
    member: MemberRecord


@dataclass(frozen=True, slots=True)
class Dial:
    """Open a *new* connection to `peer` now, and call `connection_refused` or `connected`; neither on a timeout."""

    peer: str


Output = Send | Event | Dial
