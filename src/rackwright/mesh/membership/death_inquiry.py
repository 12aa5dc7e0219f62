"""Inquiries that prove that a process is dead: its connection closed, and this member and helpers are refused new ones.

A kernel closes the sockets of a killed process at once and refuses new connections in its name, so this takes
milliseconds where silence takes seconds. A closed connection alone proves nothing, and a dial that times out neither:
then the ordinary probes decide. A member is dialled only at the address it is known by here, whoever asks for it.
"""

from dataclasses import dataclass, field

from rackwright.mesh.membership.member import Entry
from rackwright.mesh.membership.member_updates import Membership
from rackwright.mesh.membership.messages import Dead, DialReport, DialRequest, ProbeVerdict
from rackwright.mesh.membership.protocol_outputs import Dial

_MAX_REQUESTERS = 16
"""Members whose requests to dial the same peer are remembered."""


@dataclass(slots=True)
class _Inquiry:
    """What is known so far of one peer whose connection closed."""

    nonce: int
    incarnation: int
    refused_to_me: bool = False
    helpers_needed: int = 0
    """How many helpers must be refused too."""
    helpers: set[str] = field(default_factory=set)
    """The members that were asked to dial the peer."""
    refused_to: set[str] = field(default_factory=set)
    """The helpers that the peer's host refused."""
    rounds: int = 0


class Inquirer:
    """Runs this member's inquiries, and dials peers for the inquiries of others."""

    __slots__ = ("_dial_requests", "_inquiries", "_membership")

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._inquiries: dict[str, _Inquiry] = {}
        self._dial_requests: dict[
            str, dict[str, int]
        ] = {}  # peer we dial -> members that asked for it, with their nonce

    # -- from the transport --------------------------------------------------------------------------------------------

    def connection_closed(self, peer: str) -> None:
        """Start an inquiry: the connection to a peer closed, and not by us."""
        membership = self._membership
        incarnation = membership.incarnation_of(peer)
        if incarnation is None or peer in self._inquiries or peer == membership.me.name or membership.leaving:
            return
        if len(self._inquiries) >= membership.config.max_dials:
            membership.probe_soon(peer)
            return
        inquiry = _Inquiry(next(membership.nonces), incarnation)
        self._inquiries[peer] = inquiry
        if peer not in self._dial_requests:
            membership.outputs.append(Dial(peer))
        membership.timers.at(membership.now + membership.config.dial_timeout, self._next_round, peer, inquiry)

    def connection_refused(self, peer: str) -> None:
        """The peer's host refused our connection: ask helpers whether it refuses theirs too."""
        self._report(peer, ProbeVerdict.REFUSED)
        inquiry = self._inquiries.get(peer)
        if inquiry is None or inquiry.refused_to_me:
            return
        inquiry.refused_to_me = True
        helpers = self._membership.table.sample(
            self._membership.config.dial_helpers,
            self._membership.rng,
            lambda entry: self._can_help(entry, peer, inquiry),
        )
        inquiry.helpers_needed = len(helpers)
        self._ask(peer, inquiry, helpers)
        self._conclude(peer, inquiry)

    def connected(self, peer: str) -> None:
        """The peer lives: end the inquiry."""
        self._report(peer, ProbeVerdict.CONNECTED)
        self._drop(peer)

    # -- asking others -------------------------------------------------------------------------------------------------

    def _can_help(self, entry: Entry, peer: str, inquiry: _Inquiry) -> bool:
        return self._membership.others_alive(entry) and entry.name != peer and entry.name not in inquiry.helpers

    def _ask(self, peer: str, inquiry: _Inquiry, helpers: list[Entry]) -> None:
        for helper in helpers:
            inquiry.helpers.add(helper.name)
            self._membership.send(helper.name, DialRequest(inquiry.nonce, peer), reliable=True)

    def _next_round(self, peer: str, inquiry: _Inquiry) -> None:
        """Ask other helpers in place of those that did not answer, a few times: they may be dead themselves."""
        if self._inquiries.get(peer) is not inquiry:
            return
        membership = self._membership
        inquiry.rounds += 1
        if not inquiry.refused_to_me or inquiry.rounds >= membership.config.dial_rounds:
            self._drop(peer)
            return
        missing = inquiry.helpers_needed - len(inquiry.refused_to)
        new_helpers = membership.table.sample(
            missing, membership.rng, lambda entry: self._can_help(entry, peer, inquiry)
        )
        self._ask(peer, inquiry, new_helpers)
        membership.timers.at(membership.now + membership.config.dial_timeout, self._next_round, peer, inquiry)

    def receive_report(self, source: str, body: DialReport) -> None:
        """Take the report of a helper."""
        peer = self._subject_of(source, body.nonce)
        if peer is None:
            return
        if body.verdict is ProbeVerdict.CONNECTED:
            self._drop(peer)
        elif body.verdict is ProbeVerdict.REFUSED:
            inquiry = self._inquiries[peer]
            inquiry.refused_to.add(source)
            self._conclude(peer, inquiry)

    def _subject_of(self, helper: str, nonce: int) -> str | None:
        """Return the peer that a report is about.

        Only a helper we asked may report, and only on the peer we asked about.
        """
        for peer, inquiry in self._inquiries.items():
            if inquiry.nonce == nonce and helper in inquiry.helpers:
                return peer
        return None

    def _conclude(self, peer: str, inquiry: _Inquiry) -> None:
        """Declare the peer dead once as many helpers as needed were refused too."""
        if len(inquiry.refused_to) < inquiry.helpers_needed:
            return
        membership = self._membership
        self._drop(peer)
        # A member that sent a new incarnation since then is another process than the one that died.
        if membership.incarnation_of(peer) == inquiry.incarnation:
            membership.counters.deaths_proved += 1
            membership.dead(Dead(peer, inquiry.incarnation, membership.me.name), membership.me.name)

    def _drop(self, peer: str) -> None:
        if self._inquiries.pop(peer, None) is not None:
            self._membership.probe_soon(peer)

    # -- requests of others --------------------------------------------------------------------------------------------

    def receive_request(self, source: str, body: DialRequest) -> None:
        """Dial a peer for another member, or report at once if we know already that it is refused."""
        membership = self._membership
        entry = membership.table.get(body.target)
        if entry is None or body.target == membership.me.name or body.target in membership.removed:
            return
        inquiry = self._inquiries.get(body.target)
        if inquiry is not None and inquiry.refused_to_me:
            membership.send(source, DialReport(body.nonce, ProbeVerdict.REFUSED), reliable=True)
            return
        requesters = self._dial_requests.get(body.target)
        if requesters is None:
            if len(self._dial_requests) >= membership.config.max_dials:
                membership.counters.over_limit += 1
                return
            requesters = self._dial_requests[body.target] = {}
            if inquiry is None:
                membership.outputs.append(Dial(body.target))
            membership.timers.at(
                membership.now + membership.config.dial_timeout, self._dial_timed_out, body.target, requesters
            )
        if len(requesters) < _MAX_REQUESTERS:
            requesters[source] = body.nonce

    def _dial_timed_out(self, peer: str, requesters: dict[str, int]) -> None:
        if self._dial_requests.get(peer) is requesters:
            self._report(peer, ProbeVerdict.TIMEOUT)

    def _report(self, peer: str, verdict: ProbeVerdict) -> None:
        """Report the result of a dial to the members that asked for it."""
        for source, nonce in self._dial_requests.pop(peer, {}).items():
            self._membership.send(source, DialReport(nonce, verdict), reliable=True)

    def was_paused(self) -> None:
        """Drop all inquiries after a pause of this process: reports may have been missed."""
        self._inquiries.clear()
        self._dial_requests.clear()
