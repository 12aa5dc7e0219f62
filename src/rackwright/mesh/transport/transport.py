"""The transport of messages between members: HTTP with mutual TLS, upgraded to one lasting stream a pair of members.

It owns sockets, their limits and who may hold one, and tells its `Listener` what arrived and which connections came,
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
"""Seconds between attempts; together shorter than the membership machine waits for the result of a dial."""


@dataclass(frozen=True)
class Limits:
    """The limits of one transport. Times are in seconds."""

    links: int = 256
    strangers: int = 32
    """Connections that have not shown a certificate yet."""
    strangers_from_one: int = 8
    """Such connections from one address."""
    dials: int = 64
    waiting: int = 16
    """Messages kept for a member while it is being dialled."""
    idle: float = 600.0
    dial: float = 3.0
    handshake: float = 5.0


DEFAULTS = Limits()


class Listener(Protocol):
    """Receives the events of a transport. Called in the event loop, and must not block."""

    def received(self, peer: str, kind: int, payload: bytes) -> None: ...
    def connected(self, link: Link) -> None: ...
    def closed(self, peer: str) -> None:
        """The last connection to the peer ended without a goodbye."""

    def refused(self, peer: str) -> None:
        """The peer's host refused the connection, or the peer has been removed."""

    def is_revoked(self, peer: Peer) -> bool: ...
    async def answer(self, request: http.Request) -> http.Response: ...


class Transport:
    """The connections of one member."""

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
        self._undelivered: dict[str, list[bytes]] = {}
        self._strangers: Counter[str] = Counter()
        self._member_sources: dict[str, None] = {}
        """Addresses at which a member has shown its certificate, the one seen last at the end."""
        self.parts = Supervisor(log, metrics)
        self._refusals = Refusals(log, metrics)
        self._lookup = Lookup()
        self._socket: socket.socket | None = None
        self._closing = False

    # Start and stop

    async def start(self, bind: Address) -> Address:
        """Listen on an address; return it with the real port."""
        family, kind, _, _, socket_address = (
            await asyncio.get_running_loop().getaddrinfo(bind.host, bind.port, type=socket.SOCK_STREAM)
        )[0]
        self._socket = socket.socket(family, kind)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.setblocking(False)
        try:
            self._socket.bind(socket_address)
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
        links = [link for peer_links in self.links.values() for link in peer_links]
        for link in links:
            link.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await asyncio.gather(*(link.wait_closed() for link in links))
        await self.parts.stop()
        self._lookup.close()

    # Sending

    def send(self, peer: str, address: Address | None, message: bytes, *, reliable: bool) -> None:
        """Send a message now, or as soon as the peer is dialled. One that is not reliable is dropped rather than piled
        up.

        A peer that dialled us can be answered before its address is known.
        """
        if len(message) > MAX_MESSAGE:
            self.metrics.dropped.labels("oversized").inc()
            self.log.error("message_too_long", peer=peer, bytes=len(message))
            return
        peer_links = self.links.get(peer)
        if peer_links:
            self._send_on(peer_links[-1], message, reliable=reliable)
            return
        waiting = self._undelivered.get(peer)
        if waiting is None and address is not None:
            self.dial(peer, address)
            waiting = self._undelivered.get(peer)
        if waiting is not None and len(waiting) < self.limits.waiting:
            waiting.append(message)
        else:
            self.metrics.dropped.labels("not_connected").inc()

    def send_to(self, peer: str, kind: Kind, payload: bytes) -> None:
        """Send a frame on a link that exists; nothing is dialled for it."""
        if peer_links := self.links.get(peer):
            self._send_frame(peer_links[-1], kind, payload)

    def broadcast(self, kind: Kind, payload: bytes) -> None:
        for peer_links in self.links.values():
            self._send_frame(peer_links[-1], kind, payload)

    def dial(self, peer: str, address: Address) -> None:
        """Open a new connection, unless one is being opened. The listener is told the result."""
        if peer in self._undelivered or peer == self.name or self._closing:
            return
        if len(self._undelivered) >= self.limits.dials:
            self.metrics.dials.labels("too_many").inc()
            return
        self._undelivered[peer] = []
        self.parts.once("dial", self._dial(peer, address))

    async def dial_seed(self, address: Address) -> Link:
        """Connect to a member known by address only; its name is taken from its certificate."""
        link = await self._connect(address, None)
        if link.peer.name == self.name:
            link.cut()
            raise BadIdentity(f"{address} is this server itself")
        self._adopt(link)
        return link

    def shut_out(self) -> None:
        """Cut every link whose peer has been revoked."""
        for link in [link for peer_links in self.links.values() for link in peer_links]:
            if self.listener.is_revoked(link.peer):
                self._refusals.refuse("revoked", peer=link.peer.name)
                link.cut()

    def _send_on(self, link: Link, message: bytes, *, reliable: bool) -> None:
        if MAX_UNSENT < link.unsent <= MAX_STUCK and not reliable:
            self.metrics.dropped.labels("slow").inc()
        elif self._send_frame(link, Kind.MESSAGE, message):
            self.metrics.frames.labels("sent").inc()
            self.metrics.bytes.labels("sent").inc(len(message))

    def _send_frame(self, link: Link, kind: Kind, payload: bytes) -> bool:
        """Send a frame, or cut the link of a peer that does not read: frames must not pile up here. Return if sent."""
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
        except PeerRemoved:
            outcome = "shut_out"
        except (OSError, MeshError) as problem:
            self.log.info("dial_failed", peer=peer, address=str(address), why=str(problem) or type(problem).__name__)
        finally:
            waiting = self._undelivered.pop(peer, [])
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
        still takes connections in, only to reset them. Its answer after that is the true one.
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
        peer = _peer(writer)
        if peer is None:
            raise BadIdentity(f"{address} showed no certificate")
        if self.listener.is_revoked(peer):
            self._refusals.refuse("revoked", peer=peer.name)
            raise PeerRemoved(f"{peer.name} has been removed from the cluster")
        _set_socket_options(writer)
        writer.write(http.upgrade_request(peer.name))
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as problem:
            raise HangUp(f"{peer.name} at {address} hung up") from problem
        advertise = http.read_advertised(head)
        if advertise is None:
            status = head.partition(b"\r\n")[0].decode("ascii", "replace")
            raise Unreachable(f"{peer.name} at {address} answered {status!r}; its log says why")
        return Link(peer, reader, writer, dialled=True, advertise=advertise)

    # Accepting

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, socket_address = await loop.sock_accept(listening)
            except OSError as problem:
                if self._closing:
                    return
                # Out of file descriptors: the open connections matter more than the next one.
                self.log.error("accept_failed", why=str(problem))
                await asyncio.sleep(0.1)
                continue
            source = str(socket_address[0])
            if self._is_full(source):
                self._refusals.refuse("too_many", source=source)
                accepted.close()
                continue
            self._strangers[source] += 1
            self.parts.once("welcome", self._welcome(accepted, source))

    def _is_full(self, source: str) -> bool:
        """Whether no more connections are accepted from an address.

        Addresses of members have a limit of their own, which strangers at other addresses cannot use up.
        """
        is_member = source in self._member_sources
        limit = self.limits.links if is_member else self.limits.strangers
        count = sum(count for other, count in self._strangers.items() if (other in self._member_sources) == is_member)
        return count >= limit or self._strangers[source] >= self.limits.strangers_from_one

    async def _welcome(self, accepted: socket.socket, source: str) -> None:
        """Take in a new connection: TLS, one request, and a link if it is a member's stream."""
        link = None
        try:
            reader, writer = await self._start_tls(accepted)
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

    async def _start_tls(self, accepted: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=http.MAX_HEAD, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol, accepted, ssl=self.contexts.server, ssl_handshake_timeout=self.limits.handshake
        )
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, source: str) -> Link | None:
        """Answer the one request of a new connection; return a link if it became a member's stream."""
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
        _set_socket_options(writer)
        writer.write(http.upgrade_response(str(self.advertise)))
        return Link(peer, reader, writer, dialled=False)

    # Links

    def _adopt(self, link: Link) -> None:
        """Add a link to those in use, and read from it."""
        # At most one that we dialled and one that we accepted: a new one means that the old one is in doubt.
        for old in self.links.get(link.peer.name, []):
            if old.dialled == link.dialled:
                self._retire(old)
        self.links.setdefault(link.peer.name, []).append(link)
        self._remember_source(link.source)
        self.metrics.links.set(sum(len(peer_links) for peer_links in self.links.values()))
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
                    link.said_goodbye = True
                    break
                if self.listener.is_revoked(link.peer):
                    break
                self.listener.received(link.peer.name, kind, payload)
        except MeshError as problem:
            self._refusals.refuse(problem.code, peer=link.peer.name, why=str(problem))
        finally:
            self._forget(link)

    def _forget(self, link: Link) -> None:
        """Cut a link that ended; tell the listener if it was the last one of its peer, and ended without a goodbye."""
        link.cut()
        if self._drop(link) and link.peer.name not in self.links and not link.said_goodbye and not self._closing:
            self.listener.closed(link.peer.name)

    def _retire(self, link: Link) -> None:
        """Close a link on purpose. It is not used from here on: neither for sending, nor counted as the last one."""
        self._drop(link)
        link.close()

    def _drop(self, link: Link) -> bool:
        """Remove a link from those in use; return whether it was one."""
        peer_links = self.links.get(link.peer.name, [])
        if link not in peer_links:
            return False
        others = [other for other in peer_links if other is not link]
        if others:
            self.links[link.peer.name] = others
        else:
            del self.links[link.peer.name]
        self.metrics.links.set(sum(len(peer_links) for peer_links in self.links.values()))
        return True

    def _evict(self) -> None:
        """Close the links beyond the limit, the longest unused first."""
        links = [link for peer_links in self.links.values() for link in peer_links]
        for link in sorted(links, key=lambda link: link.last_used)[: max(0, len(links) - self.limits.links)]:
            self._retire(link)

    async def _sweep(self) -> None:
        """Close links that are idle, and those that outlive the peer's certificate, once a second."""
        while True:
            await asyncio.sleep(1.0)
            now = asyncio.get_running_loop().time()
            for link in [link for peer_links in self.links.values() for link in peer_links]:
                if now - link.last_used > self.limits.idle:
                    self._retire(link)
                elif now > link.expires:
                    self.log.info("link_outlived_certificate", peer=link.peer.name)
                    self._retire(link)
            self.shut_out()


class HangUp(Unreachable):
    """The peer hung up in the middle of connecting"""


class PeerRemoved(MeshError):
    """The peer has been removed from the cluster"""

    code = "revoked"


def _peer(writer: asyncio.StreamWriter) -> Peer | None:
    connection = writer.get_extra_info("ssl_object")
    return peer_of(connection)


def _set_socket_options(writer: asyncio.StreamWriter) -> None:
    connection_socket = writer.get_extra_info("socket")
    connection_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENT_MILLISECONDS)
    connection_socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5)
    connection_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2)


async def _hang_up(writer: asyncio.StreamWriter) -> None:
    """Close a stranger's connection for certain: TLS alone waits half a minute for the other side to agree."""
    writer.close()
    try:
        async with asyncio.timeout(GOODBYE_SECONDS):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        pass
    finally:
        writer.transport.abort()


async def _reply(writer: asyncio.StreamWriter, response: http.Response) -> None:
    writer.write(http.render_response(response))
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(http.READ_SECONDS):
            await writer.drain()
