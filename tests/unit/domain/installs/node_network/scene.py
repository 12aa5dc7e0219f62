"""A machine with four links and an address on two networks, for tests of node networks."""

from ipaddress import IPv4Network, IPv6Network, ip_interface

from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.installs.request import InstallRequest
from rackwright.domain.networks.networks import Category, Network

FACTS: JsonObject = {
    "links": [{"name": f"eth{number}", "mac": f"52:54:00:00:00:0{number}", "up": True} for number in range(4)],
    "lldp": {
        "eth2": {"chassis": "aa:bb:cc:dd:ee:ff", "name": "leaf-1", "port": "Ethernet7"},
        "eth3": {"chassis": "aa:bb:cc:dd:ee:ff", "name": "leaf-1", "port": "49", "port_description": "Ethernet8"},
    },
}
NETWORKS = {
    "admin": Network("admin", Category.ADMIN, v4_subnet=IPv4Network("10.9.0.0/24")),
    "storage": Network("storage", vlan=77, v4_subnet=IPv4Network("10.77.0.0/24"), v6_subnet=IPv6Network("fd77::/64")),
    "empty": Network("empty", v4_subnet=IPv4Network("10.5.0.0/24")),
}
ADDRESSES = {
    "admin": (ip_interface("10.9.0.7/24"),),
    "storage": (ip_interface("10.77.0.7/24"), ip_interface("fd77::7/64")),
}


def request(wanted: Json, facts: JsonObject = FACTS) -> InstallRequest:
    return InstallRequest("n1", {"network": wanted}, facts, NETWORKS, ADDRESSES)


BOND = """\
network:
  version: 2
  renderer: networkd
  ethernets:
    left:
      match: {macaddress: "52:54:00:00:00:00"}
    right:
      match: {name: eth1}
      set-name: lan1
      wakeonlan: true
  bonds:
    bond0:
      interfaces: [left, right]
      parameters: {mode: 802.3ad, lacp-rate: fast, transmit-hash-policy: layer3+4}
      mtu: 9000
      dhcp4: true
  vlans:
    bond0.77:
      id: 77
      link: bond0
      mtu: 1500
      addresses: [network: storage]
      routes:
        - {to: 10.80.0.0/16, via: 10.77.0.1, metric: 50, table: 100}
        - {to: default, via: "fd77::1", on-link: true}
      nameservers: {addresses: [10.77.0.1], search: [example.org]}
"""
BRIDGE = """\
ethernets:
  up2:
    match: {lldp: {switch: leaf-1, port: Ethernet7}}
  eth3: {optional: true, dhcp6: true, accept-ra: false, macaddress: "02:00:00:00:00:01"}
bonds:
  bond1: {interfaces: [eth0, eth1], parameters: {mode: active-backup, primary: eth1, mii-monitor-interval: 50}}
bridges:
  br0:
    interfaces: [up2, bond1]
    parameters: {stp: false, forward-delay: 4}
    addresses: [{network: admin, family: 4}, 192.0.2.9/28]
"""
BRIDGE = BRIDGE.replace("bonds:\n", "  eth0: {}\n  eth1: {}\nbonds:\n", 1)
