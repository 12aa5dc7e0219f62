"""The agent's local control socket: how the command line on the same server speaks to it.

A unix socket only its owner can open, one JSON object a line each way. What can be asked is the agent's; this is the
carriage, at the end that asks. The other end is `mesh/agent/control_server.py`.
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


class Failed(MeshError):
    """The agent could not do that"""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


def no_agent(path: Path) -> NoAgent:
    return NoAgent(
        f"no agent answers at {path}; start it with: systemctl start rackwright-agent, or: rackwright agent run"
    )


def ask(folder: Path, do: str, /, **fields: Any) -> Answer:
    """One question to the agent of this folder. Raises what it could not do, as a sentence."""
    for answer in listen(folder, do, **fields):
        return answer
    raise NoAgent(f"the agent of {folder} ended before it answered")


def listen(folder: Path, do: str, /, **fields: Any) -> Iterator[Answer]:
    """Answers as they come, until the agent or the caller ends it."""
    for lines in listen_lines(folder, do, **fields):
        for line in lines:
            yield read(line)


def listen_lines(folder: Path, do: str, /, **fields: Any) -> Iterator[list[bytes]]:
    """The same as the lines that came together, for who passes them on."""
    path = folder / SOCKET
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as wire:
        wire.settimeout(ANSWER_SECONDS)
        try:
            wire.connect(str(path))
        except OSError as problem:
            raise no_agent(path) from problem
        try:
            wire.sendall(json.dumps({"do": do, **fields}).encode() + b"\n")
            rest = b""
            while read := wire.recv(READ_BYTES):
                *lines, rest = (rest + read).split(b"\n")
                if lines:
                    yield lines
        except TimeoutError as problem:
            raise NoAgent(f"the agent at {path} does not answer; is it stopped, or the disk full?") from problem
        except (BrokenPipeError, ConnectionResetError):
            # It ended meanwhile, and so do its answers.
            return


def read(line: bytes) -> Answer:
    """An answer, or raises why there is none."""
    try:
        answer: Answer = json.loads(line)
        well = answer.pop("ok")
    except (ValueError, KeyError, AttributeError) as problem:
        raise NoAgent(f"the agent said what nobody can read: {line[:80]!r}") from problem
    if not well:
        raise Failed(answer["message"], answer["error"])
    return answer
