"""Rules for the addresses that the server may call because a person or a machine named them.

Pure: names are resolved and connections made elsewhere.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

from rackwright.domain.catalogue import Json
from rackwright.domain.errors import Invalid
from rackwright.domain.names import is_host_name
from rackwright.shown_urls import shown_url

Address = IPv4Address | IPv6Address
IpNetwork = IPv4Network | IPv6Network

_NAT64 = IPv6Network("64:ff9b::/96")
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class CallTarget:
    """The parts of a URL that is to be called."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """Host and port as in the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def at(self, address: Address) -> str:
        """Return the URL with this address in place of the host name."""
        host = f"[{address}]" if address.version == 6 else str(address)
        return f"{self.scheme}://{host}:{self.port}{self.path}"


def parse_target(url: str) -> CallTarget:
    """Return the parts of a URL that is to be called; raise Invalid with what is wrong with it."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise Invalid(f"{shown_url(url)[:200]!r} is no URL.", "/url") from None
    if parts.scheme not in _PORTS or not parts.hostname or not url.isascii() or any(ord(char) <= 32 for char in url):
        raise Invalid("The URL must begin with https:// or http:// and name a host, without spaces.", "/url")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise Invalid("The URL must have no user, password or fragment; the signature proves the sender.", "/url")
    if port == 0:
        raise Invalid("Port 0 cannot be called.", "/url")
    host = parts.hostname.lower()
    if not _is_address(host) and not is_host_name(host):
        raise Invalid(f"{host[:80]!r} is neither a host name nor an address.", "/url")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return CallTarget(parts.scheme, host, port or _PORTS[parts.scheme], path)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return "%" not in host


def call_refusal(address: Address, allowed: Iterable[IpNetwork]) -> str | None:
    """Return why this address must not be called; None if it may. Private networks may be if they are allowed."""
    real = real_address(address)
    forms = {address, real}
    if any(form in network for network in allowed for form in forms if form.version == network.version):
        return None
    if real.is_global and not real.is_multicast:
        return None
    return (
        f"{address} is not an address of the public internet. Servers in your own networks can be called after an "
        "administrator of this host has listed their network in the setting webhook_allow."
    )


def machine_refusal(address: Address) -> str | None:
    """Return why no node's machine can be at this address unless an operator says so; None if one can."""
    real = real_address(address)
    for kind in ("is_loopback", "is_unspecified", "is_multicast", "is_link_local"):
        if getattr(real, kind) or getattr(address, kind):
            return f"{address} is {kind.removeprefix('is_').replace('_', '-')}, which is no address of another machine"
    return None


def real_address(address: Address) -> Address:
    """Return the address that packets really go to: several forms of IPv6 addresses hold an IPv4 address."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64 or int(address) >> 32 == 0:  # and the old "compatible" form
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def simulated_address(bmc: Json) -> str | None:
    """Return the URL of a lab's machine, as the machine reports it as its BMC; None if it is not on this host."""
    address = bmc.get("address") if isinstance(bmc, dict) else None
    if not isinstance(address, str):
        return None
    try:
        split = urlsplit(address)
        loopback = ip_address(split.hostname or "").is_loopback
    except ValueError:
        return None
    return address if split.scheme == "http" and split.username is None and loopback else None
