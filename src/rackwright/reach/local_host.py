"""Running the wrapper on the server's own host: a child process takes the place of an SSH channel, all else is
equal."""

import asyncio
import os

from rackwright.reach.conversation import Conversation, Throttle
from rackwright.reach.ssh_connections import Unreachable

PASSED_ON = ("PATH", "HOME", "LANG", "TZ")
"""The variables of the server's environment that scripts get; others may hold what is none of their business."""


class LocalWrapper(asyncio.SubprocessProtocol):
    """A child process that runs the wrapper, feeding the conversation with its output."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._throttle = Throttle(conversation, self._pause, self._resume)
        self._transport: asyncio.SubprocessTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._transport = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            self._conversation.output.feed(data)
        else:
            self._conversation.feed_control(data)
        self._throttle.check()

    def process_exited(self) -> None:
        self._conversation.exited()

    def connection_lost(self, exc: Exception | None) -> None:
        self._conversation.closed(exc or ConnectionError("the wrapper was killed"))

    def write(self, data: bytes) -> None:
        self._input().write(data)

    def write_eof(self) -> None:
        self._input().close()

    def abort(self) -> None:
        assert self._transport is not None
        self._transport.close()

    def _pause(self) -> None:
        for pipe in self._outputs():
            pipe.pause_reading()

    def _resume(self) -> None:
        for pipe in self._outputs():
            pipe.resume_reading()

    def _outputs(self) -> list[asyncio.ReadTransport]:
        assert self._transport is not None
        pipes = (self._transport.get_pipe_transport(number) for number in (1, 2))
        return [pipe for pipe in pipes if isinstance(pipe, asyncio.ReadTransport)]

    def _input(self) -> asyncio.WriteTransport:
        assert self._transport is not None
        pipe = self._transport.get_pipe_transport(0)
        assert isinstance(pipe, asyncio.WriteTransport)
        return pipe


async def start_local_wrapper(command: str, conversation: Conversation) -> LocalWrapper:
    """Start the wrapper's command in a shell on this host."""
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    try:
        _, wrapper = await asyncio.get_running_loop().subprocess_exec(
            lambda: LocalWrapper(conversation), "sh", "-c", command, env=environment, start_new_session=True
        )
    except OSError as error:
        raise Unreachable(f"No shell can be started on the server's own host ({error}).") from error
    return wrapper
