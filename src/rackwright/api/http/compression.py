"""A middleware that compresses JSON responses with gzip, for clients that accept it.

It compresses only whole responses: streams of events go out as they come, and files that machines boot from are
compressed already. The ETag of an object stays the same: it names the version of the object, not its bytes.
"""

import asyncio
import gzip
import re

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SMALLEST = 1024
"""Bytes; less fits into one packet anyway."""
LARGE = 64 * 1024
"""Bytes from which on a body is compressed in a thread, so that no other request waits for it."""
LEVEL = 1
"""The fastest level: it shrinks a long list to a thirteenth; the slowest, to a sixteenth, takes nine times as long."""

_GZIP = re.compile(rb"(?:^|,)\s*gzip\s*(?:;\s*q=([0-9.]+)\s*)?(?=,|$)")


def accepts_gzip(scope: Scope) -> bool:
    """Return whether the client accepts gzip: named in Accept-Encoding, and not with the weight 0."""
    for name, value in scope["headers"]:
        if name == b"accept-encoding":
            match = _GZIP.search(value.lower())
            return match is not None and (match[1] is None or match[1].strip(b"0.") != b"")
    return False


class GzipMiddleware:
    """ASGI middleware that compresses responses."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not accepts_gzip(scope):
            await self._app(scope, receive, send)
            return
        held_start: Message | None = None

        async def send_compressed(message: Message) -> None:
            nonlocal held_start
            if message["type"] == "http.response.start" and _is_worth_compressing(MutableHeaders(scope=message)):
                held_start = message  # it is sent once the body is there
                return
            if held_start is not None:
                start, held_start = held_start, None
                if not message.get("more_body", False):
                    message = {**message, "body": await _compress(message.get("body", b""))}
                    headers = MutableHeaders(scope=start)
                    headers["Content-Encoding"] = "gzip"
                    headers["Content-Length"] = str(len(message["body"]))
                    headers.add_vary_header("Accept-Encoding")
                await send(start)
            await send(message)

        await self._app(scope, receive, send_compressed)


def _is_worth_compressing(headers: MutableHeaders) -> bool:
    media_type = headers.get("content-type", "").partition(";")[0]
    is_large = int(headers.get("content-length", 0)) >= SMALLEST
    return is_large and media_type.endswith("json") and "content-encoding" not in headers


async def _compress(body: bytes) -> bytes:
    if len(body) < LARGE:
        return gzip.compress(body, LEVEL, mtime=0)
    return await asyncio.to_thread(gzip.compress, body, LEVEL, mtime=0)
