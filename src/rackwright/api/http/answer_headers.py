"""What every answer tells browsers and caches: keep none of it, and take it for nothing but what it says it is.

What sets rules of its own keeps them: the files of the page, images that machines boot, streams of events.
"""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Uncached:
    """Around the application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        downloads = scope["path"].startswith("/files/")

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("X-Content-Type-Options", "nosniff")
                if not downloads:
                    headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self._app(scope, receive, told)
