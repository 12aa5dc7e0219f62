"""Sending router advertisements, which tell machines whether there is DHCPv6, and which addresses are on their link.

Where an IPv6 subnet is served, they say: addresses come from DHCPv6 (the flags M and O), and the subnet is on this
link, which no DHCPv6 answer says. Nobody makes an address of a prefix: every address is one that the server knows.
Elsewhere they say nothing: iPXE would otherwise wait 16 s for them. This host is never advertised as a router
(lifetime 0): the routers of a network do that themselves.

Every advertisement reaches all machines, so one answers all the machines that asked of late, however many they are.
"""

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from ipaddress import IPv6Network
from pathlib import Path

from rackwright.provision.link_sockets import open_link_socket, serve_link
from rackwright.provision.served_subnets import read_subnets, server_addresses

log = logging.getLogger(__name__)

SOLICITATION, ADVERTISEMENT = 133, 134
HOP_LIMIT = 255
"""The hop limit of every neighbour discovery packet: one that came from farther away has less, and is ignored."""
ALL_NODES, ALL_ROUTERS = "ff02::1", "ff02::2"
MANAGED, OTHER = 0x80, 0x40
"""Flags of an advertisement: addresses, and all else, come from DHCPv6."""
PREFIX_OPTION, ON_LINK = 3, 0x80
VALID_SECONDS, PREFERRED_SECONDS = 30 * 86400, 7 * 86400
"""How long a subnet stays on the link without another advertisement: the defaults of RFC 4861."""
EVERY = 200.0
"""Seconds between two advertisements that nobody asked for, where a subnet is served."""
PAUSE = 1.0
"""Seconds between two advertisements at least."""
MOST_AT_ONCE = 1000
"""Packets that are taken from the kernel before other tasks have a turn."""
ICMP6_FILTER = 1
"""The socket option with a bit for each kind of packet that the kernel keeps to itself."""


def advertisement(subnets: Iterable[IPv6Network]) -> bytes:
    """Return the advertisement of a link on which these subnets are served. The kernel fills in the checksum."""
    prefixes = [
        struct.pack(
            "!BBBBIII16s",
            *(PREFIX_OPTION, 4, subnet.prefixlen, ON_LINK, VALID_SECONDS, PREFERRED_SECONDS, 0),
            subnet.network_address.packed,
        )
        for subnet in subnets
    ]
    flags = MANAGED | OTHER if prefixes else 0
    return struct.pack("!BBHBBHII", ADVERTISEMENT, 0, 0, 64, flags, 0, 0, 0) + b"".join(prefixes)


def _served_on(interface: str, subnets: Path | None) -> list[IPv6Network]:
    if subnets is None:
        return []
    return list(dict.fromkeys(subnet for _, subnet in server_addresses(interface, read_subnets(subnets))))


def _only(kind: int) -> bytes:
    """Return the filter that lets one kind of packet pass."""
    blocked = (1 << 256) - 1 & ~(1 << kind)
    return struct.pack("@8I", *(blocked >> 32 * word & 0xFFFFFFFF for word in range(8)))


def is_solicitation(packet: bytes) -> bool:
    """Return whether a packet is a well-formed router solicitation (RFC 4861, 6.1.1)."""
    if len(packet) < 8 or packet[0] != SOLICITATION or packet[1] != 0:
        return False
    at = 8
    while at < len(packet):
        length = 8 * packet[at + 1] if at + 1 < len(packet) else 0
        if length == 0 or at + length > len(packet):
            return False
        at += length
    return True


def _open_socket(interface: str, index: int) -> socket.socket:
    raw = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
    try:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
        raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, HOP_LIMIT)
        raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
        group = socket.inet_pton(socket.AF_INET6, ALL_ROUTERS) + struct.pack("@I", index)
        raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, group)
        raw.setsockopt(socket.IPPROTO_ICMPV6, ICMP6_FILTER, _only(SOLICITATION))
        raw.setblocking(False)
    except OSError:
        raw.close()
        raise
    return raw


async def _wait_for_solicitation(raw: socket.socket) -> None:
    """Wait until a machine asks, and drop the other packets received so far: one answer serves all that asked."""
    loop = asyncio.get_running_loop()
    others = 0
    while not is_solicitation(await loop.sock_recv(raw, 1500)):
        others += 1
        if others % MOST_AT_ONCE == 0:
            await asyncio.sleep(0)  # what is there already is received without a pause
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


async def _repeat(send_if_served: Callable[[], Awaitable[None]]) -> None:
    """Advertise for ever, unasked: subnets are there for machines that were on before them, and stay there."""
    while True:
        with contextlib.suppress(OSError):  # those that ask log it
            await send_if_served()
        await asyncio.sleep(EVERY)


@asynccontextmanager
async def advertising(interface: str, subnets: Path | None = None) -> AsyncIterator[None]:
    """Advertise on one interface, and answer router solicitations there, while the context is open.

    `subnets`: the file with the IPv6 subnets that this host serves, read for each advertisement; None: it serves none.
    """
    loop = asyncio.get_running_loop()

    async def serve(raw: socket.socket) -> None:
        async def send(served: list[IPv6Network]) -> None:
            scope = socket.if_nametoindex(interface)
            await loop.sock_sendto(raw, advertisement(served), (ALL_NODES, 0, 0, scope))

        async def answer() -> None:
            await send(_served_on(interface, subnets))

        async def send_if_served() -> None:
            served = _served_on(interface, subnets)
            if served:
                await send(served)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_answer(raw, interface, answer), name=f"router advertisement on {interface}")
            tasks.create_task(_repeat(send_if_served), name=f"repeated router advertisement on {interface}")

    link = open_link_socket(interface, _open_socket)  # an interface that is not there ends the start of the server
    with link.socket:
        serving = serve_link(interface, _open_socket, serve, "router advertisement", link)
        task = asyncio.create_task(serving, name=f"router advertisements on {interface}")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
