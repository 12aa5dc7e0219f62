"""The keywords of JSON Schema that have patterns, for validators of the library: searched as `patterns.py` does it.

Those of the library itself search by Python's module, which one pattern can hold up for years.
"""

from collections.abc import Iterator, Mapping
from typing import Protocol

from jsonschema.exceptions import ValidationError

from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.patterns import find_pattern_fault, is_found

SHOWN = 300
"""Characters of a text that a reason repeats."""
BY_PATTERN = "patternProperties"


class Validator(Protocol):
    """What is used of the validators of the library, whose own type knows only values that JSON can hold."""

    def descend(
        self, instance: object, schema: Json, path: str | None = None, schema_path: str | None = None
    ) -> Iterator[ValidationError]: ...

    def iter_errors(self, instance: object) -> Iterator[ValidationError]: ...

    def evolve(self, *, schema: JsonObject) -> "Validator": ...


def check_pattern(_: Validator, pattern: Json, instance: object, _schema: JsonObject) -> Iterator[ValidationError]:
    """The keyword `pattern`."""
    if isinstance(pattern, str) and isinstance(instance, str) and not is_found(pattern, instance):
        yield ValidationError(f"{instance[:SHOWN]!r} does not match {pattern!r}")


def check_pattern_properties(
    validator: Validator, patterns: Json, instance: object, _schema: JsonObject
) -> Iterator[ValidationError]:
    """The keyword `patternProperties`."""
    if not isinstance(instance, Mapping) or not isinstance(patterns, dict):
        return
    for pattern, schema in patterns.items():
        for key, value in instance.items():
            if is_found(pattern, key):
                yield from validator.descend(value, schema, path=key, schema_path=pattern)


def check_additional_properties(
    validator: Validator, others: Json, instance: object, schema: JsonObject
) -> Iterator[ValidationError]:
    """The keyword `additionalProperties`: what is said of all that neither name nor pattern of the schema is for."""
    if not isinstance(instance, Mapping):
        return
    named, patterns = schema.get("properties"), schema.get(BY_PATTERN)
    known = {*named} if isinstance(named, dict) else set()
    tried = [*patterns] if isinstance(patterns, dict) else []
    extras = [key for key in instance if key not in known and not any(is_found(pattern, key) for pattern in tried)]
    if isinstance(others, dict):
        for key in extras:
            yield from validator.descend(instance[key], others, path=key)
    elif others is False and extras:
        listed = ", ".join(map(repr, sorted(extras)))[:SHOWN]
        verb = "was" if len(extras) == 1 else "were"
        yield ValidationError(f"Additional properties are not allowed ({listed} {verb} unexpected)")


PATTERN_KEYWORDS = {
    "pattern": check_pattern,
    BY_PATTERN: check_pattern_properties,
    "additionalProperties": check_additional_properties,
}


def find_faulty_pattern(key: str, value: Json) -> tuple[str, str] | None:
    """Return the first pattern under a key of a schema that cannot be used, and why; None: there is none."""
    listed = [value] if key == "pattern" else [*value] if isinstance(value, dict) and key == BY_PATTERN else []
    for pattern in listed:
        fault = find_pattern_fault(pattern) if isinstance(pattern, str) else None
        if fault is not None:
            return str(pattern), fault
    return None
