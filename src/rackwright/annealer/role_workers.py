"""Processes in which barclamps' code runs, off the event loop: started when needed, kept for the next call, killed when
one takes too long.

Nothing that such a process does can stop the server: it gets a time, what it answers is JSON of a bounded size, and
what it prints is read only up to a limit. Which hook is called when is decided elsewhere.
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
from rackwright.reach.run_log import is_full, room_or

log = logging.getLogger(__name__)

MAX_ANSWER = 1024 * 1024
"""Bytes of one answer."""
MAX_OUTPUT = 64 * 1024
"""Bytes that are read of what a hook prints; beyond it, the pipe fills and the hook waits for its end."""
START_TIME = 30.0
"""Seconds until a new process has loaded the barclamp's code. A busy machine is slow at this, a hook must not be."""
DRAIN_TIME = 1.0
KEEP = 4
"""Idle processes that are kept."""

Output = Callable[[str], None]


class CallFailed(Exception):
    """The call did not come to an answer; the message says why, for people."""


@dataclass(frozen=True)
class RoleCall:
    """One method of one role's class to be called."""

    path: str
    version: int
    """Of the catalogue: after an import, code is loaded anew."""
    role: str
    hook: str
    view: JsonObject


class _Process(asyncio.subprocess.Process):
    """One that can be let go of while somebody else holds its output; asyncio's own keeps its pipes until all left."""

    def __init__(
        self,
        transport: asyncio.SubprocessTransport,
        protocol: asyncio.subprocess.SubprocessStreamProtocol,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(transport, protocol, loop)
        self.let_go = transport.close


@dataclass(eq=False)
class _Worker:
    process: _Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    version: int
    loaded: set[str] = field(default_factory=set)
    output: Output | None = None
    printed: int = 0
    limit: int | None = MAX_OUTPUT
    more: asyncio.Event = field(default_factory=asyncio.Event)
    unpaced: asyncio.Event = field(default_factory=asyncio.Event)
    """The call is over: what is left of its output is little, and does not wait for room in its log."""
    drained: asyncio.Event = field(default_factory=asyncio.Event)
    """All that the call printed was read."""
    pump: asyncio.Task[None] | None = None


class RoleWorkers:
    """The processes of one server. Close it when the server ends."""

    def __init__(self, start_time: float = START_TIME) -> None:
        self.start_time = start_time
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._reaping: set[asyncio.Task[None]] = set()
        self._closed = False

    async def call(self, call: RoleCall, seconds: float, output: Output | None = None) -> Json:
        """What the method returned. `output` gets what it prints as it comes; without it, only errors show its end.

        However this ends, by time, error or cancelling, nothing of the call goes on afterwards.
        """
        printed: list[str] = []
        worker = await self._take(call)
        worker.output, worker.printed, worker.limit = output or printed.append, 0, None if output else MAX_OUTPUT
        worker.more.set()
        worker.unpaced.clear()
        try:
            async with asyncio.timeout(seconds):
                answer = await _ask(
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
        if "error" in answer:
            raise CallFailed(f"{answer['error']}{_tail(printed)}")
        return answer.get("answer")

    async def close(self) -> None:
        self._closed = True
        await asyncio.gather(*(self._end(worker) for worker in list(self._all)))
        await asyncio.gather(*self._reaping)

    # --- one process

    async def _take(self, call: RoleCall) -> _Worker:
        """A process that has the code of the call loaded."""
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
                    answer = await _ask(worker, {"path": call.path})
                    await worker.drained.wait()
            except TimeoutError:
                await self._end(worker)
                raise CallFailed(f"{call.path}/roles.py was not loaded within {self.start_time:g} s") from None
            except BaseException:
                await self._end(worker)
                raise
            if "error" in answer:
                await self._end(worker)  # half of it may be loaded
                raise CallFailed(f"{call.path}/roles.py cannot be loaded: {answer['error']}")
            worker.loaded.add(call.path)
        return worker

    async def _start(self, version: int) -> _Worker:
        ours, theirs = socket.socketpair()
        try:
            process = await _spawn(
                sys.executable,
                "-m",
                "rackwright.barclamps.worker",
                str(theirs.fileno()),
                str(os.getpid()),
                pass_fds=[theirs.fileno()],
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        # Nothing is awaited from here on that can be cancelled, or the process would be nobody's.
        reader = asyncio.StreamReader(limit=MAX_ANSWER)
        opened = asyncio.create_task(_open(ours, reader))
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
        """Read the rest of what was printed, and keep the process for the next call."""
        worker.limit = None
        worker.more.set()
        worker.unpaced.set()
        try:
            async with asyncio.timeout(DRAIN_TIME):
                await worker.drained.wait()
        except TimeoutError:
            await self._end(worker)  # something it started holds its output, and still prints
            return
        except BaseException:
            await self._end(worker)
            raise
        worker.output = None
        if self._closed or len(self._idle) >= KEEP:
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
        # Its output is read to the end, else asyncio does not see that it ended.
        worker.output, worker.limit = None, None
        worker.more.set()
        worker.unpaced.set()
        # Shielded: not to be left behind half reaped when the one who waits for it is cancelled again.
        reaping = asyncio.create_task(_reap(worker))
        self._reaping.add(reaping)
        reaping.add_done_callback(self._reaping.discard)
        await asyncio.shield(reaping)


async def _spawn(*command: str, pass_fds: Sequence[int]) -> _Process:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.subprocess_exec(
        lambda: asyncio.subprocess.SubprocessStreamProtocol(limit=MAX_OUTPUT, loop=loop),
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


async def _ask(worker: _Worker, asked: JsonObject) -> JsonObject:
    worker.drained.clear()
    try:
        worker.writer.write(json.dumps(asked).encode() + b"\n")
        await worker.writer.drain()
        line = await worker.reader.readline()
    except ValueError:  # of readline: more than the limit
        raise CallFailed(f"it returned more than {MAX_ANSWER} bytes") from None
    except OSError:
        line = b""
    if not line.endswith(b"\n"):
        raise CallFailed("its process died in the middle")
    answer: Json = json.loads(line)
    if not isinstance(answer, dict):
        raise CallFailed("its process answered nonsense")
    return answer


async def _pump(worker: _Worker) -> None:
    """Read what the process prints; what nobody asked for is dropped."""
    stream = worker.process.stdout
    assert stream is not None
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    while chunk := await stream.read(16 * 1024):
        worker.printed += len(chunk)
        if worker.output is not None:
            worker.output(decoder.decode(chunk.replace(END_OF_OUTPUT, b"")))
        if END_OF_OUTPUT in chunk:
            worker.drained.set()
        if worker.output is not None and is_full(worker.output) and not worker.unpaced.is_set():
            await room_or(worker.output, worker.unpaced)
        while worker.limit is not None and worker.printed >= worker.limit:
            worker.more.clear()
            await worker.more.wait()


async def _reap(worker: _Worker) -> None:
    assert worker.pump is not None
    try:
        async with asyncio.timeout(DRAIN_TIME):
            await worker.process.wait()
            await worker.pump
    except TimeoutError:
        log.warning("something that a hook started outlives it and holds its output; process %d", worker.process.pid)
        worker.pump.cancel()
        worker.process.let_go()


def _tail(printed: list[str]) -> str:
    text = "".join(printed).strip()
    return f"\nIt printed: {text[-1000:]}" if text else ""
