"""A small DHCP server that gives out addresses in the order of requests, and says what to boot.

The product uses Kea. This server is for the side of the install benchmark that uses nothing of the product.
"""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

MAGIC = b"\x63\x82\x53\x63"
DISCOVER, OFFER, REQUEST, ACK = 1, 2, 3, 5
FIRMWARE = {7: b"ipxe.efi", 9: b"ipxe.efi"}


def _options(packet: bytes) -> dict[int, bytes]:
    options: dict[int, bytes] = {}
    at = 240
    while at < len(packet) and packet[at] != 255:
        if packet[at] == 0:
            at += 1
            continue
        size = packet[at + 1]
        options[packet[at]] = packet[at + 2 : at + 2 + size]
        at += 2 + size
    return options


def _option(code: int, value: bytes) -> bytes:
    return bytes([code, len(value)]) + value


class Dhcp:
    """The leases of the server, and its answers to packets."""

    def __init__(self, address: str, script: str) -> None:
        self._server = socket.inet_aton(address)
        self._script = script.encode()
        self.leases: dict[bytes, bytes] = {}

    def answer(self, packet: bytes) -> bytes | None:
        """Return the reply to a packet; None for a packet that is no DHCP request to this server."""
        if len(packet) < 240 or packet[0] != 1 or packet[236:240] != MAGIC:
            return None
        options = _options(packet)
        kind = options.get(53, b"\0")[0]
        if kind not in (DISCOVER, REQUEST) or options.get(54, self._server) != self._server:
            return None
        mac = packet[28:34]
        lease = self.leases.setdefault(mac, self._server[:3] + bytes([100 + len(self.leases)]))
        file = self._file(options)
        head = struct.pack("!BBBB", 2, 1, 6, 0) + packet[4:12] + packet[12:16] + lease + self._server
        reply = head + packet[24:44] + b"\0" * 64 + file.ljust(128, b"\0") + MAGIC
        reply += _option(53, bytes([OFFER if kind == DISCOVER else ACK])) + _option(54, self._server)
        reply += _option(51, struct.pack("!I", 3600)) + _option(1, b"\xff\xff\xff\0") + _option(3, self._server)
        if 175 in options:
            reply += _option(175, bytes([176, 1, 1]))  # do not wait for a proxy
        elif 93 in options:
            reply += _option(60, b"PXEClient") + _option(43, b"\x06\x01\x08\xff")
        return reply + b"\xff"

    def _file(self, options: dict[int, bytes]) -> bytes:
        """Return the boot file: the script for iPXE, iPXE itself for a firmware, and none for a system."""
        if 175 in options:
            return self._script
        if 93 in options:
            return FIRMWARE.get(int.from_bytes(options[93][:2], "big"), b"undionly.kpxe")
        return b""


@asynccontextmanager
async def serving_dhcp(interface: str, address: str, script: str) -> AsyncIterator[Dhcp]:
    dhcp = Dhcp(address, script)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wire:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
        wire.bind(("", 67))
        wire.setblocking(False)
        loop = asyncio.get_running_loop()

        async def serve() -> None:
            while True:
                reply = dhcp.answer(await loop.sock_recv(wire, 4096))
                if reply is not None:
                    await loop.sock_sendto(wire, reply, ("255.255.255.255", 68))

        task = asyncio.create_task(serve())
        try:
            yield dhcp
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
