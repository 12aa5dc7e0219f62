"""The links of a node a line each, with where the cable leads: what `node show` tells people. Programs get it as it is.

Machines report what they like, so nothing is taken for granted: what does not look like a link is not made into one.
"""

from collections.abc import Iterator, Mapping
from typing import Any

Row = Mapping[str, Any]


def with_links(node: Row) -> dict[str, Any]:
    """A node to be shown: the links instead of the parts of its discovery that they are told from."""
    discovery = _facts(node.get("discovery"))
    lines = dict(_lines(discovery))
    if not lines:
        return {**node}
    others = {name: value for name, value in discovery.items() if name not in ("links", "lldp")}
    return {**node, **lines, "discovery": others}


def _lines(discovery: Row) -> Iterator[tuple[str, str]]:
    heard = {link: where for link, said in _facts(discovery.get("lldp")).items() if (where := _where(_facts(said)))}
    reported = discovery.get("links")
    for link in reported if isinstance(reported, list) else ():
        name = _text(_facts(link), "name") or _text(_facts(link), "mac")
        if name:
            words = [_text(link, "mac"), *_state(link), heard.pop(name, "")]
            yield f"link {name}", ", ".join(filter(None, words))
    for name, where in heard.items():
        yield f"link {name}", where


def _state(link: Row) -> Iterator[str]:
    up, speed = link.get("up"), link.get("speed")
    if isinstance(up, bool):
        yield "up" if up else "down"
    if up is True and isinstance(speed, int) and speed > 0:
        yield f"{speed} Mbit/s"


def _where(said: Row) -> str:
    """Of a neighbour, in the words of somebody who looks for the cable."""
    who, port = _text(said, "name") or _text(said, "chassis"), _text(said, "port")
    if not who or not port:
        return ""
    more = [
        _text(said, "port_description"),
        f"VLAN {said['vlan']}" if isinstance(said.get("vlan"), int) else "",
        f"managed at {_text(said, 'management')}" if _text(said, "management") else "",
    ]
    told = ", ".join(filter(None, more))
    return f"connected to {who} port {port}" + (f" ({told})" if told else "")


def _facts(value: object) -> Row:
    return value if isinstance(value, dict) else {}


def _text(facts: Row, name: str) -> str:
    value = facts.get(name)
    return value if isinstance(value, str) else ""
