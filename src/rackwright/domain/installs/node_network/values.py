"""Reading single values of a netplan document: each is checked by its type, bounded, and allow-listed.

What passes here is written into the configuration of systemd-networkd, one value a line.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address, ip_interface, ip_network

from rackwright.domain.barclamps.marked_values import MarkedValue
from rackwright.domain.catalogue import Json
from rackwright.domain.installs.node_network.devices import Problems
from rackwright.domain.installs.request import Interface
from rackwright.domain.networks.networks import Address, Subnet

LONGEST_NAME = 15
"""Characters of a device's name, as the kernel has it."""
MOST_ITEMS = 64
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,14}")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_DOMAIN = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,62})(\.[A-Za-z0-9][A-Za-z0-9-]{0,62}){0,15}\.?")
_PORT = re.compile(r"[ -~]{1,255}")
SHOWN = 60


class BadValue(ValueError):
    """A value is not what its key takes. The text says what the key takes."""


@dataclass(frozen=True)
class ValueReader:
    """Reads values and collects what is wrong with them."""

    problems: Problems

    def refuse(self, value: MarkedValue, what: str, error: BadValue) -> None:
        self.problems.add(f"{what}: {_show(value)} {error}", line_of(value))

    def mapping(self, value: MarkedValue, what: str) -> Mapping[str, MarkedValue]:
        if isinstance(value.value, dict) and len(value.value) <= MOST_ITEMS:
            return value.value
        if value.value is not None:
            self.problems.add(f"{what} is a mapping of at most {MOST_ITEMS} keys, not {_show(value)}", line_of(value))
        return {}

    def items(self, value: MarkedValue, what: str) -> list[MarkedValue]:
        if isinstance(value.value, list) and len(value.value) <= MOST_ITEMS:
            return value.value
        self.problems.add(f"{what} is a list of at most {MOST_ITEMS}, not {_show(value)}", line_of(value))
        return []


def line_of(value: MarkedValue) -> int | None:
    """Return the line of a value; None if it does not come from a text."""
    return value.key_line or None


def mark_json(value: Json) -> MarkedValue:
    """Return a value that came as JSON, in which no line is known."""
    if isinstance(value, dict):
        return MarkedValue({key: mark_json(child) for key, child in value.items()}, 0, 0)
    if isinstance(value, list):
        return MarkedValue([mark_json(child) for child in value], 0, 0)
    return MarkedValue(value, 0, 0)


def _show(value: MarkedValue) -> str:
    return repr(value.plain())[:SHOWN]


def take_flag(value: Json) -> bool:
    if isinstance(value, bool):
        return value
    raise BadValue("is neither true nor false")


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


def take_number(least: int, most: int) -> Callable[[Json], int]:
    def take(value: Json) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        raise BadValue(f"is no number from {least} to {most}")

    return take


def take_word(*words: str) -> Callable[[Json], str]:
    def take(value: Json) -> str:
        if isinstance(value, str) and value in words:
            return value
        raise BadValue(f"is none of {', '.join(words)}")

    return take


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
