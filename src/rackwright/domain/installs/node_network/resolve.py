"""Resolving a network on one machine: its links are found, its addresses looked up, and what cannot be is told."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rackwright.domain.installs.documents import Problems
from rackwright.domain.installs.node_network.devices import (
    Device,
    Kind,
    ResolvedDevice,
    ResolvedNetwork,
    WantedAddress,
)
from rackwright.domain.installs.node_network.links import Link, describe_match, find_link, read_links
from rackwright.domain.installs.node_network.read import read_network
from rackwright.domain.installs.node_network.routes import check_routes
from rackwright.domain.installs.request import InstallRequest, Interface, Problem
from rackwright.domain.networks.networks import Category, Network, role_name

SETTING = "network"
"""The key of the attribute below `provisioner`."""
USUAL_MTU = 1500


def resolve_network(request: InstallRequest) -> tuple[ResolvedNetwork | None, tuple[Problem, ...]]:
    """Return the network that is wanted of a machine, and why it cannot be; None and no problem: none is wanted."""
    wanted = request.setting(SETTING)
    if wanted is None or wanted in ("", {}):
        return None, ()
    devices, problems = read_network(wanted)
    if problems.listed:
        return None, tuple(problems.listed)
    network = _Resolver(
        request, {device.name: device for device in devices}, read_links(request.facts), problems
    ).resolve()
    return (None, tuple(problems.listed)) if problems.listed else (network, ())


@dataclass(frozen=True)
class _Resolver:
    request: InstallRequest
    devices: Mapping[str, Device]
    links: tuple[Link, ...]
    problems: Problems

    def resolve(self) -> ResolvedNetwork:
        macs = self._find_macs()
        self._check_references()
        self._check_names()
        if self.problems.listed:
            return ResolvedNetwork()  # what follows walks from device to device
        resolved = tuple(
            ResolvedDevice(device, _mac_of(device, self.devices, macs), tuple(self._addresses_of(device)))
            for device in self.devices.values()
        )
        self._check_addresses(resolved)
        check_routes(resolved, self.problems)
        for device in self.devices.values():
            self._check_mtu(device)
        self._check_vlans()
        self._check_reachable(resolved, macs)
        return ResolvedNetwork(resolved)

    def _find_macs(self) -> dict[str, str]:
        """Return the MACs of the links that the ethernets are, by the name of the ethernet."""
        macs: dict[str, str] = {}
        listed = ", ".join(map(str, self.links)) or "none is known: the machine was not discovered yet"
        for device in self.devices.values():
            if device.kind is not Kind.ETHERNET:
                continue
            link = find_link(self.links, device.match)
            if link is None:
                missing = describe_match(device.match)
                reason = f"{device.name}: the machine has {missing}; its links: {listed}"
                self.problems.add(reason, device.line, waits=not self.links)
            elif link.mac in macs.values():
                other = next(name for name, mac in macs.items() if mac == link.mac)
                self.problems.add(f"{device.name} and {other} are the same link {link}", device.line)
            else:
                macs[device.name] = link.mac
        return macs

    def _check_references(self) -> None:
        users: dict[str, str] = {}
        for device in self.devices.values():
            for reference in device.below:
                if reference.name not in self.devices:
                    known = ", ".join(self.devices)
                    self.problems.add(
                        f"{device.name}: {reference.name} is not declared; the document has {known}", reference.line
                    )
            for member in device.members:
                if member.name in users:
                    self.problems.add(
                        f"{member.name} is used twice: in {users[member.name]} and in {device.name}", member.line
                    )
                users.setdefault(member.name, device.name)
                self._check_member(device, member.name, member.line)
            if device.kind is Kind.BOND and not device.members:
                self.problems.add(f"{device.name}: a bond needs interfaces", device.line)
            if device.primary and all(member.name != device.primary for member in device.members):
                self.problems.add(f"{device.name}: its primary {device.primary} is none of its interfaces", device.line)
        for device in self.devices.values():
            if _is_in_loop(device, self.devices):
                self.problems.add(
                    f"{device.name} stands on itself: its interfaces or its link lead in a circle", device.line
                )

    def _check_member(self, master: Device, name: str, line: int | None) -> None:
        member = self.devices.get(name)
        if member is None:
            return
        if master.kind is Kind.BOND and member.kind is not Kind.ETHERNET:
            self.problems.add(f"{master.name}: a bond is made of ethernets; {name} is of {member.kind}", line)
        if member.addresses or member.dhcp4 or member.dhcp6 or member.routes:
            self.problems.add(f"{name} is in {master.name}, so its addresses and routes belong to {master.name}", line)

    def _check_names(self) -> None:
        """Refuse a name that two devices would have: the kernel's own names are taken already."""
        taken = {link.name: f"link {link}" for link in self.links}
        for device in self.devices.values():
            if device.kind is not Kind.ETHERNET and device.name in taken:
                self.problems.add(f"{device.name} is the name of {taken[device.name]} already", device.line)
            if device.set_name:
                others = {name for name in self.devices if name != device.name} | {
                    other.set_name for other in self.devices.values() if other is not device
                }
                if device.set_name in others:
                    self.problems.add(f"{device.name}: set-name {device.set_name} is another device's", device.line)

    def _addresses_of(self, device: Device) -> Iterator[Interface]:
        for wanted in device.addresses:
            if wanted.literal is not None:
                self._check_literal(device, wanted.literal, wanted.line)
                yield wanted.literal
            else:
                yield from self._allocated(device, wanted)

    def _check_literal(self, device: Device, address: Interface, line: int | None) -> None:
        """Refuse an address of one of our networks that is not allocated to this node, or has another prefix."""
        for network in self.request.networks.values():
            subnet = network.subnet(address.version)
            if subnet is None or address.ip not in subnet:
                continue
            if address.network != subnet:
                self.problems.add(
                    f"{device.name}: {address} is of network {network.name}, whose subnet is {subnet}", line
                )
            elif address not in self.request.addresses.get(network.name, ()):
                self.problems.add(
                    f"{device.name}: {address.ip} of network {network.name} is not allocated to {self.request.node}; "
                    f"write {{network: {network.name}}} for the one that is",
                    line,
                )

    def _allocated(self, device: Device, wanted: WantedAddress) -> Iterator[Interface]:
        network = self.request.networks.get(wanted.network)
        if network is None:
            known = ", ".join(self.request.networks) or "none"
            self.problems.add(f"{device.name}: there is no network {wanted.network}; there are {known}", wanted.line)
            return
        allocated = [
            address
            for address in self.request.addresses.get(wanted.network, ())
            if wanted.family in (None, address.version)
        ]
        if not allocated:
            family = f"IPv{wanted.family} " if wanted.family else ""
            self.problems.add(
                f"{device.name}: {self.request.node} has no {family}address on network {wanted.network}: bind role "
                f"{role_name(wanted.network)} to it first",
                wanted.line,
                waits=True,
            )
        for address in allocated:
            subnet = network.subnet(address.version)
            if subnet is None or address.ip not in subnet:
                self.problems.add(
                    f"{device.name}: {address.ip}, allocated on network {network.name}, is outside its subnet {subnet}",
                    wanted.line,
                )
            yield address
        if device.kind is Kind.VLAN:
            self._check_network_vlan(device, network, wanted.line)

    def _check_network_vlan(self, device: Device, network: Network, line: int | None) -> None:
        if network.vlan is not None and network.vlan != device.vlan_id:
            self.problems.add(
                f"{device.name} has VLAN {device.vlan_id}, but network {network.name} is VLAN {network.vlan}", line
            )

    def _check_addresses(self, resolved: tuple[ResolvedDevice, ...]) -> None:
        seen: dict[object, str] = {}
        for device in resolved:
            for address in device.addresses:
                if address.ip in seen:
                    self.problems.add(
                        f"{device.name}: {address.ip} is there twice, first on {seen[address.ip]}", device.declared.line
                    )
                seen.setdefault(address.ip, device.name)

    def _check_mtu(self, device: Device) -> None:
        """Refuse an MTU that the device below cannot carry. A bond gives its members its own."""
        if device.mtu is None:
            return
        for reference in device.below:
            below = self.devices[reference.name]
            carried = below.mtu or (device.mtu if device.kind is Kind.BOND else USUAL_MTU)
            if device.mtu > carried:
                self.problems.add(
                    f"{device.name}: its MTU {device.mtu} is above {carried}, that of {below.name} below it",
                    device.line,
                )

    def _check_vlans(self) -> None:
        seen: dict[tuple[str, int], str] = {}
        for device in self.devices.values():
            if device.parent is None:
                continue
            key = (device.parent.name, device.vlan_id)
            if key in seen:
                self.problems.add(
                    f"{device.name}: VLAN {device.vlan_id} on {key[0]} is there already as {seen[key]}", device.line
                )
            seen.setdefault(key, device.name)

    def _check_reachable(self, resolved: tuple[ResolvedDevice, ...], macs: Mapping[str, str]) -> None:
        """Refuse a network by which the server could not reach the node any more.

        A link that the document does not name keeps DHCP, as the image has it.
        """
        if any(device.declared.dhcp4 or device.declared.dhcp6 for device in resolved):
            return
        if any(link.mac not in macs.values() for link in self.links):
            return
        admin = [name for name, network in self.request.networks.items() if network.category is Category.ADMIN]
        own = {address for name in admin for address in self.request.addresses.get(name, ())}
        if not any(own & set(device.addresses) for device in resolved):
            name = admin[0] if admin else "admin"
            self.problems.add(
                f"the server could not reach {self.request.node} any more: give a device dhcp4: true, or its address "
                f"on the admin network, {{network: {name}}}"
            )


def _is_in_loop(device: Device, devices: Mapping[str, Device]) -> bool:
    """Return whether a device can be come to again from itself."""
    seen: set[str] = set()
    ahead = [reference.name for reference in device.below]
    while ahead:
        name = ahead.pop()
        if name == device.name:
            return True
        if name in devices and name not in seen:
            seen.add(name)
            ahead += [reference.name for reference in devices[name].below]
    return False


def _mac_of(device: Device, devices: Mapping[str, Device], macs: Mapping[str, str]) -> str:
    """Return the MAC of a device.

    A bond or bridge has that of its primary or first member: DHCP gives the node's own address to that one, and it
    stays the same when the members come up in another order.
    """
    if device.kind is Kind.ETHERNET:
        return macs[device.name]
    if device.mac or not device.members:
        return device.mac
    member = devices[device.primary or device.members[0].name]
    return member.mac or _mac_of(member, devices, macs)
