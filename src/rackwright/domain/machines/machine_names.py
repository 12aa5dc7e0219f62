"""Names for discovered machines, from a pattern that an administrator sets: `{serial}.rack.example`.

The values in the pattern come from the machine itself, or from its switch, so they are cleaned to what a DNS label can
hold.
"""

import re
from string import Formatter

from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.errors import Invalid
from rackwright.domain.names import check_mac, check_node_name

DEFAULT = "d{mac}.discovered.internal"
FIELDS = ("mac", "uuid", "serial", "rack", "port")
LONGEST_VALUE = 32
"""Characters of a field: a label has 63, and a pattern may put several fields into one label."""

_NOT_IN_LABELS = re.compile(r"[^a-z0-9]+")


def check_pattern(pattern: str) -> str:
    """Refuse a pattern that has no field, has an unknown one, or makes no valid node names."""
    try:
        parts = list(Formatter().parse(pattern))
    except ValueError as error:
        raise Invalid(f"{pattern[:80]!r} is no pattern of names: {error}.") from None
    named = [field for _, field, _, _ in parts if field is not None]
    if not named or any(field not in FIELDS for field in named) or any(spec or how for _, _, spec, how in parts):
        listed = ", ".join(f"{{{field}}}" for field in FIELDS)
        raise Invalid(f"A pattern of names has at least one of {listed}, as they stand here; {pattern[:80]!r} has not.")
    check_node_name(pattern.format_map(dict.fromkeys(FIELDS, "x")))
    return pattern


def machine_names(pattern: str, mac: str, uuid: str | None, inventory: JsonObject) -> list[str]:
    """Return the names that a new machine could have, the best first: the last is free unless its MAC is known.

    A machine that does not report a field of the pattern is named by its MAC.
    """
    bare_mac = check_mac(mac).replace(":", "")
    default_name = DEFAULT.format(mac=bare_mac)
    values = {
        "mac": bare_mac,
        "uuid": _cleaned(uuid),
        "serial": _cleaned(inventory.get("serial")),
        **_switch_and_port(inventory),
    }
    fields = [field for _, field, _, _ in Formatter().parse(pattern) if field is not None]
    if not all(values[field] for field in fields):
        return [default_name]
    host, _, domain = pattern.format_map(values).partition(".")
    names = []
    for name in (f"{host}.{domain}", f"{host}-{bare_mac}.{domain}"):
        try:
            names.append(check_node_name(name))
        except Invalid:  # too long, or made invalid by the pattern's own words: the default name is always valid
            continue
    return [*dict.fromkeys([*names, default_name])]


def _switch_and_port(inventory: JsonObject) -> dict[str, str]:
    """Return the switch and its port that the first link with a neighbour is plugged in to."""
    neighbours = inventory.get("lldp")
    for _, neighbour in sorted(neighbours.items()) if isinstance(neighbours, dict) else ():
        if isinstance(neighbour, dict):
            switch = neighbour.get("name") or neighbour.get("chassis")
            return {"rack": _cleaned(switch), "port": _cleaned(neighbour.get("port"))}
    return {"rack": "", "port": ""}


def _cleaned(value: Json) -> str:
    if not isinstance(value, str):
        return ""
    return _NOT_IN_LABELS.sub("-", value[:256].lower()).strip("-")[:LONGEST_VALUE].strip("-")
