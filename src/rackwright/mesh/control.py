"""The agent's local control socket: how the command line on the same server speaks to it.

A unix socket only its owner can open, one JSON object a line each way. What can be asked is the agent's; this is the
carriage, at the end that asks. The other end is `control_server.py`.
"""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rackwright.mesh.errors import MeshError, NoAgent

SOCKET = "agent.sock"
ANSWER_SECONDS = 45.0

Answer = dict[str, Any]


class Failed(MeshError):
    """The agent could not do that"""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


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
