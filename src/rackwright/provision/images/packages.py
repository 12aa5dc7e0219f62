"""Fetching packages of a distribution and unpacking them below a folder.

They come from this host's own package sources, or from a mirror that is named; apt checks their signatures either way.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rackwright.domain.architectures import Architecture
from rackwright.provision.images.host_sources import write_host_sources

Say = Callable[[str], None]
"""Takes a line about the progress of a build."""


class BuildFailed(Exception):
    """An image could not be made; the text says why and what to do."""


@dataclass(frozen=True)
class Source:
    """Where packages come from."""

    suite: str
    mirror: str | None = None
    """The URL of a mirror; None: this host's own package sources."""
    components: Sequence[str] = field(default=("main",))
    architecture: Architecture = Architecture.AMD64
    """The kind of machine that the packages are for, whatever this host is."""

    def arguments(self, work: Path) -> list[str]:
        """Return the arguments of mmdebstrap that name the source; `work` is a folder for files that it reads."""
        if self.mirror is not None:
            return [f"deb {self.mirror} {self.suite} {' '.join(self.components)}"]
        paths = write_host_sources(self.suite, work, self.architecture)
        if not paths:
            raise BuildFailed(
                f"This host's own package sources do not have {self.suite}. Name a mirror that does: --mirror URL"
            )
        return [str(path) for path in paths]


PACKAGES_OF = {"depmod": "kmod"}
"""The packages of programs that are not called as their package is."""


def require_programs(*programs: str) -> None:
    """Raise BuildFailed if programs are missing, with their names."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        packages = " ".join(PACKAGES_OF.get(program, program) for program in missing)
        raise BuildFailed(f"Making an image needs {', '.join(missing)}. Install it: apt-get install {packages}")


def run_program(command: Sequence[str], say: Say) -> None:
    """Run a program; if it fails, raise BuildFailed with the last lines of its output."""
    say(f"$ {' '.join(command)}")
    finished = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if finished.returncode != 0:
        last = "\n".join((finished.stderr or finished.stdout).strip().splitlines()[-15:])
        raise BuildFailed(f"{command[0]} ended with status {finished.returncode}:\n{last}")


def fetch_packages(packages: Sequence[str], source: Source, into: Path, say: Say) -> None:
    """Fetch packages and all they depend on, and unpack them into a folder.

    Nothing of them is run, so it does not matter which kind of machine they are for.
    """
    require_programs("mmdebstrap")
    with tempfile.TemporaryDirectory(prefix="rackwright-sources-") as work:
        chosen = [f"--architectures={source.architecture}", f"--include={','.join(packages)}"]
        sources = source.arguments(Path(work))
        run_program(["mmdebstrap", "--quiet", "--variant=extract", *chosen, source.suite, str(into), *sources], say)


def say_to_stderr(line: str) -> None:
    print(line, file=sys.stderr)  # noqa: T201  # a build tells how it goes
