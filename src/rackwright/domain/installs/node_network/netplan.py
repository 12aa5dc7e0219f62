"""A resolved network as netplan v2 again, with nothing left that only Rackwright understands."""

from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.installs.node_network.devices import Kind, ResolvedDevice, ResolvedNetwork, Route


def render_netplan(network: ResolvedNetwork) -> JsonObject:
    """Return what a NoCloud `network-config` holds: addresses are written out, ethernets matched by their MAC."""
    document: JsonObject = {"version": 2}
    for kind in Kind:
        devices: JsonObject = {device.name: _render_device(device) for device in network.devices if device.kind is kind}
        if devices:
            document[kind.value] = devices
    return document


def _render_device(device: ResolvedDevice) -> JsonObject:
    declared = device.declared
    servers: JsonObject = {
        "addresses": [str(address) for address in declared.name_servers],
        "search": [*declared.search_domains],
    }
    parent = declared.parent
    optional: JsonObject = {
        "match": {"macaddress": device.mac} if device.kind is Kind.ETHERNET else None,
        "set-name": declared.set_name or None,
        "id": declared.vlan_id or None,
        "link": None if parent is None else parent.name,
        "interfaces": [member.name for member in declared.members] or None,
        "parameters": {**declared.parameters} or None,
        "macaddress": declared.mac or (device.mac if device.kind is not Kind.ETHERNET else "") or None,
        "addresses": [str(address) for address in device.addresses] or None,
        "routes": [_render_route(route) for route in declared.routes] or None,
        "nameservers": {key: value for key, value in servers.items() if value} or None,
        "mtu": declared.mtu,
        "dhcp4": declared.dhcp4 or None,
        "dhcp6": declared.dhcp6 or None,
        "accept-ra": declared.accept_ra,
        "optional": declared.optional or None,
        "wakeonlan": declared.wake_on_lan or None,
    }
    return {key: value for key, value in optional.items() if value is not None}


def _render_route(route: Route) -> Json:
    optional: JsonObject = {
        "to": str(route.to),
        "via": None if route.via is None else str(route.via),
        "metric": route.metric,
        "on-link": route.on_link or None,
        "table": route.table,
    }
    return {key: value for key, value in optional.items() if value is not None}
