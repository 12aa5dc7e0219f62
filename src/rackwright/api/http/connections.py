"""Limits on connections: how many a listener and one source may have, and which are closed when there are too many.

A connection is counted from the moment it is accepted, so before any TLS handshake. When a listener or a source has as
many as it may, the connection is closed that has kept us waiting for longest: an unfinished handshake, half a request,
or an idle connection. One whose request is being answered stays. Only when all are being answered, the new one is
turned away.
"""

import asyncio
import logging
import resource
import socket
import ssl
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from rackwright.domain.networks.call_targets import IpNetwork
from rackwright.domain.networks.source_networks import source_network
from rackwright.rare_warning import RareWarning

log = logging.getLogger(__name__)

BACKLOG = 2048
ACCEPTS_AT_ONCE = 16
"""Connections accepted before other work of the event loop has its turn, and before ended ones are closed."""
PAUSE = 0.2
"""Seconds until the next try when a connection could not be accepted: for want of file descriptors, for instance."""
MOST_CONNECTIONS = 10_000
FEWEST_CONNECTIONS = 16


@dataclass(frozen=True)
class ConnectionLimits:
    """How much of one listener its clients may take up."""

    connections: int = 0
    """At a time; 0: two fifths of the files this process may have open, so that both listeners leave some."""
    per_source: int = 0
    """0: half of all."""
    request_seconds: float = 20.0
    """For a TLS handshake, for the head of a request, and for a body beside what its size allows."""
    stall_seconds: float = 120.0
    """For an answer of which the client takes nothing."""
    proxies: Sequence[IpNetwork] = ()
    """Proxies speak for many clients, so they have no limit by source. X-Forwarded-For is believed from them alone."""

    def max_connections(self) -> int:
        """Return how many connections the listener may have."""
        if self.connections:
            return self.connections
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return (
            MOST_CONNECTIONS
            if files == resource.RLIM_INFINITY
            else max(FEWEST_CONNECTIONS, min(MOST_CONNECTIONS, files * 2 // 5))
        )

    def max_connections_of(self, address: str) -> int:
        """Return how many connections one source may have."""
        if self.proxies and any(ip_address(address) in proxy for proxy in self.proxies):
            return self.max_connections()
        return self.per_source or max(1, self.max_connections() // 2)


class TrackedConnection:
    """One connection as the gate counts it."""

    def __init__(self, gate: "Gate", source: str) -> None:
        self.source = source
        self._gate = gate
        self.end: Callable[[], object] = lambda: None
        """Ends the connection at once."""

    def mark_waiting(self) -> None:
        """Note that from now on the server waits for the client."""
        self._gate.mark_waiting(self)

    def mark_working(self) -> None:
        """Note that from now on the client waits for the server."""
        self._gate.mark_working(self)

    def mark_ended(self) -> None:
        """Note that the connection has ended."""
        self._gate.mark_ended(self)


class Gate:
    """The count of one listener's connections; it makes room for new ones."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._connections: dict[str, set[TrackedConnection]] = {}
        self._waiting: OrderedDict[TrackedConnection, None] = OrderedDict()
        self._waiting_of: dict[str, OrderedDict[TrackedConnection, None]] = {}
        self._count = 0
        self._warn_full = RareWarning()

    def admit(self, address: str) -> TrackedConnection | None:
        """Count a new connection; None: there is no room for it."""
        source = source_network(address)
        own = self._connections.get(source, ())
        if len(own) >= self.limits.max_connections_of(address) and not self._end_oldest(self._waiting_of.get(source)):
            self._warn_full(f"Connections of {source} were turned away: it has {len(own)} that are being answered.")
            return None
        if self._count >= self.limits.max_connections() and not self._end_oldest(self._waiting):
            self._warn_full(
                f"Connections were turned away: {self._count} are being answered. See the setting `connections`."
            )
            return None
        tracked = TrackedConnection(self, source)
        self._connections.setdefault(source, set()).add(tracked)
        self._count += 1
        self.mark_waiting(tracked)
        return tracked

    def make_room(self) -> None:
        """End the connections that have kept us waiting for longest."""
        for _ in range(ACCEPTS_AT_ONCE):
            self._end_oldest(self._waiting)

    def mark_waiting(self, tracked: TrackedConnection) -> None:
        if tracked in self._connections.get(tracked.source, ()):
            for queue in (self._waiting, self._waiting_of.setdefault(tracked.source, OrderedDict())):
                queue[tracked] = None
                queue.move_to_end(tracked)

    def mark_working(self, tracked: TrackedConnection) -> None:
        self._waiting.pop(tracked, None)
        queue = self._waiting_of.get(tracked.source)
        if queue is not None:
            queue.pop(tracked, None)
            if not queue:
                del self._waiting_of[tracked.source]

    def mark_ended(self, tracked: TrackedConnection) -> None:
        own = self._connections.get(tracked.source, set())
        if tracked in own:
            own.remove(tracked)
            self._count -= 1
            if not own:
                del self._connections[tracked.source]
        self.mark_working(tracked)

    def _end_oldest(self, queue: OrderedDict[TrackedConnection, None] | None) -> bool:
        """End the connection that has waited longest in the queue; False: the queue is empty."""
        if not queue:
            return False
        tracked = next(iter(queue))
        self.mark_ended(tracked)
        tracked.end()
        return True


class Acceptor:
    """Accepts the connections of a listening socket.

    It replaces asyncio's own server, which knows no limit, and logs thousands of tracebacks a second when there are no
    file descriptors left.
    """

    def __init__(
        self,
        listener: socket.socket,
        gate: Gate,
        make_protocol: Callable[[TrackedConnection], asyncio.Protocol],
        tls: ssl.SSLContext | None,
    ) -> None:
        self._listener = listener
        self._gate = gate
        self._make_protocol = make_protocol
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._warn_failed = RareWarning()
        self._closed = False

    def start(self) -> None:
        self._listener.setblocking(False)
        self._listener.listen(BACKLOG)
        self._loop.add_reader(self._listener.fileno(), self._accept)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._listener.fileno())
            if self._pause is not None:
                self._pause.cancel()
            for task in self._tasks:
                task.cancel()

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                connection, address = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                self._pause_accepting(error)
                return
            tracked = self._gate.admit(address[0])
            if tracked is None:
                connection.close()
            else:
                self._start_connecting(connection, tracked)

    def _pause_accepting(self, error: OSError) -> None:
        """Accept nothing for a moment: what is wrong now would be wrong again at once."""
        self._warn_failed(f"A connection could not be accepted: {error.strerror}. Idle ones are closed instead.")
        self._gate.make_room()
        self._loop.remove_reader(self._listener.fileno())
        self._pause = self._loop.call_later(PAUSE, lambda: self._loop.add_reader(self._listener.fileno(), self._accept))

    def _start_connecting(self, connection: socket.socket, tracked: TrackedConnection) -> None:
        task = self._loop.create_task(self._connect(connection, tracked))
        tracked.end = task.cancel
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, connection: socket.socket, tracked: TrackedConnection) -> None:
        """Attend to a connection up to the end of the handshake; from there on the protocol does."""
        handshake_seconds = None if self._tls is None else self._gate.limits.request_seconds
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._make_protocol(tracked), connection, ssl=self._tls, ssl_handshake_timeout=handshake_seconds
            )
        except OSError as error:  # also errors of TLS: what the client does wrong is no fault of the server
            log.debug("a connection of %s came to nothing: %s", tracked.source, error)
            tracked.mark_ended()
        except BaseException:
            tracked.mark_ended()
            raise
