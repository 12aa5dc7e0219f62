"""The inputs that a noderole is handed when it runs, computed simply and slowly. Imports nothing of the product."""

from dataclasses import replace
from typing import Any

from tests.integration.store.model.naive_graph import PROPOSED, Attrib, Key, NaiveGraph, Node

Json = Any


def staged(world: NaiveGraph, key: Key, *, wall: bool) -> dict[str, Json]:
    """Return wanted attribs of the node < of linked parents < data of ancestors on the node < own defaults and data."""
    noderole, node = world.noderoles[key], world.nodes[key[0]]
    result: dict[str, Json] = {}
    for want in world.roles[noderole.role].wants:
        if world.attribs[want].role is None:
            _put(result, world.attribs[want], over(node.discovery, node.hint))
    for want, source in noderole.links.items():
        if want in world.roles[noderole.role].wants:
            _put(result, world.attribs[want], own_data(world, source, wall=True))
    for above in sorted(world.ancestors(key), key=world.rank):
        if above[0] == noderole.node:
            result = over(result, own_data(world, above, wall=True))
    for attrib in world.attribs.values():
        if attrib.role is not None and attrib.role in {noderole.role, *world.roles[noderole.role].provides}:
            _put(result, attrib, {})
    result = over(result, own_data(world, key, wall=wall))
    result = over(result, {"hints": _wanted_hints(world, noderole.role, node.hint), "quirks": []})
    if world.flag(noderole.role, "cluster"):
        result = over(result, {"cluster": {"members": members(world, key)}})
    return result


def _wanted_hints(world: NaiveGraph, role: str, hint: dict[str, Json]) -> dict[str, Json]:
    """Return the hints of the node, as far as the role wants them."""
    result: dict[str, Json] = {}
    for want in world.roles[role].wants:
        if world.attribs[want].role is None:
            _put(result, replace(world.attribs[want], has_default=False), hint)
    return result


def own_data(world: NaiveGraph, key: Key, *, wall: bool) -> dict[str, Json]:
    noderole = world.noderoles[key]
    data = over(world.roles[noderole.role].template, world.role_data(noderole.deployment, noderole.role))
    data = over(over(data, noderole.wall if wall else {}), world.user_data(key))
    return dict(data)


def members(world: NaiveGraph, key: Key) -> list[Json]:
    noderole = world.noderoles[key]
    nodes = sorted(
        other.node
        for other in world.noderoles.values()
        if other.role == noderole.role and other.deployment == noderole.deployment
        if other.state != PROPOSED and not other.doomed
    )
    return [{"node": node, "address": address_of(world.nodes[node])} for node in nodes]


def address_of(node: Node) -> Json:
    """Return the node's address: what a person set counts more than what the machine says."""
    return (node.discovery | node.hint).get("address")


def over(low: Json, high: Json) -> Json:
    """Return `high` laid over `low`, with maps merged."""
    if not (isinstance(low, dict) and isinstance(high, dict)):
        return high
    return {k: over(low[k], high[k]) if k in low and k in high else (high | low)[k] for k in low.keys() | high.keys()}


def _put(result: dict[str, Json], attrib: Attrib, values: dict[str, Json]) -> None:
    """Lay the attrib's value among `values`, or its default, over `result` in its place."""
    value: Json = values
    for step in attrib.map:
        if not (isinstance(value, dict) and step in value):
            if not attrib.has_default:
                return
            value = attrib.default
            break
        value = value[step]
    for step in reversed(attrib.map):
        value = {step: value}
    merged = over(result, value)
    result.clear()
    result.update(merged)
