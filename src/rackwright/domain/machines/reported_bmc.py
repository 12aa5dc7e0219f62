"""The reader of what a machine says of its BMC: the settings that IPMI told it, and SMBIOS structures of type 42.

All of it is a machine's own word, and a proposal at most: it is bounded, and of what it says only a kind, an address
and a MAC are kept, each of which is checked. What does not fit is left out, for a machine cannot help what its firmware
has.
"""

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

from rackwright.domain.catalogue import Json, JsonObject

MOST_INTERFACES = 4
LONGEST_STRUCTURE = 300
"""Bytes: a structure has 255 at most, and texts behind it that nobody needs here."""
HOST_INTERFACE = 42
"""The type of SMBIOS structure "Management Controller Host Interface" (DSP0134, 7.43)."""
NETWORK_INTERFACE = 0x40
REDFISH_OVER_IP = 0x04
"""The protocol of a host interface, with the address of the service in its data (DSP0270, 6.3)."""
ADDRESS_FORMAT, ADDRESS, PORT = 51, slice(52, 68), slice(84, 86)
"""Where a record of Redfish over IP has the service's address: after a UUID (16), two bytes and the host's own address
and mask (32), and the way in which the service got its address (1)."""
HTTPS = 443
IPMI, REDFISH = "ipmi", "redfish"
_PLACE = re.compile(r"[0-9A-Fa-f.:\[\]]{1,64}")
"""An address, with a port maybe, and nothing else that could stand in a URL."""
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")

Address = IPv4Address | IPv6Address


def read_reported_controller(reported: Json) -> JsonObject:
    """Return kind, address and MAC of a machine's BMC, as far as the machine said any of it; empty: it has none.

    The address that IPMI has is the one on the network. What a host interface names is often good inside of the machine
    only.
    """
    if not isinstance(reported, dict):
        return {}
    listed = reported.get("host_interfaces")
    structures = listed[:MOST_INTERFACES] if isinstance(listed, list) else []
    services = [service for structure in structures for service in _redfish_services(_decode(structure))]
    lan = _read_address(reported.get("address")) or _read_address(reported.get("address6"))
    places = ([str(lan)] if lan is not None else []) + [service for service in services if service]
    if services:
        kind = REDFISH
    elif lan is not None or reported.get("ipmi") is True:
        kind = IPMI
    else:
        return {}
    bmc: JsonObject = {"kind": kind}
    if places:
        bmc["address"] = _in_brackets(places[0]) if kind == REDFISH else places[0]
    mac = reported.get("mac")
    if isinstance(mac, str) and _MAC.fullmatch(mac.lower()) and mac.strip("0:"):
        bmc["mac"] = mac.lower()
    return bmc


@dataclass(frozen=True)
class ProposedBmc:
    """Where a machine says that its BMC is, for a person to believe or not."""

    kind: str
    address: str
    host: str
    """The address without a port."""


def propose_bmc(reported: Json, chosen: Json) -> ProposedBmc | None:
    """Return the BMC that a person may take from a machine's report.

    None: it reports none that could be on a network, or a person has said already where its BMC is (`chosen`).
    """
    if (isinstance(chosen, dict) and chosen.get("address")) or not isinstance(reported, dict):
        return None
    kind, address = reported.get("kind"), reported.get("address")
    if kind not in (IPMI, REDFISH) or not isinstance(address, str) or not _PLACE.fullmatch(address):
        return None
    try:
        host = address if address.count(":") > 1 and "[" not in address else (urlsplit(f"//{address}").hostname or "")
        parsed = ip_address(host)
    except ValueError:
        return None
    return ProposedBmc(str(kind), address, str(parsed)) if _is_on_a_network(parsed) else None


def _decode(structure: Json) -> bytes:
    if not isinstance(structure, str) or len(structure) > 2 * LONGEST_STRUCTURE:
        return b""
    try:
        return base64.b64decode(structure, validate=True)[:LONGEST_STRUCTURE]
    except (binascii.Error, ValueError):
        return b""


def _redfish_services(structure: bytes) -> Iterator[str]:
    """Yield where each Redfish service of a host interface is; empty: within the machine, or not told."""
    if len(structure) < 6 or structure[0] != HOST_INTERFACE or structure[4] != NETWORK_INTERFACE:
        return
    formatted = structure[: structure[1]]
    start = 6 + structure[5]
    count = formatted[start] if start < len(formatted) else 0
    start += 1
    for _ in range(count):
        if start + 2 > len(formatted):
            return
        protocol, length = formatted[start], formatted[start + 1]
        if start + 2 + length > len(formatted):
            return
        if protocol == REDFISH_OVER_IP:
            yield _service_place(formatted[start + 2 : start + 2 + length])
        start += 2 + length


def _service_place(record: bytes) -> str:
    """Return the address of a Redfish service, with its port if that is not the usual one."""
    if len(record) < PORT.stop:
        return ""
    packed = record[ADDRESS]
    address: Address | None = None
    if record[ADDRESS_FORMAT] == 1:
        address = IPv4Address(packed[:4])
    elif record[ADDRESS_FORMAT] == 2:
        address = IPv6Address(packed)
    if address is None or not _is_on_a_network(address):
        return ""
    port = int.from_bytes(record[PORT], "little")
    return str(address) if port in (0, HTTPS) else f"{_in_brackets(str(address))}:{port}"


def _read_address(reported: Json) -> Address | None:
    try:
        address = ip_address(reported) if isinstance(reported, str) and "%" not in reported else None
    except ValueError:
        return None
    return address if address is not None and _is_on_a_network(address) else None


def _is_on_a_network(address: Address) -> bool:
    """Return whether another host can be at an address, and be spoken to from a third."""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return _is_on_a_network(address.ipv4_mapped)
    return not (
        address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or address.is_link_local
        or (address.version == 4 and address == IPv4Address("255.255.255.255"))
    )


def _in_brackets(address: str) -> str:
    """Return an address as it stands in a URL."""
    return f"[{address}]" if address.count(":") > 1 and not address.startswith("[") else address
