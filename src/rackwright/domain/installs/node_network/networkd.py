"""The files of systemd-networkd for a resolved network. Deterministic: the same network gives the same bytes.

Networkd takes, for each link, the first file by name that matches it. `05-` sorts before the `10-dhcp.network` of the
images, which gives every other link DHCP. Ethernets are matched by their permanent MAC: a member of a bond shows the
bond's, and the names that discovery saw need not be those of the installed system.
"""

from collections.abc import Iterable, Iterator

from rackwright.domain.installs.node_network.devices import Device, Kind, ResolvedDevice, ResolvedNetwork, Route
from rackwright.domain.installs.request import RootFile

FOLDER = "/etc/systemd/network"
PREFIX = "05-rackwright-"
RESOLV_CONF = "/etc/resolv.conf"
MONITOR_MILLISECONDS = 100
"""How often a bond looks whether its members have a cable, if nobody says: the kernel's own default is never."""
MOST_NAME_SERVERS = 3
"""As many as the C library reads."""

Section = tuple[str, list[tuple[str, object]]]


def render_networkd(network: ResolvedNetwork) -> tuple[RootFile, ...]:
    """Return the files of a network, sorted by path."""
    files = [file for device in network.devices for file in _device_files(network, device)]
    files += _resolv_conf(network)
    return tuple(sorted(files, key=lambda file: file.path))


def _device_files(network: ResolvedNetwork, device: ResolvedDevice) -> Iterator[RootFile]:
    declared = device.declared
    if declared.kind is not Kind.ETHERNET:
        yield _file(device, "netdev", _netdev_sections(device))
    elif declared.set_name or declared.wake_on_lan:
        yield _file(device, "link", _link_sections(device))
    yield _file(device, "network", _network_sections(network, device))


def _file(device: ResolvedDevice, ending: str, sections: Iterable[Section]) -> RootFile:
    shown = (
        "".join([f"[{title}]\n", *(f"{key}={value}\n" for key, value in lines)]) for title, lines in sections if lines
    )
    return RootFile(f"{FOLDER}/{PREFIX}{device.name}.{ending}", "\n".join(shown))


def _link_sections(device: ResolvedDevice) -> list[Section]:
    """Return the sections for udev. Its own default file does not count beside this one, so its policies are here."""
    declared = device.declared
    lines: list[tuple[str, object]] = []
    if declared.set_name:
        lines.append(("Name", declared.set_name))
    else:
        lines.append(("NamePolicy", "keep kernel database onboard slot path"))
    if declared.wake_on_lan:
        lines.append(("WakeOnLan", "magic"))
    return [("Match", [("PermanentMACAddress", device.mac)]), ("Link", lines)]


def _netdev_sections(device: ResolvedDevice) -> list[Section]:
    declared = device.declared
    kind = {Kind.BOND: "bond", Kind.VLAN: "vlan", Kind.BRIDGE: "bridge"}[declared.kind]
    common: list[tuple[str, object]] = [("Name", device.name), ("Kind", kind)]
    if declared.mtu is not None:
        common.append(("MTUBytes", declared.mtu))
    if declared.mac or device.mac:
        common.append(("MACAddress", declared.mac or device.mac))
    own = {Kind.BOND: _bond_lines, Kind.VLAN: _vlan_lines, Kind.BRIDGE: _bridge_lines}[declared.kind]
    return [("NetDev", common), (kind.upper() if kind == "vlan" else kind.capitalize(), own(declared))]


def _bond_lines(bond: Device) -> list[tuple[str, object]]:
    parameters = bond.parameters
    lines: list[tuple[str, object]] = [
        ("Mode", parameters.get("mode", "balance-rr")),
        ("MIIMonitorSec", f"{parameters.get('mii-monitor-interval', MONITOR_MILLISECONDS)}ms"),
    ]
    if "lacp-rate" in parameters:
        lines.append(("LACPTransmitRate", parameters["lacp-rate"]))
    if "transmit-hash-policy" in parameters:
        lines.append(("TransmitHashPolicy", parameters["transmit-hash-policy"]))
    return lines


def _vlan_lines(vlan: Device) -> list[tuple[str, object]]:
    return [("Id", vlan.vlan_id)]


def _bridge_lines(bridge: Device) -> list[tuple[str, object]]:
    lines: list[tuple[str, object]] = [("STP", _yes(bridge.parameters.get("stp", True) is True))]
    if "forward-delay" in bridge.parameters:
        lines.append(("ForwardDelaySec", f"{bridge.parameters['forward-delay']}s"))
    return lines


def _network_sections(network: ResolvedNetwork, device: ResolvedDevice) -> list[Section]:
    declared = device.declared
    match = ("PermanentMACAddress", device.mac) if declared.kind is Kind.ETHERNET else ("Name", device.name)
    link: list[tuple[str, object]] = []
    if declared.kind is Kind.ETHERNET and declared.mac:
        link.append(("MACAddress", declared.mac))
    if declared.mtu is not None:
        link.append(("MTUBytes", declared.mtu))
    if declared.optional:
        link.append(("RequiredForOnline", "no"))
    sections: list[Section] = [("Match", [match]), ("Link", link), ("Network", _network_lines(network, device))]
    if declared.dhcp4:
        # The server's reservation is by MAC, and whoever installs again keeps the address.
        sections.append(("DHCPv4", [("ClientIdentifier", "mac")]))
    return [*sections, *(("Route", _route_lines(route)) for route in declared.routes)]


def _network_lines(network: ResolvedNetwork, device: ResolvedDevice) -> list[tuple[str, object]]:
    declared = device.declared
    lines: list[tuple[str, object]] = [("VLAN", name) for name in network.vlans_on(device.name)]
    master = network.master_of(device.name)
    if master is not None:
        lines.append(("Bond" if master.kind is Kind.BOND else "Bridge", master.name))
        if master.primary == device.name:
            lines.append(("PrimarySlave", "yes"))
        return [*lines, ("LinkLocalAddressing", "no"), ("IPv6AcceptRA", "no")]
    families = {(True, True): "yes", (True, False): "ipv4", (False, True): "ipv6", (False, False): "no"}
    lines.append(("DHCP", families[declared.dhcp4, declared.dhcp6]))
    if declared.accept_ra is not None:
        lines.append(("IPv6AcceptRA", _yes(declared.accept_ra)))
    lines += [("Address", address) for address in device.addresses]
    lines += [("DNS", address) for address in declared.name_servers]
    if declared.search_domains:
        lines.append(("Domains", " ".join(declared.search_domains)))
    return lines


def _route_lines(route: Route) -> list[tuple[str, object]]:
    lines: list[tuple[str, object]] = [("Destination", route.to)]
    if route.via is not None:
        lines.append(("Gateway", route.via))
    if route.on_link:
        lines.append(("GatewayOnLink", "yes"))
    if route.metric is not None:
        lines.append(("Metric", route.metric))
    if route.table is not None:
        lines.append(("Table", route.table))
    return lines


def _resolv_conf(network: ResolvedNetwork) -> list[RootFile]:
    """Return the file of the C library: the images have no systemd-resolved, which would read networkd's."""
    servers = [server for device in network.devices for server in device.declared.name_servers]
    domains = [domain for device in network.devices for domain in device.declared.search_domains]
    lines = [f"search {' '.join(dict.fromkeys(domains))}\n"] if domains else []
    lines += [f"nameserver {server}\n" for server in list(dict.fromkeys(servers))[:MOST_NAME_SERVERS]]
    return [RootFile(RESOLV_CONF, "".join(lines))] if lines else []


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"
