"""Which version of an object a client has seen.

An object's tag is a hash of what people decide about it. What machines report and the annealer does (state, alive,
counts) does not move it: else nobody could edit a node while work on it goes on. It is in the body, so that lists
carry it too, and in the header ETag.
"""

import hashlib
import re

from pydantic_core import to_json

from rackwright.api.http.problems import Stale
from rackwright.domain.errors import Invalid

_TAG = re.compile(r'\s*(?:W/)?("[\x21\x23-\x7e]*"|[\x21\x23-\x2b\x2d-\x7e]+)\s*')


def tag(*values: object) -> str:
    """The tag of an object that is made of these values."""
    # What comes from the database has its keys in one order already.
    return hashlib.blake2b(to_json(values), digest_size=12).hexdigest()


def header(etag: str) -> str:
    return f'"{etag}"'


def parse_if_match(given: str) -> frozenset[str]:
    """The tags of an If-Match header; `*` is any."""
    found = []
    for part in given.split(","):
        match = _TAG.fullmatch(part)
        if match is None:
            raise Invalid(f"If-Match takes the ETag of an answer, in quotes, or *; not {given[:80]!r}.")
        found.append(match[1].strip('"'))
    return frozenset(found)


def check_if_match(seen: frozenset[str] | None, current: str, what: str) -> None:
    """Refuse a change of something that is no longer what the client saw. Call it once the object is locked."""
    if seen is not None and "*" not in seen and current not in seen:
        raise Stale(f"Somebody changed {what} since you read it. Read it again, then repeat your change.")
