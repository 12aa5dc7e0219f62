"""Reading JSON that another member wrote: an object that is not nested too deeply, or an error, but never a crash."""

import json
from typing import Any

from rackwright.mesh.errors import Unreadable

MAX_DEPTH = 64
MAX_DIGITS = 300
"""Digits of a whole number. Python's numbers have no limit, and a longer one is an error wherever it meets a float."""


def read_object(value: bytes | str, what: str) -> dict[str, Any]:
    """Return the JSON object in a text, or raise Unreadable. `what` says in the error which record it is."""
    try:
        content = json.loads(value, parse_int=_whole_number)
    except (ValueError, RecursionError) as problem:
        raise Unreadable(f"{what} in the datastore is not JSON") from problem
    if not isinstance(content, dict):
        raise Unreadable(f"{what} in the datastore is not a JSON object")
    if is_too_deep(content):
        raise Unreadable(f"{what} in the datastore is nested too deeply")
    return content


def _whole_number(digits: str) -> int:
    if len(digits.lstrip("-")) > MAX_DIGITS:
        raise ValueError("a whole number is too long")
    return int(digits)


def is_too_deep(content: Any) -> bool:
    """Whether a value is nested so deeply that code that handles it further could run out of stack."""
    level = [content]
    for _ in range(MAX_DEPTH):
        nested = [part for part in level if isinstance(part, (dict, list))]
        if not nested:
            return False
        level = [inner for part in nested for inner in (part.values() if isinstance(part, dict) else part)]
    return True
