"""JSON Schema (2020-12) as attribs use it: is a schema one that can be used, and does a value fit it.

References are refused: they may loop, and a remote one would make validation fetch a URL. So every check ends, and
nothing leaves the process.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match
from referencing import Registry

from rackwright.domain.barclamps.value_errors import schema_words
from rackwright.domain.catalogue import Json, JsonObject

DIALECT = "https://json-schema.org/draft/2020-12/schema"
# An empty registry: jsonschema's own would go to the network for a schema it does not know.
_NOTHING_ELSE: Registry[bool | Mapping[str, Json]] = Registry()
_META = Draft202012Validator(Draft202012Validator.META_SCHEMA, format_checker=Draft202012Validator.FORMAT_CHECKER)


@dataclass(frozen=True)
class Fault:
    path: tuple[str | int, ...]
    """Where in the document that was checked."""
    reason: str
    """In the words of the library, with the value: for who wrote the file that it is in."""
    words: str = ""
    """What the value must be, without the value: for everybody."""
    value: object = None


def schema_fault(schema: JsonObject) -> Fault | None:
    """Why the schema cannot be used; None if it can."""
    return _reference(schema) or _schema_fault(json.dumps(schema, sort_keys=True))


@lru_cache(maxsize=4096)
def _schema_fault(canonical: str) -> Fault | None:
    """Cached by text: most attribs have one of a few schemas, and the check takes half a millisecond."""
    try:
        return _first(best_match(_META.iter_errors(json.loads(canonical))))
    except (OverflowError, RecursionError) as error:
        # Python's regular expressions give up like this on some patterns instead of calling them wrong.
        return Fault((), f"one of its patterns is too large ({error})")


def misfit(schema: JsonObject, value: Json) -> Fault | None:
    """Why the value does not fit a schema that has no fault; None if it fits."""
    return _first(best_match(Draft202012Validator(schema, registry=_NOTHING_ELSE).iter_errors(value)))


def _first(error: ValidationError | None) -> Fault | None:
    if error is None:
        return None
    reason = error.message if len(error.message) <= 200 else error.message[:197] + "..."
    words = schema_words(str(error.validator), error.validator_value, error.instance)
    return Fault(tuple(error.absolute_path), reason, words, error.instance)


def _reference(schema: JsonObject) -> Fault | None:
    stack: list[tuple[tuple[str | int, ...], Json]] = [((), schema)]
    while stack:
        path, here = stack.pop()
        if isinstance(here, list):
            stack.extend(((*path, index), child) for index, child in enumerate(here))
        elif isinstance(here, dict):
            for key, child in here.items():
                if key == "$schema" and child == DIALECT:
                    continue
                if key.startswith("$") and key != "$comment":
                    return Fault((*path, key), f"{key} is not allowed; write out what it would refer to")
                stack.append(((*path, key), child))
    return None
