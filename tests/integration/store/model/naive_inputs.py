"""What a noderole is handed when it runs, told slowly. Imports nothing of the product."""

from dataclasses import replace
from typing import Any

from tests.integration.store.model.naive_graph import PROPOSED, Attrib, Key, NaiveGraph, Node

Json = Any


def staged(world: NaiveGraph, key: Key, *, wall: bool) -> dict[str, Json]:
    """Wanted attribs of the node < of linked parents < data of ancestors on the node < own defaults and data."""
    one, node = world.noderoles[key], world.nodes[key[0]]
    result: dict[str, Json] = {}
    for want in world.roles[one.role].wants:
        if world.attribs[want].role is None:
            _put(result, world.attribs[want], over(node.discovery, node.hint))
    for want, source in one.links.items():
        if want in world.roles[one.role].wants:
            _put(result, world.attribs[want], own_data(world, source, wall=True))
    for above in sorted(world.ancestors(key), key=world.rank):
        if above[0] == one.node:
            result = over(result, own_data(world, above, wall=True))
    for attrib in world.attribs.values():
        if attrib.role is not None and attrib.role in {one.role, *world.roles[one.role].provides}:
            _put(result, attrib, {})
    result = over(result, own_data(world, key, wall=wall))
    result = over(result, {"hints": _wanted_hints(world, one.role, node.hint), "quirks": []})
    if world.flag(one.role, "cluster"):
        result = over(result, {"cluster": {"members": members(world, key)}})
    return result


def _wanted_hints(world: NaiveGraph, role: str, hint: dict[str, Json]) -> dict[str, Json]:
    """What people wish of the node, as far as the role wants it."""
    result: dict[str, Json] = {}
    for want in world.roles[role].wants:
        if world.attribs[want].role is None:
            _put(result, replace(world.attribs[want], has_default=False), hint)
    return result


def own_data(world: NaiveGraph, key: Key, *, wall: bool) -> dict[str, Json]:
    one = world.noderoles[key]
    data = over(world.roles[one.role].template, world.role_data(one.deployment, one.role))
    data = over(over(data, one.wall if wall else {}), world.user_data(key))
    return dict(data)


def members(world: NaiveGraph, key: Key) -> list[Json]:
    one = world.noderoles[key]
    nodes = sorted(
        other.node
        for other in world.noderoles.values()
        if other.role == one.role and other.deployment == one.deployment
        if other.state != PROPOSED and not other.doomed
    )
    return [{"node": node, "address": address_of(world.nodes[node])} for node in nodes]


def address_of(node: Node) -> Json:
    """A person's word counts more than the machine's."""
    return (node.discovery | node.hint).get("address")


def over(low: Json, high: Json) -> Json:
    """`high` laid over `low`, maps into each other."""
    if not (isinstance(low, dict) and isinstance(high, dict)):
        return high
    return {k: over(low[k], high[k]) if k in low and k in high else (high | low)[k] for k in low.keys() | high.keys()}


def _put(result: dict[str, Json], attrib: Attrib, values: dict[str, Json]) -> None:
    """The attrib's value among `values`, or its default, laid over `result` at its place."""
    found: Json = values
    for step in attrib.map:
        if not (isinstance(found, dict) and step in found):
            if not attrib.has_default:
                return
            found = attrib.default
            break
        found = found[step]
    for step in reversed(attrib.map):
        found = {step: found}
    merged = over(result, found)
    result.clear()
    result.update(merged)
