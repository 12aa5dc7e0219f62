"""Probing: one member after another, then through others, and an honest verdict. Only starts suspicions; never ends
them.
"""

from collections import deque
from dataclasses import dataclass, field

from rackwright.mesh.membership.awareness import probe_delta
from rackwright.mesh.membership.member import LIVE, Entry
from rackwright.mesh.membership.member_updates import Membership
from rackwright.mesh.membership.messages import Ack, Nack, Ping, PingRequest, Suspect

ANSWERS_REMEMBERED = 16
"""So many answers in a row tell how fast this network is."""
SLOWER_THAN_USUAL = 4
"""An answer that takes so many times the slowest of them is not worth waiting for alone."""


@dataclass(slots=True)
class _Probe:
    nonce: int
    target: str
    sent: float
    relays: frozenset[str] = frozenset()
    nacks: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Relay:
    """A ping we send for someone else."""

    asked_by: str
    their_nonce: int
    target: str


class Prober:
    __slots__ = ("_answers", "_current", "_membership", "_relays")

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._current: _Probe | None = None
        self._relays: dict[int, _Relay] = {}
        self._answers: deque[float] = deque(maxlen=ANSWERS_REMEMBERED)

    def start(self) -> None:
        """Members that start together must not probe together."""
        membership = self._membership
        phase = membership.rng.random() * membership.config.probe_interval
        membership.timers.at(membership.now + phase, self._tick)

    def _tick(self) -> None:
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
        while (soon := membership.next_opinion()) is not None:
            if self._may_be_probed(soon):
                return soon
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
        membership.timers.at(membership.now + self._patience(), self._no_answer_yet, probe)

    def _patience(self) -> float:
        """How long to wait before others are asked too: less than `probe_timeout` while all answer at once.

        One lost or slow answer, or a doubt in ourselves, and we are as patient as we were told to be.
        """
        config = self._membership.config
        if len(self._answers) < ANSWERS_REMEMBERED or self._membership.awareness.score:
            return config.probe_timeout
        return min(max(SLOWER_THAN_USUAL * max(self._answers), config.nack_timeout), config.probe_timeout)

    def _no_answer_yet(self, probe: _Probe) -> None:
        """Ask others, and ask again ourselves over a sure channel: a lost packet is no reason to talk about anyone."""
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
        membership = self._membership
        self._current = None
        membership.counters.probes_failed += 1
        membership.awareness.add(probe_delta(False, len(probe.relays), len(probe.nacks)))
        incarnation = membership.incarnation_of(probe.target)
        if incarnation is not None:
            membership.suspect(Suspect(probe.target, incarnation, membership.me.name), membership.me.name)

    # -- messages ------------------------------------------------------------------------------------------------------

    def ping(self, source: str, body: Ping) -> None:
        self._membership.send(source, Ack(body.nonce))

    def ack(self, source: str, body: Ack) -> None:
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
            self._membership.send(relay.asked_by, Ack(relay.their_nonce))

    def nack(self, source: str, body: Nack) -> None:
        probe = self._current
        if probe is None or body.nonce != probe.nonce or source not in probe.relays:
            return
        probe.nacks.add(source)
        # All relays say no, and we have no doubt in ourselves: the rest of the interval would tell nothing new.
        if len(probe.nacks) == len(probe.relays) and self._membership.awareness.score == 0:
            self._failed(probe)

    def ping_request(self, source: str, body: PingRequest) -> None:
        membership = self._membership
        if not self._may_be_probed(body.target):
            return
        if len(self._relays) >= membership.config.max_relays:
            membership.counters.over_limit += 1
            return
        nonce = next(membership.nonces)
        self._relays[nonce] = _Relay(source, body.nonce, body.target)
        membership.send(body.target, Ping(nonce))
        membership.timers.at(membership.now + membership.config.nack_timeout, self._relay_silent, nonce)
        # The answer is passed on even after the nack, as long as the prober may still be waiting.
        membership.timers.at(membership.now + membership.config.probe_interval, self._relay_over, nonce)

    def _relay_silent(self, nonce: int) -> None:
        relay = self._relays.get(nonce)
        if relay is not None:
            self._membership.send(relay.asked_by, Nack(relay.their_nonce))

    def _relay_over(self, nonce: int) -> None:
        self._relays.pop(nonce, None)

    def was_paused(self) -> None:
        """Whatever we waited for may have come and gone unheard: no verdict."""
        self._current = None
        self._relays.clear()
