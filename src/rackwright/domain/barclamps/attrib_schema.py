"""Checks of the JSON Schemas (2020-12) of attribs, and of values against them.

References are refused: they may loop, and a remote one would make validation fetch a URL. So every check ends, and
nothing leaves the process. Patterns are searched by RE2, which none of them can hold up.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.validators import extend
from referencing import Registry

from rackwright.domain.barclamps.value_errors import schema_words
from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.json_patterns import BY_PATTERN, PATTERN_KEYWORDS, find_faulty_pattern
from rackwright.domain.patterns import TooMuchWork, bounded_searches

DIALECT = "https://json-schema.org/draft/2020-12/schema"
UNEVALUATED = "unevaluatedProperties"
"""A keyword for which the library searches the patterns of others by itself."""
# An empty registry: jsonschema's own would go to the network for a schema it does not know.
_EMPTY_REGISTRY: Registry[bool | Mapping[str, Json]] = Registry()
_META = Draft202012Validator(Draft202012Validator.META_SCHEMA, format_checker=Draft202012Validator.FORMAT_CHECKER)


@dataclass(frozen=True)
class SchemaFault:
    """What is wrong with a schema, or with a value that does not fit its schema."""

    path: tuple[str | int, ...]
    """Where the fault is in the document that was checked."""
    reason: str
    """What is wrong, in the words of the library and with the value: for the author of the file that has the value."""
    words: str = ""
    """What the value must be, without the value: for everybody."""
    value: object = None


def find_schema_fault(schema: JsonObject) -> SchemaFault | None:
    """Return why the schema cannot be used; None if it can."""
    return _find_unusable(schema) or _find_meta_fault(json.dumps(schema, sort_keys=True))


@lru_cache(maxsize=4096)
def _find_meta_fault(canonical: str) -> SchemaFault | None:
    """Return why the text is no JSON Schema; None if it is one.

    Cached by text: most attribs have one of a few schemas, and the check takes half a millisecond.
    """
    try:
        return _as_fault(best_match(_META.iter_errors(json.loads(canonical))))
    except (OverflowError, RecursionError) as error:
        # Python's regular expressions give up like this on some patterns instead of calling them wrong.
        return SchemaFault((), f"one of its patterns is too large ({error})")


def find_value_fault(schema: JsonObject, value: Json) -> SchemaFault | None:
    """Return why the value does not fit a schema that has no fault; None if it fits."""
    try:
        with bounded_searches():
            return _as_fault(best_match(_Validator(schema, registry=_EMPTY_REGISTRY).iter_errors(value)))
    except TooMuchWork as error:
        return SchemaFault((), str(error), str(error), value)


def _as_fault(error: ValidationError | None) -> SchemaFault | None:
    if error is None:
        return None
    reason = error.message if len(error.message) <= 200 else error.message[:197] + "..."
    words = schema_words(str(error.validator), error.validator_value, error.instance)
    return SchemaFault(tuple(error.absolute_path), reason, words, error.instance)


def _find_unusable(schema: JsonObject) -> SchemaFault | None:
    """Return a fault for the first reference or unusable pattern in the schema; None if it has none."""
    has_unevaluated = has_patterns = False
    stack: list[tuple[tuple[str | int, ...], Json]] = [((), schema)]
    while stack:
        path, value = stack.pop()
        if isinstance(value, list):
            stack.extend(((*path, index), child) for index, child in enumerate(value))
        elif isinstance(value, dict):
            for key, child in value.items():
                if key == "$schema" and child == DIALECT:
                    continue
                if key.startswith("$") and key != "$comment":
                    return SchemaFault((*path, key), f"{key} is not allowed; write out what it would refer to")
                if faulty := find_faulty_pattern(key, child):
                    pattern, reason = faulty
                    return SchemaFault((*path, key), f"the pattern {pattern[:80]!r} cannot be used: {reason}")
                has_unevaluated |= key == UNEVALUATED
                has_patterns |= key == BY_PATTERN
                stack.append(((*path, key), child))
    if has_unevaluated and has_patterns:
        return SchemaFault((), f"{UNEVALUATED} is not taken beside {BY_PATTERN}; write additionalProperties")
    return None


_extend = cast("Callable[..., type[Draft202012Validator]]", extend)
_Validator = _extend(Draft202012Validator, PATTERN_KEYWORDS)
