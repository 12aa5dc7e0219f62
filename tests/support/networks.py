"""Networks for tests, in a few words."""

from ipaddress import IPv4Network, IPv6Network, ip_address

from rackwright.domain.networks.networks import Category, Network, Range, Router, Use


def span(name: str, first: str, last: str, use: Use = Use.HOST) -> Range:
    return Range(name, use, ip_address(first), ip_address(last))


def network(
    name: str,
    v4: str | None = None,
    v6: str | None = None,
    *ranges: Range,
    category: Category = Category.GENERAL,
    routers: tuple[str, ...] = (),
) -> Network:
    return Network(
        name,
        category,
        v4_subnet=None if v4 is None else IPv4Network(v4),
        v6_subnet=None if v6 is None else IPv6Network(v6),
        ranges=ranges,
        routers=tuple(Router(ip_address(one)) for one in routers),
    )


ADMIN_NETWORK = network(
    "admin",
    "10.77.0.0/24",
    "fd77::/64",
    span("admin", "10.77.0.10", "10.77.0.19", Use.ADMIN),
    span("host", "10.77.0.20", "10.77.0.99"),
    span("dhcp", "10.77.0.100", "10.77.0.199", Use.DYNAMIC),
    span("admin6", "fd77::10", "fd77::1f", Use.ADMIN),
    span("host6", "fd77::20", "fd77::ffff"),
    category=Category.ADMIN,
    routers=("10.77.0.1",),
)
STORAGE = network("storage", "10.78.0.0/24", None, span("host", "10.78.0.10", "10.78.0.250"))
