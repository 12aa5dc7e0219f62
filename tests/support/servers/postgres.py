"""Servers for tests: the embedded PostgreSQL tuned for speed, or Debian's PostgreSQL 15 started by hand."""

import contextlib
import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
from sqlalchemy import make_url
from tests.support.waiting import PATIENCE, wait_until

from rackwright.store.embedded.server import EmbeddedPostgres, database_url

DEBIAN_BIN = Path("/usr/lib/postgresql/15/bin")

NO_SYNC = {"fsync": "off"}
"""Safe against kill -9 of any process, not against the death of the machine, which no test brings about."""

UNSAFE_AND_FAST = NO_SYNC | {"synchronous_commit": "off", "full_page_writes": "off", "autovacuum": "off"}
"""For servers whose data nobody wants to see again."""


MEMORY = Path("/dev/shm")
ROOM = 2 * 1024**3
"""Bytes that must be free there. A server takes a few hundred MB."""
PREFIX = "rackwright-test-"


@contextlib.contextmanager
def folder_in_memory(otherwise: Path) -> Iterator[Path]:
    """A folder in memory, if there is room: every test makes a database and drops it, which is hundreds of files.

    It goes with the test run; one of a run that was killed goes with the next.
    """
    if not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < ROOM:
        yield otherwise
        return
    _remove_left_ones()
    folder, lock = _own_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
        os.close(lock)


def _remove_left_ones() -> None:
    for folder in MEMORY.glob(f"{PREFIX}*"):
        lock = _lock(folder)
        if lock is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _own_folder() -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=MEMORY))
        lock = _lock(folder)
        if lock is not None and folder.exists():
            return folder, lock
        # Somebody took it for a left one before it was locked.


def _lock(folder: Path) -> int | None:
    """Keep others from removing it, for as long as this process lives; None: it is somebody else's, or gone."""
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


@contextlib.contextmanager
def embedded_server(home: Path) -> Iterator[str]:
    server = EmbeddedPostgres(home, UNSAFE_AND_FAST)
    server.join()
    try:
        yield server.url
    finally:
        server.leave()


@contextlib.contextmanager
def debian_server() -> Iterator[str]:
    """Debian's PostgreSQL 15 on a unix socket of its own; as root it runs as `nobody`. Yields its URL."""
    if not (DEBIAN_BIN / "postgres").exists():
        raise RuntimeError(f"{DEBIAN_BIN}/postgres is missing. Install it: scripts/packages postgresql-15")
    folder = Path(tempfile.mkdtemp(prefix="rackwright-test-pg15-", dir="/tmp"))
    try:
        become: list[str] = []
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
            become = ["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]
        with _running_cluster(folder, become) as url:
            yield url
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def _running_cluster(folder: Path, become: list[str]) -> Iterator[str]:
    data = str(folder / "data")
    initdb = [str(DEBIAN_BIN / "initdb"), "-D", data, "-U", "rackwright", "-A", "trust", "-E", "UTF8", "--locale=C"]
    subprocess.run([*become, *initdb, "--no-sync"], check=True, stdout=subprocess.DEVNULL, cwd=folder)
    settings = UNSAFE_AND_FAST | {"listen_addresses": "", "unix_socket_directories": str(folder)}
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    postgres = [*become, "setpriv", "--pdeathsig", "INT", str(DEBIAN_BIN / "postgres"), "-D", data, *options]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(postgres, stdout=log, stderr=log, cwd=folder)
    try:
        url = database_url(folder)
        wait_until(lambda: _answers(url), "PostgreSQL answers")
        administer(url, "CREATE DATABASE rackwright")
        yield url
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(PATIENCE)


def administer(url: str, *statements: str) -> None:
    """Run statements in the `postgres` database of the server at `url`, outside of any transaction."""
    with psycopg.connect(plain(url), dbname="postgres", autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def _answers(url: str) -> bool:
    with contextlib.suppress(psycopg.OperationalError), psycopg.connect(plain(url), dbname="postgres"):
        return True
    return False


def plain(url: str) -> str:
    """As libpq understands it."""
    return url.replace("postgresql+psycopg:", "postgresql:", 1)


def ask(url: str, query: str) -> str:
    """The first column of the first row."""
    with psycopg.connect(plain(url)) as connection:
        row = connection.execute(query.encode()).fetchone()
        assert row is not None
        return str(row[0])


def execute(url: str, statement: str) -> None:
    with psycopg.connect(plain(url)) as connection:
        connection.execute(statement.encode())


def sockets_of(url: str) -> Path:
    return Path(str(make_url(url).query["host"]))
