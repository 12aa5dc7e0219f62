"""The membership machine: SWIM with Lifeguard's refinements, as a pure function of messages and a clock.

No I/O and no clock of its own. Every input returns outputs: messages to send, events to report, peers to dial. The
caller gives the time in seconds (a monotonic clock; steps of it are survived), calls `tick` when
`next_deadline()` is reached, and hands in what the transport has authenticated. So the same machine runs in an agent
and, ten thousand times, in `lab/mesh_simulator.py`.
"""

import dataclasses
import random
from collections.abc import Callable, Iterable

from rackwright.mesh.membership.death_inquiry import Inquirer
from rackwright.mesh.membership.member import Entry, MemberRecord, State
from rackwright.mesh.membership.member_table import SharedBase
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
    """One member's view of all members, kept up to date by the protocol.

    `me.session` must be higher than at any earlier start of this member, or others take its messages for replays:
    keep it on disk, and take the larger of that plus one and the wall clock in microseconds. The incarnation starts
    there too, so that a member that comes back outbids all updates about its past, even before others can reach it.
    """

    __slots__ = ("_clock_offset", "_handlers", "_inquirer", "_membership", "_prober", "_replay", "_started", "_syncer")

    def __init__(
        self, config: SwimConfig, me: MemberRecord, rng: random.Random, base: SharedBase | None = None
    ) -> None:
        """`base` is a member list shared by the many machines of a simulation; an agent has none."""
        self._membership = Membership(config, me, rng, base)
        self._prober = Prober(self._membership)
        self._syncer = Syncer(self._membership)
        self._inquirer = Inquirer(self._membership)
        self._replay = ReplayGuard(config.max_members)
        self._clock_offset = 0.0  # from the caller's clock to ours, which never runs backwards
        self._started = False
        self._handlers: dict[type, Callable[..., None]] = {
            Ping: self._prober.receive_ping,
            PingRequest: self._prober.receive_ping_request,
            Ack: self._prober.receive_ack,
            Nack: self._prober.receive_nack,
            Gossip: _receive_gossip,
            SyncDigest: self._syncer.receive_digest,
            SyncState: self._syncer.receive_state,
            DialRequest: self._inquirer.receive_request,
            DialReport: self._inquirer.receive_report,
        }

    # -- queries -------------------------------------------------------------------------------------------------------

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
        """Return all members, this one among them, the dead and those that left too (for a day)."""
        return list(self._membership.table)

    def member(self, name: str) -> Entry | None:
        return self._membership.table.get(name)

    @property
    def live(self) -> int:
        """The number of members that are alive or only suspected, this one among them."""
        return self._membership.table.live

    @property
    def has_left(self) -> bool:
        return self._membership.leaving

    @property
    def has_said_goodbye(self) -> bool:
        """Whether, after `leave`, the update has been sent often enough for the process to end."""
        return self._membership.leaving and not len(self._membership.queue)

    def next_deadline(self) -> float:
        """Return when to call `tick`, in the caller's clock; infinite before `joined`."""
        return self._membership.timers.next - self._clock_offset

    # -- inputs --------------------------------------------------------------------------------------------------------

    def joined(self, now: float, members: Iterable[MemberRecord] = ()) -> list[Output]:
        """Start with these known members: none for the first of a cluster, at least one living for all others."""
        self._advance_clock(now)
        membership = self._membership
        if not self._started:
            self._started = True
            self._prober.start()
            self._syncer.start()
        for record in members:
            membership.apply(Alive(record), record.name)
            self._syncer.sync_now()
        return self._finish_step()

    def tick(self, now: float) -> list[Output]:
        """Do what is due by now."""
        self._advance_clock(now)
        return self._finish_step()

    def receive(self, now: float, source: str, message: Message) -> list[Output]:
        """Take a message.

        `source` is the name in the sender's certificate; a message that claims another sender is refused.
        """
        self._advance_clock(now)
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
        return self._finish_step()

    def leave(self, now: float) -> list[Output]:
        """Say goodbye. Go on calling `tick` until `has_said_goodbye`, then end the process."""
        self._advance_clock(now)
        membership = self._membership
        if not membership.leaving:
            membership.leaving = True
            membership.table.put(Entry(membership.me, State.LEFT, membership.now))
            membership.broadcast(Dead(membership.me.name, membership.me.incarnation, membership.me.name))
            membership.emit(EventKind.LEFT, membership.me)
        return self._finish_step()

    def set_metadata(self, now: float, metadata: bytes) -> list[Output]:
        """Change this member's own metadata."""
        self._advance_clock(now)
        if metadata != self.me.metadata:
            self._membership.announce(dataclasses.replace(self.me, metadata=metadata))
        return self._finish_step()

    def remove(self, now: float, name: str) -> list[Output]:
        """Forget a member whose certificate was revoked, and ignore all that comes from it or is about it."""
        self._advance_clock(now)
        self._membership.remove(name)
        self._replay.forget(name)
        return self._finish_step()

    def readmit(self, name: str) -> None:
        """Let a removed member come back: a server was invited anew under its name."""
        self._membership.removed.discard(name)

    # -- hints of the transport ----------------------------------------------------------------------------------------

    def connection_closed(self, now: float, peer: str) -> list[Output]:
        """Take the news that a connection to `peer` ended, and that we did not end it."""
        self._advance_clock(now)
        self._inquirer.connection_closed(peer)
        return self._finish_step()

    def connection_refused(self, now: float, peer: str) -> list[Output]:
        """Take the result of a `Dial`: the peer's host is there, but no process listens."""
        self._advance_clock(now)
        self._inquirer.connection_refused(peer)
        return self._finish_step()

    def connected(self, now: float, peer: str) -> list[Output]:
        """Take the result of a `Dial`: a process with the right certificate is there."""
        self._advance_clock(now)
        self._inquirer.connected(peer)
        return self._finish_step()

    # -- time ----------------------------------------------------------------------------------------------------------

    def _advance_clock(self, now: float) -> None:
        """Advance our clock, and notice if this process was paused."""
        membership = self._membership
        if now + self._clock_offset < membership.now:
            self._clock_offset = membership.now - now
        membership.now = now + self._clock_offset
        seconds_late = membership.now - membership.timers.next
        if seconds_late > membership.config.pause_threshold:
            self._was_paused(seconds_late)

    def _was_paused(self, seconds: float) -> None:
        """Handle a pause: this process was stopped or starved, or the clock jumped.

        No member is judged by what was missed, and another is asked what happened meanwhile.
        """
        membership = self._membership
        membership.counters.pauses += 1
        membership.awareness.add(1)
        membership.timers.delay(seconds)
        membership.was_paused(seconds)
        self._prober.was_paused()
        self._inquirer.was_paused()
        self._syncer.sync_now()

    def _finish_step(self) -> list[Output]:
        """Run the timers that are due, and return the outputs."""
        membership = self._membership
        membership.timers.run(membership.now)
        outputs = membership.outputs
        membership.outputs = []
        return outputs


def _receive_gossip(source: str, body: Gossip) -> None:
    """Do nothing: gossip has only updates, which every message may carry, and they are applied before."""
