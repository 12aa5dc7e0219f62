"""The relay between machines and Kea's DHCPv6 server: a child of ours, `python -m rackwright.provision.dhcp6_relay`.

It hears machines on the interfaces that are served, and Kea on the loopback address. What it changes in messages, and
why, is in `domain/networks/dhcp6_messages.py`. It may be killed at any time: it remembers only who declined addresses
of late, so that no stranger declines them all.
"""

import argparse
import asyncio
import contextlib
import logging
import os
import socket
import struct
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from ipaddress import IPv6Address
from pathlib import Path

from rackwright.domain.networks.dhcp import DECLINED_SECONDS
from rackwright.domain.networks.dhcp6 import KEA_PORT, RELAY_PORT
from rackwright.domain.networks.dhcp6_messages import (
    DECLINE,
    LONGEST_MESSAGE,
    BadMessage,
    relay_to_machine,
    relay_to_server,
)
from rackwright.provision.link_sockets import serve_link
from rackwright.provision.served_subnets import read_subnets, server_addresses
from rackwright.rare_warning import RareWarning

log = logging.getLogger(__name__)

CLIENT_PORT, SERVER_PORT = 546, 547
ALL_SERVERS = "ff02::1:2"
LOOPBACK = "::1"
MOST_AT_ONCE = 64
"""Messages of one interface that are handled before others have a turn."""


MOST_DECLINES, MOST_DECLINES_PER_MACHINE = 64, 4
"""Refusals of addresses that are handed on, within the time for which an address is kept aside after one."""


class Declines:
    """Counts who declined addresses of late."""

    def __init__(self) -> None:
        self._counts: Counter[IPv6Address] = Counter()
        self._ends = 0.0

    def allow(self, machine: IPv6Address, now: float) -> bool:
        """Count one more, and return whether it may be handed on. That there are too many is logged once each time."""
        if now >= self._ends:
            self._counts.clear()
            self._ends = now + DECLINED_SECONDS
        if self._counts.total() >= MOST_DECLINES or self._counts[machine] >= MOST_DECLINES_PER_MACHINE:
            return False
        self._counts[machine] += 1
        if self._counts.total() == MOST_DECLINES or self._counts[machine] == MOST_DECLINES_PER_MACHINE:
            log.warning(
                "%s declined %d addresses of DHCPv6: more are not heard for a while", machine, self._counts[machine]
            )
        return True


def _open_socket(interface: str, index: int) -> socket.socket:
    """Return the socket on which machines of an interface are heard and answered."""
    link = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    try:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
        link.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        group = socket.inet_pton(socket.AF_INET6, ALL_SERVERS) + struct.pack("@I", index)
        link.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, group)
        link.bind(("::", SERVER_PORT, 0, 0))
        link.setblocking(False)
    except OSError:
        link.close()
        raise
    return link


class Relay:
    """Hands messages on in both directions."""

    def __init__(self, interfaces: Sequence[str], subnets: Path) -> None:
        self._interfaces = interfaces
        self._subnets = subnets
        self._links: dict[str, socket.socket] = {}
        self._declines = Declines()
        self._warn_bad_answer = RareWarning()  # machines have Kea answer
        self._kea = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        self._kea.bind((LOOPBACK, RELAY_PORT))
        self._kea.setblocking(False)

    async def run(self) -> None:
        """Hand messages on for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._answer_machines())
            for interface in self._interfaces:
                tasks.create_task(self._hear_machines(interface))

    async def _hear_machines(self, interface: str) -> None:
        await serve_link(interface, _open_socket, partial(self._hear, interface), "DHCPv6")

    async def _hear(self, interface: str, link: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self._links[interface] = link
        try:
            while True:
                for _ in range(MOST_AT_ONCE):
                    message, source = await loop.sock_recvfrom(link, LONGEST_MESSAGE + 1)
                    self._ask_server(message, IPv6Address(source[0].partition("%")[0]), interface)
                await asyncio.sleep(0)
        finally:
            del self._links[interface]

    def _ask_server(self, message: bytes, machine: IPv6Address, interface: str) -> None:
        places = server_addresses(interface, read_subnets(self._subnets))
        if not places:
            return
        try:
            packet = relay_to_server(message, machine, interface, places[0][0])
        except BadMessage as error:
            log.debug("a message on %s was dropped: %s", interface, error)
            return
        if message[0] == DECLINE and not self._declines.allow(machine, time.monotonic()):
            return
        with contextlib.suppress(OSError):  # Kea is not up, or has too much to do; the machine asks again
            self._kea.sendto(packet, (LOOPBACK, KEA_PORT))

    async def _answer_machines(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                packet, source = await loop.sock_recvfrom(self._kea, 65536)
            except OSError:  # what was sent before found nobody
                continue
            if source[:2] != (LOOPBACK, KEA_PORT):
                continue
            try:
                answer = relay_to_machine(packet)
            except BadMessage as error:
                self._warn_bad_answer(f"An answer of Kea was dropped: {error}.")
                continue
            link = self._links.get(answer.interface)
            if link is None:
                continue
            with contextlib.suppress(OSError):  # the link went down; the machine asks again
                scope = socket.if_nametoindex(answer.interface)
                link.sendto(answer.message, (str(answer.machine), CLIENT_PORT, 0, scope))


def main() -> None:
    parser = argparse.ArgumentParser(description="Hand DHCPv6 messages on between machines and Kea.")
    parser.add_argument("--subnets", type=Path, required=True, help="The file with the subnets that are served.")
    parser.add_argument("--ready", type=Path, required=True, help="The file that says that the relay is up.")
    parser.add_argument("interfaces", nargs="+")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    relay = Relay(arguments.interfaces, arguments.subnets)
    arguments.ready.write_text(f"{os.getpid()}\n")
    asyncio.run(relay.run())


if __name__ == "__main__":
    main()
