"""A middleware that removes all cookies but the session's from a request's head before the framework reads it.

The framework parses all cookies for every route, with the standard library, which needs time that grows with the square
of a quoted value: 60 KB of backslashes from a stranger kept the server busy for 20 seconds. Ours is plain text.
"""

import re

from starlette.types import ASGIApp, Receive, Scope, Send

COOKIE = "rackwright_session"

_OURS = re.compile(rb"(?:^|;)[ \t]*rackwright_session=([A-Za-z0-9_-]{1,128})[ \t]*(?=;|$)")


class SessionCookieMiddleware:
    """ASGI middleware behind which the application meets no cookie but a session's."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "headers": keep_session_cookie(scope["headers"])}
        await self._app(scope, receive, send)


def keep_session_cookie(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers with at most one cookie: the last one that can be a session of ours."""
    secrets = [secret for name, value in headers if name == b"cookie" for secret in _OURS.findall(value)]
    others = [(name, value) for name, value in headers if name != b"cookie"]
    return [*others, (b"cookie", COOKIE.encode() + b"=" + secrets[-1])] if secrets else others
