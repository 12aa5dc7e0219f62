"""A blocking client of the agent's control socket, by which the command line on the same server speaks to the agent.

The socket is a unix socket that only its owner can open; one JSON object a line goes each way. Which requests there are
is defined by the agent. The server's end is `mesh/agent/control_server.py`.
"""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rackwright.mesh.errors import MeshError, NoAgent

SOCKET = "agent.sock"
ANSWER_SECONDS = 45.0
READ_BYTES = 256 * 1024

Answer = dict[str, Any]
"""A line of the agent's answer, without its `ok`."""


class AgentFailed(MeshError):
    """The agent could not do that"""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


def no_agent(path: Path) -> NoAgent:
    """Return the error for a socket at which no agent answers."""
    return NoAgent(
        f"no agent answers at {path}; start it with: systemctl start rackwright-agent, or: rackwright agent run"
    )


def ask(folder: Path, do: str, /, **fields: Any) -> Answer:
    """Send a request to the agent of a folder and return its first answer. Raises AgentFailed if it could not do it."""
    for answer in listen(folder, do, **fields):
        return answer
    raise NoAgent(f"the agent of {folder} ended before it answered")


def listen(folder: Path, do: str, /, **fields: Any) -> Iterator[Answer]:
    """Send a request and yield its answers as they come, until the agent or the caller ends it."""
    for lines in listen_lines(folder, do, **fields):
        for line in lines:
            yield parse_answer(line)


def listen_lines(folder: Path, do: str, /, **fields: Any) -> Iterator[list[bytes]]:
    """Send a request and yield the lines of its answers, those that came together in one list.

    For callers that pass the lines on as they are.
    """
    path = folder / SOCKET
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as wire:
        wire.settimeout(ANSWER_SECONDS)
        try:
            wire.connect(str(path))
        except OSError as problem:
            raise no_agent(path) from problem
        try:
            wire.sendall(json.dumps({"do": do, **fields}).encode() + b"\n")
            partial_line = b""
            while received := wire.recv(READ_BYTES):
                *lines, partial_line = (partial_line + received).split(b"\n")
                if lines:
                    yield lines
        except TimeoutError as problem:
            raise NoAgent(f"the agent at {path} does not answer; is it stopped, or the disk full?") from problem
        except (BrokenPipeError, ConnectionResetError):
            # The agent ended meanwhile, and so do its answers.
            return


def parse_answer(line: bytes) -> Answer:
    """Return the answer in a line, or raise AgentFailed with the error in it."""
    try:
        answer: Answer = json.loads(line)
        succeeded = answer.pop("ok")
    except (ValueError, KeyError, AttributeError) as problem:
        raise NoAgent(f"the agent said what nobody can read: {line[:80]!r}") from problem
    if not succeeded:
        raise AgentFailed(answer["message"], answer["error"])
    return answer
