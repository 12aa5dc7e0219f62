"""Attribute values: their paths, how layers of values merge, and the input that a noderole gets for a run.

Later layers win and maps merge deeply. Values are never rendered as templates.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from rackwright.domain.barclamps.value_errors import json_pointer
from rackwright.domain.catalogue import Attrib, Catalogue, Json, JsonObject
from rackwright.domain.errors import Invalid
from rackwright.domain.sealed import fingerprinted, is_sealed


class Missing(Enum):
    """The absence of a value, which is not the same as null."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING


def merge(*layers: JsonObject) -> JsonObject:
    """Merge layers of values into one map; where two layers have a value at the same path, the later layer wins."""
    merged: JsonObject = {}
    for layer in layers:
        for key, value in layer.items():
            before = merged.get(key)
            merged[key] = merge(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return merged


def read_at_path(values: JsonObject, path: Sequence[str]) -> Json | Missing:
    """Return the value at `path`, or MISSING."""
    value: Json = values
    for key in path:
        if not isinstance(value, dict) or key not in value:
            return MISSING
        value = value[key]
    return value


def nest_at_path(path: Sequence[str], value: Json) -> JsonObject:
    """Return a map that has just `value`, at `path`."""
    for key in reversed(path[1:]):
        value = {key: value}
    return {path[0]: value}


def without_path(values: JsonObject, path: Sequence[str]) -> JsonObject:
    """Return a copy with nothing at `path`, and no empty maps left behind along it."""
    first_key, inner_path = path[0], path[1:]
    copy = dict(values)
    inner = copy.get(first_key)
    if inner_path and isinstance(inner, dict):
        copy[first_key] = inner = without_path(inner, inner_path)
        if not inner:
            del copy[first_key]
    elif not inner_path:
        copy.pop(first_key, None)
    return copy


def check_value(attrib: Attrib, value: Json) -> None:
    """Refuse a value that a person may not set: 422 with a pointer to what is wrong in it."""
    if attrib.schema is None:
        raise Invalid(f"Attrib {attrib.name!r} has no schema, so it is read-only for people.")
    # Imported here: it takes a third of a second, and the processes that run hooks need only what is above.
    from rackwright.domain.barclamps.attrib_schema import find_value_fault

    fault = find_value_fault(attrib.schema, value)
    if fault is not None:
        within = f": {'/'.join(map(str, fault.path))}" if fault.path else ""
        value_is = (
            "" if attrib.secret or not isinstance(fault.value, str | int | float) else f", not {fault.value!r:.60}"
        )
        raise Invalid(f"Attrib {attrib.name!r}{within} {fault.words}{value_is}.", json_pointer(fault.path))


def check_role_data(catalogue: Catalogue, role: str, values: JsonObject) -> None:
    """Refuse data of a role in which an attrib has a value that its schema forbids.

    The attribs are the role's own and those of the roles that it provides. The pointer of the error leads into
    `values`. Values at no attrib's path are not checked: they are the role's own business.
    """
    for attrib in catalogue.attribs_of(role):
        value = read_at_path(values, attrib.map)
        if value is MISSING or (attrib.secret and is_sealed(value)):
            continue
        try:
            check_value(attrib, value)
        except Invalid as error:
            raise Invalid(error.message, json_pointer(attrib.map) + error.pointer) from None


@dataclass(frozen=True)
class Layers:
    """The layers of data that one noderole has, lowest first."""

    template: JsonObject = field(default_factory=dict)
    deployment_wall: JsonObject = field(default_factory=dict)
    committed: JsonObject = field(default_factory=dict)
    wall: JsonObject = field(default_factory=dict)
    sysdata: JsonObject = field(default_factory=dict)
    user: JsonObject = field(default_factory=dict)

    def merged(self) -> JsonObject:
        return merge(self.template, self.deployment_wall, self.committed, self.wall, self.sysdata, self.user)

    def without_wall(self) -> JsonObject:
        """Return the data for the hash of the input: values that a run itself wrote are no change of its input."""
        return merge(self.template, self.deployment_wall, self.committed, self.sysdata, self.user)


@dataclass(frozen=True)
class Source:
    """Another noderole that values are taken from: its role and its merged data."""

    role: str
    values: JsonObject


@dataclass(frozen=True)
class Surroundings:
    """Everything besides its own layers that the input of a noderole is made of."""

    discovery: JsonObject = field(default_factory=dict)
    hint: JsonObject = field(default_factory=dict)
    quirks: tuple[str, ...] = ()
    links: tuple[tuple[str, Source], ...] = ()
    """The name of each attrib wanted from a parent, with that parent."""
    ancestors: tuple[Source, ...] = ()
    """Ancestors on the same node, lowest (cohort, id) first."""
    members: tuple[JsonObject, ...] = ()
    """The members of its cluster (node, address), if its role is one."""


@dataclass(frozen=True)
class StagedInput:
    """The input of one run, and its hash."""

    input: JsonObject
    hash: bytes


def attrib_value(attrib: Attrib, values: JsonObject) -> Json | Missing:
    """Return the value at the attrib's path, else its default, else MISSING."""
    value = read_at_path(values, attrib.map)
    if value is MISSING and attrib.has_default:
        return attrib.default
    return value


def stage_input(catalogue: Catalogue, role: str, own: Layers, around: Surroundings) -> StagedInput:
    """Return the input that a noderole of `role` gets for a run, with its hash.

    It holds nothing of another node that the role does not want.
    """
    full = _merge_input(catalogue, role, own.merged(), around)
    hashed = _merge_input(catalogue, role, own.without_wall(), around) if own.wall else full
    return StagedInput(full, digest(hashed))


def _merge_input(catalogue: Catalogue, role: str, own: JsonObject, around: Surroundings) -> JsonObject:
    node_values = merge(around.discovery, around.hint)
    wanted_attribs = [catalogue.attribs[name] for name in catalogue.role(role).wants if name in catalogue.attribs]
    node_attribs = [attrib for attrib in wanted_attribs if attrib.role is None]
    extras: JsonObject = {"hints": _values_of_attribs(around.hint, node_attribs), "quirks": list(around.quirks)}
    if around.members:
        extras["cluster"] = {"members": list(around.members)}
    return merge(
        *_at_their_paths((attrib, node_values) for attrib in node_attribs),
        *_at_their_paths((catalogue.attribs[name], source.values) for name, source in around.links),
        *(source.values for source in around.ancestors),
        *_at_their_paths((attrib, {}) for attrib in catalogue.attribs_of(role)),
        own,
        extras,
    )


def _at_their_paths(pairs: Iterable[tuple[Attrib, JsonObject]]) -> Iterable[JsonObject]:
    """Yield, for each attrib that has a value, a map with just that value at the attrib's path."""
    for attrib, values in pairs:
        value = attrib_value(attrib, values)
        if value is not MISSING:
            yield nest_at_path(attrib.map, value)


def _values_of_attribs(values: JsonObject, attribs: Iterable[Attrib]) -> JsonObject:
    """Return those of the values that are at the path of one of these attribs, and nothing else."""
    paths_and_values = ((attrib.map, read_at_path(values, attrib.map)) for attrib in attribs)
    return merge(*(nest_at_path(path, value) for path, value in paths_and_values if value is not MISSING))


def digest(value: Json) -> bytes:
    """Return the hash of a JSON value, which is the same for any order of its keys."""
    canonical = json.dumps(fingerprinted(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).digest()
