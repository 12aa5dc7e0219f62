"""ETags: which version of an object a client has seen.

An object's ETag is a hash of what people decide about it. What machines report and what the annealer does (state,
alive, counts) does not change it: else nobody could edit a node while work on it goes on. It is in the body, so that
lists carry it too, and in the header ETag.
"""

import hashlib
import re

from pydantic_core import to_json

from rackwright.api.http.problems import Stale
from rackwright.domain.errors import Invalid

_TAG = re.compile(r'\s*(?:W/)?("[\x21\x23-\x7e]*"|[\x21\x23-\x2b\x2d-\x7e]+)\s*')


def make_etag(*values: object) -> str:
    """Return the ETag of an object that is made of these values."""
    # What comes from the database has its keys in one order already.
    return hashlib.blake2b(to_json(values), digest_size=12).hexdigest()


def quote_etag(etag: str) -> str:
    """Return an ETag as the header ETag has it."""
    return f'"{etag}"'


def parse_if_match(header: str) -> frozenset[str]:
    """Return the ETags of an If-Match header; `*` stands for any."""
    etags = []
    for part in header.split(","):
        match = _TAG.fullmatch(part)
        if match is None:
            raise Invalid(f"If-Match takes the ETag of an answer, in quotes, or *; not {header[:80]!r}.")
        etags.append(match[1].strip('"'))
    return frozenset(etags)


def check_if_match(etags: frozenset[str] | None, current: str, title: str) -> None:
    """Refuse to change an object that is no longer what the client saw. Call it once the object is locked."""
    if etags is not None and "*" not in etags and current not in etags:
        raise Stale(f"Somebody changed {title} since you read it. Read it again, then repeat your change.")
