"""Messages between members: HTTP with mutual TLS, upgraded to one kept stream a pair of members.

It owns sockets, their bounds and who may hold one, and tells its `Listener` what arrived and which connections came,
closed or were refused. It does not know what a message means. Why a stream: `docs/decisions/0003-mesh-transport.md`.
"""

import asyncio
import contextlib
import socket
import ssl
from collections import Counter
from dataclasses import dataclass
from typing import Protocol

from rackwright.mesh.address import Address
from rackwright.mesh.errors import BadIdentity, BadRequest, MeshError, Unreachable
from rackwright.mesh.log import Log
from rackwright.mesh.metrics import Metrics
from rackwright.mesh.refusals import Refusals
from rackwright.mesh.supervision import Supervisor
from rackwright.mesh.transport import http
from rackwright.mesh.transport.link import GOODBYE_SECONDS, MAX_MESSAGE, MAX_STUCK, MAX_UNSENT, Kind, Link
from rackwright.mesh.transport.name_lookup import Lookup
from rackwright.mesh.transport.tls import Contexts, Peer, peer_of

SILENT_MILLISECONDS = 5_000
"""A link whose bytes are not acknowledged for so long is dead; TCP alone would wait for a quarter of an hour."""


HANG_UP_PAUSES = (0.01, 0.02, 0.05, 0.1, 0.2)
"""Together shorter than the machine waits for the outcome of a dial."""


@dataclass(frozen=True)
class Limits:
    links: int = 256
    strangers: int = 32
    """Connections that have not shown who they are."""
    strangers_from_one: int = 8
    dials: int = 64
    waiting: int = 16
    """Messages kept for a member while it is being dialled."""
    idle: float = 600.0
    dial: float = 3.0
    handshake: float = 5.0


DEFAULTS = Limits()


class Listener(Protocol):
    """Who hears of it. Called in the event loop, and must not block."""

    def received(self, peer: str, kind: int, payload: bytes) -> None: ...
    def connected(self, link: Link) -> None: ...
    def closed(self, peer: str) -> None:
        """The last connection to the peer ended without a goodbye."""

    def refused(self, peer: str) -> None:
        """The peer's machine answered that nobody listens there, or the peer is shut out."""

    def is_revoked(self, peer: Peer) -> bool: ...
    async def answer(self, request: http.Request) -> http.Response: ...


class Transport:
    def __init__(
        self,
        name: str,
        advertise: Address,
        contexts: Contexts,
        listener: Listener,
        log: Log,
        metrics: Metrics,
        limits: Limits = DEFAULTS,
    ) -> None:
        self.name, self.advertise, self.contexts, self.listener = name, advertise, contexts, listener
        self.log, self.metrics, self.limits = log, metrics, limits
        self.links: dict[str, list[Link]] = {}
        self._waiting: dict[str, list[bytes]] = {}
        self._strangers: Counter[str] = Counter()
        self._member_sources: dict[str, None] = {}
        """Addresses at which a member has shown its certificate, the one seen last at the end."""
        self.parts = Supervisor(log, metrics)
        self._refusals = Refusals(log, metrics)
        self._lookup = Lookup()
        self._socket: socket.socket | None = None
        self._closing = False

    # Life

    async def start(self, bind: Address) -> Address:
        family, kind, _, _, where = (
            await asyncio.get_running_loop().getaddrinfo(bind.host, bind.port, type=socket.SOCK_STREAM)
        )[0]
        self._socket = socket.socket(family, kind)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.setblocking(False)
        try:
            self._socket.bind(where)
        except OSError as problem:
            why = f"cannot listen on {bind}: {problem.strerror}; choose another address with bind in agent.yml"
            raise Unreachable(why) from problem
        self._socket.listen(128)
        listening = self._socket
        self.parts.keep("accept", lambda: self._accept(listening))
        self.parts.keep("links", self._sweep)
        return Address(*self._socket.getsockname()[:2])

    async def stop(self) -> None:
        """Close every link with a goodbye."""
        self._closing = True
        if self._socket is not None:
            self._socket.close()
        links = [link for held in self.links.values() for link in held]
        for link in links:
            link.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await asyncio.gather(*(link.closed() for link in links))
        await self.parts.stop()
        self._lookup.close()

    # Sending

    def send(self, peer: str, address: Address | None, message: bytes, *, reliable: bool) -> None:
        """Send now, or as soon as the peer is dialled. What may be lost is lost rather than piled up.

        A peer that dialled us can be answered before anyone knows its address.
        """
        if len(message) > MAX_MESSAGE:
            self.metrics.dropped.labels("oversized").inc()
            self.log.error("message_too_long", peer=peer, bytes=len(message))
            return
        held = self.links.get(peer)
        if held:
            self._send_on(held[-1], message, reliable=reliable)
            return
        waiting = self._waiting.get(peer)
        if waiting is None and address is not None:
            self.dial(peer, address)
            waiting = self._waiting.get(peer)
        if waiting is not None and len(waiting) < self.limits.waiting:
            waiting.append(message)
        else:
            self.metrics.dropped.labels("not_connected").inc()

    def send_to(self, peer: str, kind: Kind, payload: bytes) -> None:
        """On a link there is; nothing is dialled for it."""
        if held := self.links.get(peer):
            self._put(held[-1], kind, payload)

    def broadcast(self, kind: Kind, payload: bytes) -> None:
        for held in self.links.values():
            self._put(held[-1], kind, payload)

    def dial(self, peer: str, address: Address) -> None:
        """Open a new connection, unless one is being opened. The listener hears how it went."""
        if peer in self._waiting or peer == self.name or self._closing:
            return
        if len(self._waiting) >= self.limits.dials:
            self.metrics.dials.labels("too_many").inc()
            return
        self._waiting[peer] = []
        self.parts.once("dial", self._dial(peer, address))

    async def dial_seed(self, address: Address) -> Link:
        """Connect to a member known by address only; the name is what its certificate says."""
        link = await self._connect(address, None)
        if link.peer.name == self.name:
            link.cut()
            raise BadIdentity(f"{address} is this server itself")
        self._adopt(link)
        return link

    def shut_out(self) -> None:
        """Cut every link whose peer has been revoked, now."""
        for link in [link for held in self.links.values() for link in held]:
            if self.listener.is_revoked(link.peer):
                self._refusals.refuse("revoked", peer=link.peer.name)
                link.cut()

    def _send_on(self, link: Link, message: bytes, *, reliable: bool) -> None:
        if MAX_UNSENT < link.unsent <= MAX_STUCK and not reliable:
            self.metrics.dropped.labels("slow").inc()
        elif self._put(link, Kind.MESSAGE, message):
            self.metrics.frames.labels("sent").inc()
            self.metrics.bytes.labels("sent").inc(len(message))

    def _put(self, link: Link, kind: Kind, payload: bytes) -> bool:
        """Send a frame, or cut the link of a peer that does not read: what it asks for must not pile up here."""
        if link.unsent > MAX_STUCK:
            self._refusals.refuse("slow", peer=link.peer.name)
            link.cut()
            return False
        link.send(kind, payload)
        return True

    # Dialling

    async def _dial(self, peer: str, address: Address) -> None:
        outcome = "unreachable"
        try:
            link = await self._connect_again(address, peer)
            outcome = "connected"
            self._adopt(link)
        except ConnectionRefusedError:
            outcome = "refused"
        except BadIdentity as problem:
            outcome = problem.code
            self._refusals.refuse(problem.code, peer=peer, address=str(address), why=str(problem))
        except Shut:
            outcome = "shut_out"
        except (OSError, MeshError) as problem:
            self.log.info("dial_failed", peer=peer, address=str(address), why=str(problem) or type(problem).__name__)
        finally:
            waiting = self._waiting.pop(peer, [])
            self.metrics.dials.labels(outcome).inc()
        if outcome == "connected":
            for message in waiting:
                self.send(peer, address, message, reliable=True)
        elif waiting:
            self.metrics.dropped.labels("not_connected").inc(len(waiting))
        if outcome in ("refused", "shut_out"):
            self.listener.refused(peer)

    async def _connect_again(self, address: Address, peer: str) -> Link:
        """Connect, and try again if the peer hangs up in the middle of it.

        A kernel ends a killed process's connections one by one, the listening one not first: for some milliseconds it
        still takes connections in, only to reset them. What it says after that is the truth.
        """
        for pause in HANG_UP_PAUSES:
            try:
                return await self._connect(address, peer)
            except HangUp:
                await asyncio.sleep(pause)
        return await self._connect(address, peer)

    async def _connect(self, address: Address, peer: str | None) -> Link:
        context = self.contexts.client if peer else self.contexts.seed
        try:
            async with asyncio.timeout(self.limits.dial):
                reader, writer = await self._lookup.connect(address, context, peer or address.host, MAX_MESSAGE)
                try:
                    return await self._upgrade(reader, writer, address)
                except BaseException:
                    writer.transport.abort()
                    raise
        except (ConnectionResetError, ConnectionAbortedError, BrokenPipeError, ssl.SSLEOFError) as problem:
            raise HangUp(f"{address} hung up before it was known") from problem
        except TimeoutError as problem:
            raise Unreachable(f"{address} did not answer within {self.limits.dial:g} s") from problem
        except ssl.SSLCertVerificationError as problem:
            raise BadIdentity(
                f"{address} showed a certificate that is not {peer or 'a member'}'s: {problem.verify_message}"
            ) from problem

    async def _upgrade(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: Address) -> Link:
        known = _peer(writer)
        if known is None:
            raise BadIdentity(f"{address} showed no certificate")
        if self.listener.is_revoked(known):
            self._refusals.refuse("revoked", peer=known.name)
            raise Shut(f"{known.name} has been removed from the cluster")
        _tune(writer)
        writer.write(http.upgrade_request(known.name))
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as problem:
            raise HangUp(f"{known.name} at {address} hung up") from problem
        advertise = http.advertised(head)
        if advertise is None:
            status = head.partition(b"\r\n")[0].decode("ascii", "replace")
            raise Unreachable(f"{known.name} at {address} answered {status!r}; its log says why")
        return Link(known, reader, writer, dialled=True, advertise=advertise)

    # Accepting

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, where = await loop.sock_accept(listening)
            except OSError as problem:
                if self._closing:
                    return
                # Out of file descriptors: the connections there are matter more than the next one.
                self.log.error("accept_failed", why=str(problem))
                await asyncio.sleep(0.1)
                continue
            source = str(where[0])
            if self._is_full(source):
                self._refusals.refuse("too_many", source=source)
                accepted.close()
                continue
            self._strangers[source] += 1
            self.parts.once("welcome", self._welcome(accepted, source))

    def _is_full(self, source: str) -> bool:
        """Whether no more may come in from there. Servers of members have places of their own, which strangers at other
        addresses cannot take.
        """
        known = source in self._member_sources
        limit = self.limits.links if known else self.limits.strangers
        held = sum(count for other, count in self._strangers.items() if (other in self._member_sources) == known)
        return held >= limit or self._strangers[source] >= self.limits.strangers_from_one

    async def _welcome(self, accepted: socket.socket, source: str) -> None:
        link = None
        try:
            reader, writer = await self._secure(accepted)
            try:
                link = await self._serve(reader, writer, source)
            finally:
                if link is None:
                    await _hang_up(writer)
        except ssl.SSLError as problem:
            # An unknown, expired or missing-key certificate ends here, before a byte of HTTP is read.
            self._refusals.refuse("bad_certificate", source=source, why=problem.reason or "handshake failed")
        except MeshError as problem:
            self._refusals.refuse(problem.code, source=source, why=str(problem))
        except OSError:
            accepted.close()
        finally:
            self._strangers[source] -= 1
            if not self._strangers[source]:
                del self._strangers[source]
        if link is not None:
            self._adopt(link)

    async def _secure(self, accepted: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=http.MAX_HEAD, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol, accepted, ssl=self.contexts.server, ssl_handshake_timeout=self.limits.handshake
        )
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, source: str) -> Link | None:
        """Answer the one request of a new connection; a link if it became a member's stream."""
        peer = _peer(writer)
        try:
            request = await http.read_request(reader, peer, source)
        except BadRequest as problem:
            await _reply(writer, http.Response(400, {"error": problem.code, "message": str(problem)}))
            raise
        if peer is not None and self.listener.is_revoked(peer):
            self._refusals.refuse("revoked", peer=peer.name, source=source)
            await _reply(writer, http.Response(403, {"error": "revoked", "message": f"{peer.name} has been removed"}))
            return None
        if request.path != http.STREAM or request.upgrade != http.UPGRADE:
            await _reply(writer, await self.listener.answer(request))
            return None
        if peer is None or peer.name == self.name:
            reason = "no_certificate" if peer is None else "name_conflict"
            self._refusals.refuse(reason, source=source)
            await _reply(writer, http.Response(403, {"error": reason, "message": "only members come in here"}))
            return None
        _tune(writer)
        writer.write(http.upgraded(str(self.advertise)))
        return Link(peer, reader, writer, dialled=False)

    # Links

    def _adopt(self, link: Link) -> None:
        # At most one that we dialled and one that we accepted: a new one means that the old one is in doubt.
        for old in self.links.get(link.peer.name, []):
            if old.dialled == link.dialled:
                self._retire(old)
        self.links.setdefault(link.peer.name, []).append(link)
        self._remember_source(link.source)
        self.metrics.links.set(sum(len(held) for held in self.links.values()))
        self.parts.once("read", self._read(link))
        self._evict()
        self.listener.connected(link)

    def _remember_source(self, source: str) -> None:
        self._member_sources.pop(source, None)
        self._member_sources[source] = None
        if len(self._member_sources) > self.limits.links:
            del self._member_sources[next(iter(self._member_sources))]

    async def _read(self, link: Link) -> None:
        try:
            while (frame := await link.receive()) is not None:
                kind, payload = frame
                self.metrics.frames.labels("received").inc()
                self.metrics.bytes.labels("received").inc(len(payload))
                if kind == Kind.BYE:
                    link.goodbye = True
                    break
                if self.listener.is_revoked(link.peer):
                    break
                self.listener.received(link.peer.name, kind, payload)
        except MeshError as problem:
            self._refusals.refuse(problem.code, peer=link.peer.name, why=str(problem))
        finally:
            self._forget(link)

    def _forget(self, link: Link) -> None:
        link.cut()
        if self._drop(link) and link.peer.name not in self.links and not link.goodbye and not self._closing:
            self.listener.closed(link.peer.name)

    def _retire(self, link: Link) -> None:
        """Close a link on purpose. It counts for nothing from here on: not for sending, nor as the last one."""
        self._drop(link)
        link.close()

    def _drop(self, link: Link) -> bool:
        held = self.links.get(link.peer.name, [])
        if link not in held:
            return False
        held = [kept for kept in held if kept is not link]
        if held:
            self.links[link.peer.name] = held
        else:
            del self.links[link.peer.name]
        self.metrics.links.set(sum(len(held) for held in self.links.values()))
        return True

    def _evict(self) -> None:
        links = [link for held in self.links.values() for link in held]
        for link in sorted(links, key=lambda held: held.used)[: max(0, len(links) - self.limits.links)]:
            self._retire(link)

    async def _sweep(self) -> None:
        """Close what is idle, and what lives longer than its certificate."""
        while True:
            await asyncio.sleep(1.0)
            now = asyncio.get_running_loop().time()
            for link in [link for held in self.links.values() for link in held]:
                if now - link.used > self.limits.idle:
                    self._retire(link)
                elif now > link.expires:
                    self.log.info("link_outlived_certificate", peer=link.peer.name)
                    self._retire(link)
            self.shut_out()


class HangUp(Unreachable):
    """The peer hung up in the middle of connecting"""


class Shut(MeshError):
    """The peer has been removed from the cluster"""

    code = "revoked"


def _peer(writer: asyncio.StreamWriter) -> Peer | None:
    connection = writer.get_extra_info("ssl_object")
    return peer_of(connection)


def _tune(writer: asyncio.StreamWriter) -> None:
    wire = writer.get_extra_info("socket")
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENT_MILLISECONDS)
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5)
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2)


async def _hang_up(writer: asyncio.StreamWriter) -> None:
    """Close a stranger's connection, and be sure that it is: TLS waits half a minute for the other side to agree."""
    writer.close()
    try:
        async with asyncio.timeout(GOODBYE_SECONDS):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        pass
    finally:
        writer.transport.abort()


async def _reply(writer: asyncio.StreamWriter, response: http.Response) -> None:
    writer.write(http.render(response))
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(http.READ_SECONDS):
            await writer.drain()
