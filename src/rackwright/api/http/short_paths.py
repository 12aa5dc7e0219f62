"""`/v2/...` is `/api/v2/...`: the seeds of this project, and scripts that were written after them, say it so.

The path is made the long one before anything looks at it, so permissions, limits, meters, repeated requests and the
addresses in answers are those of the long path, and the description lists every route once.
"""

from starlette.types import ASGIApp, Receive, Scope, Send

SHORT, LONG = "/v2", "/api/v2"


class ShortPaths:
    """Takes a request for a short path as one for the long path."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(_long(scope) if scope["type"] == "http" else scope, receive, send)


def _long(scope: Scope) -> Scope:
    path: str = scope["path"]
    raw: bytes = scope.get("raw_path") or path.encode()
    if (path != SHORT and not path.startswith(f"{SHORT}/")) or not raw.startswith(SHORT.encode()):
        return scope
    added = LONG.removesuffix(SHORT)
    return {**scope, "path": added + path, "raw_path": added.encode() + raw}
