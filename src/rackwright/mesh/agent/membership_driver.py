"""Drives the membership machine: its outputs become frames, its events log lines, and its clock is set.

The machine decides (`mesh/membership/swim.py`) and the transport carries. What arrives from other members and is not
the machine's goes to the handler of its kind; those who want to hear of members subscribe.
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
from rackwright.mesh.health.software import SoftwareWatch
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
"""After a tick that failed."""

FrameHandler = Callable[[str, bytes], None]
"""Is told the peer and the payload. Called in the event loop, and must not block."""
Answer = Callable[[http.Request], Awaitable[http.Response]]


@dataclass(frozen=True)
class DriverPorts:
    """What driving the machine uses of its agent."""

    name: str
    advertise: Address
    contexts: Contexts
    revocations: RevocationFile
    refusals: Refusals
    spawner: Spawner
    metrics: Metrics
    log: Log


class MembershipDriver:
    """Listens to its transport, which it makes. `handlers` and `answer_with` are filled in before it is started."""

    def __init__(self, swim: Swim, ports: DriverPorts) -> None:
        self.swim, self._ports = swim, ports
        self._metrics, self._log, self._refusals = ports.metrics, ports.log, ports.refusals
        self.transport = Transport(ports.name, ports.advertise, ports.contexts, self, ports.log, ports.metrics)
        self.handlers: dict[int, FrameHandler] = {Kind.MESSAGE: self._message}
        self.answer_with: Answer = _nothing_here
        self._subscribers: list[Callable[[Event], None]] = []
        self._sections: dict[Section, bytes] = {}
        self._software = SoftwareWatch()
        self._timer: asyncio.TimerHandle | None = None
        self._farewell = asyncio.Event()
        ports.metrics.watch(swim)

    # For the parts

    @property
    def linked(self) -> Container[str]:
        """The names of members to which a link is open."""
        return self.transport.links

    def count_links(self) -> int:
        return sum(len(held) for held in self.transport.links.values())

    def subscribe(self, subscriber: Callable[[Event], None]) -> None:
        """Have every event of a member told, after it was logged."""
        self._subscribers.append(subscriber)

    def publish(self, section: Section, content: bytes) -> None:
        """Change one section of what travels with this member's record."""
        if self._sections.get(section) != content:
            self._sections[section] = content
            self._input(self.swim.set_metadata(self.now, pack_sections(self._sections)))

    def publish_datastore(self, hint: bytes) -> None:
        self.publish(Section.DATASTORE, hint)

    def publish_health(self, results: bytes) -> None:
        self.publish(Section.HEALTH, results)
        self._tell_software(self.swim.me)

    def send_look(self, server: str) -> None:
        """Tell a member that there is news for it in the datastore. A hint: it looks for itself, and late without."""
        if server in self.transport.links:
            self.transport.send_to(server, Kind.LOOK, b"")
        elif (address := self._address_of(server)) is not None:
            self.transport.dial(server, address)

    def joined(self, *records: MemberRecord) -> None:
        self._input(self.swim.joined(self.now, records))

    def remove(self, name: str) -> None:
        """Forget a member that was shut out, and hear nothing more by it or of it."""
        self._input(self.swim.remove(self.now, name))
        self._software.forget(name)

    async def leave(self, seconds: float) -> None:
        """Say goodbye, and wait until the news has gone out, at most for so long. Then the clock stands still."""
        self._input(self.swim.leave(self.now))
        try:
            async with asyncio.timeout(seconds):
                await self._farewell.wait()
        except TimeoutError:
            # The others find out by themselves.
            pass
        if self._timer:
            self._timer.cancel()

    # The machine and its clock

    @property
    def now(self) -> float:
        """A clock that nobody sets: the wall clock is for certificates and people only."""
        return asyncio.get_running_loop().time()

    def _input(self, outputs: list[Output]) -> None:
        for output in outputs:
            try:
                self._carry_out(output)
            except Exception as problem:  # noqa: BLE001 - told and counted; the other outputs are due all the same
                self._ports.spawner.report("membership", problem)
        if self.swim.has_said_goodbye:
            self._farewell.set()
        self._set_timer()

    def _carry_out(self, output: Output) -> None:
        if isinstance(output, Send):
            self._send(output)
        elif isinstance(output, Dial):
            self._dial(output.peer)
        else:
            self._tell(output)

    def _set_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
        deadline = self.swim.next_deadline()
        if deadline != float("inf"):
            self._timer = asyncio.get_running_loop().call_at(deadline, self._tick)

    def _tick(self) -> None:
        try:
            self._input(self.swim.tick(self.now))
        except Exception as problem:  # noqa: BLE001 - told and counted; without a next tick membership would stand still
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

    def _tell(self, event: Event) -> None:
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
            self._tell_software(member)
        for subscriber in self._subscribers:
            subscriber(event)

    def _tell_software(self, member: MemberRecord) -> None:
        """Log which checks of a member's software have changed."""
        for result in self._software.changes(member):
            write = self._log.warning if result.status is Status.FAILING else self._log.info
            write(f"check_{result.status.name.lower()}", member=member.name, check=result.name, why=result.reason)

    # What the transport hears

    def received(self, peer: str, kind: int, payload: bytes) -> None:
        if kind in self.handlers:
            self.handlers[kind](peer, payload)
        else:
            self._refusals.refuse("unknown_kind", peer=peer)

    def _message(self, peer: str, payload: bytes) -> None:
        try:
            message = decode(payload)
        except BadMessage as problem:
            self._refusals.refuse("bad_message", peer=peer, why=str(problem))
            return
        counters = self.swim.counters
        before = (counters.forged, counters.replayed, counters.shut_out)
        self._input(self.swim.receive(self.now, peer, message))
        for reason, old in zip(("forged", "replayed", "shut_out"), before, strict=True):
            if getattr(counters, reason) != old:
                self._refusals.refuse(reason, peer=peer, claimed=message.sender)

    def connected(self, link: Link) -> None:
        # Its certificate is newer than what was revoked, or there would be no link.
        self.swim.readmit(link.peer.name)
        link.send(Kind.REVOCATIONS_VERSION, self._ports.revocations.current.version.to_bytes(8, "big"))
        self._input(self.swim.connected(self.now, link.peer.name))

    def closed(self, peer: str) -> None:
        self._input(self.swim.connection_closed(self.now, peer))

    def refused(self, peer: str) -> None:
        self._input(self.swim.connection_refused(self.now, peer))

    def is_revoked(self, peer: Peer) -> bool:
        return self._ports.revocations.current.covers(peer.name, peer.number)

    async def answer(self, request: http.Request) -> http.Response:
        return await self.answer_with(request)


async def _nothing_here(request: http.Request) -> http.Response:
    """Answer for an agent that is given nothing to answer with."""
    return http.Response(404, {})


def new_machine(settings: Settings, folder: Path, *, holds_ca: bool) -> Swim:
    """Return the membership machine of this server, in a new session."""
    labels = dict(settings.labels)
    if holds_ca:
        labels[AUTHORITY_LABEL] = "yes"
    try:
        # From 1: a seed is taken in at 0, so that what it says of itself is always news.
        me = MemberRecord(settings.name, str(settings.advertise), 1, next_session(folder), sorted_labels(labels))
        config = replace(SwimConfig(), **settings.swim)
    except (BadRecord, TypeError, ValueError) as problem:
        raise BadSettings(f"agent.yml cannot be used: {problem}") from problem
    return Swim(config, me, random.Random(os.urandom(16)))  # noqa: S311 - whom to probe next is no secret


def next_session(folder: Path) -> int:
    """The number of this start, higher than any before it, also after a crash."""
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
