"""An asynchronous client of this host's agent, by which the control plane speaks to the mesh.

The protocol is that of `control.py`; which requests there are is defined by the agent. It is the only module of the
mesh that the control plane imports, so the values and errors of a run that a caller needs have their names here too.
"""

import asyncio
import json
import tempfile
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rackwright.mesh.control import ANSWER_SECONDS, SOCKET, AgentFailed, Answer, no_agent
from rackwright.mesh.errors import MeshError, NoAgent
from rackwright.mesh.identity.ssh_signatures import BadSignature
from rackwright.mesh.runs.run_model import FINAL, RunRequest, Targets, TaskState, pack_tree
from rackwright.mesh.runs.run_request import new_request, seal_request, write_package

__all__ = [
    "BAD_SIGNATURE",
    "FINAL",
    "AgentFailed",
    "MeshClient",
    "MeshError",
    "NoAgent",
    "RunRequest",
    "Targets",
    "TaskState",
    "new_request",
    "pack_tree",
]

MAX_ANSWER = 64 * 1024 * 1024
"""Bytes in a line of an answer, which may hold a long list of members."""
RETRY_SECONDS = 1.0
"""Seconds between two attempts to follow a run."""
TEMPORARY_ERRORS = frozenset({"no_datastore", "rejected", "compacted"})
"""Codes of the agent's errors while its datastore is away: the run goes on, and so does following it."""
BAD_SIGNATURE = BadSignature.code
"""The code of `AgentFailed` when the mesh does not trust the key that signed the run."""


class MeshClient:
    """Sends requests to the agent whose folder is given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def ask(self, do: str, /, **fields: Any) -> Answer:
        """Send a request and return its first answer. Raises AgentFailed if the agent could not do it."""
        async with aclosing(self.listen(do, **fields)) as answers:
            async for answer in answers:
                return answer
        raise NoAgent(f"the agent of {self.folder} ended before it answered")

    async def listen(self, do: str, /, **fields: Any) -> AsyncGenerator[Answer, None]:
        """Send a request and yield its answers as they come, until the agent or the caller ends it."""
        path = self.folder / SOCKET
        try:
            reader, writer = await asyncio.open_unix_connection(path, limit=MAX_ANSWER)
        except OSError as problem:
            raise no_agent(path) from problem
        try:
            writer.write(json.dumps({"do": do, **fields}).encode() + b"\n")
            while line := await self._read_line(reader):
                answer = json.loads(line)
                if not answer.pop("ok"):
                    raise AgentFailed(answer["message"], answer["error"])
                yield answer
        except ConnectionError:
            # The agent ended meanwhile, and so do its answers.
            return
        finally:
            writer.close()

    async def cluster(self) -> str:
        """Return the fingerprint of the cluster's CA, by which requests name their cluster."""
        return str((await self.ask("status"))["ca"])

    # Runs

    async def seal(self, request: RunRequest, hidden: dict[str, Any]) -> RunRequest:
        """Return the request with its secrets, which only its targets and the agent of this host can read.

        Raises OSError if the cluster's CA cannot be read from the agent's folder.
        """
        ca = await asyncio.to_thread((self.folder / "ca.pem").read_bytes)
        published = (await self.ask("seals", targets=asdict(request.targets)))["seals"]
        return seal_request(request, hidden, published, ca)

    async def run(self, request: RunRequest, packed: bytes, key: Path) -> AsyncGenerator[dict[str, Any], None]:
        """Sign and begin a run, and yield its events without end; the caller closes it after the last one it waits for.

        Following goes on past a restart of the agent, or a datastore that is away. `packed`: the tree of states. `key`:
        the private key that signs.
        """
        cursor, begun = "", False
        with tempfile.TemporaryDirectory(prefix="rackwright-run-", dir=self.folder) as scratch:
            package = await asyncio.to_thread(write_package, Path(scratch), request, packed, key)
            answers = self.listen("run", package=str(package))
            while True:
                try:
                    async with aclosing(answers):
                        async for answer in answers:
                            begun = True
                            if "event" in answer:
                                cursor = answer.get("cursor") or cursor
                                yield answer["event"]
                except (NoAgent, AgentFailed) as problem:
                    if not begun or (isinstance(problem, AgentFailed) and problem.code not in TEMPORARY_ERRORS):
                        raise
                if not begun:
                    raise NoAgent(f"the agent of {self.folder} ended while it began the run")
                await asyncio.sleep(RETRY_SECONDS)
                answers = self.listen("follow", run=request.id, cursor=cursor)

    async def cancel(self, request: RunRequest, why: str) -> None:
        """End a run on the servers where it has not ended yet."""
        await self.ask("cancel", run=request.id, why=why, scope=request.scope, token=request.token)

    async def _read_line(self, reader: asyncio.StreamReader) -> bytes:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                line = await reader.readline()
        except TimeoutError as problem:
            raise NoAgent(f"the agent of {self.folder} does not answer; is it stopped, or the disk full?") from problem
        # Cut off in the middle: the agent ended while it wrote.
        return line if line.endswith(b"\n") else b""
