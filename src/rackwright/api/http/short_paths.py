"""A middleware that serves `/v2/...` as `/api/v2/...`.

The seeds of this project, and scripts written after them, use the short path. It is made the long one before anything
looks at it, so permissions, limits, meters, repeated requests and the addresses in responses are those of the long
path, and the OpenAPI document lists every route once.
"""

from starlette.types import ASGIApp, Receive, Scope, Send

SHORT, LONG = "/v2", "/api/v2"


class ShortPathMiddleware:
    """ASGI middleware that treats a request for a short path as one for the long path."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(_with_long_path(scope) if scope["type"] == "http" else scope, receive, send)


def _with_long_path(scope: Scope) -> Scope:
    path: str = scope["path"]
    raw: bytes = scope.get("raw_path") or path.encode()
    if (path != SHORT and not path.startswith(f"{SHORT}/")) or not raw.startswith(SHORT.encode()):
        return scope
    added = LONG.removesuffix(SHORT)
    return {**scope, "path": added + path, "raw_path": added.encode() + raw}
