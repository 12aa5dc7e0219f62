"""The switch of a lab: LLDP frames as one sends them, made part by part, so that one of any shape can be had."""

import base64
import socket

from rackwright.domain.machines.lldp import Tlv

ETHERTYPE = 0x88CC
NEAREST_BRIDGE = bytes.fromhex("0180c200000e")
"""Whom frames are sent to. No bridge passes them on, so only who is at the other end of the cable hears them."""
SWITCH = "02:00:77:00:00:01"
PORTS = 48
END = bytes(2)


def part(kind: int, value: bytes) -> bytes:
    """Type (7 bits), length (9 bits), value."""
    return (kind << 9 | len(value)).to_bytes(2) + value


def mac_chassis(mac: str = SWITCH) -> bytes:
    return part(Tlv.CHASSIS, b"\x04" + bytes.fromhex(mac.replace(":", "")))


def named_port(name: str) -> bytes:
    return part(Tlv.PORT, b"\x05" + name.encode())


def lifetime(seconds: int = 120) -> bytes:
    return part(Tlv.LIFETIME, seconds.to_bytes(2))


def frame(chassis: bytes, port: bytes, *optional: bytes, seconds: int = 120) -> bytes:
    """A whole one without its Ethernet header, padded as Ethernet pads short ones."""
    return (chassis + port + lifetime(seconds) + b"".join(optional) + END).ljust(46, b"\0")


def switch_frame(number: int) -> bytes:
    """What the switch says on the cable of a machine: switches are filled in the order of machines."""
    leaf, port = divmod(number - 1, PORTS)
    chassis = mac_chassis(f"02:00:77:00:{leaf >> 8 & 255:02x}:{leaf & 255:02x}")
    return frame(chassis, named_port(f"Ethernet{port + 1}"), part(Tlv.NAME, f"leaf-{leaf + 1}".encode()))


def in_base64(sent: bytes) -> str:
    return base64.b64encode(sent).decode()


def send_frame(interface: str, sent: bytes) -> None:
    """Say it on an interface of this host; its other end hears it."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind((interface, 0))
        raw.send(NEAREST_BRIDGE + bytes.fromhex(SWITCH.replace(":", "")) + ETHERTYPE.to_bytes(2) + sent)
