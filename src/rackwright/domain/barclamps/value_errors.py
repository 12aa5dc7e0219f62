"""Messages about wrong values, in words a person can act on: "must be at least 1".

The libraries that check values have messages of their own, each different, and some with the value in them, which may
be a secret or a megabyte. This is the one place that turns errors of pydantic and JSON Schema into a sentence whose
subject is the name of the value.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_TIME = "must be a time such as 2027-01-31T12:00:00Z"
_ADDRESS = "must be an IP address"
_NETWORK = "must be a network such as 10.0.0.0/24"
_UUID = "must be a UUID such as 123e4567-e89b-12d3-a456-426614174000"
_URL = "must be a URL such as https://rack.example"
_WHOLE, _NUMBER, _TRUTH = "must be a whole number", "must be a number", "must be true or false"
_TEXT, _LIST, _OBJECT = "must be text", "must be a list", "must be an object"

_LIMITS = {
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "multiple_of": "must be a multiple of {multiple_of}",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must match the pattern {pattern}",
    "finite_number": "must be a finite number",
    "int_parsing_size": "is too large a number",
    "int_from_float": "must be a whole number, without a fraction",
    "timezone_aware": "must be a time with its zone, such as 2027-01-31T12:00:00Z",
    "string_unicode": "must be text in UTF-8",
    "url_too_long": "must be a URL of at most {max_length} characters",
    "url_scheme": "must be a URL that begins with {expected_schemes}",
}
"""Words for a value of the right kind that is out of its limits, by pydantic's name of the error."""

_KINDS = {
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "none_required": "must be null",
    **dict.fromkeys(("int_type", "int_parsing"), _WHOLE),
    **dict.fromkeys(("float_type", "float_parsing", "decimal_type", "decimal_parsing"), _NUMBER),
    **dict.fromkeys(("bool_type", "bool_parsing"), _TRUTH),
    **dict.fromkeys(("string_type", "string_sub_type"), _TEXT),
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type", "iterable_type"), _LIST),
    **dict.fromkeys(("dict_type", "mapping_type", "model_type", "model_attributes_type", "dataclass_type"), _OBJECT),
    **dict.fromkeys(("datetime_type", "datetime_parsing", "datetime_from_date_parsing"), _TIME),
    **dict.fromkeys(("uuid_type", "uuid_parsing", "uuid_version"), _UUID),
    **dict.fromkeys(("ip_any_address", "ip_v4_address", "ip_v6_address"), _ADDRESS),
    **dict.fromkeys(("ip_any_network", "ip_v4_network", "ip_v6_network", "ip_any_interface"), _NETWORK),
    **dict.fromkeys(("url_type", "url_parsing", "url_syntax_violation"), _URL),
}
"""Words for a value of another kind than it must be, by pydantic's name of the error."""


def is_of_another_kind(kind: str) -> bool:
    """Return whether an error of pydantic says that a value is of the wrong type, and not just out of range."""
    return kind in _KINDS


def pydantic_words(kind: str, context: Mapping[str, Any]) -> str | None:
    """Return what a value must be, for a sentence that begins with its name; None if there are no words for `kind`."""
    if kind == "string_too_short":
        return _at_least(context["min_length"], "character")
    if kind == "too_short":
        return _at_least(context["min_length"], "item")
    if kind == "too_long":
        return f"must have at most {context['max_length']} items"
    words = _LIMITS.get(kind) or _KINDS.get(kind)
    return None if words is None else words.format(**context)


def _at_least(count: int, unit: str) -> str:
    return "must not be empty" if count == 1 else f"must have at least {count} {unit}s"


_SCHEMA = {
    "minimum": "must be at least {0}",
    "exclusiveMinimum": "must be more than {0}",
    "maximum": "must be at most {0}",
    "exclusiveMaximum": "must be less than {0}",
    "multipleOf": "must be a multiple of {0}",
    "maxLength": "must have at most {0} characters",
    "maxItems": "must have at most {0} items",
    "maxProperties": "must have at most {0} items",
    "pattern": "must match the pattern {0}",
    "format": "must be of the form {0}",
    "uniqueItems": "must have no item twice",
    "const": "must be {0}",
    "anyOf": "fits none of the forms that are allowed",
    "oneOf": "fits not just one of the forms that are allowed",
    "contains": "lacks an item that must be there",
    "not": "has a form that is not allowed",
}
"""Words for a value that a JSON Schema refuses, by the keyword that refuses it."""

_SCHEMA_TYPES = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


def schema_words(keyword: str, expected: Any, value: Any) -> str:
    """Return what is wrong with a value that a keyword of a JSON Schema refuses. The value itself is not repeated."""
    match keyword:
        case "type":
            return f"must be {_or(_SCHEMA_TYPES.get(name, name) for name in _as_list(expected))}"
        case "enum":
            return f"must be {_or(map(_quoted, expected))}"
        case "minLength" | "minItems" | "minProperties":
            return _at_least(expected, "character" if keyword == "minLength" else "item")
        case "required" if isinstance(value, dict):
            return f"lacks {_and(name for name in expected if name not in value)}"
        case "const":
            return f"must be {_quoted(expected)}"
        case "additionalProperties" | "unevaluatedProperties":
            return "has an entry that is not known here"
    return _SCHEMA.get(keyword, "does not fit its schema").format(expected)


def _as_list(names: str | Sequence[str]) -> Sequence[str]:
    return [names] if isinstance(names, str) else names


def _quoted(value: object) -> str:
    return repr(value) if isinstance(value, str) else json.dumps(value)


def _or(names: Iterable[str]) -> str:
    return _joined(list(names), "or")


def _and(names: Iterable[str]) -> str:
    return _joined([repr(name) for name in names], "and")


def _joined(names: list[str], word: str) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {word} {names[-1]}"


def json_pointer(path: Sequence[object]) -> str:
    """Return the JSON pointer (RFC 6901) of a path."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)
