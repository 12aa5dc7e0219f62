"""What is looked at before a body reaches its route: its size, its type, and whether it is JSON that can be kept.

One piece of ASGI around the whole application, because the framework reads a body of any size and depth first, and
asks afterwards.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rackwright.api.auth.authentication import Doorkeeper
from rackwright.api.http.problems import TooLarge, Unreachable, Unsupported, of_error
from rackwright.domain.errors import Invalid, RackwrightError
from rackwright.domain.sealed import SEAL, carries_seal
from rackwright.store.db.session import UNREACHABLE

LARGEST = 1024 * 1024
LARGEST_OF_STRANGERS = 16 * 1024
"""Bytes of a body whose sender is not known. To take a large one apart costs up to a second of everybody's time."""
DEEPEST = 25

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
TYPES = {"PATCH": (MERGE_PATCH, JSON_PATCH, JSON)}

_WITH_BODY = frozenset({"POST", "PUT", "PATCH", "DELETE"})
# A string that nobody closed goes to the end of the body: so every quote is looked at once, and the time is linear.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")
# Escapes of characters that are none: NUL, which PostgreSQL's text does not have, and halves of surrogate pairs.
_ODD_ESCAPE = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")


class Bodies:
    """The application behind a check of every body. `doors`: who comes with a large one has to be known to them."""

    def __init__(self, app: ASGIApp, doors: Doorkeeper | None = None) -> None:
        self.app = app
        self._doors = doors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in _WITH_BODY:
            await self.app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        try:
            body = await self._read(scope, receive, headers.get(b"content-length", ""))
            if body:
                _check_type(scope["method"], headers.get(b"content-type", ""))
                check_json(body)
        except RackwrightError as error:
            await of_error(error)(scope, receive, send)
            return
        except UNREACHABLE:
            await of_error(Unreachable())(scope, receive, send)
            return
        await self.app(scope, _again(body, receive), send)

    async def _read(self, scope: Scope, receive: Receive, announced: str) -> bytes:
        largest = int(announced[:20]) if announced.isdecimal() else 0
        if largest > LARGEST:
            raise TooLarge(f"A body may have {LARGEST} bytes; this one has {largest}.")
        is_known = self._doors is None
        parts: list[bytes] = []
        size, more = 0, True
        while more:
            if not is_known and max(size, largest) > LARGEST_OF_STRANGERS:
                await self._check_known(scope)
                is_known = True
            message = await receive()
            part = message.get("body", b"")
            size += len(part)
            if size > LARGEST:
                raise TooLarge(f"A body may have {LARGEST} bytes; this one has more.")
            parts.append(part)
            more = message.get("more_body", False)
        if not is_known and size > LARGEST_OF_STRANGERS:
            await self._check_known(scope)
        return b"".join(parts)

    async def _check_known(self, scope: Scope) -> None:
        """Refuse a large body of somebody who is not known, whatever it is for."""
        if self._doors is not None and not await self._doors.knows(HTTPConnection(scope)):
            raise TooLarge(
                f"A body may have {LARGEST_OF_STRANGERS} bytes while it is not known who sends it. Send a token, or "
                "log in first."
            )


def _again(body: bytes, receive: Receive) -> Receive:
    """The body as one message, then whatever comes next: that the client has gone, for one."""
    given = False

    async def once() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return once


def _check_type(method: str, given: str) -> None:
    taken = TYPES.get(method, (JSON,))
    if given.partition(";")[0].strip().lower() not in taken:
        raise Unsupported(f"A body of type {given[:80]!r} is not taken here. Send {' or '.join(taken)}.")


def check_json(body: bytes) -> None:
    """Refuse what is no JSON, or JSON that nobody could store or show again."""
    if _depth(body) > DEEPEST:
        raise Invalid(f"The body is nested more than {DEEPEST} levels deep.")
    try:
        # Decoded here, because the parser by itself also takes UTF-16 and -32, in which nothing below would be seen.
        value = json.loads(body.decode(), parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise Invalid("The body is no UTF-8 text.") from None
    except ValueError as error:
        raise Invalid(f"The body is no JSON: {error}") from None
    if _may_carry_seal(body) and carries_seal(value):
        raise Invalid(
            f"The body has an object with the key {SEAL}: sealed values are made by the server alone. "
            "Send the secret itself, or leave it out."
        )
    if _ODD_ESCAPE.search(body) and any(not _storable(text) for text in _texts(value)):
        raise Invalid("The body has text with a NUL or half a surrogate pair in it, which is no text.")


def _may_carry_seal(body: bytes) -> bool:
    """Whether the body has to be searched for a seal: it names one, or has escapes that could spell the name."""
    return SEAL.encode() in body or b"\\u" in body


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number that JSON has")


def _depth(body: bytes) -> int:
    """How deep the brackets go; not counted further than one beyond what is allowed."""
    deepest = depth = 0
    for bracket in _BRACKET.findall(_STRING.sub(b"", body)):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
        if deepest > DEEPEST:
            break
    return deepest


def depth_of(value: Any, limit: int = DEEPEST) -> int:
    """How deep a document is; not looked at further than one beyond `limit`."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    if inner is None or limit < 0:
        return 0
    return 1 + max((depth_of(one, limit - 1) for one in inner), default=0)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _storable(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)
