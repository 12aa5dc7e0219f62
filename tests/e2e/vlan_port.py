"""A port of the lab's bridge in a VLAN, made of two taps: the kernel that tests run on may know no VLANs itself.

What leaves the server's tap untagged goes onto the bridge tagged, and the other way round.
"""

import asyncio
import contextlib
import fcntl
import os
import struct
from collections.abc import AsyncIterator
from functools import partial

from rackwright.lab.network import BRIDGE, ip

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
TAGGED = b"\x81\x00"
MACS = 12
"""Bytes of the two MACs at the beginning of a frame; the tag comes after them."""
LARGEST_FRAME = 65536
IDENTIFIER = 0x0FFF
"""The bits of a tag that are the number of the VLAN."""


@contextlib.asynccontextmanager
async def vlan_port(vlan: int, address: str) -> AsyncIterator[None]:
    """Give the server an address, with its prefix, in a VLAN on the lab's bridge."""
    server_side, bridge_side = _open_tap(f"srv{vlan}"), _open_tap(f"port{vlan}")
    loop = asyncio.get_running_loop()
    try:
        await ip("link", "set", f"port{vlan}", "master", BRIDGE, "up")
        await ip("addr", "add", address, "dev", f"srv{vlan}")
        await ip("link", "set", f"srv{vlan}", "up")
        loop.add_reader(server_side, partial(_tag_frames, vlan, server_side, bridge_side))
        loop.add_reader(bridge_side, partial(_untag_frames, vlan, bridge_side, server_side))
        yield
    finally:
        for side in (server_side, bridge_side):
            loop.remove_reader(side)
            os.close(side)


def _open_tap(name: str) -> int:
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TAP | IFF_NO_PI))
    return tap


def _tag_frames(vlan: int, source: int, target: int) -> None:
    with contextlib.suppress(BlockingIOError):
        frame = os.read(source, LARGEST_FRAME)
        os.write(target, frame[:MACS] + TAGGED + vlan.to_bytes(2, "big") + frame[MACS:])


def _untag_frames(vlan: int, source: int, target: int) -> None:
    with contextlib.suppress(BlockingIOError):
        frame = os.read(source, LARGEST_FRAME)
        number = int.from_bytes(frame[MACS + 2 : MACS + 4], "big") & IDENTIFIER
        if frame[MACS : MACS + 2] == TAGGED and number == vlan:
            os.write(target, frame[:MACS] + frame[MACS + 4 :])
