"""A middleware that checks the body of each request before its route sees it: size, type, depth and JSON.

It is ASGI around the whole application, because the framework reads a body of any size and depth first, and asks
afterwards. JSON is refused that could not be stored.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rackwright.api.auth.authentication import Authenticator
from rackwright.api.http.problems import DatabaseUnreachable, TooLarge, Unsupported, error_response
from rackwright.domain.errors import Invalid, RackwrightError
from rackwright.domain.sealed import SEAL, carries_seal
from rackwright.store.db.session import UNREACHABLE

LARGEST_BODY = 1024 * 1024
LARGEST_ANONYMOUS_BODY = 16 * 1024
"""Bytes of a body whose sender is not known. Parsing a large one keeps other requests waiting for up to a second."""
DEEPEST = 25

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
ACCEPTED_TYPES = {"PATCH": (MERGE_PATCH, JSON_PATCH, JSON)}

_WITH_BODY = frozenset({"POST", "PUT", "PATCH", "DELETE"})
# A string that nobody closed goes to the end of the body: so every quote is looked at once, and the time is linear.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")
# Escapes of characters that are none: NUL, which PostgreSQL's text does not have, and halves of surrogate pairs.
_ODD_ESCAPE = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")


class BodyCheckMiddleware:
    """ASGI middleware that refuses bodies which no route should see."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator | None = None) -> None:
        """`authenticator`: who sends a large body has to be known to it. None: anybody may send one."""
        self.app = app
        self._authenticator = authenticator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in _WITH_BODY:
            await self.app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        try:
            body = await self._read(scope, receive, headers.get(b"content-length", ""))
            if body:
                _check_media_type(scope["method"], headers.get(b"content-type", ""))
                check_json(body)
        except RackwrightError as error:
            await error_response(error)(scope, receive, send)
            return
        except UNREACHABLE:
            await error_response(DatabaseUnreachable())(scope, receive, send)
            return
        await self.app(scope, _replay_body(body, receive), send)

    async def _read(self, scope: Scope, receive: Receive, content_length: str) -> bytes:
        """Read the whole body; refuse it as soon as it is too large."""
        announced = int(content_length[:20]) if content_length.isdecimal() else 0
        if announced > LARGEST_BODY:
            raise TooLarge(f"A body may have {LARGEST_BODY} bytes; this one has {announced}.")
        is_known = self._authenticator is None
        parts: list[bytes] = []
        size, more = 0, True
        while more:
            if not is_known and max(size, announced) > LARGEST_ANONYMOUS_BODY:
                await self._check_known(scope)
                is_known = True
            message = await receive()
            part = message.get("body", b"")
            size += len(part)
            if size > LARGEST_BODY:
                raise TooLarge(f"A body may have {LARGEST_BODY} bytes; this one has more.")
            parts.append(part)
            more = message.get("more_body", False)
        if not is_known and size > LARGEST_ANONYMOUS_BODY:
            await self._check_known(scope)
        return b"".join(parts)

    async def _check_known(self, scope: Scope) -> None:
        """Refuse a large body of a sender who is not known, whatever it is for."""
        if self._authenticator is not None and not await self._authenticator.knows(HTTPConnection(scope)):
            raise TooLarge(
                f"A body may have {LARGEST_ANONYMOUS_BODY} bytes while it is not known who sends it. Send a token, or "
                "log in first."
            )


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body as one message, then what comes next, such as that the client has gone."""
    is_sent = False

    async def receive_again() -> Message:
        nonlocal is_sent
        if is_sent:
            return await receive()
        is_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


def _check_media_type(method: str, content_type: str) -> None:
    accepted = ACCEPTED_TYPES.get(method, (JSON,))
    if content_type.partition(";")[0].strip().lower() not in accepted:
        raise Unsupported(f"A body of type {content_type[:80]!r} is not taken here. Send {' or '.join(accepted)}.")


def check_json(body: bytes) -> None:
    """Refuse a body that is no JSON, or JSON that could not be stored or shown again."""
    if _bracket_depth(body) > DEEPEST:
        raise Invalid(f"The body is nested more than {DEEPEST} levels deep.")
    try:
        # Decoded here, because the parser by itself also takes UTF-16 and -32, where the searches below find nothing.
        value = json.loads(body.decode(), parse_constant=_refuse_constant)
    except UnicodeDecodeError:
        raise Invalid("The body is no UTF-8 text.") from None
    except ValueError as error:
        raise Invalid(f"The body is no JSON: {error}") from None
    if _may_carry_seal(body) and carries_seal(value):
        raise Invalid(
            f"The body has an object with the key {SEAL}: sealed values are made by the server alone. "
            "Send the secret itself, or leave it out."
        )
    if _ODD_ESCAPE.search(body) and any(not _is_storable(text) for text in _strings_in(value)):
        raise Invalid("The body has text with a NUL or half a surrogate pair in it, which is no text.")


def _may_carry_seal(body: bytes) -> bool:
    """Whether the body has to be searched for a seal: it names one, or has escapes that could spell the name."""
    return SEAL.encode() in body or b"\\u" in body


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number that JSON has")


def _bracket_depth(body: bytes) -> int:
    """Return how deep the brackets of a body nest; counted no further than one beyond what is allowed."""
    deepest = depth = 0
    for bracket in _BRACKET.findall(_STRING.sub(b"", body)):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
        if deepest > DEEPEST:
            break
    return deepest


def depth_of(value: Any, limit: int = DEEPEST) -> int:
    """Return how deep a JSON value nests; looked at no further than one beyond `limit`."""
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    if children is None or limit < 0:
        return 0
    return 1 + max((depth_of(child, limit - 1) for child in children), default=0)


def _strings_in(value: Any) -> Iterator[str]:
    """Yield every string of a JSON value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _strings_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings_in(inner)


def _is_storable(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)
