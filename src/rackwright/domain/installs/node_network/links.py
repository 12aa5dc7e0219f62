"""The links of a machine as discovery reported them, and which of them an ethernet means.

A machine says all of this of itself: what is no link with a proper name and MAC is left out.
"""

from dataclasses import dataclass

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.installs.documents import BadValue
from rackwright.domain.installs.node_network.devices import LinkMatch
from rackwright.domain.installs.node_network.values import take_mac, take_name

MOST_LINKS = 64


@dataclass(frozen=True)
class Link:
    """A network interface of the machine, and what is at the other end of its cable."""

    name: str
    mac: str
    switch_names: frozenset[str] = frozenset()
    """The name and the chassis of the neighbour, whichever it told."""
    port_names: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.name} ({self.mac})"


def read_links(facts: JsonObject) -> tuple[Link, ...]:
    """Return the links that a machine has, in its order, each name and each MAC once."""
    reported, heard = facts.get("links"), facts.get("lldp")
    neighbours = heard if isinstance(heard, dict) else {}
    links: dict[str, Link] = {}
    for entry in reported[:MOST_LINKS] if isinstance(reported, list) else ():
        if not isinstance(entry, dict):
            continue
        try:
            name, mac = take_name(entry.get("name")), take_mac(entry.get("mac"))
        except BadValue:
            continue
        if name not in links and all(link.mac != mac for link in links.values()):
            neighbour = neighbours.get(name)
            told = neighbour if isinstance(neighbour, dict) else {}
            links[name] = Link(name, mac, _texts(told, "name", "chassis"), _texts(told, "port", "port_description"))
    return tuple(links.values())


def _texts(told: JsonObject, *keys: str) -> frozenset[str]:
    return frozenset(value for value in map(told.get, keys) if isinstance(value, str) and value)


def find_link(links: tuple[Link, ...], match: LinkMatch) -> Link | None:
    """Return the link that is meant; None if there is no such one."""
    if match.mac:
        return next((link for link in links if link.mac == match.mac), None)
    if match.switch:
        at_port = (link for link in links if match.switch in link.switch_names and match.port in link.port_names)
        return next(at_port, None)
    return next((link for link in links if link.name == match.name), None)


def describe_match(match: LinkMatch) -> str:
    if match.switch:
        return f"no link whose neighbour is port {match.port} of {match.switch}"
    return f"no link {match.mac or match.name}"
