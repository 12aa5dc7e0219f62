"""The event loop of a run: starts programs, timers and the few calls that need a thread, and waits for all of them.

Programs are started with posix_spawn where that is enough and waited for by file descriptor, so that hundreds of them
cost neither threads nor polling. The loop knows nothing of states.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import os
import selectors
import signal
import threading
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, Iterator, List, Optional, Tuple

from ..module import Command, Finished

KEPT_BYTES = 256 * 1024
"""How many bytes are kept of the beginning of an output, and as many of its end. All of them are held, masked, shown,
sent and stored several times over, and many programs run at once."""
_CHUNK = 1 << 16
_RESTORED_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores these signals; a program expects to be ended by them."""
_POLL_SECONDS = 0.01
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)
"""Errors for too many descriptors or processes, or too little memory, at the moment."""
_RETRY_SECONDS = 0.02


class CapturedOutput:
    """One output of a program: its first and last bytes, and a mark for what is left out between them."""

    __slots__ = ("_first", "_last", "_size")

    def __init__(self) -> None:
        self._first = bytearray()
        self._last = bytearray()
        self._size = 0

    def extend(self, part: bytes) -> None:
        self._size += len(part)
        room = KEPT_BYTES - len(self._first)
        self._first += part[:room]
        self._last += part[room:]
        if len(self._last) > 2 * KEPT_BYTES:
            del self._last[:-KEPT_BYTES]

    def text(self) -> str:
        last = self._last[-KEPT_BYTES:]
        left_out = self._size - len(self._first) - len(last)
        mark = b"\n[%d bytes of output are left out here]\n" % left_out if left_out else b""
        return (self._first + mark + last).decode("utf-8", "replace")


class Program:
    """A running program and its output so far."""

    __slots__ = ("deadline", "done", "outputs", "pid", "pidfd", "pipes", "timed_out")

    def __init__(self, pid: int, stdout: int, stderr: int, done: Callable[[Finished], None]) -> None:
        self.pid = pid
        self.pipes: Dict[int, int] = {stdout: 0, stderr: 1}
        self.outputs = (CapturedOutput(), CapturedOutput())
        self.pidfd: Optional[int] = None
        self.deadline: Optional[float] = None
        self.timed_out = False
        self.done = done


def _working_directory() -> str:
    """Return the working directory; `/` if it is gone, or does not exist in this namespace."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "/"


class EventLoop:
    """Starts programs, timers and threads and waits for them.

    All callbacks run in `step`, in the thread of its caller.
    """

    def __init__(self, threads: int = 32) -> None:
        self._selector = selectors.DefaultSelector()
        self._programs: Dict[int, Program] = {}
        self._timers: List[Tuple[float, int, Callable[[], None]]] = []
        self._timer_count = 0
        self._thread_limit = threads
        self._executor: Any = None
        self._thread_count = 0
        self._callbacks: Deque[Callable[[], None]] = deque()
        self._wake_pipe: Optional[Tuple[int, int]] = None
        self._interrupted = False
        self._pidfd = hasattr(os, "pidfd_open")
        self._environment: Optional[Dict[str, str]] = None
        self._dev_null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._start_directory = _working_directory()

    @property
    def is_busy(self) -> bool:
        return bool(self._programs or self._timers or self._thread_count or self._callbacks)

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Handle signals to stop only between two steps: while a program is being started, the program would be lost.

        A second signal does not wait for that. Only the main thread receives signals at all.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def on_signal(number: int, frame: Any) -> None:
            if self._interrupted:
                raise KeyboardInterrupt
            self._interrupted = True
            os.write(self._open_wake_pipe()[1], b".")

        self._open_wake_pipe()
        previous = {
            number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        }
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _open_wake_pipe(self) -> Tuple[int, int]:
        """Return a pipe that ends the waiting of a step when a byte is written to it."""
        if self._wake_pipe is None:
            read, write = os.pipe()
            os.set_blocking(read, False)
            self._wake_pipe = (read, write)
            self._selector.register(read, selectors.EVENT_READ, None)
        return self._wake_pipe

    def close(self) -> None:
        """End everything that still runs: programs are killed with their process group; threads are waited for."""
        for program in list(self._programs.values()):
            _kill(program.pid)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(program.pid, 0)
            self._release(program)
        if self._executor is not None:
            self._executor.shutdown(wait=True)
        for descriptor in self._wake_pipe or ():
            os.close(descriptor)
        os.close(self._dev_null)
        self._selector.close()

    # Programs

    def spawn(self, command: Command, done: Callable[[Finished], None]) -> None:
        """Start a program; `done` is called with its end, also if it could not start."""
        pipes: List[int] = []
        try:
            pipes += os.pipe()
            pipes += os.pipe()
            pid = self._start(command, pipes[1], pipes[3])
        except (OSError, LookupError, ValueError) as error:
            for descriptor in pipes:
                os.close(descriptor)
            if getattr(error, "errno", 0) in _OUT_OF_RESOURCES and self._programs:
                # Other programs hold the resources it needs, and will release them.
                self.call_later(_RETRY_SECONDS, lambda: self.spawn(command, done))
                return
            message = f"cannot start {command.argv[0]}: {error}"
            self._callbacks.append(lambda: done(Finished(127, "", message, 0)))
            return
        out_read, out_write, err_read, err_write = pipes
        os.close(out_write)
        os.close(err_write)
        program = Program(pid, out_read, err_read, done)
        for pipe in program.pipes:
            os.set_blocking(pipe, False)
            self._selector.register(pipe, selectors.EVENT_READ, program)
        self._programs[pid] = program
        if command.timeout is not None:
            program.deadline = time.monotonic() + command.timeout
            self.call_later(command.timeout, lambda: self._expire(program))
        self._watch_end(program)

    def _start(self, command: Command, stdout: int, stderr: int) -> int:
        if not command.stdin:
            return self._start_reading(command, self._dev_null, stdout, stderr)
        stdin = _open_stdin(command.stdin)
        try:
            return self._start_reading(command, stdin, stdout, stderr)
        finally:
            os.close(stdin)

    def _start_reading(self, command: Command, stdin: int, stdout: int, stderr: int) -> int:
        if command.user is None and command.umask is None and command.cwd in (None, self._start_directory):
            if self._environment is None:
                self._environment = dict(os.environ)
            return os.posix_spawnp(
                command.argv[0],
                command.argv,
                command.env if command.env is not None else self._environment,
                file_actions=(
                    (os.POSIX_SPAWN_DUP2, stdin, 0),
                    (os.POSIX_SPAWN_DUP2, stdout, 1),
                    (os.POSIX_SPAWN_DUP2, stderr, 2),
                ),
                setpgroup=0,
                setsigdef=_RESTORED_SIGNALS,
            )
        return _start_with_popen(command, stdin, stdout, stderr)

    def _watch_end(self, program: Program) -> None:
        if self._pidfd:
            try:
                program.pidfd = os.pidfd_open(program.pid)
            except OSError:
                self._pidfd = False
            else:
                self._selector.register(program.pidfd, selectors.EVENT_READ, program)
                return
        self.call_later(_POLL_SECONDS, lambda: self._poll(program))

    def _poll(self, program: Program) -> None:
        """Ask again and again whether a program has ended, where the kernel has no file descriptor for a process."""
        if program.pid in self._programs and not self._collect_if_ended(program):
            self.call_later(_POLL_SECONDS, lambda: self._poll(program))

    def _expire(self, program: Program) -> None:
        if program.pid in self._programs:
            program.timed_out = True
            _kill(program.pid)

    def _collect_if_ended(self, program: Program) -> bool:
        pid, status = os.waitpid(program.pid, os.WNOHANG)
        if pid == 0:
            return False
        # All its output is in the pipes now. A child it left behind may hold them open: that is not waited for.
        for pipe in list(program.pipes):
            while self._read_pipe(program, pipe):
                pass
        self._release(program)
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
        stdout, stderr = (captured.text() for captured in program.outputs)
        program.done(Finished(code, stdout, stderr, program.pid, program.timed_out))
        return True

    def _read_pipe(self, program: Program, pipe: int) -> bool:
        """Read what a pipe has. Return False when there is no more for now."""
        try:
            part = os.read(pipe, _CHUNK)
        except BlockingIOError:
            return False
        if part:
            program.outputs[program.pipes[pipe]].extend(part)
            return True
        self._selector.unregister(pipe)
        os.close(pipe)
        del program.pipes[pipe]
        return False

    def _release(self, program: Program) -> None:
        for descriptor in (*program.pipes, *((program.pidfd,) if program.pidfd is not None else ())):
            self._selector.unregister(descriptor)
            os.close(descriptor)
        self._programs.pop(program.pid, None)

    # Timers and threads

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        self._timer_count += 1
        heapq.heappush(self._timers, (time.monotonic() + seconds, self._timer_count, call))

    def call_in_thread(self, call: Callable[[], Any], done: Callable[[Any, Optional[BaseException]], None]) -> None:
        """Run a call that may block in a thread; `done` is called with its value or its exception."""
        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor

            self._executor = ThreadPoolExecutor(self._thread_limit, "state")
        wake = self._open_wake_pipe()[1]
        self._thread_count += 1

        def finished(future: Any) -> None:
            self._callbacks.append(lambda: self._finish_thread(future, done))
            os.write(wake, b".")

        self._executor.submit(call).add_done_callback(finished)

    def _finish_thread(self, future: Any, done: Callable[[Any, Optional[BaseException]], None]) -> None:
        self._thread_count -= 1
        error = future.exception()
        done(None if error else future.result(), error)

    # The step

    def step(self) -> None:
        """Wait until something happens, and run the callbacks for everything that happened."""
        timeout: Optional[float] = None
        if self._callbacks:
            timeout = 0.0
        elif self._timers:
            timeout = max(0.0, self._timers[0][0] - time.monotonic())
        for key, _ in self._selector.select(timeout):
            program = key.data
            if program is None:
                with contextlib.suppress(BlockingIOError):
                    os.read(key.fd, _CHUNK)
            elif program.pid in self._programs:
                if key.fd == program.pidfd:
                    self._collect_if_ended(program)
                elif key.fd in program.pipes:
                    self._read_pipe(program, key.fd)
        if self._interrupted:
            raise KeyboardInterrupt
        while self._timers and self._timers[0][0] <= time.monotonic():
            heapq.heappop(self._timers)[2]()
        for _ in range(len(self._callbacks)):
            self._callbacks.popleft()()


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _open_stdin(text: bytes) -> int:
    """Return a descriptor to read a text from; it is a file, so nothing has to write into a pipe meanwhile."""
    import tempfile

    with tempfile.TemporaryFile() as file:
        file.write(text)
        file.seek(0)
        return os.dup(file.fileno())


def _start_with_popen(command: Command, stdin: int, stdout: int, stderr: int) -> int:
    """Start a program in another directory, as another user or with another umask: posix_spawn cannot do that."""
    import subprocess

    options: Dict[str, Any] = {"cwd": command.cwd, "env": command.env, "start_new_session": True}
    if command.umask is not None:
        options["umask"] = command.umask
    if command.user is not None:
        import pwd

        try:
            account = pwd.getpwnam(command.user)
        except KeyError:
            raise LookupError(f"there is no user {command.user!r}") from None
        user_environment = {
            "HOME": account.pw_dir,
            "USER": account.pw_name,
            "LOGNAME": account.pw_name,
            "SHELL": account.pw_shell,
        }
        options["env"] = {**(command.env if command.env is not None else os.environ), **user_environment}
        options["cwd"] = command.cwd or account.pw_dir
        if account.pw_uid != os.geteuid():
            options.update(user=account.pw_uid, group=account.pw_gid)
            options["extra_groups"] = os.getgrouplist(account.pw_name, account.pw_gid)
    process = subprocess.Popen(command.argv, stdin=stdin, stdout=stdout, stderr=stderr, **options)
    # Waited for by pid in the loop; without this Popen would warn that it still runs.
    process.returncode = 0
    return process.pid
