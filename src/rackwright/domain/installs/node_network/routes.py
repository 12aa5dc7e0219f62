"""Checking the routes of a resolved network: each gateway is on a link of its device, and no route is there twice."""

from collections.abc import Iterable

from rackwright.domain.installs.documents import Problems
from rackwright.domain.installs.node_network.devices import ResolvedDevice, Route
from rackwright.domain.networks.networks import Subnet

MAIN_TABLE = 254
"""The routing table of the kernel that a route is in if it names none."""


def check_routes(devices: Iterable[ResolvedDevice], problems: Problems) -> None:
    own = {address.ip for device in devices for address in device.addresses}
    seen: dict[tuple[Subnet, int | None, int], str] = {}
    for device in devices:
        for route in device.declared.routes:
            if route.via in own:
                problems.add(f"{device.name}: the gateway {route.via} is the node itself", route.line)
            elif not _is_on_link(device, route):
                problems.add(
                    f"{device.name}: the gateway {route.via} is on no subnet of its addresses; give it such an "
                    "address, or say on-link: true",
                    route.line,
                )
            key = (route.to, route.metric, route.table or MAIN_TABLE)
            if key in seen:
                problems.add(
                    f"{device.name}: a route to {route.to} is there already, on {seen[key]}; give one another metric",
                    route.line,
                )
            seen.setdefault(key, device.name)


def _is_on_link(device: ResolvedDevice, route: Route) -> bool:
    """Return whether a gateway can be reached on its link; addresses that only a server knows may be any."""
    via, declared = route.via, device.declared
    if via is None or route.on_link or via.is_link_local:
        return True
    if (declared.dhcp4 and via.version == 4) or (declared.accept_ra is not False and via.version == 6):
        return True
    return any(via in address.network for address in device.addresses if address.version == via.version)
