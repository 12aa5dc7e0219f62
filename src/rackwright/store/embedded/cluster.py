"""The database cluster of the embedded PostgreSQL on disk: the keeper creates, recovers, starts and stops it here.

The files, all in `<home>/postgres/<major>`:

    data            the cluster; appears by a rename, so it is complete or not there at all
    data.new        a cluster that initdb is making; if one is left over, no process uses it
    data.lock       locked by the keeper and every process of PostgreSQL, so while it is free none of them is alive
    start.lock      locked by a user while it looks for the keeper or starts one
    run             the socket directory, unless its path would be too long for a socket
    runtime         where the socket directory is
    log, log.1      the output of PostgreSQL

Only the keeper imports this module at run time; it uses nothing but the standard library.
"""

import contextlib
import fcntl
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from rackwright.parent_death import die_with
from rackwright.private_files import sync_folder
from rackwright.store.embedded import operating_user

ROLE = "rackwright"
SOCKET_NAME = ".s.PGSQL.5432"
SOCKET_PATH_LIMIT = 107
"""Bytes of a socket's path: sun_path holds 108, with its terminating zero."""
RUNTIME_PREFIX = "rackwright-"
LOG_LIMIT = 10_000_000

LOCK_DEADLINE = 120.0
START_DEADLINE = 300.0
"""Seconds: a crashed server replays its log first."""
FAST_STOP_DEADLINE = 60.0

PRIVATE: Mapping[str, str] = {"listen_addresses": "", "unix_socket_permissions": "0700"}
"""Settings that let nobody but the owner connect. No user of the keeper can override them."""

SETTINGS: Mapping[str, str] = {
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    "jit": "off",  # our statements are many and short: compiling one costs more than running it
}


class ClusterFailed(Exception):
    """The cluster cannot be served; the text is for the person who started it."""


@dataclass(frozen=True)
class StartOrder:
    """What the first user sends the keeper: the programs to run, and settings beyond ours."""

    program: Path
    settings: Mapping[str, str]


class Server:
    """A running postmaster."""

    def __init__(self, process: subprocess.Popen[bytes], sockets: Path) -> None:
        self.process = process
        self.sockets = sockets

    def is_running(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> None:
        """Stop the server. A fast stop ends its sessions; what is committed stays. If that takes too long, an
        immediate stop follows, after which the next start recovers."""
        for number, patience in ((signal.SIGINT, FAST_STOP_DEADLINE), (signal.SIGQUIT, 10.0), (signal.SIGKILL, 10.0)):
            if not self.is_running():
                return
            self.process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(patience)


class Cluster:
    """The cluster's directory. As a context manager it holds the lock, and cleans up at the end."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.runtime = directory / "run"
        self.run_as = operating_user.RunAs.ITSELF
        self.lock = -1

    def __enter__(self) -> Self:
        self.lock = os.open(self.directory / "data.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + LOCK_DEADLINE
        while True:
            try:
                fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ClusterFailed(
                        f"An earlier PostgreSQL still uses {self.data} and did not stop within {LOCK_DEADLINE:.0f} s. "
                        f"See {self.log_path}; its process id is the first line of {self.data / 'postmaster.pid'}."
                    ) from None
                time.sleep(0.02)
            else:
                return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.runtime, ignore_errors=True)
        (self.directory / "runtime").unlink(missing_ok=True)
        os.close(self.lock)

    @property
    def log_path(self) -> Path:
        return self.directory / "log"

    @property
    def control_path(self) -> Path:
        return self.runtime / "control"

    def start(self, order: StartOrder) -> Server:
        """Start a server that accepts connections, from whatever state the last one left behind."""
        self._clear_leftovers()
        try:
            self.run_as = operating_user.choose_run_as(self.data)
        except operating_user.WrongOwner as error:
            raise ClusterFailed(str(error)) from None
        self._refuse_foreign_postmaster()
        program = self._prepare_runtime(order.program)
        if self.run_as is operating_user.RunAs.NAMESPACE:
            operating_user.enter_namespace()
        if not self.data.exists():
            self._create_data(program, order.settings)
        self._write_access_rules()
        return self._launch(program, order.settings)

    # Leftovers of the last server

    def _clear_leftovers(self) -> None:
        """Remove what the last server left. The lock is held, so no process of it is alive and all of this is stale."""
        record = self.directory / "runtime"
        with contextlib.suppress(FileNotFoundError):
            old = Path(record.read_text())
            if old.name.startswith(RUNTIME_PREFIX) and not old.is_symlink() and old.stat().st_uid == os.geteuid():
                shutil.rmtree(old, ignore_errors=True)
        record.unlink(missing_ok=True)
        for leftover in (self.directory / "run", self.directory / "data.new"):
            if leftover.exists():
                shutil.rmtree(leftover)
        with contextlib.suppress(FileNotFoundError):
            if self.log_path.stat().st_size > LOG_LIMIT:
                self.log_path.replace(self.log_path.with_name("log.1"))

    def _refuse_foreign_postmaster(self) -> None:
        """Remove a stale postmaster.pid; fail if a server runs on our data that was started by other means.

        PostgreSQL would take any living process with that id for the owner, so a stale file has to go.
        """
        pid_file = self.data / "postmaster.pid"
        if not pid_file.exists():
            return
        first_line = pid_file.read_text().partition("\n")[0].strip()
        with contextlib.suppress(OSError):
            if first_line.isdigit() and os.path.samefile(f"/proc/{first_line}/cwd", self.data):
                raise ClusterFailed(
                    f"Process {first_line}, which Rackwright did not start, runs a PostgreSQL on {self.data}. "
                    f"Stop it with: kill -INT {first_line}"
                )
        pid_file.unlink()

    # The socket directory

    def _prepare_runtime(self, program: Path) -> Path:
        """Make the socket directory, and for the real `nobody` a copy of the programs. Return the programs to run."""
        if self.run_as is not operating_user.RunAs.NOBODY and fits_socket(self.runtime):
            self.runtime.mkdir(mode=0o700)
        else:
            # Not XDG_RUNTIME_DIR: that one vanishes when its user logs out, and servers outlive sessions.
            self.runtime = Path(tempfile.mkdtemp(prefix=RUNTIME_PREFIX, dir=_short_temporary()))
        record = self.directory / "runtime"
        record.write_text(str(self.runtime))
        if self.run_as is not operating_user.RunAs.NOBODY:
            return program
        account = operating_user.nobody()
        self.runtime.chmod(0o711)
        sockets = self.runtime / "sockets"
        sockets.mkdir(mode=0o700)
        os.chown(sockets, account.uid, account.gid)
        if self.data.exists():
            operating_user.change_owner(account, self.data)
        return operating_user.copy_program(program, self.runtime / "program")

    @property
    def sockets(self) -> Path:
        return self.runtime / "sockets" if self.run_as is operating_user.RunAs.NOBODY else self.runtime

    # Creating the data directory

    def _create_data(self, program: Path, settings: Mapping[str, str]) -> None:
        new = self.directory / "data.new"
        new.mkdir(mode=0o700)
        if self.run_as is operating_user.RunAs.NOBODY:
            operating_user.change_owner(operating_user.nobody(), new)
        data_path = self._path_for_process(new)
        # Not the host's locale: its sort order changes with the C library, and breaks indexes.
        locale = ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        initdb, postgres = str(program / "bin/initdb"), str(program / "bin/postgres")
        options = [f"--username={ROLE}", "--auth=trust", "--no-instructions", *locale]
        unsafe = settings.get("fsync") == "off"
        self._run([initdb, f"--pgdata={data_path}", *options, *(["--no-sync"] if unsafe else [])], new)
        create_database = [postgres, "--single", *(["-F"] if unsafe else []), "-D", data_path, "template1"]
        self._run(create_database, new, f"CREATE DATABASE {ROLE}\n")
        new.rename(self.data)
        sync_folder(self.directory)

    def _run(self, command: list[str], folder: Path, statement: str = "") -> None:
        process = self._spawn(command, folder, signal.SIGKILL, stdin=subprocess.PIPE, output=subprocess.PIPE)
        output = process.communicate(statement.encode())[0].decode(errors="replace")
        # In single-user mode a failed statement is no failed process.
        if process.returncode != 0 or re.search(r"\b(ERROR|FATAL|PANIC):", output):
            raise ClusterFailed(
                f"{Path(command[0]).name} could not make a database in {self.directory}:\n{output.strip()}"
            )

    def _write_access_rules(self) -> None:
        """Write who may connect. The directory's mode lets only the owner reach the socket, so everyone who does is
        trusted; but the account `nobody` is shared, so there the server checks the user of the connecting process."""
        rule, mapping = "local all all trust\n", ""
        if self.run_as is operating_user.RunAs.NOBODY:
            rule, mapping = "local all all peer map=rackwright\n", f"rackwright root {ROLE}\n"
        for name, text in (("pg_hba.conf", rule), ("pg_ident.conf", mapping)):
            path = self.data / name
            if path.read_text() != text:
                path.write_text(text)

    # Starting the server

    def _launch(self, program: Path, settings: Mapping[str, str]) -> Server:
        sockets = {"unix_socket_directories": quoted(self.sockets)}
        command = [str(program / "bin/postgres"), "-D", self._path_for_process(self.data)]
        for name, value in {**SETTINGS, **settings, **PRIVATE, **sockets}.items():
            command += ["-c", f"{name}={value}"]
        with self.log_path.open("ab") as log:
            log_start = log.tell()
            process = self._spawn(command, self.data, signal.SIGINT, stdin=subprocess.DEVNULL, output=log.fileno())
        server = Server(process, self.sockets)
        try:
            self._wait_until_ready(server, log_start)
        except BaseException:
            server.stop()
            raise
        return server

    def _wait_until_ready(self, server: Server, log_start: int) -> None:
        deadline = time.monotonic() + START_DEADLINE
        while not self._is_ready(server):
            if not server.is_running():
                raise ClusterFailed(f"PostgreSQL did not start on {self.data}. It said:\n{self._log_since(log_start)}")
            if time.monotonic() > deadline:
                raise ClusterFailed(
                    f"PostgreSQL on {self.data} accepts no connections after {START_DEADLINE:.0f} s. "
                    f"It said:\n{self._log_since(log_start)}"
                )
            time.sleep(0.005)

    def _is_ready(self, server: Server) -> bool:
        """Return whether the server is ready: the postmaster writes that into the eighth line of its pid file, which
        pg_ctl reads too."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[0] == str(server.process.pid) and lines[7].strip() == "ready"

    def _log_since(self, start: int) -> str:
        with self.log_path.open("rb") as log:
            log.seek(start)
            return log.read().decode(errors="replace").strip()[-2000:]

    # Processes of PostgreSQL

    def _path_for_process(self, folder: Path) -> str:
        """Return the path by which a process reaches its working directory: `nobody` may enter that, but not its
        parents."""
        return "/proc/self/cwd" if self.run_as is operating_user.RunAs.NOBODY else str(folder)

    def _spawn(
        self, command: list[str], folder: Path, death_signal: signal.Signals, *, stdin: int, output: int
    ) -> subprocess.Popen[bytes]:
        """Start a process of PostgreSQL. It inherits the lock, and gets `death_signal` when the keeper dies."""
        account = operating_user.nobody() if self.run_as is operating_user.RunAs.NOBODY else None
        return subprocess.Popen(
            command,
            cwd=folder,
            stdin=stdin,
            stdout=output,
            stderr=output if output != subprocess.PIPE else subprocess.STDOUT,
            pass_fds=(self.lock,),
            env={name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "PYTHON"))},
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
            preexec_fn=partial(die_with, os.getpid(), death_signal),  # safe: the keeper has one thread
        )


def fits_socket(directory: Path) -> bool:
    """Return whether a directory can hold the socket: its path has a limit, and libpq takes a comma in a host for the
    start of the next host."""
    longest = os.fsencode(directory / SOCKET_NAME)
    return len(longest) <= SOCKET_PATH_LIMIT and b"," not in longest


def _short_temporary() -> str:
    default = tempfile.gettempdir()
    fits = fits_socket(Path(default, f"{RUNTIME_PREFIX}xxxxxxxx", "sockets"))
    return default if fits else "/tmp"  # noqa: S108  # mkdtemp makes a private directory in it


def quoted(directory: Path) -> str:
    """Return a directory as one element of a list in PostgreSQL's configuration."""
    return '"' + str(directory).replace('"', '""') + '"'
