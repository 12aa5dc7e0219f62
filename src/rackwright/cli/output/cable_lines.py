"""The network links of a node, a line each, with the switch port that the cable leads to, for `node show`.

Only people get these lines; programs get the node's discovery as it is. Machines report what they like, so nothing is
taken for granted: what does not look like a link is not shown as one.
"""

from collections.abc import Iterator, Mapping
from typing import Any

Row = Mapping[str, Any]


def with_links(node: Row) -> dict[str, Any]:
    """Return a node with a line for each link, instead of the parts of its discovery that the lines are made from."""
    discovery = _mapping(node.get("discovery"))
    lines = dict(_link_lines(discovery))
    if not lines:
        return {**node}
    others = {name: value for name, value in discovery.items() if name not in ("links", "lldp")}
    return {**node, **lines, "discovery": others}


def _link_lines(discovery: Row) -> Iterator[tuple[str, str]]:
    neighbours = _mapping(discovery.get("lldp")).items()
    cables = {link: cable for link, neighbour in neighbours if (cable := _describe_cable(_mapping(neighbour)))}
    reported = discovery.get("links")
    for link in reported if isinstance(reported, list) else ():
        name = _text(_mapping(link), "name") or _text(_mapping(link), "mac")
        if name:
            words = [_text(link, "mac"), *_link_state(link), cables.pop(name, "")]
            yield f"link {name}", ", ".join(filter(None, words))
    for name, cable in cables.items():
        yield f"link {name}", cable


def _link_state(link: Row) -> Iterator[str]:
    up, speed = link.get("up"), link.get("speed")
    if isinstance(up, bool):
        yield "up" if up else "down"
    if up is True and isinstance(speed, int) and speed > 0:
        yield f"{speed} Mbit/s"


def _describe_cable(neighbour: Row) -> str:
    """Return where a cable leads, in the words of a person who looks for it; empty if the neighbour did not say."""
    switch, port = _text(neighbour, "name") or _text(neighbour, "chassis"), _text(neighbour, "port")
    if not switch or not port:
        return ""
    details = [
        _text(neighbour, "port_description"),
        f"VLAN {neighbour['vlan']}" if isinstance(neighbour.get("vlan"), int) else "",
        f"managed at {_text(neighbour, 'management')}" if _text(neighbour, "management") else "",
    ]
    shown_details = ", ".join(filter(None, details))
    return f"connected to {switch} port {port}" + (f" ({shown_details})" if shown_details else "")


def _mapping(value: object) -> Row:
    return value if isinstance(value, dict) else {}


def _text(facts: Row, name: str) -> str:
    value = facts.get(name)
    return value if isinstance(value, str) else ""
