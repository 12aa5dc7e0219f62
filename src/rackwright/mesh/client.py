"""The agent of this host, asked without waiting in a thread: how the control plane speaks to its mesh.

The carriage is that of `control.py`; what can be asked is the agent's.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

from rackwright.mesh.control import ANSWER_SECONDS, SOCKET, Answer, Failed, no_agent
from rackwright.mesh.errors import NoAgent

MAX_ANSWER = 64 * 1024 * 1024
"""Bytes in a line: one may hold a long list of members."""


class MeshClient:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def ask(self, do: str, /, **fields: Any) -> Answer:
        """One question. Raises what the agent could not do, as a sentence."""
        async with aclosing(self.listen(do, **fields)) as answers:
            async for answer in answers:
                return answer
        raise NoAgent(f"the agent of {self.folder} ended before it answered")

    async def listen(self, do: str, /, **fields: Any) -> AsyncGenerator[Answer, None]:
        """Answers as they come, until the agent or the caller ends it."""
        path = self.folder / SOCKET
        try:
            reader, writer = await asyncio.open_unix_connection(path, limit=MAX_ANSWER)
        except OSError as problem:
            raise no_agent(path) from problem
        try:
            writer.write(json.dumps({"do": do, **fields}).encode() + b"\n")
            while line := await self._line(reader):
                answer = json.loads(line)
                if not answer.pop("ok"):
                    raise Failed(answer["message"], answer["error"])
                yield answer
        except ConnectionError:
            # It ended meanwhile, and so do its answers.
            return
        finally:
            writer.close()

    async def _line(self, reader: asyncio.StreamReader) -> bytes:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                line = await reader.readline()
        except TimeoutError as problem:
            raise NoAgent(f"the agent of {self.folder} does not answer; is it stopped, or the disk full?") from problem
        # Cut off in the middle: it ended while it spoke.
        return line if line.endswith(b"\n") else b""
