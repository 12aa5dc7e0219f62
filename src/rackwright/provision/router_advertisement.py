"""Sending empty router advertisements, for which iPXE would otherwise wait 16 s: no prefix, no router, lifetime 0.

Every advertisement reaches all machines, so one answers all the machines that asked of late, however many they are.
"""

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

log = logging.getLogger(__name__)

SOLICITATION, ADVERTISEMENT = 133, 134
HOP_LIMIT = 255
"""The hop limit of every neighbour discovery packet: one that came from farther away has less, and is ignored."""
ALL_NODES, ALL_ROUTERS = "ff02::1", "ff02::2"
EMPTY_ADVERTISEMENT = struct.pack("!BBHBBHII", ADVERTISEMENT, 0, 0, 64, 0, 0, 0, 0)
"""The kernel fills in the checksum."""
PAUSE = 1.0
"""Seconds between two advertisements at least."""
MOST_AT_ONCE = 1000
"""Packets that are taken from the kernel before other tasks have a turn."""


def _open_socket(interface: str) -> socket.socket:
    index = socket.if_nametoindex(interface)
    raw = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
    try:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
        raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, HOP_LIMIT)
        raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
        group = socket.inet_pton(socket.AF_INET6, ALL_ROUTERS) + struct.pack("@I", index)
        raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, group)
        raw.setblocking(False)
    except OSError:
        raw.close()
        raise
    return raw


async def _wait_for_solicitation(raw: socket.socket) -> None:
    """Wait until a machine asks, and drop the other packets received so far: one answer serves all that asked."""
    loop = asyncio.get_running_loop()
    while (await loop.sock_recv(raw, 1500))[:1] != bytes([SOLICITATION]):
        pass
    with contextlib.suppress(BlockingIOError):
        for _ in range(MOST_AT_ONCE):
            raw.recv(1500)


async def _answer(raw: socket.socket, interface: str, send: Callable[[], Awaitable[None]]) -> None:
    """Answer solicitations for ever. A link that is down, has no address yet, or is too busy, is tried again."""
    in_trouble = False
    while True:
        try:
            await _wait_for_solicitation(raw)
            await send()
            in_trouble = False
        except OSError as error:
            if not in_trouble:  # logged once for as long as it lasts
                log.warning("no router advertisement on %s for a while: %s", interface, error)
            in_trouble = True
        await asyncio.sleep(PAUSE)


@asynccontextmanager
async def advertising(interface: str) -> AsyncIterator[None]:
    """Answer router solicitations on one interface while the context is open."""
    loop = asyncio.get_running_loop()
    with _open_socket(interface) as raw:

        async def send() -> None:
            await loop.sock_sendto(raw, EMPTY_ADVERTISEMENT, (ALL_NODES, 0, 0, socket.if_nametoindex(interface)))

        task = asyncio.create_task(_answer(raw, interface, send), name=f"router advertisement on {interface}")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
