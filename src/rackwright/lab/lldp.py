"""The LLDP frames that a lab's switch sends, built from single TLVs, so that tests can build any frame."""

import base64
import socket

from rackwright.domain.machines.lldp import Tlv

ETHERTYPE = 0x88CC
NEAREST_BRIDGE = bytes.fromhex("0180c200000e")
"""The address that frames are sent to. No bridge forwards it, so only the other end of the cable receives them."""
SWITCH = "02:00:77:00:00:01"
PORTS = 48
END = bytes(2)


def tlv(kind: int, value: bytes) -> bytes:
    """Return a TLV: type (7 bits), length (9 bits), value."""
    return (kind << 9 | len(value)).to_bytes(2) + value


def mac_chassis(mac: str = SWITCH) -> bytes:
    return tlv(Tlv.CHASSIS, b"\x04" + bytes.fromhex(mac.replace(":", "")))


def named_port(name: str) -> bytes:
    return tlv(Tlv.PORT, b"\x05" + name.encode())


def lifetime(seconds: int = 120) -> bytes:
    return tlv(Tlv.LIFETIME, seconds.to_bytes(2))


def frame(chassis: bytes, port: bytes, *optional: bytes, seconds: int = 120) -> bytes:
    """Return a complete frame without its Ethernet header, padded as Ethernet pads short frames."""
    return (chassis + port + lifetime(seconds) + b"".join(optional) + END).ljust(46, b"\0")


def switch_frame(number: int) -> bytes:
    """Return the frame that the switch sends to a machine. The ports of switches are taken in the order of machines."""
    leaf, port = divmod(number - 1, PORTS)
    chassis = mac_chassis(f"02:00:77:00:{leaf >> 8 & 255:02x}:{leaf & 255:02x}")
    return frame(chassis, named_port(f"Ethernet{port + 1}"), tlv(Tlv.NAME, f"leaf-{leaf + 1}".encode()))


def in_base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def send_frame(interface: str, content: bytes) -> None:
    """Send a frame on an interface of this host; the other end of the cable receives it."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind((interface, 0))
        raw.send(NEAREST_BRIDGE + bytes.fromhex(SWITCH.replace(":", "")) + ETHERTYPE.to_bytes(2) + content)
