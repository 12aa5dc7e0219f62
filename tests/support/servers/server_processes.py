"""Server processes to be killed and paused: each is `rackwright server` as a person starts it, on a shared database."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import IO

import httpx
from tests.support.waiting import PATIENCE, wait_until

DIES_WITH_US = ["setpriv", "--pdeathsig", "KILL"]
RACKWRIGHT = Path(sys.executable).with_name("rackwright")


class ServerProcess:
    launcher: Sequence[str] = ()
    """What it is started by: `prlimit`, say."""
    settings: Mapping[str, str] = MappingProxyType({})
    """Its settings in the environment, by name."""

    def __init__(
        self, home: Path, database_url: str, *, lease: float, heartbeat: float, more: Sequence[str] = ()
    ) -> None:
        self.home = home
        self.database_url = database_url
        self.port = free_port()
        self.log = home / f"server-{self.port}.log"
        self._options = ["--lease", str(lease), "--heartbeat", str(heartbeat), "--tick", "1", *more]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = self._popen(log)

    def _popen(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        place = ["--home", str(self.home), "--port", str(self.port)]
        return subprocess.Popen(
            [*DIES_WITH_US, *self.launcher, str(RACKWRIGHT), "server", "--lab", *place, *self._options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=os.environ
            | {"RACKWRIGHT_DATABASE_URL": self.database_url}
            | {f"RACKWRIGHT_{name.upper()}": value for name, value in self.settings.items()},
        )

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def ready(self) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{self.address}/healthz", timeout=PATIENCE, trust_env=False).status_code == 200
        assert self.running, f"the server ended by itself:\n{self.log.read_text()[-4000:]}"
        return False

    def wait_ready(self) -> None:
        wait_until(self.ready, lambda: f"the server at {self.address} is ready; it said:\n{self.said()[-4000:]}")

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(PATIENCE)

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def wake(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def said(self) -> str:
        return self.log.read_text()


class ManualServer:
    """A server without annealer, at whatever port is free."""

    def __init__(self, home: Path, database_url: str) -> None:
        self._log = home / f"manual-{len(list(home.glob('manual-*')))}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*DIES_WITH_US, str(RACKWRIGHT), "server", "--manual", "--home", str(home), "--port", "0"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {"RACKWRIGHT_DATABASE_URL": database_url},
            )

    @property
    def address(self) -> str | None:
        """Once it listens there."""
        found = re.search(r"^Rackwright on (\S+);", self._log.read_text(), re.MULTILINE)
        ended = self._process.poll() is not None
        assert found or not ended, f"the server ended by itself:\n{self._log.read_text()[-4000:]}"
        return found[1] if found else None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def servers(
    home: Path, database_url: str, count: int, *, lease: float, heartbeat: float, more: Sequence[str] = ()
) -> Iterator[list[ServerProcess]]:
    """That many servers, ready. None outlives the block. `more`: further flags of theirs."""
    made = [ServerProcess(home, database_url, lease=lease, heartbeat=heartbeat, more=more) for _ in range(count)]
    try:
        for one in made:
            one.start()
        for one in made:
            one.wait_ready()
        yield made
    finally:
        for one in made:
            if one.running:
                one.kill()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
