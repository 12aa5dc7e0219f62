"""What the address that a request comes from is counted as, where requests are limited."""

from ipaddress import IPv6Address, ip_address, ip_network

HOST_PREFIX = 64
"""The IPv6 network that a single host is given. It has all addresses of it, and may use another for each request."""


def source_network(address: str) -> str:
    """Return what an address is counted as: an IPv4 host, or the IPv6 network of a host."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        return str(parsed.ipv4_mapped or ip_network((parsed, HOST_PREFIX), strict=False))
    return str(parsed)
