"""Probes: the function that carries out each kind of health check and returns its result. The caller limits its time.

A cancelled probe leaves nothing behind: a command is killed with its whole process group, connections are closed.
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
    CheckResult,
    ClockCheck,
    CommandCheck,
    DiskCheck,
    HttpCheck,
    ProcessCheck,
    TcpCheck,
    evaluate_clock,
    evaluate_disk,
)

_OUTPUT_BYTES = 4096
_BODY_BYTES = 64 * 1024
_UNSYNCHRONISED = 5  # adjtimex(2): TIME_ERROR

Probe = Callable[[], Awaitable[CheckResult]]


def build_probe(check: Check) -> Probe:
    """Return the probe of a check. A probe may keep state from one run to the next."""
    if isinstance(check, ProcessCheck):
        return ThreadProbe(lambda: probe_process(check))
    if isinstance(check, TcpCheck):
        return lambda: probe_tcp(check)
    if isinstance(check, HttpCheck):
        return lambda: probe_http(check)
    if isinstance(check, CommandCheck):
        return lambda: probe_command(check)
    if isinstance(check, DiskCheck):
        return ThreadProbe(lambda: probe_disk(check))
    if isinstance(check, ClockCheck):
        return ClockProbe(check)
    raise TypeError(f"check {check.name}: no probe for a {type(check).__name__}")


class ThreadProbe:
    """A probe that runs blocking work in a thread, and never starts a second thread while the first is blocked.

    Reading a file system that hangs may block. The thread is a daemon: a thread that hangs for ever must not keep the
    agent from ending.
    """

    def __init__(self, work: Callable[[], CheckResult]) -> None:
        self._work = work
        self._blocked = False

    async def __call__(self) -> CheckResult:
        if self._blocked:
            return CheckResult(False, "an earlier check still hangs")
        self._blocked = True
        loop = asyncio.get_running_loop()
        future: asyncio.Future[CheckResult] = loop.create_future()
        threading.Thread(target=self._work_in_thread, args=(loop, future), daemon=True).start()
        return await future

    def _work_in_thread(self, loop: asyncio.AbstractEventLoop, future: "asyncio.Future[CheckResult]") -> None:
        try:
            result = self._work()
        except OSError as error:
            result = CheckResult(False, str(error.strerror or error))
        finally:
            self._blocked = False
        # The loop may be closed, if the work took longer than the agent ran.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_set_result, future, result)


def _set_result(future: "asyncio.Future[CheckResult]", result: CheckResult) -> None:
    if not future.done():
        future.set_result(result)


# -- process -----------------------------------------------------------------------------------------------------------


def probe_process(check: ProcessCheck, proc: Path = Path("/proc")) -> CheckResult:
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
            return CheckResult(True)
        stopped += 1
    return CheckResult(False, f"{check.process} is stopped" if stopped else f"no process {check.process}")


def _process_of_pid_file(check: ProcessCheck, proc: Path) -> CheckResult:
    assert check.pid_file is not None
    try:
        pid = int(Path(check.pid_file).read_text().strip())
    except (OSError, ValueError):
        return CheckResult(False, f"no pid in {check.pid_file}")
    state = _state_if_named(proc / str(pid), check.process)
    if state is None or state in "ZX":
        return CheckResult(False, f"no process {check.process} with pid {pid}")
    return CheckResult(False, f"{check.process} is stopped") if state in "Tt" else CheckResult(True)


def _state_if_named(folder: Path, name: str) -> str | None:
    """Return the state letter of a process if it has this name; None if it has another name or has ended."""
    try:
        stat = (folder / "stat").read_text(errors="replace")
        # The name is in parentheses and may contain parentheses itself; the kernel cuts it at 15 bytes.
        comm = stat[stat.index("(") + 1 : stat.rindex(")")]
        state = stat[stat.rindex(")") + 2]
        if comm == name:
            return state
        program = (folder / "cmdline").read_bytes().split(b"\0", 1)[0].decode(errors="replace")
    except (OSError, ValueError, IndexError):
        return None
    return state if os.path.basename(program) == name else None


# -- network -----------------------------------------------------------------------------------------------------------


async def probe_tcp(check: TcpCheck) -> CheckResult:
    try:
        reader, writer = await asyncio.open_connection(check.host, check.port)
    except OSError as error:
        return CheckResult(False, f"{check.host}:{check.port}: {error.strerror or error}")
    try:
        return await _read_until(reader, check.expect.encode())
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _read_until(reader: asyncio.StreamReader, expect: bytes) -> CheckResult:
    received = b""
    while expect not in received:
        try:
            more = await reader.read(_OUTPUT_BYTES)
        except OSError as error:
            return CheckResult(False, f"closed: {error.strerror or error}")
        if not more or len(received) > _BODY_BYTES:
            return CheckResult(False, f"said something else than {expect.decode()!r}")
        received += more
    return CheckResult(True)


async def probe_http(check: HttpCheck) -> CheckResult:
    """Request the URL on a new connection each time: an open one would not show that nothing accepts any more."""
    try:
        verify: ssl.SSLContext | bool = (
            ssl.create_default_context(cafile=check.ca_file) if check.url.startswith("https:") else False
        )
        async with (
            # The runner limits the time of every probe.
            httpx.AsyncClient(verify=verify, trust_env=False, timeout=None) as client,  # noqa: S113
            client.stream("GET", check.url) as response,
        ):
            if response.status_code not in check.statuses:
                return CheckResult(False, f"HTTP status {response.status_code}")
            return CheckResult(True) if not check.contains else await _search_body(response, check.contains.encode())
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        return CheckResult(False, f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)


async def _search_body(response: httpx.Response, expected: bytes) -> CheckResult:
    body = b""
    async for part in response.aiter_bytes():
        body += part
        if expected in body:
            return CheckResult(True)
        if len(body) > _BODY_BYTES:
            break
    return CheckResult(False, f"the answer lacks {expected.decode()!r}")


# -- command -----------------------------------------------------------------------------------------------------------


async def probe_command(check: CommandCheck) -> CheckResult:
    try:
        process = await asyncio.create_subprocess_exec(
            *check.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return CheckResult(False, f"cannot run {check.command[0]}: {error.strerror}")
    try:
        assert process.stdout is not None
        output = await _drain(process.stdout)
        status = await process.wait()
    finally:
        # Also after success: what the command left running in the background is killed too.
        await kill_group(process)
    if status == 0:
        return CheckResult(True)
    first_line = output.decode(errors="replace").strip().partition("\n")[0]
    return CheckResult(False, f"exit {status}: {first_line}" if first_line else f"exit {status}")


async def _drain(stream: asyncio.StreamReader) -> bytes:
    """Read a stream to its end and return its beginning.

    All of it is read, because a command must not block on a full pipe.
    """
    output = b""
    while more := await stream.read(_OUTPUT_BYTES):
        output = (output + more)[:_OUTPUT_BYTES]
    return output


# -- disk and clock ----------------------------------------------------------------------------------------------------


def probe_disk(check: DiskCheck) -> CheckResult:
    try:
        space = os.statvfs(check.path)
    except OSError as error:
        return CheckResult(False, f"{check.path}: {error.strerror}")
    return evaluate_disk(space.f_bavail, space.f_blocks, check)


class ClockProbe:
    """A probe that compares how far the wall clock and the monotonic clock went since its last run."""

    def __init__(self, check: ClockCheck, wall: Callable[[], float] = time.time) -> None:
        self._check = check
        self._wall = wall
        self._last = (wall(), _boot_time())

    async def __call__(self) -> CheckResult:
        now = (self._wall(), _boot_time())
        before, self._last = self._last, now
        return evaluate_clock(now[0] - before[0], now[1] - before[1], kernel_disciplines_clock(), self._check)


def _boot_time() -> float:
    """Return a monotonic clock that goes on during a suspend, as the wall clock does."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def kernel_disciplines_clock() -> bool:
    """Return whether an NTP client disciplines the kernel's clock, by adjtimex(2), which changes nothing here."""
    state: int = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))
    return state not in (-1, _UNSYNCHRONISED)
