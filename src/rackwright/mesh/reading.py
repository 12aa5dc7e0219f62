"""Reads JSON that another member wrote: an object that is not too deep, or a refusal in words, and never a crash."""

import json
from typing import Any

from rackwright.mesh.errors import Unreadable

MAX_DEPTH = 64


def read_object(value: bytes | str, what: str) -> dict[str, Any]:
    """The object in this text. `what` it is, for who has to find out who wrote something else."""
    try:
        content = json.loads(value)
    except (ValueError, RecursionError) as problem:
        raise Unreadable(f"{what} in the datastore is not JSON") from problem
    if not isinstance(content, dict):
        raise Unreadable(f"{what} in the datastore is not a JSON object")
    if is_too_deep(content):
        raise Unreadable(f"{what} in the datastore is nested too deeply")
    return content


def is_too_deep(content: Any) -> bool:
    """Whether something is nested so deeply that whoever handles it further could run out of stack."""
    level = [content]
    for _ in range(MAX_DEPTH):
        nested = [part for part in level if isinstance(part, (dict, list))]
        if not nested:
            return False
        level = [inner for part in nested for inner in (part.values() if isinstance(part, dict) else part)]
    return True
