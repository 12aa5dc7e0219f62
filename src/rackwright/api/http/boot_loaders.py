"""HTTP as boot loaders speak it, and as they have to be answered.

GRUB takes `Content-Length` for the length of an answer, and nothing for `content-length`, as which uvicorn would send
it. shim asks for the loader beside itself with two slashes before its name.
"""

import re
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

NOT_FOUND = 404
CASED_NAMES = {b"content-length": b"Content-Length", b"transfer-encoding": b"Transfer-Encoding"}


class CasedName(bytes):
    """The name of a header that goes over the wire as it is written; for all else its case means nothing."""

    def lower(self) -> "CasedName":
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, bytes) and bytes.lower(self) == bytes.lower(other)

    def __hash__(self) -> int:
        return hash(bytes.lower(self))


class BootLoaderMiddleware:
    """Take several slashes in a path for one, and write the names of headers that boot loaders read as they know
    them. `on_missing` is told the name of each file that is not there."""

    def __init__(self, app: ASGIApp, on_missing: Callable[[str], None] = lambda _: None) -> None:
        self.app = app
        self._on_missing = on_missing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_cased(message: Message) -> None:
            if message["type"] == "http.response.start":
                if message["status"] == NOT_FOUND:
                    self._on_missing(scope["path"].rpartition("/")[2])
                message = {**message, "headers": [_cased(*header) for header in message.get("headers", ())]}
            await send(message)

        if scope["type"] != "http":
            await self.app(scope, receive, send)
        else:
            await self.app({**scope, "path": re.sub("/+", "/", scope["path"])}, receive, send_cased)


def _cased(name: bytes, value: bytes) -> tuple[bytes, bytes]:
    cased = CASED_NAMES.get(name.lower())
    return (name if cased is None else CasedName(cased), value)
