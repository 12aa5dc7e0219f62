"""Drives the membership state machine: sends its messages, logs its events, and wakes it at its deadlines.

The machine decides (`mesh/membership/swim.py`) and the transport sends and receives. Frames of other members that are
not for the machine go to the handler of their kind; parts that need to know of members subscribe.
"""

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Container
from dataclasses import dataclass, replace
from pathlib import Path

from rackwright.mesh.address import Address, parse_address
from rackwright.mesh.agent_settings import Settings
from rackwright.mesh.errors import BadSettings
from rackwright.mesh.health.health_checks import Status
from rackwright.mesh.health.software import SoftwareTracker
from rackwright.mesh.identity.revocation import RevocationFile
from rackwright.mesh.log import Log
from rackwright.mesh.membership.member import BadRecord, sorted_labels
from rackwright.mesh.membership.member_view import AUTHORITY_LABEL
from rackwright.mesh.membership.messages import decode, encode
from rackwright.mesh.membership.metadata import Section, pack_sections
from rackwright.mesh.membership.swim import Dial, Event, EventKind, MemberRecord, Output, Send, Swim, SwimConfig
from rackwright.mesh.membership.wire import BadMessage
from rackwright.mesh.metrics import Metrics
from rackwright.mesh.refusals import Refusals
from rackwright.mesh.supervision import Spawner
from rackwright.mesh.transport import http
from rackwright.mesh.transport.link import Kind, Link
from rackwright.mesh.transport.tls import Contexts, Peer
from rackwright.mesh.transport.transport import Transport
from rackwright.private_files import write_private_file

TICK_AGAIN_SECONDS = 0.2
"""Until the next tick after a tick that failed."""

FrameHandler = Callable[[str, bytes], None]
"""Called with the peer and the payload, in the event loop: it must not block."""
HttpHandler = Callable[[http.Request], Awaitable[http.Response]]


@dataclass(frozen=True)
class DriverPorts:
    """What the driver uses of its agent."""

    name: str
    advertise: Address
    contexts: Contexts
    revocations: RevocationFile
    refusals: Refusals
    spawner: Spawner
    metrics: Metrics
    log: Log


class MembershipDriver:
    """The machine with its transport, which it creates and listens to.

    `handlers` and `http_handler` are set before the transport is started.
    """

    def __init__(self, swim: Swim, ports: DriverPorts) -> None:
        self.swim, self._ports = swim, ports
        self._metrics, self._log, self._refusals = ports.metrics, ports.log, ports.refusals
        self.transport = Transport(ports.name, ports.advertise, ports.contexts, self, ports.log, ports.metrics)
        self.handlers: dict[int, FrameHandler] = {Kind.MESSAGE: self._receive_message}
        self.http_handler: HttpHandler = _answer_not_found
        self._subscribers: list[Callable[[Event], None]] = []
        self._sections: dict[Section, bytes] = {}
        self._software = SoftwareTracker()
        self._timer: asyncio.TimerHandle | None = None
        self._goodbye_sent = asyncio.Event()
        ports.metrics.watch(swim)

    # For the other parts of the agent

    @property
    def linked(self) -> Container[str]:
        """The names of members to which a link is open."""
        return self.transport.links

    def count_links(self) -> int:
        return sum(len(links) for links in self.transport.links.values())

    def subscribe(self, subscriber: Callable[[Event], None]) -> None:
        """Call a function with every event of a member, after the event was logged."""
        self._subscribers.append(subscriber)

    def publish(self, section: Section, content: bytes) -> None:
        """Change a section of the metadata that is sent with this member's record."""
        if self._sections.get(section) != content:
            self._sections[section] = content
            self._apply(self.swim.set_metadata(self.now, pack_sections(self._sections)))

    def publish_datastore(self, hint: bytes) -> None:
        self.publish(Section.DATASTORE, hint)

    def publish_health(self, reports: bytes) -> None:
        self.publish(Section.HEALTH, reports)
        self._log_software(self.swim.me)

    def send_look(self, server: str) -> None:
        """Tell a member that there is something new for it in the datastore.

        Only a hint: the member reads the datastore itself, and without the hint just later.
        """
        if server in self.transport.links:
            self.transport.send_to(server, Kind.LOOK, b"")
        elif (address := self._address_of(server)) is not None:
            self.transport.dial(server, address)

    def joined(self, *records: MemberRecord) -> None:
        self._apply(self.swim.joined(self.now, records))

    def remove(self, name: str) -> None:
        """Forget a member that was removed, and ignore all further messages from it or about it."""
        self._apply(self.swim.remove(self.now, name))
        self._software.forget(name)

    async def leave(self, seconds: float) -> None:
        """Say goodbye and wait, at most so many seconds, until that was sent. Then stop waking the machine."""
        self._apply(self.swim.leave(self.now))
        try:
            async with asyncio.timeout(seconds):
                await self._goodbye_sent.wait()
        except TimeoutError:
            # The other members find out by themselves.
            pass
        if self._timer:
            self._timer.cancel()

    # The machine and its clock

    @property
    def now(self) -> float:
        """A monotonic clock, which nobody sets: the wall clock is for certificates and people only."""
        return asyncio.get_running_loop().time()

    def _apply(self, outputs: list[Output]) -> None:
        for output in outputs:
            try:
                self._carry_out(output)
            except Exception as problem:  # noqa: BLE001 - logged and counted; the other outputs are still due
                self._ports.spawner.report("membership", problem)
        if self.swim.has_said_goodbye:
            self._goodbye_sent.set()
        self._set_timer()

    def _carry_out(self, output: Output) -> None:
        if isinstance(output, Send):
            self._send(output)
        elif isinstance(output, Dial):
            self._dial(output.peer)
        else:
            self._report(output)

    def _set_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
        deadline = self.swim.next_deadline()
        if deadline != float("inf"):
            self._timer = asyncio.get_running_loop().call_at(deadline, self._tick)

    def _tick(self) -> None:
        try:
            self._apply(self.swim.tick(self.now))
        except Exception as problem:  # noqa: BLE001 - logged and counted; without a next tick membership would stop
            self._ports.spawner.report("membership", problem)
            self._timer = asyncio.get_running_loop().call_later(TICK_AGAIN_SECONDS, self._tick)

    def _send(self, output: Send) -> None:
        address = self._address_of(output.to)
        self.transport.send(output.to, address, encode(output.message), reliable=output.reliable)

    def _dial(self, peer: str) -> None:
        address = self._address_of(peer)
        if address is not None:
            self.transport.dial(peer, address)

    def _address_of(self, peer: str) -> Address | None:
        entry = self.swim.member(peer)
        return parse_address(entry.record.address) if entry else None

    def _report(self, event: Event) -> None:
        member = event.member
        self._metrics.events.labels(event.kind.value).inc()
        self._log.member(
            f"member_{event.kind.value}",
            matters=event.kind in (EventKind.DEAD, EventKind.CONFLICT),
            member=member.name,
            address=member.address,
            incarnation=member.incarnation,
        )
        if event.kind is not EventKind.CONFLICT:
            self._log_software(member)
        for subscriber in self._subscribers:
            subscriber(event)

    def _log_software(self, member: MemberRecord) -> None:
        """Log which checks of a member's software have changed."""
        for report in self._software.changes(member):
            write = self._log.warning if report.status is Status.FAILING else self._log.info
            write(f"check_{report.status.name.lower()}", member=member.name, check=report.name, why=report.reason)

    # Called by the transport

    def received(self, peer: str, kind: int, payload: bytes) -> None:
        if kind in self.handlers:
            self.handlers[kind](peer, payload)
        else:
            self._refusals.refuse("unknown_kind", peer=peer)

    def _receive_message(self, peer: str, payload: bytes) -> None:
        try:
            message = decode(payload)
        except BadMessage as problem:
            self._refusals.refuse("bad_message", peer=peer, why=str(problem))
            return
        counters = self.swim.counters
        before = (counters.forged, counters.replayed, counters.shut_out)
        self._apply(self.swim.receive(self.now, peer, message))
        for reason, old in zip(("forged", "replayed", "shut_out"), before, strict=True):
            if getattr(counters, reason) != old:
                self._refusals.refuse(reason, peer=peer, claimed=message.sender)

    def connected(self, link: Link) -> None:
        # The peer's certificate is newer than what was revoked, or there would be no link.
        self.swim.readmit(link.peer.name)
        link.send(Kind.REVOCATIONS_VERSION, self._ports.revocations.current.version.to_bytes(8, "big"))
        self._apply(self.swim.connected(self.now, link.peer.name))

    def closed(self, peer: str) -> None:
        self._apply(self.swim.connection_closed(self.now, peer))

    def refused(self, peer: str) -> None:
        self._apply(self.swim.connection_refused(self.now, peer))

    def is_revoked(self, peer: Peer) -> bool:
        return self._ports.revocations.current.covers(peer.name, peer.number)

    async def answer(self, request: http.Request) -> http.Response:
        return await self.http_handler(request)


async def _answer_not_found(request: http.Request) -> http.Response:
    """Answer HTTP requests of an agent that has no handler yet."""
    return http.Response(404, {})


def new_machine(settings: Settings, folder: Path, *, holds_ca: bool) -> Swim:
    """Return the membership state machine of this server, in a new session."""
    labels = dict(settings.labels)
    if holds_ca:
        labels[AUTHORITY_LABEL] = "yes"
    try:
        # The incarnation begins at 1: a seed is recorded with 0, so that its own record is always newer.
        me = MemberRecord(settings.name, str(settings.advertise), 1, next_session(folder), sorted_labels(labels))
        config = replace(SwimConfig(), **settings.swim)
    except (BadRecord, TypeError, ValueError) as problem:
        raise BadSettings(f"agent.yml cannot be used: {problem}") from problem
    return Swim(config, me, random.Random(os.urandom(16)))  # noqa: S311 - whom to probe next is no secret


def next_session(folder: Path) -> int:
    """Return the number of this start of the agent, higher than any before it, also after a crash."""
    path = folder / "session"
    try:
        last = int(path.read_text())
    except FileNotFoundError:
        last = 0
    except ValueError as problem:
        raise BadSettings(
            f"{path} does not hold a number; write one into it that is higher than ever used"
        ) from problem
    write_private_file(path, str(last + 1).encode())
    return last + 1
