"""Checks of the JSON Schemas (2020-12) of attribs, and of values against them.

References are refused: they may loop, and a remote one would make validation fetch a URL. So every check ends, and
nothing leaves the process. Patterns that could hold it up are refused, and others tried on texts of a bounded length.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.validators import extend
from referencing import Registry

from rackwright.domain.barclamps.value_errors import schema_words
from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.patterns import find_pattern_fault, longest_text

DIALECT = "https://json-schema.org/draft/2020-12/schema"
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
    return _as_fault(best_match(_Validator(schema, registry=_EMPTY_REGISTRY).iter_errors(value)))


def _as_fault(error: ValidationError | None) -> SchemaFault | None:
    if error is None:
        return None
    reason = error.message if len(error.message) <= 200 else error.message[:197] + "..."
    words = schema_words(str(error.validator), error.validator_value, error.instance)
    return SchemaFault(tuple(error.absolute_path), reason, words, error.instance)


def _find_unusable(schema: JsonObject) -> SchemaFault | None:
    """Return a fault for the first reference or slow pattern in the schema; None if it has none."""
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
                if slow := _find_slow_pattern(key, child):
                    return SchemaFault((*path, key), f"this pattern could take very long: {slow}")
                stack.append(((*path, key), child))
    return None


def _find_slow_pattern(key: str, value: Json) -> str | None:
    patterns = [value] if key == "pattern" else list(value) if isinstance(value, dict) and key == _BY_PATTERN else []
    return next(filter(None, (find_pattern_fault(text) for text in patterns if isinstance(text, str))), None)


_BY_PATTERN = "patternProperties"


def _match(_: object, pattern: str, instance: object, _schema: object) -> Iterator[ValidationError]:
    """As the library does it, on texts of a bounded length."""
    if not isinstance(instance, str):
        return
    if len(instance) > longest_text(pattern):
        yield ValidationError(f"{instance[:40]!r}... has more characters than its pattern is tried on")
    elif not re.search(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


_extend = cast("Callable[..., type[Draft202012Validator]]", extend)
_Validator = _extend(Draft202012Validator, {"pattern": _match})
