"""The membership machine: SWIM with Lifeguard's refinements, as a pure function of messages and a clock.

No I/O and no clock of its own. Every input returns what to do about it: messages to send, events to tell, peers to
dial. The caller gives the time in seconds (a monotonic clock; steps of it are survived), calls `tick` when
`next_deadline()` is reached, and hands in what the transport has authenticated. So the same machine runs in an agent
and, ten thousand times, in `lab/mesh_simulator.py`.
"""

import dataclasses
import random
from collections.abc import Callable, Iterable

from rackwright.mesh.membership.death_inquiry import Inquirer
from rackwright.mesh.membership.member import Entry, MemberRecord, State
from rackwright.mesh.membership.member_table import Base
from rackwright.mesh.membership.member_updates import Counters, Membership
from rackwright.mesh.membership.messages import (
    Ack,
    Alive,
    Dead,
    DialReport,
    DialRequest,
    Gossip,
    Message,
    Nack,
    Ping,
    PingRequest,
    SyncDigest,
    SyncState,
)
from rackwright.mesh.membership.probe import Prober
from rackwright.mesh.membership.protocol_config import SwimConfig
from rackwright.mesh.membership.protocol_outputs import Dial, Event, EventKind, Output, Send
from rackwright.mesh.membership.replay_window import ReplayGuard
from rackwright.mesh.membership.sync import Syncer

__all__ = [
    "Dial",
    "Entry",
    "Event",
    "EventKind",
    "MemberRecord",
    "Message",
    "Output",
    "Send",
    "State",
    "Swim",
    "SwimConfig",
]


class Swim:
    """One member's view of all.

    `me.session` must be higher than at any earlier start of this member, or others take its messages for replays:
    keep it on disk, and take the larger of that plus one and the wall clock in microseconds. The incarnation starts
    there too, so that a member that comes back outbids whatever is told of its past, even before anyone can reach it.
    """

    __slots__ = ("_handlers", "_inquirer", "_membership", "_prober", "_replay", "_shift", "_started", "_syncer")

    def __init__(self, config: SwimConfig, me: MemberRecord, rng: random.Random, base: Base | None = None) -> None:
        """`base` is a member list shared by the many machines of a simulation; an agent has none."""
        self._membership = Membership(config, me, rng, base)
        self._prober = Prober(self._membership)
        self._syncer = Syncer(self._membership)
        self._inquirer = Inquirer(self._membership)
        self._replay = ReplayGuard(config.max_members)
        self._shift = 0.0  # from the caller's clock to ours, which never runs backwards
        self._started = False
        self._handlers: dict[type, Callable[..., None]] = {
            Ping: self._prober.ping,
            PingRequest: self._prober.ping_request,
            Ack: self._prober.ack,
            Nack: self._prober.nack,
            Gossip: _nothing_more,
            SyncDigest: self._syncer.digest,
            SyncState: self._syncer.state,
            DialRequest: self._inquirer.request,
            DialReport: self._inquirer.report,
        }

    # -- what is known -------------------------------------------------------------------------------------------------

    @property
    def me(self) -> MemberRecord:
        return self._membership.me

    @property
    def counters(self) -> Counters:
        return self._membership.counters

    @property
    def awareness(self) -> int:
        """Zero when healthy; the higher, the more this member doubts itself."""
        return self._membership.awareness.score

    def members(self) -> list[Entry]:
        """Everyone, this member among them, the dead and those that left too (for a day)."""
        return list(self._membership.table)

    def member(self, name: str) -> Entry | None:
        return self._membership.table.get(name)

    @property
    def live(self) -> int:
        """How many are alive or only suspected, this member among them."""
        return self._membership.table.live

    @property
    def has_left(self) -> bool:
        return self._membership.leaving

    @property
    def has_said_goodbye(self) -> bool:
        """After `leave`: whether the news has gone out often enough for the process to end."""
        return self._membership.leaving and not len(self._membership.queue)

    def next_deadline(self) -> float:
        """When to call `tick`, in the caller's clock; infinite before `joined`."""
        return self._membership.timers.next - self._shift

    # -- inputs --------------------------------------------------------------------------------------------------------

    def joined(self, now: float, members: Iterable[MemberRecord] = ()) -> list[Output]:
        """Start, knowing these members: none for the first of a cluster, at least one living for all others."""
        self._enter(now)
        membership = self._membership
        if not self._started:
            self._started = True
            self._prober.start()
            self._syncer.start()
        for record in members:
            membership.apply(Alive(record), record.name)
            self._syncer.soon()
        return self._leave_with()

    def tick(self, now: float) -> list[Output]:
        self._enter(now)
        return self._leave_with()

    def receive(self, now: float, source: str, message: Message) -> list[Output]:
        """`source` is the name in the certificate of whoever sent this. A message that claims another sender is
        refused.
        """
        self._enter(now)
        membership = self._membership
        if message.sender != source or source == membership.me.name:
            membership.counters.forged += 1
        elif source in membership.removed:
            membership.counters.shut_out += 1
        elif not self._replay.accept(message):
            membership.counters.replayed += 1
        else:
            membership.counters.received += 1
            for update in message.updates:
                membership.apply(update, source)
            self._handlers[type(message.body)](source, message.body)
        return self._leave_with()

    def leave(self, now: float) -> list[Output]:
        """Say goodbye. Go on calling `tick` until `has_said_goodbye`, then end the process."""
        self._enter(now)
        membership = self._membership
        if not membership.leaving:
            membership.leaving = True
            membership.table.put(Entry(membership.me, State.LEFT, membership.now))
            membership.broadcast(Dead(membership.me.name, membership.me.incarnation, membership.me.name))
            membership.emit(EventKind.LEFT, membership.me)
        return self._leave_with()

    def set_metadata(self, now: float, metadata: bytes) -> list[Output]:
        self._enter(now)
        if metadata != self.me.metadata:
            self._membership.announce(dataclasses.replace(self.me, metadata=metadata))
        return self._leave_with()

    def remove(self, now: float, name: str) -> list[Output]:
        """Its certificate was revoked: forget it and hear nothing more by it or of it."""
        self._enter(now)
        self._membership.remove(name)
        self._replay.forget(name)
        return self._leave_with()

    def readmit(self, name: str) -> None:
        """It was invited anew under the same name."""
        self._membership.removed.discard(name)

    # -- hints of the transport ----------------------------------------------------------------------------------------

    def connection_closed(self, now: float, peer: str) -> list[Output]:
        """A kept connection to `peer` ended, and it was not we who ended it."""
        self._enter(now)
        self._inquirer.closed(peer)
        return self._leave_with()

    def connection_refused(self, now: float, peer: str) -> list[Output]:
        """The answer to a `Dial`: its host is there and says that nobody listens."""
        self._enter(now)
        self._inquirer.refused(peer)
        return self._leave_with()

    def connected(self, now: float, peer: str) -> list[Output]:
        """The answer to a `Dial`: somebody with the right certificate is there."""
        self._enter(now)
        self._inquirer.connected(peer)
        return self._leave_with()

    # -- time ----------------------------------------------------------------------------------------------------------

    def _enter(self, now: float) -> None:
        membership = self._membership
        if now + self._shift < membership.now:
            self._shift = membership.now - now
        membership.now = now + self._shift
        late = membership.now - membership.timers.next
        if late > membership.config.pause_threshold:
            self._was_paused(late)

    def _was_paused(self, seconds: float) -> None:
        """We were stopped, or starved, or the clock jumped. Judge nobody by it, and ask what happened meanwhile."""
        membership = self._membership
        membership.counters.pauses += 1
        membership.awareness.add(1)
        membership.timers.delay(seconds)
        membership.was_paused(seconds)
        self._prober.was_paused()
        self._inquirer.was_paused()
        self._syncer.soon()

    def _leave_with(self) -> list[Output]:
        membership = self._membership
        membership.timers.run(membership.now)
        out = membership.out
        membership.out = []
        return out


def _nothing_more(source: str, body: Gossip) -> None:
    """Gossip is nothing but its updates, which every message may carry."""
