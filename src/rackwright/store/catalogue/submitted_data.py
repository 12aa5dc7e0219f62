"""What people hand in as data: checked against the attribs it answers for, its secrets kept or sealed."""

import json
from collections.abc import Iterable

from rackwright.domain.attributes import MISSING, check_value, merge, nest_at_path, read_at_path
from rackwright.domain.catalogue import Attrib, Json, JsonObject
from rackwright.domain.errors import Invalid
from rackwright.domain.sealed import MASK, is_sealed
from rackwright.store.db.vault import Vault

LARGEST = 256 * 1024
"""Bytes of JSON that people may say of one role, in one place."""


def checked_edit(
    vault: Vault, attribs: Iterable[Attrib], old: JsonObject, new: JsonObject, largest: int = LARGEST
) -> JsonObject:
    """`new` as it may be stored in place of `old`.

    What did not change is not judged again. A secret that comes back as people see it, masked, stays what it was; one
    in the clear is sealed; a sealed value that was not there before was made up.
    """
    _check_size(old, new, largest)
    listed = tuple(attribs)
    for attrib in listed:
        value, before = read_at_path(new, attrib.map), read_at_path(old, attrib.map)
        if value is MISSING or value == before:
            continue
        if attrib.secret and value == MASK and before is not MISSING:
            new = merge(new, nest_at_path(attrib.map, before))
            continue
        try:
            check_value(attrib, value)
        except Invalid as wrong:
            raise Invalid(wrong.message, "".join(f"/{key}" for key in attrib.map) + wrong.pointer) from None
    new = vault.seal_secrets(listed, new)
    known = {str(one) for one in _sealed(old)}
    for one in _sealed(new):
        if str(one) not in known:
            vault.check_sealed(one)
    return new


def _check_size(old: JsonObject, new: JsonObject, largest: int) -> None:
    """Refuse what has grown too large. A request is bounded, but many of them add up; and lists show a thousand."""
    size = len(json.dumps(new))
    if size > largest and size > len(json.dumps(old)):
        raise Invalid(f"All of it together would have {size} bytes as JSON; it may have {largest}.")


def _sealed(value: Json) -> Iterable[Json]:
    if is_sealed(value):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _sealed(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _sealed(inner)
