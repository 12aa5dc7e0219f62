"""The command line against a real server: commands run in this process, the server in one of its own."""

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from tests.support.servers.server_processes import DIES_WITH_US, RACKWRIGHT, free_port
from tests.support.waiting import PATIENCE, wait_until

from rackwright.cli.main import run


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Cli:
    """A person at a keyboard, logged in to one server."""

    url: str
    home: Path

    @property
    def environment(self) -> dict[str, str]:
        """For commands that are run as processes."""
        return {
            "RACKWRIGHT_URL": self.url,
            "RACKWRIGHT_HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home / "config"),
            "COLUMNS": "200",
        }

    def __call__(self, *words: str, stdin: str = "") -> Ended:
        """Run one command, whatever comes of it."""
        before = dict(os.environ)
        out, err = io.StringIO(), io.StringIO()
        os.environ.pop("RACKWRIGHT_TOKEN", None)
        os.environ.update(self.environment)
        given, sys.stdin = sys.stdin, io.StringIO(stdin)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = _run(list(words))
        finally:
            sys.stdin = given
            os.environ.clear()
            os.environ.update(before)
        return Ended(code, out.getvalue(), err.getvalue())

    def ok(self, *words: str, stdin: str = "") -> Ended:
        ended = self(*words, stdin=stdin)
        assert ended.code == 0, f"{words}: {ended.err}{ended.out}"
        return ended

    def json(self, *words: str, stdin: str = "") -> Any:
        return self.ok(*words, "--json", stdin=stdin).json


def _run(words: list[str]) -> int:
    try:
        return run(words[0], words[1:])
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1


@contextlib.contextmanager
def served(home: Path, *options: str) -> Iterator[Cli]:
    """A server on a database of its own, until the end of the block."""
    home.mkdir(parents=True, exist_ok=True)
    port = free_port()
    log = home / "server.log"
    command = [*DIES_WITH_US, str(RACKWRIGHT), "server", "--home", str(home), "--port", str(port), *options]
    with log.open("ab") as written, subprocess.Popen(command, stdout=written, stderr=written) as process:
        url = f"http://127.0.0.1:{port}"

        def ready() -> bool:
            assert process.poll() is None, f"the server ended by itself:\n{log.read_text()[-4000:]}"
            with contextlib.suppress(httpx.HTTPError):
                return httpx.get(f"{url}/healthz", timeout=PATIENCE, trust_env=False).status_code == 200
            return False

        try:
            wait_until(ready, "the server answers")
            yield Cli(url, home)
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
