"""Software health with real processes and sockets: killed, hanging, and back again."""

import asyncio
import os
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from tests.support.clock import pass_time
from tests.support.waiting import until

from rackwright.mesh.health.health_checks import (
    Check,
    CheckReport,
    CheckResult,
    ClockCheck,
    CommandCheck,
    DiskCheck,
    HttpCheck,
    ProcessCheck,
    Status,
    TcpCheck,
    unpack_reports,
)
from rackwright.mesh.health.health_probes import ClockProbe, ThreadProbe, build_probe, kernel_disciplines_clock
from rackwright.mesh.health.health_runner import HealthRunner

INTERVAL = 1000.0
TIMEOUT = 300.0
# Far longer than a machine may be busy. That the schedule keeps to two intervals is shown in test_health.py.

SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"all is well")
    def log_message(self, *arguments): pass
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
print("ready", flush=True)
server.serve_forever()
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


@asynccontextmanager
async def web_server(port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, str(port), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


class Watcher(HealthRunner):
    """Runs checks and lets a test wait for what they find, without the time between them."""

    def __init__(self, *checks: Check) -> None:
        super().__init__(checks, self._keep)
        self.status: dict[str, CheckReport] = {}

    def _keep(self, report: CheckReport) -> None:
        self.status[report.name] = report

    def shows(self, name: str, status: Status) -> bool:
        return name in self.status and self.status[name].status is status

    async def until(self, name: str, status: Status) -> CheckReport:
        def is_shown() -> bool:
            if not self.shows(name, status) and not self._running:
                pass_time(INTERVAL)  # all checks are done, and due again
            return self.shows(name, status)

        await until(is_shown, f"{name} is {status.name}")
        return self.status[name]


def _http(port: int, interval: float = INTERVAL, timeout: float = TIMEOUT) -> HttpCheck:
    return HttpCheck(
        name="web", url=f"http://127.0.0.1:{port}/", contains="is well", interval=interval, timeout=timeout, failures=2
    )


async def test_a_killed_service_is_known_and_known_to_be_back() -> None:
    port = free_port()
    watcher = Watcher(_http(port))
    async with watcher:
        async with web_server(port) as server:
            await watcher.until("web", Status.PASSING)
            server.kill()
            await server.wait()
            failing = await watcher.until("web", Status.FAILING)
            assert "ConnectError" in failing.reason
            assert unpack_reports(watcher.packed()) == ([failing], 0)
        async with web_server(port):
            await watcher.until("web", Status.PASSING)


async def test_a_hanging_service_is_known_and_known_to_be_back() -> None:
    port = free_port()
    tcp = TcpCheck(name="port", port=port, interval=3.0, timeout=1.0)
    watcher = Watcher(_http(port, 3.0, 1.0), tcp)
    async with watcher, web_server(port) as server:
        await until(lambda: watcher.shows("web", Status.PASSING), "the service is known to be well")
        server.send_signal(signal.SIGSTOP)
        # A kernel accepts for a stopped process: that is why a TCP check may be told what to expect.
        await until(
            lambda: watcher.shows("web", Status.FAILING) and watcher.shows("port", Status.PASSING),
            "the service is known to hang although its port is open",
        )
        assert watcher.status["web"].reason == "no answer in 1 s"
        server.send_signal(signal.SIGCONT)
        await until(lambda: watcher.shows("web", Status.PASSING), "the service is known to be back")


async def test_a_process_is_seen_running_stopped_and_gone(tmp_path: Path) -> None:
    program = tmp_path / "rw-test-daemon"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
    process = await asyncio.create_subprocess_exec(str(program), "3600")
    by_name = build_probe(ProcessCheck(name="x", process="rw-test-daemon"))
    pid_file = tmp_path / "pid"
    pid_file.write_text(f"{process.pid}\n")
    by_pid = build_probe(ProcessCheck(name="x", process="rw-test-daemon", pid_file=str(pid_file)))
    try:
        assert (await by_name()).passed
        assert (await by_pid()).passed
        process.send_signal(signal.SIGSTOP)
        await until(lambda: "stopped" in Path(f"/proc/{process.pid}/status").read_text(), "the process is stopped")
        assert (await by_name()).reason == (await by_pid()).reason == "rw-test-daemon is stopped"
    finally:
        process.kill()
        await process.wait()
    assert (await by_name()).reason == "no process rw-test-daemon"
    assert not (await by_pid()).passed


async def test_another_process_under_a_reused_pid_does_not_count(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    pid_file.write_text(str(os.getpid()))
    result = await build_probe(ProcessCheck(name="x", process="etcd", pid_file=str(pid_file)))()
    assert not result.passed


async def test_a_tcp_check_may_expect_a_greeting() -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 ready\r\n")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        assert (await build_probe(TcpCheck(name="x", port=port, expect="220 "))()).passed
        assert (
            await build_probe(TcpCheck(name="x", port=port, expect="SSH-"))()
        ).reason == "said something else than 'SSH-'"
    refused = await build_probe(TcpCheck(name="x", port=port))()
    assert not refused.passed


@pytest.mark.parametrize(
    ("script", "result"),
    [
        ("exit 0", CheckResult(True)),
        ("echo degraded; echo more; exit 3", CheckResult(False, "exit 3: degraded")),
        ("exit 1", CheckResult(False, "exit 1")),
        ("yes | head -c 1000000; exit 0", CheckResult(True)),
    ],
)
async def test_a_command_passes_by_its_exit_status(script: str, result: CheckResult) -> None:
    assert await build_probe(CommandCheck(name="x", command=("sh", "-c", script)))() == result


async def test_a_command_that_is_not_there_fails() -> None:
    result = await build_probe(CommandCheck(name="x", command=("/nonexistent",)))()
    assert result.reason == "cannot run /nonexistent: No such file or directory"


async def test_a_command_that_hangs_fails_and_leaves_no_process(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 3600 & echo $! $$ >> {pids}; wait"
    check = CommandCheck(name="x", command=("sh", "-c", script), interval=4.0, timeout=3.0, failures=1)
    watcher = Watcher(check)
    async with watcher:
        # On a busy machine a command may be ended before it has said who it is; the next one will.
        await until(lambda: watcher.shows("x", Status.FAILING) and pids.exists(), "a command hung and was ended")
    assert watcher.status["x"].reason == "no answer in 3 s"
    await until(lambda: all(_gone(int(pid)) for pid in pids.read_text().split()), "no process of it is left")


async def test_a_runner_that_ends_takes_its_commands_with_it(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    check = CommandCheck(
        name="x", command=("sh", "-c", f"echo $$ > {pids}; sleep 3600"), interval=1000.0, timeout=300.0
    )
    async with HealthRunner([check], lambda report: None):
        await until(lambda: pids.exists() and pids.read_text().endswith("\n"), "the command runs")
    await until(lambda: _gone(int(pids.read_text())), "the command is gone")


def _gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


async def test_a_disk_is_looked_at() -> None:
    assert (await build_probe(DiskCheck(name="x", path="/", free_percent=0.0))()).passed
    full = await build_probe(DiskCheck(name="x", path="/", free_percent=100.0))()
    assert full.reason.endswith("% free, 100 % wanted")
    missing = await build_probe(DiskCheck(name="x", path="/nonexistent"))()
    assert missing.reason == "/nonexistent: No such file or directory"


async def test_a_step_of_the_wall_clock_is_seen_once() -> None:
    times = iter([1000.0, 1000.0, 4600.0, 4600.0])
    probe = ClockProbe(ClockCheck(name="clock", largest_step=30.0), wall=lambda: next(times))
    results = [await probe() for _ in range(3)]
    assert [result.passed for result in results] == [True, False, True]
    assert "stepped by +3600" in results[1].reason


async def test_the_kernel_says_whether_the_clock_is_kept() -> None:
    result = await build_probe(ClockCheck(name="clock", synchronised=True))()
    assert result.passed == kernel_disciplines_clock()


async def test_a_check_that_blocks_its_thread_is_not_started_twice() -> None:
    release, started = asyncio.Event(), 0
    loop = asyncio.get_running_loop()

    def block() -> CheckResult:
        nonlocal started
        started += 1
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result()
        return CheckResult(True)

    probe = ThreadProbe(block)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await probe()
    assert await probe() == CheckResult(False, "an earlier check still hangs")
    release.set()

    async def passes() -> bool:
        return (await probe()).passed

    await until(passes, "the next check runs")
    assert started == 2


def test_every_kind_of_check_has_a_probe() -> None:
    with pytest.raises(TypeError, match="no probe"):
        build_probe(Check(name="x"))
