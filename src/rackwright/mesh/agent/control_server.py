"""The agent's end of its control socket; the asker's end is `mesh/control.py`."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from rackwright.mesh.control import SOCKET, Answer
from rackwright.mesh.errors import BadRequest, MeshError

MAX_LINE = 64 * 1024

Handler = Callable[[str, dict[str, Any]], Awaitable[Answer | AsyncIterator[Answer] | AsyncIterator[Answer | bytes]]]
"""An answer, or answers as they come; bytes are whole lines that somebody has made already."""


class ControlServer:
    def __init__(self, folder: Path, handler: Handler) -> None:
        self.path, self.handler = folder / SOCKET, handler
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        # A socket left by a killed agent; that no other agent lives here, the folder's lock has already shown.
        self.path.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(self._serve, self.path, limit=MAX_LINE)
        finally:
            os.umask(before)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self.path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await reader.readline()
            async for answer in self._answers(line):
                writer.write(answer if isinstance(answer, bytes) else json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError):
            # The asker went away, or sent more than a line may hold. There is nobody left to tell.
            pass
        finally:
            writer.close()

    async def _answers(self, line: bytes) -> AsyncIterator[Answer | bytes]:
        try:
            wish = json.loads(line)
            if not isinstance(wish, dict) or not isinstance(wish.get("do"), str):
                raise BadRequest("a request is an object with a verb in do")
            answer = await self.handler(wish.pop("do"), wish)
            if isinstance(answer, dict):
                yield {"ok": True, **answer}
                return
            async for part in answer:
                yield part if isinstance(part, bytes) else {"ok": True, **part}
        except MeshError as problem:
            yield {"ok": False, "error": problem.code, "message": str(problem)}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
            yield {"ok": False, "error": "bad_request", "message": f"the request cannot be read: {problem!r}"}
