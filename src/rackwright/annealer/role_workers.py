"""Worker processes in which barclamps' code runs, off the event loop.

They are started when needed, kept for the next call, and killed when a call takes too long. Nothing that such a process
does can stop the server: its time is limited, its response is JSON of a bounded size, and its output is read only up to
a limit. Other modules decide which hook is called when.
"""

import asyncio
import codecs
import contextlib
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rackwright.barclamps.worker import END_OF_OUTPUT
from rackwright.domain.catalogue import Json, JsonObject
from rackwright.reach.run_log import is_full, wait_for_room_or

log = logging.getLogger(__name__)

MAX_RESPONSE_BYTES = 1024 * 1024
"""The largest response of a call."""
MAX_OUTPUT_BYTES = 64 * 1024
"""Bytes that are read of what a hook prints; beyond them the pipe fills, and the hook waits until its time is up."""
START_SECONDS = 30.0
"""Seconds that a new process has to load the barclamp's code. A busy machine is slow at this, a hook must not be."""
DRAIN_SECONDS = 1.0
MAX_IDLE = 4
"""The number of idle processes that are kept."""

Output = Callable[[str], None]


class CallFailed(Exception):
    """The call gave no response; the message says why, for people."""


@dataclass(frozen=True)
class RoleCall:
    """A call of one method of a role's class."""

    path: str
    version: int
    """The version of the catalogue: after an import, code is loaded anew."""
    role: str
    hook: str
    view: JsonObject


class _Process(asyncio.subprocess.Process):
    """A process whose pipes can be closed while another process still has them open: asyncio's own process keeps its
    pipes until all have closed them."""

    def __init__(
        self,
        transport: asyncio.SubprocessTransport,
        protocol: asyncio.subprocess.SubprocessStreamProtocol,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(transport, protocol, loop)
        self.close_pipes = transport.close


@dataclass(eq=False)
class _Worker:
    process: _Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    version: int
    loaded: set[str] = field(default_factory=set)
    output: Output | None = None
    printed: int = 0
    limit: int | None = MAX_OUTPUT_BYTES
    may_read: asyncio.Event = field(default_factory=asyncio.Event)
    call_over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the call is over: the rest of its output is small, and does not wait for room in its log."""
    drained: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when all that the call printed was read."""
    pump: asyncio.Task[None] | None = None


class RoleWorkers:
    """The worker processes of one server. `close` it when the server ends."""

    def __init__(self, start_time: float = START_SECONDS) -> None:
        self.start_time = start_time
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._reaping: set[asyncio.Task[None]] = set()
        self._closed = False

    async def call(self, call: RoleCall, seconds: float, output: Output | None = None) -> Json:
        """Make a call, and return what the method returned.

        `output` gets what the method prints as it comes; without it, only errors show the end of that. However the call
        ends, by time, error or cancelling, nothing of it goes on afterwards.
        """
        printed: list[str] = []
        worker = await self._take(call)
        worker.output, worker.printed, worker.limit = output or printed.append, 0, None if output else MAX_OUTPUT_BYTES
        worker.may_read.set()
        worker.call_over.clear()
        try:
            async with asyncio.timeout(seconds):
                response = await _exchange(
                    worker, {"path": call.path, "role": call.role, "hook": call.hook, "view": call.view}
                )
        except TimeoutError:
            await self._end(worker)
            raise CallFailed(f"not finished within {seconds:g} s{_tail(printed)}") from None
        except CallFailed as error:
            await self._end(worker)
            raise CallFailed(f"{error}{_tail(printed)}") from None
        except BaseException:
            await self._end(worker)
            raise
        await self._finish(worker)
        if "error" in response:
            raise CallFailed(f"{response['error']}{_tail(printed)}")
        return response.get("answer")

    async def close(self) -> None:
        self._closed = True
        await asyncio.gather(*(self._end(worker) for worker in list(self._all)))
        await asyncio.gather(*self._reaping)

    # --- one process

    async def _take(self, call: RoleCall) -> _Worker:
        """Return a worker that has the code of the call loaded."""
        while self._idle:
            worker = self._idle.pop()
            if worker.version == call.version and worker.process.returncode is None:
                break
            await self._end(worker)
        else:
            worker = await self._start(call.version)
        if call.path not in worker.loaded:
            try:
                async with asyncio.timeout(self.start_time):
                    response = await _exchange(worker, {"path": call.path})
                    await worker.drained.wait()
            except TimeoutError:
                await self._end(worker)
                raise CallFailed(f"{call.path}/roles.py was not loaded within {self.start_time:g} s") from None
            except BaseException:
                await self._end(worker)
                raise
            if "error" in response:
                await self._end(worker)  # the code may be half loaded
                raise CallFailed(f"{call.path}/roles.py cannot be loaded: {response['error']}")
            worker.loaded.add(call.path)
        return worker

    async def _start(self, version: int) -> _Worker:
        own_end, worker_end = socket.socketpair()
        try:
            process = await _spawn(
                sys.executable,
                "-m",
                "rackwright.barclamps.worker",
                str(worker_end.fileno()),
                str(os.getpid()),
                pass_fds=[worker_end.fileno()],
            )
        except BaseException:
            own_end.close()
            raise
        finally:
            worker_end.close()
        # From here on no await can be cancelled: otherwise the process would have no owner.
        reader = asyncio.StreamReader(limit=MAX_RESPONSE_BYTES)
        opened = asyncio.create_task(_open(own_end, reader))
        try:
            writer = await asyncio.shield(opened)
        except asyncio.CancelledError:
            writer = await opened
            await self._end(self._worker(process, reader, writer, version))
            raise
        return self._worker(process, reader, writer, version)

    def _worker(
        self,
        process: _Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        version: int,
    ) -> _Worker:
        worker = _Worker(process, reader, writer, version)
        worker.pump = asyncio.create_task(_pump(worker))
        self._all.add(worker)
        return worker

    async def _finish(self, worker: _Worker) -> None:
        """Read the rest of the output, and keep the process for the next call."""
        worker.limit = None
        worker.may_read.set()
        worker.call_over.set()
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                await worker.drained.wait()
        except TimeoutError:
            await self._end(worker)  # a process that it started has its output open, and still prints
            return
        except BaseException:
            await self._end(worker)
            raise
        worker.output = None
        if self._closed or len(self._idle) >= MAX_IDLE:
            await self._end(worker)
        else:
            self._idle.append(worker)

    async def _end(self, worker: _Worker) -> None:
        """Kill the process and all that it started."""
        if worker in self._idle:
            self._idle.remove(worker)
        self._all.discard(worker)
        worker.writer.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(worker.process.pid, signal.SIGKILL)
        # The output is read to its end, else asyncio does not see that the process ended.
        worker.output, worker.limit = None, None
        worker.may_read.set()
        worker.call_over.set()
        # Shielded: the process must not be left half reaped when the waiting task is cancelled again.
        reaping = asyncio.create_task(_reap(worker))
        self._reaping.add(reaping)
        reaping.add_done_callback(self._reaping.discard)
        await asyncio.shield(reaping)


async def _spawn(*command: str, pass_fds: Sequence[int]) -> _Process:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.subprocess_exec(
        lambda: asyncio.subprocess.SubprocessStreamProtocol(limit=MAX_OUTPUT_BYTES, loop=loop),
        *command,
        pass_fds=pass_fds,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    return _Process(transport, protocol, loop)


async def _open(connection: socket.socket, reader: asyncio.StreamReader) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.create_connection(lambda: protocol, sock=connection)
    return asyncio.StreamWriter(transport, protocol, reader, loop)


async def _exchange(worker: _Worker, request: JsonObject) -> JsonObject:
    worker.drained.clear()
    try:
        worker.writer.write(json.dumps(request).encode() + b"\n")
        await worker.writer.drain()
        line = await worker.reader.readline()
    except ValueError:  # raised by readline: more than the limit
        raise CallFailed(f"it returned more than {MAX_RESPONSE_BYTES} bytes") from None
    except OSError:
        line = b""
    if not line.endswith(b"\n"):
        raise CallFailed("its process died in the middle")
    response: Json = json.loads(line)
    if not isinstance(response, dict):
        raise CallFailed("its process answered nonsense")
    return response


async def _pump(worker: _Worker) -> None:
    """Read what the process prints, and drop it if no call takes it."""
    stream = worker.process.stdout
    assert stream is not None
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    while chunk := await stream.read(16 * 1024):
        worker.printed += len(chunk)
        if worker.output is not None:
            worker.output(decoder.decode(chunk.replace(END_OF_OUTPUT, b"")))
        if END_OF_OUTPUT in chunk:
            worker.drained.set()
        if worker.output is not None and is_full(worker.output) and not worker.call_over.is_set():
            await wait_for_room_or(worker.output, worker.call_over)
        while worker.limit is not None and worker.printed >= worker.limit:
            worker.may_read.clear()
            await worker.may_read.wait()


async def _reap(worker: _Worker) -> None:
    assert worker.pump is not None
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            await worker.process.wait()
            await worker.pump
    except TimeoutError:
        log.warning("something that a hook started outlives it and holds its output; process %d", worker.process.pid)
        worker.pump.cancel()
        worker.process.close_pipes()


def _tail(printed: list[str]) -> str:
    text = "".join(printed).strip()
    return f"\nIt printed: {text[-1000:]}" if text else ""
