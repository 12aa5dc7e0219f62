"""Check the data that people submit against the schemas of its attribs, and keep or seal its secrets."""

import json
from collections.abc import Iterable

from rackwright.domain.attributes import MISSING, check_value, merge, nest_at_path, read_at_path
from rackwright.domain.catalogue import Attrib, Json, JsonObject
from rackwright.domain.errors import Invalid
from rackwright.domain.sealed import MASK, is_sealed
from rackwright.store.db.vault import Vault

MAX_DATA_SIZE = 256 * 1024
"""Bytes of JSON that people may submit for one role of a node or deployment."""


def prepare_submitted_data(
    vault: Vault, attribs: Iterable[Attrib], old: JsonObject, new: JsonObject, max_size: int = MAX_DATA_SIZE
) -> JsonObject:
    """Check the data `new`, and return it as it may be stored in place of `old`.

    Values that did not change are not checked again. A secret that comes back masked, as people see it, stays what it
    was; a secret in the clear is sealed; a sealed value that was not there before was made up, and is refused.
    """
    _check_size(old, new, max_size)
    attrib_list = tuple(attribs)
    for attrib in attrib_list:
        value, before = read_at_path(new, attrib.map), read_at_path(old, attrib.map)
        if value is MISSING or value == before:
            continue
        if attrib.secret and value == MASK and before is not MISSING:
            new = merge(new, nest_at_path(attrib.map, before))
            continue
        try:
            check_value(attrib, value)
        except Invalid as error:
            raise Invalid(error.message, "".join(f"/{key}" for key in attrib.map) + error.pointer) from None
    new = vault.seal_secrets(attrib_list, new)
    known = {str(sealed) for sealed in _sealed_values(old)}
    for sealed in _sealed_values(new):
        if str(sealed) not in known:
            vault.check_sealed(sealed)
    return new


def _check_size(old: JsonObject, new: JsonObject, max_size: int) -> None:
    """Refuse data that has grown too large. A request is bounded, but many requests add up; and a list shows a thousand
    objects."""
    size = len(json.dumps(new))
    if size > max_size and size > len(json.dumps(old)):
        raise Invalid(f"All of it together would have {size} bytes as JSON; it may have {max_size}.")


def _sealed_values(value: Json) -> Iterable[Json]:
    if is_sealed(value):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _sealed_values(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _sealed_values(inner)
