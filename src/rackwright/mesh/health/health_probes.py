"""How each kind of health check is done. A probe returns its outcome; the time it may take is its caller's matter.

Nothing is left behind when a probe is cancelled: a command dies with its whole process group, connections are closed.
"""

import asyncio
import contextlib
import ctypes
import os
import ssl
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx

from rackwright.child_process import kill_group
from rackwright.mesh.health.health_checks import (
    Check,
    ClockCheck,
    CommandCheck,
    DiskCheck,
    HttpCheck,
    Outcome,
    ProcessCheck,
    TcpCheck,
    judge_clock,
    judge_disk,
)

_OUTPUT_BYTES = 4096
_BODY_BYTES = 64 * 1024
_UNSYNCHRONISED = 5  # adjtimex(2): TIME_ERROR

Probe = Callable[[], Awaitable[Outcome]]


def probe_of(check: Check) -> Probe:
    """The probe of a check, with whatever it remembers from one run to the next."""
    if isinstance(check, ProcessCheck):
        return InThread(lambda: find_process(check))
    if isinstance(check, TcpCheck):
        return lambda: probe_tcp(check)
    if isinstance(check, HttpCheck):
        return lambda: probe_http(check)
    if isinstance(check, CommandCheck):
        return lambda: run_command(check)
    if isinstance(check, DiskCheck):
        return InThread(lambda: look_at_disk(check))
    if isinstance(check, ClockCheck):
        return ClockProbe(check)
    raise TypeError(f"check {check.name}: no probe for a {type(check).__name__}")


class InThread:
    """Runs what may block, such as a file system that hangs, in a thread; and never a second one beside a blocked one.

    The thread is a daemon: one that hangs for ever must not keep the agent from ending.
    """

    def __init__(self, work: Callable[[], Outcome]) -> None:
        self._work = work
        self._blocked = False

    async def __call__(self) -> Outcome:
        if self._blocked:
            return Outcome(False, "an earlier check still hangs")
        self._blocked = True
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Outcome] = loop.create_future()
        threading.Thread(target=self._in_thread, args=(loop, answer), daemon=True).start()
        return await answer

    def _in_thread(self, loop: asyncio.AbstractEventLoop, answer: "asyncio.Future[Outcome]") -> None:
        try:
            outcome = self._work()
        except OSError as error:
            outcome = Outcome(False, str(error.strerror or error))
        finally:
            self._blocked = False
        # The loop may be gone, if this took longer than the agent lived.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, answer, outcome)


def _settle(answer: "asyncio.Future[Outcome]", outcome: Outcome) -> None:
    if not answer.done():
        answer.set_result(outcome)


# -- process -----------------------------------------------------------------------------------------------------------


def find_process(check: ProcessCheck, proc: Path = Path("/proc")) -> Outcome:
    if check.pid_file is not None:
        return _process_of_pid_file(check, proc)
    stopped = 0
    for folder in proc.iterdir():
        if not folder.name.isdecimal():
            continue
        state = _state_if_named(folder, check.process)
        if state is None or state in "ZX":
            continue
        if state not in "Tt":
            return Outcome(True)
        stopped += 1
    return Outcome(False, f"{check.process} is stopped" if stopped else f"no process {check.process}")


def _process_of_pid_file(check: ProcessCheck, proc: Path) -> Outcome:
    assert check.pid_file is not None
    try:
        pid = int(Path(check.pid_file).read_text().strip())
    except (OSError, ValueError):
        return Outcome(False, f"no pid in {check.pid_file}")
    state = _state_if_named(proc / str(pid), check.process)
    if state is None or state in "ZX":
        return Outcome(False, f"no process {check.process} with pid {pid}")
    return Outcome(False, f"{check.process} is stopped") if state in "Tt" else Outcome(True)


def _state_if_named(folder: Path, name: str) -> str | None:
    """The state letter of a process if it has this name; None if it has another or is gone by now."""
    try:
        stat = (folder / "stat").read_text(errors="replace")
        # The name stands in parentheses and may hold some itself; the kernel cuts it at 15 bytes.
        comm = stat[stat.index("(") + 1 : stat.rindex(")")]
        state = stat[stat.rindex(")") + 2]
        if comm == name:
            return state
        program = (folder / "cmdline").read_bytes().split(b"\0", 1)[0].decode(errors="replace")
    except (OSError, ValueError, IndexError):
        return None
    return state if os.path.basename(program) == name else None


# -- network -----------------------------------------------------------------------------------------------------------


async def probe_tcp(check: TcpCheck) -> Outcome:
    try:
        reader, writer = await asyncio.open_connection(check.host, check.port)
    except OSError as error:
        return Outcome(False, f"{check.host}:{check.port}: {error.strerror or error}")
    try:
        return await _expected(reader, check.expect.encode())
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _expected(reader: asyncio.StreamReader, expect: bytes) -> Outcome:
    heard = b""
    while expect not in heard:
        try:
            more = await reader.read(_OUTPUT_BYTES)
        except OSError as error:
            return Outcome(False, f"closed: {error.strerror or error}")
        if not more or len(heard) > _BODY_BYTES:
            return Outcome(False, f"said something else than {expect.decode()!r}")
        heard += more
    return Outcome(True)


async def probe_http(check: HttpCheck) -> Outcome:
    """A fresh connection each time: a kept one would not show that nobody accepts any more."""
    try:
        verify: ssl.SSLContext | bool = (
            ssl.create_default_context(cafile=check.ca_file) if check.url.startswith("https:") else False
        )
        async with (
            # Its time is limited by the runner, as that of every check.
            httpx.AsyncClient(verify=verify, trust_env=False, timeout=None) as client,  # noqa: S113
            client.stream("GET", check.url) as response,
        ):
            if response.status_code not in check.statuses:
                return Outcome(False, f"HTTP status {response.status_code}")
            return Outcome(True) if not check.contains else await _contains(response, check.contains.encode())
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        return Outcome(False, f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)


async def _contains(response: httpx.Response, wanted: bytes) -> Outcome:
    body = b""
    async for part in response.aiter_bytes():
        body += part
        if wanted in body:
            return Outcome(True)
        if len(body) > _BODY_BYTES:
            break
    return Outcome(False, f"the answer lacks {wanted.decode()!r}")


# -- command -----------------------------------------------------------------------------------------------------------


async def run_command(check: CommandCheck) -> Outcome:
    try:
        process = await asyncio.create_subprocess_exec(
            *check.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return Outcome(False, f"cannot run {check.command[0]}: {error.strerror}")
    try:
        assert process.stdout is not None
        said = await _drain(process.stdout)
        status = await process.wait()
    finally:
        # Also after success: what the command left in the background goes with it.
        await kill_group(process)
    if status == 0:
        return Outcome(True)
    first_line = said.decode(errors="replace").strip().partition("\n")[0]
    return Outcome(False, f"exit {status}: {first_line}" if first_line else f"exit {status}")


async def _drain(stream: asyncio.StreamReader) -> bytes:
    """The first of it is kept, all of it is read: a command must not block on a full pipe."""
    said = b""
    while more := await stream.read(_OUTPUT_BYTES):
        said = (said + more)[:_OUTPUT_BYTES]
    return said


# -- disk and clock ----------------------------------------------------------------------------------------------------


def look_at_disk(check: DiskCheck) -> Outcome:
    try:
        found = os.statvfs(check.path)
    except OSError as error:
        return Outcome(False, f"{check.path}: {error.strerror}")
    return judge_disk(found.f_bavail, found.f_blocks, check)


class ClockProbe:
    """Compares the two clocks from look to look."""

    def __init__(self, check: ClockCheck, wall: Callable[[], float] = time.time) -> None:
        self._check = check
        self._wall = wall
        self._last = (wall(), _boot_time())

    async def __call__(self) -> Outcome:
        now = (self._wall(), _boot_time())
        before, self._last = self._last, now
        return judge_clock(now[0] - before[0], now[1] - before[1], kernel_disciplines_clock(), self._check)


def _boot_time() -> float:
    """Runs on through a suspend, as the wall clock does."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def kernel_disciplines_clock() -> bool:
    """Whether some NTP client keeps the kernel's clock: adjtimex(2), asked without changing anything."""
    state: int = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))
    return state not in (-1, _UNSYNCHRONISED)
