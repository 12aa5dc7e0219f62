"""A membership machine driven by hand, for tests: what it hears is made up, and its outputs are kept."""

import itertools
import random

from rackwright.mesh.membership.member import MemberRecord, State
from rackwright.mesh.membership.messages import Ack, Body, Message, Ping, SyncDigest, SyncState, Update
from rackwright.mesh.membership.swim import Event, Output, Send, Swim, SwimConfig

ME = MemberRecord("me", "10.0.0.1:1", incarnation=3, session=2)


def record_of(name: str, incarnation: int = 1, address: str = "10.0.0.9:1", session: int = 1) -> MemberRecord:
    return MemberRecord(name, address, incarnation, session)


class Member:
    """A membership machine named `me`, and other members whose messages a test makes up."""

    def __init__(self, *others: str, config: SwimConfig | None = None, start: float = 100.0) -> None:
        self.swim = Swim(config or SwimConfig(), ME, random.Random(1))
        self.now = start
        self._sequence = itertools.count(1)
        self.swim.joined(self.now, [record_of(name) for name in others])
        for name in others:  # each that is asked for its table answers that it is the same
            self.hear(name, SyncState(0, False, ()))
        self.sent: list[Send] = []
        self.events: list[Event] = []
        self.dials: list[str] = []

    def take(self, outputs: list[Output]) -> list[Output]:
        for output in outputs:
            if isinstance(output, Send):
                self.sent.append(output)
            elif isinstance(output, Event):
                self.events.append(output)
            else:
                self.dials.append(output.peer)
        return outputs

    def hear(self, source: str, body: Body, *updates: Update, session: int = 1) -> list[Output]:
        outputs = self.swim.receive(self.now, source, Message(source, session, next(self._sequence), body, updates))
        return self.take(outputs) if hasattr(self, "sent") else outputs

    def run(self, seconds: float, answering: bool = False) -> None:
        """Let time pass, tick by tick; with `answering`, everyone but the dead answers every ping at once."""
        end = self.now + seconds
        while (deadline := self.swim.next_deadline()) <= end:
            self.now = max(self.now, deadline)
            outputs = self.take(self.swim.tick(self.now))
            for output in outputs:
                if answering and isinstance(output, Send) and isinstance(output.message.body, Ping):
                    self.hear(output.to, Ack(output.message.body.nonce))
        self.now = end

    def digest(self) -> SyncDigest:
        """Return the digest of its table, as it sends it to another member when the time comes."""
        self.run(200.0, answering=True)
        return next(body for body in reversed(self.bodies()) if isinstance(body, SyncDigest))

    def state(self, name: str) -> State | None:
        entry = self.swim.member(name)
        return entry.state if entry is not None else None

    def kinds(self, name: str) -> list[str]:
        return [event.kind.value for event in self.events if event.member.name == name]

    def bodies(self, to: str | None = None) -> list[Body]:
        return [send.message.body for send in self.sent if to in (None, send.to)]

    def gossip(self) -> list[Update]:
        return [update for send in self.sent for update in send.message.updates]

    def first_ping(self) -> tuple[str, int]:
        for send in self.sent:
            if isinstance(send.message.body, Ping):
                return send.to, send.message.body.nonce
        raise AssertionError("no ping was sent")
