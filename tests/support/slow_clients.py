"""Clients that keep a server waiting: half requests, bodies a byte at a time, answers that nobody takes."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from urllib.parse import urlsplit

from tests.support.waiting import PATIENCE

HALF_A_HEAD = b"GET /healthz HTTP/1.1\r\nHost: here\r\nX-Slow: "
HALF_A_BODY = (
    b"POST /api/v2/sessions HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
)


@contextmanager
def connected(listener: str, count: int, sent: bytes = b"", source: str = "127.0.0.1") -> Iterator[list[socket.socket]]:
    """That many connections, each of which has said just this."""
    place = urlsplit(listener)
    with ExitStack() as stack:
        sockets = []
        for _ in range(count):
            client = stack.enter_context(
                socket.create_connection((place.hostname or "", place.port or 0), PATIENCE, (source, 0))
            )
            send(client, sent)
            sockets.append(client)
        yield sockets


def send(client: socket.socket, sent: bytes) -> None:
    """Say it, to a server that may have hung up."""
    with suppress(ConnectionError):
        client.sendall(sent)


def is_closed(client: socket.socket) -> bool:
    """Whether the server has ended this connection."""
    client.setblocking(False)
    try:
        return client.recv(65536) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    finally:
        client.settimeout(PATIENCE)
