"""Connections of strangers: how many at a time, and which go when there are too many.

A connection is counted from the moment it is accepted, so before any TLS handshake. When a listener or a source has as
many as it may, the one goes that has kept us waiting for longest: an unfinished handshake, half a request, or an idle
connection. One whose request is being answered stays. Only when all are being answered, the new one is turned away.
"""

import asyncio
import logging
import resource
import socket
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from rackwright.api.auth.limits import source_network
from rackwright.domain.networks.call_targets import IpNetwork

log = logging.getLogger(__name__)

BACKLOG = 2048
AT_ONCE = 16
"""Connections taken in before others in the event loop have their turn, and before those that went are closed."""
PAUSE = 0.2
"""Seconds until the next try when a connection could not be accepted, for want of file descriptors, say."""
MOST = 10_000
FEWEST = 16


@dataclass(frozen=True)
class ConnectionLimits:
    """What strangers may take up of one listener."""

    connections: int = 0
    """At a time; 0: two fifths of the files this process may have open, so that both listeners leave some."""
    per_source: int = 0
    """0: half of all."""
    request_seconds: float = 20.0
    """For a TLS handshake, for the head of a request, and for a body beside what its size allows."""
    stall_seconds: float = 120.0
    """For an answer of which the client takes nothing."""
    proxies: Sequence[IpNetwork] = ()
    """They speak for many, so they are not limited by source; and X-Forwarded-For is believed from them alone."""

    def most(self) -> int:
        if self.connections:
            return self.connections
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return MOST if files == resource.RLIM_INFINITY else max(FEWEST, min(MOST, files * 2 // 5))

    def most_of(self, address: str) -> int:
        """How many one source may have."""
        if self.proxies and any(ip_address(address) in proxy for proxy in self.proxies):
            return self.most()
        return self.per_source or max(1, self.most() // 2)


class RareWarning:
    """Logs that something happened at once, and after that at most once a minute, with how often it did."""

    EVERY = 60.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._count = 0
        self._next = -self.EVERY

    def __call__(self, text: str) -> None:
        self._count += 1
        if self._clock() >= self._next:
            self._next = self._clock() + self.EVERY
            count, self._count = self._count, 0
            log.warning("%s Said once a minute; this often since: %d.", text, count)


class Visit:
    """One connection, as the gate knows it."""

    def __init__(self, gate: "Gate", source: str) -> None:
        self.source = source
        self._gate = gate
        self.end: Callable[[], object] = lambda: None
        """Ends the connection at once."""

    def wait(self) -> None:
        """From now on the client keeps us waiting."""
        self._gate.waiting(self)

    def work(self) -> None:
        """From now on the client waits for us."""
        self._gate.working(self)

    def leave(self) -> None:
        self._gate.left(self)


class Gate:
    """Counts the connections of one listener and makes room for new ones."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._visits: dict[str, set[Visit]] = {}
        self._waiting: OrderedDict[Visit, None] = OrderedDict()
        self._waiting_of: dict[str, OrderedDict[Visit, None]] = {}
        self._count = 0
        self._full = RareWarning()

    def admit(self, address: str) -> Visit | None:
        """The place of a new connection; None: there is none."""
        source = source_network(address)
        own = self._visits.get(source, ())
        if len(own) >= self.limits.most_of(address) and not self._end_oldest(self._waiting_of.get(source)):
            self._full(f"Connections of {source} were turned away: it has {len(own)} that are being answered.")
            return None
        if self._count >= self.limits.most() and not self._end_oldest(self._waiting):
            self._full(
                f"Connections were turned away: {self._count} are being answered. See the setting `connections`."
            )
            return None
        visit = Visit(self, source)
        self._visits.setdefault(source, set()).add(visit)
        self._count += 1
        self.waiting(visit)
        return visit

    def make_room(self) -> None:
        """End those connections that have kept us waiting for longest."""
        for _ in range(AT_ONCE):
            self._end_oldest(self._waiting)

    def waiting(self, visit: Visit) -> None:
        if visit in self._visits.get(visit.source, ()):
            for queue in (self._waiting, self._waiting_of.setdefault(visit.source, OrderedDict())):
                queue[visit] = None
                queue.move_to_end(visit)

    def working(self, visit: Visit) -> None:
        self._waiting.pop(visit, None)
        queue = self._waiting_of.get(visit.source)
        if queue is not None:
            queue.pop(visit, None)
            if not queue:
                del self._waiting_of[visit.source]

    def left(self, visit: Visit) -> None:
        own = self._visits.get(visit.source, set())
        if visit in own:
            own.remove(visit)
            self._count -= 1
            if not own:
                del self._visits[visit.source]
        self.working(visit)

    def _end_oldest(self, queue: OrderedDict[Visit, None] | None) -> bool:
        if not queue:
            return False
        visit = next(iter(queue))
        self.left(visit)
        visit.end()
        return True


class Acceptor:
    """Takes in the connections of a listening socket. In place of asyncio's own server, which knows no limit, and logs
    thousands of tracebacks a second when there are no file descriptors left."""

    def __init__(
        self,
        listener: socket.socket,
        gate: Gate,
        make_protocol: Callable[[Visit], asyncio.Protocol],
        tls: ssl.SSLContext | None,
    ) -> None:
        self._listener = listener
        self._gate = gate
        self._make_protocol = make_protocol
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._failed = RareWarning()
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
        for _ in range(AT_ONCE):
            try:
                connection, address = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                self._rest(error)
                return
            visit = self._gate.admit(address[0])
            if visit is None:
                connection.close()
            else:
                self._take_in(connection, visit)

    def _rest(self, error: OSError) -> None:
        """Accept nothing for a moment: what is wrong now would be wrong again at once."""
        self._failed(f"A connection could not be accepted: {error.strerror}. Idle ones are closed instead.")
        self._gate.make_room()
        self._loop.remove_reader(self._listener.fileno())
        self._pause = self._loop.call_later(PAUSE, lambda: self._loop.add_reader(self._listener.fileno(), self._accept))

    def _take_in(self, connection: socket.socket, visit: Visit) -> None:
        task = self._loop.create_task(self._connect(connection, visit))
        visit.end = task.cancel
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, connection: socket.socket, visit: Visit) -> None:
        """Up to the end of the handshake; from there on the protocol looks after the connection and its visit."""
        patience = None if self._tls is None else self._gate.limits.request_seconds
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._make_protocol(visit), connection, ssl=self._tls, ssl_handshake_timeout=patience
            )
        except OSError as error:  # of TLS, too: what the client does wrong is no event of ours
            log.debug("a connection of %s came to nothing: %s", visit.source, error)
            visit.leave()
        except BaseException:
            visit.leave()
            raise
