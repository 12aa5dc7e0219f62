"""Attribute values: where they lie, how layers of them merge, and what a noderole is handed when it runs.

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
    """There is no value, which is not the same as null."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING


def merge(*layers: JsonObject) -> JsonObject:
    """One map of all layers; where two have a value at one place, the later one's counts."""
    merged: JsonObject = {}
    for layer in layers:
        for key, value in layer.items():
            before = merged.get(key)
            merged[key] = merge(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return merged


def read(values: JsonObject, path: Sequence[str]) -> Json | Missing:
    """The value at `path`, or MISSING."""
    at: Json = values
    for key in path:
        if not isinstance(at, dict) or key not in at:
            return MISSING
        at = at[key]
    return at


def nest(path: Sequence[str], value: Json) -> JsonObject:
    """A map that has just `value`, at `path`."""
    for key in reversed(path[1:]):
        value = {key: value}
    return {path[0]: value}


def without(values: JsonObject, path: Sequence[str]) -> JsonObject:
    """A copy with nothing at `path`, and no empty maps left behind on the way there."""
    head, rest = path[0], path[1:]
    copy = dict(values)
    inner = copy.get(head)
    if rest and isinstance(inner, dict):
        copy[head] = inner = without(inner, rest)
        if not inner:
            del copy[head]
    elif not rest:
        copy.pop(head, None)
    return copy


def check_value(attrib: Attrib, value: Json) -> None:
    """Refuse a value that a person may not set: 422 with a pointer to what is wrong in it."""
    if attrib.schema is None:
        raise Invalid(f"Attrib {attrib.name!r} has no schema, so it is read-only for people.")
    # Imported here: it takes a third of a second, and the processes that run hooks need only what is above.
    from rackwright.domain.barclamps.attrib_schema import misfit

    fault = misfit(attrib.schema, value)
    if fault is not None:
        within = f": {'/'.join(map(str, fault.path))}" if fault.path else ""
        value_is = (
            "" if attrib.secret or not isinstance(fault.value, str | int | float) else f", not {fault.value!r:.60}"
        )
        raise Invalid(f"Attrib {attrib.name!r}{within} {fault.words}{value_is}.", json_pointer(fault.path))


def check_data(catalogue: Catalogue, role: str, values: JsonObject) -> None:
    """Refuse data of a role that says something an attrib it answers for may not be: its own, or a provided role's.

    The pointer leads into `values`. What lies at no attrib's place is the role's own business.
    """
    for attrib in catalogue.attribs_of(role):
        value = read(values, attrib.map)
        if value is MISSING or (attrib.secret and is_sealed(value)):
            continue
        try:
            check_value(attrib, value)
        except Invalid as wrong:
            raise Invalid(wrong.message, json_pointer(attrib.map) + wrong.pointer) from None


@dataclass(frozen=True)
class Layers:
    """What the data of one noderole is made of, lowest first."""

    template: JsonObject = field(default_factory=dict)
    deployment_wall: JsonObject = field(default_factory=dict)
    committed: JsonObject = field(default_factory=dict)
    wall: JsonObject = field(default_factory=dict)
    sysdata: JsonObject = field(default_factory=dict)
    user: JsonObject = field(default_factory=dict)

    def merged(self) -> JsonObject:
        return merge(self.template, self.deployment_wall, self.committed, self.wall, self.sysdata, self.user)

    def without_wall(self) -> JsonObject:
        """What goes into the hash: a run that only repeats what it wrote itself is no change."""
        return merge(self.template, self.deployment_wall, self.committed, self.sysdata, self.user)


@dataclass(frozen=True)
class Source:
    """Something else a noderole takes values from: the role it is of, and its merged data."""

    role: str
    values: JsonObject


@dataclass(frozen=True)
class Surroundings:
    """All that a noderole's staged input is made of, besides its own layers."""

    discovery: JsonObject = field(default_factory=dict)
    hint: JsonObject = field(default_factory=dict)
    quirks: tuple[str, ...] = ()
    links: tuple[tuple[str, Source], ...] = ()
    """Each wanted attrib of a parent, and that parent."""
    ancestors: tuple[Source, ...] = ()
    """Ancestors on the same node, lowest (cohort, id) first."""
    members: tuple[JsonObject, ...] = ()
    """The members of its cluster (node, address), if its role is one."""


@dataclass(frozen=True)
class Staged:
    """The input of one run."""

    input: JsonObject
    hash: bytes


def attrib_value(attrib: Attrib, values: JsonObject) -> Json | Missing:
    """The value at the attrib's place, else its default, else MISSING."""
    found = read(values, attrib.map)
    if found is MISSING and attrib.has_default:
        return attrib.default
    return found


def stage(catalogue: Catalogue, role: str, own: Layers, around: Surroundings) -> Staged:
    """What a noderole is handed: nothing of another node that it did not want."""
    full = _input(catalogue, role, own.merged(), around)
    hashed = _input(catalogue, role, own.without_wall(), around) if own.wall else full
    return Staged(full, digest(hashed))


def _input(catalogue: Catalogue, role: str, own: JsonObject, around: Surroundings) -> JsonObject:
    node = merge(around.discovery, around.hint)
    wanted = [catalogue.attribs[name] for name in catalogue.role(role).wants if name in catalogue.attribs]
    of_node = [attrib for attrib in wanted if attrib.role is None]
    extras: JsonObject = {"hints": _parts_at(around.hint, of_node), "quirks": list(around.quirks)}
    if around.members:
        extras["cluster"] = {"members": list(around.members)}
    return merge(
        *_at_their_places((attrib, node) for attrib in of_node),
        *_at_their_places((catalogue.attribs[name], source.values) for name, source in around.links),
        *(source.values for source in around.ancestors),
        *_at_their_places((attrib, {}) for attrib in catalogue.attribs_of(role)),
        own,
        extras,
    )


def _at_their_places(pairs: Iterable[tuple[Attrib, JsonObject]]) -> Iterable[JsonObject]:
    for attrib, values in pairs:
        value = attrib_value(attrib, values)
        if value is not MISSING:
            yield nest(attrib.map, value)


def _parts_at(values: JsonObject, attribs: Iterable[Attrib]) -> JsonObject:
    """Of the values those that lie at the place of one of these attribs, and nothing else."""
    found = ((attrib.map, read(values, attrib.map)) for attrib in attribs)
    return merge(*(nest(path, value) for path, value in found if value is not MISSING))


def digest(value: Json) -> bytes:
    """The hash of a JSON value, the same for any order of its keys."""
    canonical = json.dumps(fingerprinted(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).digest()
