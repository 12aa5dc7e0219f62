"""The trace id of a request: taken from the caller if it is well-formed, made otherwise, and always told back."""

import re
import secrets

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rackwright.store.db.session import TRACE

HEADER = "X-Request-ID"

# W3C Trace Context; version ff and ids of zeros alone are invalid by its rules.
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")


def trace_of(headers: Headers) -> str:
    parent = _TRACEPARENT.fullmatch(headers.get("traceparent", ""))
    if parent:
        return parent[1]
    given = headers.get(HEADER, "")
    return given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(16)


class Traced:
    """Around the application: what a request changes carries its trace id, and its answer too."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        trace = trace_of(Headers(scope=scope))

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = trace
            await send(message)

        before = TRACE.set(trace)
        try:
            await self._app(scope, receive, told)
        finally:
            TRACE.reset(before)
