"""The packages of a distribution, fetched and unpacked below a folder.

They come from where this host gets its own, or from a mirror that is named; apt checks their signatures either way.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rackwright.provision.images.host_sources import write_host_sources

Say = Callable[[str], None]


class BuildFailed(Exception):
    """An image could not be made; the text says why and what to do."""


@dataclass(frozen=True)
class Source:
    """Where packages come from."""

    suite: str
    mirror: str | None = None
    """A URL; None: as this host's own."""
    components: Sequence[str] = field(default=("main",))

    def arguments(self, work: Path) -> list[str]:
        """Return how mmdebstrap is told; `work` is a folder for files that it reads."""
        if self.mirror is not None:
            return [f"deb {self.mirror} {self.suite} {' '.join(self.components)}"]
        paths = write_host_sources(self.suite, work)
        if not paths:
            raise BuildFailed(
                f"This host's own package sources do not have {self.suite}. Name a mirror that does: --mirror URL"
            )
        return [str(path) for path in paths]


def need(*programs: str) -> None:
    """Refuse early, with the names of what is missing."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        raise BuildFailed(
            f"Making an image needs {', '.join(missing)}. Install it: apt-get install {' '.join(missing)}"
        )


def run(command: Sequence[str], say: Say) -> None:
    """Run a program; what it says last is told if it fails."""
    say(f"$ {' '.join(command)}")
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-15:])
        raise BuildFailed(f"{command[0]} ended with status {done.returncode}:\n{last}")


def fetch(packages: Sequence[str], source: Source, into: Path, say: Say) -> None:
    """Unpack packages and all they depend on. Nothing of them is run."""
    need("mmdebstrap")
    with tempfile.TemporaryDirectory(prefix="rackwright-sources-") as work:
        included = f"--include={','.join(packages)}"
        sources = source.arguments(Path(work))
        run(["mmdebstrap", "--quiet", "--variant=extract", included, source.suite, str(into), *sources], say)


def say_to_stderr(line: str) -> None:
    print(line, file=sys.stderr)  # noqa: T201  # a build tells how it goes
