"""A process of its own that holds the embedded server of a home, to be killed.

Run it as `python -m tests.support.servers.postgres_holder HOME`.

It prints the server's URL when it has joined, and leaves when its input ends.
"""

import json
import os
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.waiting import PATIENCE

ROOT = Path(__file__).parents[3]


@cache
def python_for(become: tuple[str, ...]) -> list[str]:
    """An interpreter that whom we become may run, and our packages for it.

    One in root's own directory is closed to others; then the host's own of the same version does.
    """
    packages = sysconfig.get_path("purelib")
    for python in (sys.executable, f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"):
        # Started once more by itself: setpriv still has root's rights when it opens the program.
        check = (
            "import os, sys, psycopg, sqlalchemy, tests, rackwright; os.execv(sys.executable, [sys.executable, '-V'])"
        )
        probe = [*become, python, "-P", "-c", check]
        if subprocess.run(probe, cwd="/", env=environment(), capture_output=True, check=False).returncode == 0:
            return [*become, python, "-P"]
    raise RuntimeError(f"{' '.join(become)} may run no Python that has {packages}: move the checkout to where it may")


def environment() -> dict[str, str]:
    places = [str(ROOT), str(ROOT / "src"), sysconfig.get_path("purelib")]
    return os.environ | {"PYTHONPATH": ":".join(places)}


class Holder:
    """The other end of such a process."""

    def __init__(self, home: Path, become: Sequence[str] = ()) -> None:
        self.home = home
        self.url = ""
        self.process = subprocess.Popen(
            [*python_for(tuple(become)), "-m", "tests.support.servers.postgres_holder", str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
            env=environment(),
        )

    def wait_joined(self) -> Self:
        """Until it has joined, or could not: then `error` has the message."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the holder of {self.home} ended without a word"
        answer = json.loads(line)
        if "error" in answer:
            raise HolderRefused(answer["error"])
        self.url = answer["url"]
        return self

    def leave(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(PATIENCE) == 0

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE)

    def __enter__(self) -> Self:
        return self.wait_joined()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()
        self.process.wait(PATIENCE)


class HolderRefused(Exception):
    """What the holder was told when it tried to join."""


def main(home: Path) -> None:
    from tests.support.servers.postgres import NO_SYNC

    from rackwright.store.database_errors import EmbeddedPostgresFailed
    from rackwright.store.embedded.server import EmbeddedPostgres

    server = EmbeddedPostgres(home, NO_SYNC)
    try:
        answer = {"url": server.join()}
    except EmbeddedPostgresFailed as failure:
        answer = {"error": failure.message}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    server.leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
