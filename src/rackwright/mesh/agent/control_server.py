"""The server of an agent's control socket: reads a request, calls the handler, writes its answers.

The client is `mesh/control.py`.
"""

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
"""Returns an answer, or answers as they come; bytes are complete lines that are encoded already."""


class ControlServer:
    """A UNIX socket that only the agent's own user can use."""

    def __init__(self, folder: Path, handler: Handler) -> None:
        self.path, self.handler = folder / SOCKET, handler
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        # Delete a socket left by a killed agent. The folder's lock has shown already that no other agent runs here.
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
            # The client went away, or sent more than a line may hold. There is nobody to answer.
            pass
        finally:
            writer.close()

    async def _answers(self, line: bytes) -> AsyncIterator[Answer | bytes]:
        try:
            request = json.loads(line)
            if not isinstance(request, dict) or not isinstance(request.get("do"), str):
                raise BadRequest("a request is an object with a verb in do")
            answer = await self.handler(request.pop("do"), request)
            if isinstance(answer, dict):
                yield {"ok": True, **answer}
                return
            async for part in answer:
                yield part if isinstance(part, bytes) else {"ok": True, **part}
        except MeshError as problem:
            yield {"ok": False, "error": problem.code, "message": str(problem)}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
            yield {"ok": False, "error": "bad_request", "message": f"the request cannot be read: {problem!r}"}
