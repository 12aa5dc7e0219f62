"""A DHCP client as firmware has one: sends DISCOVER and REQUEST as some machine, and prints what it was given as JSON.

A program of its own, with nothing but the standard library, because it is run inside network namespaces:
`python dhcp_client.py INTERFACE MAC --seconds N [--arch N] [--ipxe] [--offers N] [--decline N]`. It
gives up after so many seconds.
With --offers it asks for nothing, but lists who offers what as soon as so many servers do.
With --decline it declines what it was given, so many times, and lists what that was.
"""

import argparse
import json
import os
import socket
import struct
import sys
import time
from typing import Any

MAGIC = b"\x63\x82\x53\x63"
DISCOVER, OFFER, REQUEST, DECLINE, ACK = 1, 2, 3, 4, 5
HTTP_ARCHITECTURES = (15, 16, 19)


def option(code: int, value: bytes) -> bytes:
    return bytes([code, len(value)]) + value


def message(kind: int, xid: int, mac: bytes, extra: bytes) -> bytes:
    broadcast = 0x8000
    head = struct.pack("!BBBBIHH", 1, 1, 6, 0, xid, 0, broadcast) + b"\0" * 16
    wanted = option(55, bytes([1, 3, 6, 12, 66, 67, 175]))
    return head + mac.ljust(16, b"\0") + b"\0" * 192 + MAGIC + option(53, bytes([kind])) + wanted + extra + b"\xff"


def parse(packet: bytes) -> tuple[int, bytes, dict[int, bytes], dict[str, Any]]:
    xid = struct.unpack("!I", packet[4:8])[0]
    options: dict[int, bytes] = {}
    place = 240
    while place < len(packet) and packet[place] != 255:
        if packet[place] == 0:
            place += 1
            continue
        length = packet[place + 1]
        options[packet[place]] = packet[place + 2 : place + 2 + length]
        place += 2 + length
    fields = {
        "address": socket.inet_ntoa(packet[16:20]),
        "next_server": socket.inet_ntoa(packet[20:24]),
        "boot_file": packet[108:236].rstrip(b"\0").decode(),
    }
    return xid, packet[28:34], options, fields


def shown(options: dict[int, bytes], fields: dict[str, Any]) -> dict[str, Any]:
    def addresses(code: int) -> list[str]:
        value = options.get(code, b"")
        return [socket.inet_ntoa(value[place : place + 4]) for place in range(0, len(value), 4)]

    return {
        **fields,
        "server": addresses(54)[0],
        "routers": addresses(3),
        "dns": addresses(6),
        "hostname": options.get(12, b"").decode(),
        "ipxe": options.get(175, b"").hex(),
        "vendor_class": options.get(60, b"").decode(),
    }


class Client:
    def __init__(self, interface: str, mac: str, extra: bytes) -> None:
        self.mac = bytes.fromhex(mac.replace(":", ""))
        self.extra = extra
        self.xid = struct.unpack("!I", os.urandom(4))[0]
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
        self.socket.bind(("", 68))

    def send(self, kind: int, extra: bytes = b"") -> None:
        self.socket.sendto(message(kind, self.xid, self.mac, self.extra + extra), ("255.255.255.255", 67))

    def answers(self, kind: int, until: float) -> Any:
        """What comes back of this kind until then."""
        while (left := until - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                packet = self.socket.recv(4096)
            except TimeoutError:
                return
            xid, mac, options, fields = parse(packet)
            if xid == self.xid and mac == self.mac and options.get(53) == bytes([kind]):
                yield options, fields

    def ask(self, seconds: float) -> dict[str, Any] | None:
        """A whole exchange, as often as it takes."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.send(DISCOVER)
            for offer, fields in self.answers(OFFER, min(end, time.monotonic() + 2)):
                self.send(REQUEST, option(50, socket.inet_aton(fields["address"])) + option(54, offer[54]))
                for options, given in self.answers(ACK, min(end, time.monotonic() + 2)):
                    return shown(options, given)
                break
        return None

    def decline(self, seconds: float, times: int) -> list[str]:
        """Decline what is given, again and again; return the addresses."""
        declined: list[str] = []
        end = time.monotonic() + seconds
        while len(declined) < times:
            given = self.ask(end - time.monotonic())
            if given is None:
                break
            wanted = option(50, socket.inet_aton(given["address"])) + option(54, socket.inet_aton(given["server"]))
            self.send(DECLINE, wanted)
            declined.append(given["address"])
        return declined

    def offers(self, seconds: float, servers: int) -> list[dict[str, Any]]:
        """What is offered, by server, once that many servers offer something."""
        found: dict[str, dict[str, Any]] = {}
        end = time.monotonic() + seconds
        while len(found) < servers and time.monotonic() < end:
            self.send(DISCOVER)
            for options, fields in self.answers(OFFER, min(end, time.monotonic() + 1)):
                offer = shown(options, fields)
                found[offer["server"]] = offer
        return [found[server] for server in sorted(found)]


def main() -> None:
    words = argparse.ArgumentParser()
    words.add_argument("interface")
    words.add_argument("mac")
    words.add_argument("--arch", type=int)
    words.add_argument("--ipxe", action="store_true")
    words.add_argument("--offers", type=int)
    words.add_argument("--decline", type=int)
    words.add_argument("--seconds", type=float, required=True)
    given = words.parse_args()
    extra = b""
    if given.arch is not None:
        kind = b"HTTPClient" if given.arch in HTTP_ARCHITECTURES else b"PXEClient"
        extra += option(60, b"%s:Arch:%05d" % (kind, given.arch)) + option(93, struct.pack("!H", given.arch))
    if given.ipxe:
        extra += option(77, b"iPXE") + option(175, bytes([176, 1, 1]))
    client = Client(given.interface, given.mac, extra)
    found: object
    if given.decline:
        found = client.decline(given.seconds, given.decline)
    else:
        found = client.offers(given.seconds, given.offers) if given.offers else client.ask(given.seconds)
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
