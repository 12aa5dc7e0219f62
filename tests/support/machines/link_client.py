"""A machine on an IPv6 link: asks for a router, or for a file by TFTP, and prints the answer in hexadecimal, as JSON.

A program of its own, run inside a network namespace: `python link_client.py INTERFACE router SECONDS` or `python
link_client.py INTERFACE ADDRESS FILE`; a link-local address is one of the interface.
"""

import json
import socket
import struct
import sys
import time

SOLICITATION, ADVERTISEMENT = 133, 134


def solicit(interface: str, seconds: float) -> bytes:
    scope = socket.if_nametoindex(interface)
    with socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6) as raw:
        raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
        group = socket.inet_pton(socket.AF_INET6, "ff02::1") + struct.pack("@I", scope)
        raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, group)
        raw.settimeout(0.5)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                raw.sendto(struct.pack("!BBHI", SOLICITATION, 0, 0, 0), ("ff02::2", 0, 0, scope))
                while (packet := raw.recv(1500))[0] != ADVERTISEMENT:
                    pass
                return packet
            except OSError:  # no answer yet, or no address to ask from
                time.sleep(0.1)
    raise SystemExit("no router advertisement came")


def fetch(interface: str, address: str, name: str) -> bytes:
    content, scope = b"", socket.if_nametoindex(interface) if address.startswith("fe80") else 0
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as wire:
        wire.settimeout(20)
        wire.sendto(b"\0\1" + name.encode() + b"\0octet\0", (address, 69, 0, scope))
        block = 0
        while True:
            packet, server = wire.recvfrom(2048)
            assert packet[:2] == b"\0\3", packet
            wire.sendto(b"\0\4" + packet[2:4], server)
            if int.from_bytes(packet[2:4]) != block + 1:  # the one before, sent again
                continue
            block += 1
            content += packet[4:]
            if len(packet) < 516:
                return content


def main() -> None:
    interface, what, argument = sys.argv[1:]
    answer = solicit(interface, float(argument)) if what == "router" else fetch(interface, what, argument)
    print(json.dumps(answer.hex()))  # noqa: T201  # to the test that runs this


if __name__ == "__main__":
    main()
