"""The trace id of a request: taken from the client if it is well-formed, made otherwise, and always sent back."""

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
    """Return the trace id of a request: of `traceparent`, of X-Request-ID, or a new one."""
    parent = _TRACEPARENT.fullmatch(headers.get("traceparent", ""))
    if parent:
        return parent[1]
    request_id = headers.get(HEADER, "")
    return request_id if _REQUEST_ID.fullmatch(request_id) else secrets.token_hex(16)


class TraceMiddleware:
    """ASGI middleware that gives a request its trace id: its changes carry it, and its response too."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        trace = trace_of(Headers(scope=scope))

        async def send_with_trace(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = trace
            await send(message)

        token = TRACE.set(trace)
        try:
            await self._app(scope, receive, send_with_trace)
        finally:
            TRACE.reset(token)
