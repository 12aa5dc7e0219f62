"""Proof of a dead process: its connection closed, and it refuses new ones, to us and to others we asked.

A kernel closes the sockets of a killed process at once and refuses new connections in its name, so this takes
milliseconds where silence takes seconds. A closed connection alone proves nothing, and a dial that times out neither:
then the ordinary probes decide. We dial a member only at the address we know it by, whoever asks.
"""

from dataclasses import dataclass, field

from rackwright.mesh.membership.member import Entry
from rackwright.mesh.membership.member_updates import Membership
from rackwright.mesh.membership.messages import Dead, DialReport, DialRequest, Verdict
from rackwright.mesh.membership.protocol_outputs import Dial

_MAX_ASKING = 16


@dataclass(slots=True)
class _Inquiry:
    nonce: int
    incarnation: int
    refused_to_me: bool = False
    needed: int = 0
    asked: set[str] = field(default_factory=set)
    refused_to: set[str] = field(default_factory=set)
    rounds: int = 0


class Inquirer:
    __slots__ = ("_asking", "_inquiries", "_membership")

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._inquiries: dict[str, _Inquiry] = {}
        self._asking: dict[str, dict[str, int]] = {}  # whom we dial -> who asked us to, with their nonce

    # -- what the transport saw ----------------------------------------------------------------------------------------

    def closed(self, peer: str) -> None:
        membership = self._membership
        incarnation = membership.incarnation_of(peer)
        if incarnation is None or peer in self._inquiries or peer == membership.me.name or membership.leaving:
            return
        if len(self._inquiries) >= membership.config.max_dials:
            membership.look_soon(peer)
            return
        inquiry = _Inquiry(next(membership.nonces), incarnation)
        self._inquiries[peer] = inquiry
        if peer not in self._asking:
            membership.out.append(Dial(peer))
        membership.timers.at(membership.now + membership.config.dial_timeout, self._next_round, peer, inquiry)

    def refused(self, peer: str) -> None:
        self._report(peer, Verdict.REFUSED)
        inquiry = self._inquiries.get(peer)
        if inquiry is None or inquiry.refused_to_me:
            return
        inquiry.refused_to_me = True
        others = self._membership.table.sample(
            self._membership.config.dial_helpers,
            self._membership.rng,
            lambda entry: self._can_help(entry, peer, inquiry),
        )
        inquiry.needed = len(others)
        self._ask(peer, inquiry, others)
        self._judge(peer, inquiry)

    def connected(self, peer: str) -> None:
        self._report(peer, Verdict.CONNECTED)
        self._drop(peer)

    # -- asking others -------------------------------------------------------------------------------------------------

    def _can_help(self, entry: Entry, peer: str, inquiry: _Inquiry) -> bool:
        return self._membership.others_alive(entry) and entry.name != peer and entry.name not in inquiry.asked

    def _ask(self, peer: str, inquiry: _Inquiry, helpers: list[Entry]) -> None:
        for helper in helpers:
            inquiry.asked.add(helper.name)
            self._membership.send(helper.name, DialRequest(inquiry.nonce, peer), reliable=True)

    def _next_round(self, peer: str, inquiry: _Inquiry) -> None:
        """A helper that does not answer may be dead itself: ask another, a few times."""
        if self._inquiries.get(peer) is not inquiry:
            return
        membership = self._membership
        inquiry.rounds += 1
        if not inquiry.refused_to_me or inquiry.rounds >= membership.config.dial_rounds:
            self._drop(peer)
            return
        missing = inquiry.needed - len(inquiry.refused_to)
        fresh = membership.table.sample(missing, membership.rng, lambda entry: self._can_help(entry, peer, inquiry))
        self._ask(peer, inquiry, fresh)
        membership.timers.at(membership.now + membership.config.dial_timeout, self._next_round, peer, inquiry)

    def report(self, source: str, body: DialReport) -> None:
        peer = self._subject_of(source, body.nonce)
        if peer is None:
            return
        if body.verdict is Verdict.CONNECTED:
            self._drop(peer)
        elif body.verdict is Verdict.REFUSED:
            inquiry = self._inquiries[peer]
            inquiry.refused_to.add(source)
            self._judge(peer, inquiry)

    def _subject_of(self, helper: str, nonce: int) -> str | None:
        """Whom a report is about. Only someone we asked may report, and only on what we asked."""
        for peer, inquiry in self._inquiries.items():
            if inquiry.nonce == nonce and helper in inquiry.asked:
                return peer
        return None

    def _judge(self, peer: str, inquiry: _Inquiry) -> None:
        if len(inquiry.refused_to) < inquiry.needed:
            return
        membership = self._membership
        self._drop(peer)
        # A member that spoke since then under a new incarnation is another process than the one that died.
        if membership.incarnation_of(peer) == inquiry.incarnation:
            membership.counters.deaths_proved += 1
            membership.dead(Dead(peer, inquiry.incarnation, membership.me.name), membership.me.name)

    def _drop(self, peer: str) -> None:
        if self._inquiries.pop(peer, None) is not None:
            self._membership.look_soon(peer)

    # -- being asked ---------------------------------------------------------------------------------------------------

    def request(self, source: str, body: DialRequest) -> None:
        membership = self._membership
        entry = membership.table.get(body.target)
        if entry is None or body.target == membership.me.name or body.target in membership.removed:
            return
        inquiry = self._inquiries.get(body.target)
        if inquiry is not None and inquiry.refused_to_me:
            membership.send(source, DialReport(body.nonce, Verdict.REFUSED), reliable=True)
            return
        waiting = self._asking.get(body.target)
        if waiting is None:
            if len(self._asking) >= membership.config.max_dials:
                membership.counters.over_limit += 1
                return
            waiting = self._asking[body.target] = {}
            if inquiry is None:
                membership.out.append(Dial(body.target))
            membership.timers.at(
                membership.now + membership.config.dial_timeout, self._dial_silent, body.target, waiting
            )
        if len(waiting) < _MAX_ASKING:
            waiting[source] = body.nonce

    def _dial_silent(self, peer: str, waiting: dict[str, int]) -> None:
        if self._asking.get(peer) is waiting:
            self._report(peer, Verdict.TIMEOUT)

    def _report(self, peer: str, verdict: Verdict) -> None:
        for source, nonce in self._asking.pop(peer, {}).items():
            self._membership.send(source, DialReport(nonce, verdict), reliable=True)

    def was_paused(self) -> None:
        self._inquiries.clear()
        self._asking.clear()
