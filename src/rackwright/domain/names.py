"""Checks of names, MAC addresses and UUIDs. What passes them may be rendered anywhere."""

import re
from uuid import UUID

from rackwright.domain.errors import Invalid

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_FQDN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_MAC = re.compile(r"(?:[0-9a-f]{2}[:-]){5}[0-9a-f]{2}")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9_.-]{0,61}[a-z0-9])?")

PHANTOM_SUFFIX = ".services.internal"


def check_node_name(name: str, pointer: str = "") -> str:
    """Return a node's fully qualified domain name in lower case; raise Invalid if it is none.

    `pointer` is the JSON pointer to the name, if a document holds it.
    """
    lowered = name.lower()
    if not _FQDN.fullmatch(lowered) or len(lowered) > 253 or "." not in lowered:
        raise Invalid(f"{name[:80]!r} is no node name: it must be a full domain name such as n1.rack.example.", pointer)
    if lowered.endswith(PHANTOM_SUFFIX):
        raise Invalid(f"Node names ending in {PHANTOM_SUFFIX!r} are kept for the services of deployments.", pointer)
    if lowered.replace(".", "").isdecimal():
        raise Invalid(f"{name[:80]!r} looks like an address; a node needs a name.", pointer)
    return lowered


def check_name(kind: str, name: str) -> str:
    """Return the name of a deployment, group or the like; raise Invalid if it is none."""
    if not _NAME.fullmatch(name) or name.isdecimal():
        raise Invalid(
            f"{name[:80]!r} is no name for a {kind}: use lower-case letters, digits, '-', '_' and '.', at most 63, "
            "and not digits alone."
        )
    return name


def check_mac(mac: str) -> str:
    lowered = mac.lower()
    if not _MAC.fullmatch(lowered):
        raise Invalid(f"{mac[:40]!r} is no MAC address; write it like 52:54:00:12:34:56.")
    return lowered.replace("-", ":")


def check_uuid(uuid: str) -> str:
    try:
        return str(UUID(uuid))
    except ValueError:
        raise Invalid(f"{uuid[:40]!r} is no UUID.") from None


def is_host_name(name: str) -> bool:
    """Return whether a name can be in DNS.

    One that ends in a number cannot: that is one of the many ways to write an IPv4 address.
    """
    last = name.rpartition(".")[2]
    return len(name) <= 253 and _FQDN.fullmatch(name) is not None and not last.isdecimal() and last[:2] != "0x"
