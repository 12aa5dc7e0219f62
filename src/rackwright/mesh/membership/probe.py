"""Probing of members: one after another, and through others if one does not answer.

A probe only starts suspicions, and never ends them.
"""

from collections import deque
from dataclasses import dataclass, field

from rackwright.mesh.membership.awareness import probe_delta
from rackwright.mesh.membership.member import LIVE, Entry
from rackwright.mesh.membership.member_updates import Membership
from rackwright.mesh.membership.messages import Ack, Nack, Ping, PingRequest, Suspect

ANSWERS_REMEMBERED = 16
"""So many answers in a row show how fast this network is."""
SLOWER_THAN_USUAL = 4
"""After so many times the slowest of these answers, others are asked too."""


@dataclass(slots=True)
class _Probe:
    """The probe that is under way."""

    nonce: int
    target: str
    sent: float
    relays: frozenset[str] = frozenset()
    nacks: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Relay:
    """A ping that we send for another member."""

    requester: str
    requester_nonce: int
    target: str


class Prober:
    """Probes members in turn, and relays probes of others."""

    __slots__ = ("_answers", "_current", "_membership", "_relays")

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._current: _Probe | None = None
        self._relays: dict[int, _Relay] = {}
        self._answers: deque[float] = deque(maxlen=ANSWERS_REMEMBERED)

    def start(self) -> None:
        """Start probing, at a random phase: members that start together must not probe together."""
        membership = self._membership
        phase = membership.rng.random() * membership.config.probe_interval
        membership.timers.at(membership.now + phase, self._tick)

    def _tick(self) -> None:
        """End the probe of the last interval, and start the next one."""
        membership = self._membership
        if membership.leaving:
            return
        if self._current is not None:
            self._failed(self._current)
        membership.timers.at(membership.now + membership.awareness.scale(membership.config.probe_interval), self._tick)
        target = self._next_target()
        if target is not None:
            self._probe(target)

    def _next_target(self) -> str | None:
        membership = self._membership
        while (urgent := membership.next_urgent_probe()) is not None:
            if self._may_be_probed(urgent):
                return urgent
        rounds_ended = 0
        while rounds_ended < 2:
            name = membership.table.next_in_round(membership.rng)
            if name is None:
                rounds_ended += 1
            elif self._may_be_probed(name):
                return name
        return None

    def _may_be_probed(self, name: str) -> bool:
        membership = self._membership
        entry = membership.table.get(name)
        return entry is not None and entry.state in LIVE and name != membership.me.name

    def _probe(self, target: str) -> None:
        membership = self._membership
        probe = _Probe(next(membership.nonces), target, membership.now)
        self._current = probe
        membership.counters.probes += 1
        membership.send(target, Ping(probe.nonce))
        membership.timers.at(membership.now + self._answer_timeout(), self._no_answer_yet, probe)

    def _answer_timeout(self) -> float:
        """Return how long to wait before others are asked too: less than `probe_timeout` while all answer at once.

        After one lost or slow answer, or while we doubt ourselves, it is the full `probe_timeout`.
        """
        config = self._membership.config
        if len(self._answers) < ANSWERS_REMEMBERED or self._membership.awareness.score:
            return config.probe_timeout
        return min(max(SLOWER_THAN_USUAL * max(self._answers), config.nack_timeout), config.probe_timeout)

    def _no_answer_yet(self, probe: _Probe) -> None:
        """Ask others to ping the target, and ping it again over a reliable channel: a lost packet must accuse
        nobody."""
        if self._current is not probe:
            return
        membership = self._membership

        def can_relay(entry: Entry) -> bool:
            return membership.others_alive(entry) and entry.name != probe.target

        relays = membership.table.sample(membership.config.indirect_probes, membership.rng, can_relay)
        probe.relays = frozenset(entry.name for entry in relays)
        for relay in relays:
            membership.send(relay.name, PingRequest(probe.nonce, probe.target))
        membership.send(probe.target, Ping(probe.nonce), reliable=True)

    def _failed(self, probe: _Probe) -> None:
        """End a probe that had no answer: suspect its target."""
        membership = self._membership
        self._current = None
        membership.counters.probes_failed += 1
        membership.awareness.add(probe_delta(False, len(probe.relays), len(probe.nacks)))
        incarnation = membership.incarnation_of(probe.target)
        if incarnation is not None:
            membership.suspect(Suspect(probe.target, incarnation, membership.me.name), membership.me.name)

    # -- messages ------------------------------------------------------------------------------------------------------

    def receive_ping(self, source: str, body: Ping) -> None:
        self._membership.send(source, Ack(body.nonce))

    def receive_ack(self, source: str, body: Ack) -> None:
        probe = self._current
        if probe is not None and body.nonce == probe.nonce:
            if source == probe.target or source in probe.relays:
                self._current = None
                self._answers.append(self._membership.now - probe.sent)
                self._membership.awareness.add(probe_delta(True, 0, 0))
            return
        relay = self._relays.get(body.nonce)
        if relay is not None and relay.target == source:
            del self._relays[body.nonce]
            self._membership.send(relay.requester, Ack(relay.requester_nonce))

    def receive_nack(self, source: str, body: Nack) -> None:
        probe = self._current
        if probe is None or body.nonce != probe.nonce or source not in probe.relays:
            return
        probe.nacks.add(source)
        # All relays had no answer, and we do not doubt ourselves: the end of the interval would bring nothing new.
        if len(probe.nacks) == len(probe.relays) and self._membership.awareness.score == 0:
            self._failed(probe)

    def receive_ping_request(self, source: str, body: PingRequest) -> None:
        membership = self._membership
        if not self._may_be_probed(body.target):
            return
        if len(self._relays) >= membership.config.max_relays:
            membership.counters.over_limit += 1
            return
        nonce = next(membership.nonces)
        self._relays[nonce] = _Relay(source, body.nonce, body.target)
        membership.send(body.target, Ping(nonce))
        membership.timers.at(membership.now + membership.config.nack_timeout, self._relay_timed_out, nonce)
        # The answer is passed on even after the nack, as long as the prober may still be waiting.
        membership.timers.at(membership.now + membership.config.probe_interval, self._end_relay, nonce)

    def _relay_timed_out(self, nonce: int) -> None:
        relay = self._relays.get(nonce)
        if relay is not None:
            self._membership.send(relay.requester, Nack(relay.requester_nonce))

    def _end_relay(self, nonce: int) -> None:
        self._relays.pop(nonce, None)

    def was_paused(self) -> None:
        """Drop all probes after a pause of this process: their answers may have been missed."""
        self._current = None
        self._relays.clear()
