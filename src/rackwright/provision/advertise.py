"""An empty router advertisement: no prefix, no router, lifetime 0. Unless one answers, iPXE waits 16 s for it."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

SOLICITATION, ADVERTISEMENT = 133, 134
HOP_LIMIT = 255
"""Of every neighbour discovery packet: one that came from farther away has less, and is not heard."""
ALL_NODES, ALL_ROUTERS = "ff02::1", "ff02::2"
EMPTY = struct.pack("!BBHBBHII", ADVERTISEMENT, 0, 0, 64, 0, 0, 0, 0)
"""The kernel fills in the checksum."""


def _socket(interface: str) -> socket.socket:
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


async def _answer(raw: socket.socket, interface: str) -> None:
    loop = asyncio.get_running_loop()
    to = (ALL_NODES, 0, 0, socket.if_nametoindex(interface))
    while True:
        packet = await loop.sock_recv(raw, 1500)
        if packet[:1] == bytes([SOLICITATION]):
            await loop.sock_sendto(raw, EMPTY, to)


@asynccontextmanager
async def advertising(interface: str) -> AsyncIterator[None]:
    """Answer router solicitations on one interface."""
    with _socket(interface) as raw:
        task = asyncio.create_task(_answer(raw, interface), name=f"router advertisement on {interface}")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
