"""The one cookie that is ours, taken out of a request's head before the framework reads it.

The framework parses all cookies for every route, with the standard library, which needs time that grows with the square
of a quoted value: 60 KB of backslashes from a stranger kept the server busy for 20 seconds. Ours is plain text.
"""

import re

from starlette.types import ASGIApp, Receive, Scope, Send

COOKIE = "rackwright_session"

_OURS = re.compile(rb"(?:^|;)[ \t]*rackwright_session=([A-Za-z0-9_-]{1,128})[ \t]*(?=;|$)")


class OwnCookieOnly:
    """The application, which never meets a cookie that is not a session's."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "headers": own_cookie_only(scope["headers"])}
        await self._app(scope, receive, send)


def own_cookie_only(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers with at most one cookie: the last one that can be a session of ours."""
    found = [secret for name, value in headers if name == b"cookie" for secret in _OURS.findall(value)]
    others = [(name, value) for name, value in headers if name != b"cookie"]
    return [*others, (b"cookie", COOKIE.encode() + b"=" + found[-1])] if found else others
