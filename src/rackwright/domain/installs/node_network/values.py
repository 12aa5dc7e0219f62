"""Reading single values of a netplan document: each is checked by its type, bounded, and allow-listed.

What passes here is written into the configuration of systemd-networkd, one value a line.
"""

import re
from ipaddress import ip_address, ip_interface, ip_network

from rackwright.domain.catalogue import Json
from rackwright.domain.installs.documents import BadValue
from rackwright.domain.installs.request import Interface
from rackwright.domain.networks.networks import Address, Subnet

LONGEST_NAME = 15
"""Characters of a device's name, as the kernel has it."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,14}")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_DOMAIN = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,62})(\.[A-Za-z0-9][A-Za-z0-9-]{0,62}){0,15}\.?")
_PORT = re.compile(r"[ -~]{1,255}")


def take_name(value: Json) -> str:
    if isinstance(value, str) and _NAME.fullmatch(value) and value not in ("all", "default", "lo"):
        return value
    raise BadValue(
        f"is no name of a device: letters, digits, '.', '_' and '-', at most {LONGEST_NAME} characters, and not all, "
        "default or lo"
    )


def take_mac(value: Json) -> str:
    if isinstance(value, str) and _MAC.fullmatch(value.lower()):
        return value.lower()
    raise BadValue("is no MAC; write it like 52:54:00:12:34:56")


def take_text(value: Json) -> str:
    if isinstance(value, str) and _PORT.fullmatch(value):
        return value
    raise BadValue("is no printable text of at most 255 characters")


def take_domain(value: Json) -> str:
    if isinstance(value, str) and len(value) <= 253 and _DOMAIN.fullmatch(value):
        return value
    raise BadValue("is no domain")


def take_address(value: Json) -> Address:
    try:
        if isinstance(value, str) and "%" not in value:
            return ip_address(value)
    except ValueError:
        pass
    raise BadValue("is no IP address")


def take_interface(value: Json) -> Interface:
    interface = _read_interface(value)
    if interface is None or interface.ip.is_multicast or interface.ip.is_unspecified or interface.ip.is_loopback:
        raise BadValue("is no address of a host with its prefix; write it like 10.0.0.7/24, or {network: NAME}")
    if _is_of_whole_subnet(interface):
        raise BadValue(f"is the address of the subnet {interface.network}, or of all in it, not of a host")
    return interface


def _read_interface(value: Json) -> Interface | None:
    try:
        return ip_interface(value) if isinstance(value, str) and "/" in value and "%" not in value else None
    except ValueError:
        return None


def _is_of_whole_subnet(interface: Interface) -> bool:
    """Return whether an address is the first or last of an IPv4 subnet, which no host has. A /31 has two hosts."""
    subnet = interface.network
    return interface.version == 4 and subnet.prefixlen < 31 and interface.ip in (subnet[0], subnet[-1])


def take_destination(value: Json) -> Subnet | None:
    """Return where a route leads; None: `default`, whose family is that of the gateway."""
    if value == "default":
        return None
    try:
        if isinstance(value, str) and "%" not in value:
            return ip_network(value)
    except ValueError:
        pass
    raise BadValue("is no destination: write default, or a subnet with its first address, like 10.1.0.0/16")
