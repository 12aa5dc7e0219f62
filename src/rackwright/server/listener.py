"""The HTTP listeners of a server: sockets, limits of connections, and the HTTP server that runs an application on them.

Which applications there are, and on which addresses, is decided by `serve.py` and `provisioning.py`.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from fastapi import FastAPI

from rackwright.api.event_feed import EventFeed
from rackwright.api.http import problems
from rackwright.api.http.connections import BACKLOG, Acceptor, ConnectionLimits, Gate, TrackedConnection
from rackwright.api.http.time_limits import CLIENT_WARNING_FILTER, TRACEBACK_FILTER, TimeLimitedProtocol
from rackwright.server.settings import Options, SettingsInvalid

KEEP_ALIVE_SECONDS = 75
"""How long a connection is kept that nobody uses. Longer than clients keep one (httpx: 5 s, ours of the lab: 2 s;
browsers ask again by themselves): one that is closed just when it is used again is an error, and nobody knows whether
the request was taken."""
NO_PROXIES = ConnectionLimits()


@asynccontextmanager
async def listening(
    app: FastAPI,
    host: str = "127.0.0.1",
    port: int = 0,
    tls: ssl.SSLContext | None = None,
    limits: ConnectionLimits = NO_PROXIES,
    unacknowledged_seconds: int = 0,
) -> AsyncIterator[str]:
    """Serve an application beside all else that this event loop does, and give its URL. Port 0: any that is free.

    A connection whose other end has acknowledged nothing for `unacknowledged_seconds` is over; 0: as the kernel has it.
    """
    with bound_socket(host, port) as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, unacknowledged_seconds * 1000)
        listener.listen(BACKLOG)  # from here on callers wait for their answer instead of being refused
        http_server = make_http_server(app, tls, limits, shutdown_seconds=2)
        task = asyncio.create_task(http_server.serve(sockets=[listener]))
        try:
            yield listener_url(host, listener, tls)
        finally:
            http_server.should_exit = True
            await task


@contextmanager
def bound_socket(host: str, port: int) -> Iterator[socket.socket]:
    """Give a TCP socket that is bound to an address but does not listen yet; SettingsInvalid if it cannot be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol: asyncio turns Nagle's algorithm off only for sockets that say they are TCP.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise SettingsInvalid(
                f"Cannot listen on {host} port {port}: {error.strerror}. Choose another with --host and --port."
            ) from None
        yield listener


def listener_url(host: str, listener: socket.socket, tls: ssl.SSLContext | None) -> str:
    """Return the URL of a listener, with the host as the settings name it."""
    shown_host = f"[{host}]" if ":" in host else host
    return f"{'http' if tls is None else 'https'}://{shown_host}:{listener.getsockname()[1]}"


def connection_limits(options: Options) -> ConnectionLimits:
    """Return the limits of connections that the settings give."""
    return ConnectionLimits(
        options.connections,
        options.connections_per_source,
        options.request_timeout,
        options.stall_timeout,
        options.trusted_proxies,
    )


def make_http_server(
    app: FastAPI, tls: ssl.SSLContext | None, limits: ConnectionLimits, shutdown_seconds: int
) -> "HttpServer":
    """Return an HTTP server for an application; when it stops, answers have `shutdown_seconds` to end."""
    config = _Config(
        app,
        log_level="warning",
        lifespan="off",
        ws="none",
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=shutdown_seconds,
        proxy_headers=bool(limits.proxies),
        forwarded_allow_ips=[str(proxy) for proxy in limits.proxies],
    )
    config.context = tls
    return HttpServer(config, limits)


class _Config(uvicorn.Config):
    """uvicorn's configuration with a TLS context of our own, whose certificate can change while the server serves."""

    context: ssl.SSLContext | None = None

    def load(self) -> None:
        super().load()
        self.ssl = self.context


class HttpServer(uvicorn.Server):
    """An HTTP server that takes connections in through a gate.

    It ends streams of events before it waits for all answers to end, because streams never end by themselves. It leaves
    signals alone: they are for the code that runs the event loop.
    """

    def __init__(self, config: _Config, limits: ConnectionLimits) -> None:
        super().__init__(config)
        self._limits = limits
        self._acceptors: list[Acceptor] = []

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        assert sockets is not None
        logging.getLogger("uvicorn.error").addFilter(CLIENT_WARNING_FILTER)
        for logger in ("uvicorn.error", problems.__name__):
            logging.getLogger(logger).addFilter(TRACEBACK_FILTER)
        gate = Gate(self._limits)
        self._acceptors = [Acceptor(listener, gate, self._protocol, self.config.ssl) for listener in sockets]
        for acceptor in self._acceptors:
            acceptor.start()
        self.servers = self._acceptors  # type: ignore[assignment]  # all that is used of them is how they close
        self.started = True

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().serve(sockets)
        finally:
            # Also when it is cancelled: a closed socket that the event loop still watches harms the next one that gets
            # its number.
            for acceptor in self._acceptors:
                acceptor.close()

    def _protocol(self, tracked: TrackedConnection) -> asyncio.Protocol:
        return TimeLimitedProtocol(self.config, self.server_state, {}, tracked=tracked, limits=self._limits)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        feed: EventFeed | None = getattr(getattr(self.config.app, "state", None), "feed", None)
        if feed is not None:
            await feed.close()
        await super().shutdown(sockets)
        if feed is not None:
            await feed.wait_idle()
