"""A DHCPv6 client as firmware has one: sends SOLICIT and REQUEST as some machine, and prints what it was given as JSON.

A program of its own, with nothing but the standard library, because it is run inside network namespaces:
`python dhcp6_client.py INTERFACE MAC DUID IAID --seconds N [--arch N] [--ipxe]`; DUID and IAID in hexadecimal. It gives
up after so many seconds.
"""

import argparse
import json
import os
import socket
import struct
import subprocess
import sys
import time

SOLICIT, ADVERTISE, REQUEST, REPLY = 1, 2, 3, 7


def option(code: int, value: bytes) -> bytes:
    return struct.pack("!HH", code, len(value)) + value


def parse(data: bytes) -> dict[int, bytes]:
    options: dict[int, bytes] = {}
    while data:
        code, length = struct.unpack("!HH", data[:4])
        options[code] = data[4 : 4 + length]
        data = data[4 + length :]
    return options


def link_local(mac: str) -> str:
    raw = bytes.fromhex(mac.replace(":", ""))
    host = bytes([raw[0] ^ 2]) + raw[1:3] + b"\xff\xfe" + raw[3:]
    return socket.inet_ntop(socket.AF_INET6, b"\xfe\x80".ljust(8, b"\0") + host)


def exchange(wire: socket.socket, scope: int, message: bytes, wanted: int, until: float) -> dict[int, bytes]:
    """Send a message, each second anew and as the same exchange, and return the options of its answer.

    What comes meanwhile and is another answer is read and forgotten: sent again for each such, a message would be
    followed by one late answer more each time.
    """
    xid = os.urandom(3)
    while (now := time.monotonic()) < until:
        wire.sendto(bytes([message[0]]) + xid + message[1:], ("ff02::1:2", 547, 0, scope))
        answer = receive(wire, bytes([wanted]) + xid, min(until, now + 1))
        if answer is not None:
            return parse(answer[4:])
    sys.exit("nobody answered")


def receive(wire: socket.socket, begins: bytes, until: float) -> bytes | None:
    """Return the next message that begins so; None if none comes until then."""
    while (left := until - time.monotonic()) > 0:
        wire.settimeout(left)
        try:
            answer = wire.recv(4096)
        except TimeoutError:
            return None
        if answer.startswith(begins):
            return answer
    return None


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("interface", "mac", "duid", "iaid"):
        parser.add_argument(name)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--arch", type=int)
    parser.add_argument("--ipxe", action="store_true")
    asked = parser.parse_args()
    source = link_local(asked.mac)
    subprocess.run(
        ["ip", "address", "replace", f"{source}/64", "dev", asked.interface, "nodad"], check=True, stdout=sys.stderr
    )
    until = time.monotonic() + asked.seconds
    scope = socket.if_nametoindex(asked.interface)
    duid, iaid = bytes.fromhex(asked.duid), bytes.fromhex(asked.iaid)
    words = option(1, duid) + option(8, b"\0\0") + option(6, struct.pack("!HHH", 23, 59, 16))
    if asked.arch is not None:
        words += option(61, struct.pack("!H", asked.arch))
    if asked.ipxe:
        words += option(15, b"\0\4iPXE")
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as wire:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        wire.bind((source, 546, 0, scope))
        solicit = bytes([SOLICIT]) + words + option(3, iaid + bytes(8))
        offer = exchange(wire, scope, solicit, ADVERTISE, until)
        request = bytes([REQUEST]) + words + option(2, offer[2]) + option(3, offer[3])
        given = exchange(wire, scope, request, REPLY, until)
    address = parse(given[3][12:]).get(5)
    json.dump(
        {
            "duid": given[1].hex(),
            "iaid": given[3][:4].hex(),
            "address": None if address is None else socket.inet_ntop(socket.AF_INET6, address[:16]),
            "boot_url": given.get(59, b"").decode(),
            "vendor_class": given.get(16, b"").hex(),
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main()
