"""Serving one network interface for ever, with a socket that is opened anew when the interface is made again.

The kernel binds a socket, and its membership in a multicast group, to the number of an interface, not to its name. A
bridge, VLAN or card that is deleted and made again has another number: its old sockets hear nothing, and do not fail.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

log = logging.getLogger(__name__)

LOOK = 2.0
"""Seconds between two looks whether an interface is still the same."""
PAUSE = 2.0
"""Seconds before an interface that is not there, or failed, is tried again."""

OpenSocket = Callable[[str, int], socket.socket]
"""Opens a socket on an interface, given by name and number."""


@dataclass(frozen=True)
class LinkSocket:
    """A socket, and the interface that it was opened on."""

    interface: str
    index: int
    socket: socket.socket

    def is_stale(self) -> bool:
        """Return whether the interface is gone, or another one has its name now."""
        try:
            return socket.if_nametoindex(self.interface) != self.index
        except OSError:
            return True


def open_link_socket(interface: str, open_socket: OpenSocket) -> LinkSocket:
    """Open a socket on an interface; OSError if there is none of that name."""
    index = socket.if_nametoindex(interface)
    return LinkSocket(interface, index, open_socket(interface, index))


async def serve_link(
    interface: str,
    open_socket: OpenSocket,
    serve: Callable[[socket.socket], Awaitable[None]],
    trouble: str,
    link: LinkSocket | None = None,
) -> None:
    """Serve an interface for ever; `serve` is cancelled when its socket is stale, and called with the next one.

    `trouble`: what there is not while the interface cannot be served, for the log. `link`: the first socket, if there
    is one already.
    """
    in_trouble = False
    while True:
        try:
            link = link or open_link_socket(interface, open_socket)
            in_trouble = False
            with link.socket:
                await _serve_until_stale(link, serve)
        except OSError as error:
            if not in_trouble:  # logged once for as long as it lasts
                log.warning("no %s on %s for a while: %s", trouble, interface, error)
            in_trouble = True
            await asyncio.sleep(PAUSE)
        link = None


async def _serve_until_stale(link: LinkSocket, serve: Callable[[socket.socket], Awaitable[None]]) -> None:
    serving = asyncio.ensure_future(serve(link.socket))
    try:
        while not link.is_stale():
            ended, _ = await asyncio.wait([serving], timeout=LOOK)
            if ended:
                return await serving
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
