"""The agent's local control socket: how the command line on the same server speaks to it.

A unix socket only its owner can open, one JSON object a line each way. What can be asked is the agent's; this is the
carriage, for both ends.
"""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from rackwright.mesh.errors import BadRequest, MeshError, NoAgent

SOCKET = "agent.sock"
MAX_LINE = 64 * 1024
ANSWER_SECONDS = 45.0

Answer = dict[str, Any]
Handler = Callable[[str, dict[str, Any]], Awaitable[Answer | AsyncIterator[Answer]]]


class Failed(MeshError):
    """The agent could not do that"""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


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
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError):
            # The asker went away, or sent more than a line may hold. There is nobody left to tell.
            pass
        finally:
            writer.close()

    async def _answers(self, line: bytes) -> AsyncIterator[Answer]:
        try:
            wish = json.loads(line)
            if not isinstance(wish, dict) or not isinstance(wish.get("do"), str):
                raise BadRequest("a request is an object with a verb in do")
            answer = await self.handler(wish.pop("do"), wish)
            if isinstance(answer, dict):
                yield {"ok": True, **answer}
                return
            async for part in answer:
                yield {"ok": True, **part}
        except MeshError as problem:
            yield {"ok": False, "error": problem.code, "message": str(problem)}
        except (ValueError, TypeError, KeyError) as problem:
            yield {"ok": False, "error": "bad_request", "message": f"the request cannot be read: {problem!r}"}


def ask(folder: Path, do: str, /, **fields: Any) -> Answer:
    """One question to the agent of this folder. Raises what it could not do, as a sentence."""
    for answer in listen(folder, do, **fields):
        return answer
    raise NoAgent(f"the agent of {folder} ended before it answered")


def listen(folder: Path, do: str, /, **fields: Any) -> Iterator[Answer]:
    """Answers as they come, until the agent or the caller ends it."""
    path = folder / SOCKET
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as wire:
        wire.settimeout(ANSWER_SECONDS)
        try:
            wire.connect(str(path))
        except OSError as problem:
            raise NoAgent(
                f"no agent answers at {path}; start it with: systemctl start rackwright-agent, or: rackwright agent run"
            ) from problem
        try:
            wire.sendall(json.dumps({"do": do, **fields}).encode() + b"\n")
            for line in wire.makefile("rb"):
                answer = json.loads(line)
                if not answer.pop("ok"):
                    raise Failed(answer["message"], answer["error"])
                yield answer
        except TimeoutError as problem:
            raise NoAgent(f"the agent at {path} does not answer; is it stopped, or the disk full?") from problem
        except (BrokenPipeError, ConnectionResetError):
            # It ended meanwhile, and so do its answers.
            return
