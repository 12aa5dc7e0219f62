"""What the address of a request tells: what it is counted as, where requests are limited, and whether it goes far."""

from ipaddress import IPv6Address, ip_address, ip_network

HOST_PREFIX = 64
"""The IPv6 network that a single host is given. It has all addresses of it, and may use another for each request."""


def is_link_local(address: str) -> bool:
    """Return whether an address counts on one link only: nobody can be reached by it who has more than one."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return (mapped or parsed).is_link_local


def source_network(address: str) -> str:
    """Return what an address is counted as: an IPv4 host, or the IPv6 network of a host."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        return str(parsed.ipv4_mapped or ip_network((parsed, HOST_PREFIX), strict=False))
    return str(parsed)
