"""The packages of a distribution, fetched and unpacked below a folder, and what a program of them needs to run.

They come from where this host gets its own, or from a mirror that is named; apt checks their signatures either way.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Say = Callable[[str], None]

HOST_SOURCES = (Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list"))
LOADERS = ("lib64/ld-linux-x86-64.so.2", "lib/ld-linux-aarch64.so.1")


class BuildFailed(Exception):
    """An image could not be made; the text says why and what to do."""


@dataclass(frozen=True)
class Source:
    """Where packages come from."""

    suite: str
    mirror: str | None = None
    """A URL; None: as this host's own."""
    components: Sequence[str] = field(default=("main",))

    def arguments(self) -> list[str]:
        if self.mirror is not None:
            return [f"deb {self.mirror} {self.suite} {' '.join(self.components)}"]
        for path in HOST_SOURCES:
            if path.is_file() and self.suite in path.read_text():
                return [str(path)]
        raise BuildFailed(
            f"This host's own package sources do not have {self.suite}. Name a mirror that does: --mirror URL"
        )


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
    run(
        [
            "mmdebstrap",
            "--quiet",
            "--variant=extract",
            f"--include={','.join(packages)}",
            source.suite,
            str(into),
            *source.arguments(),
        ],
        say,
    )


class Tree:
    """Unpacked packages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        """A file of it, links followed within the tree."""
        path = self.folder / name
        for _ in range(8):
            if not path.is_symlink():
                break
            target = path.readlink()
            path = self.folder / str(target).lstrip("/") if target.is_absolute() else path.parent / target
        if not path.exists():
            raise BuildFailed(f"The packages do not have /{name}. Have their names changed?")
        return path

    def libraries(self, program: str) -> dict[str, Path]:
        """The shared libraries a program loads: place in the file system -> file. Asked of the tree's own loader."""
        loader = next((name for name in LOADERS if (self.folder / name).exists()), None)
        if loader is None:
            raise BuildFailed("The packages have no dynamic loader this can use.")
        folders = sorted({str(path.parent) for path in self.folder.glob("usr/lib/*/libc.so.6")} | self._lib_folders())
        asked = subprocess.run(
            [str(self.path(loader)), "--library-path", ":".join(folders), "--list", str(self.path(program))],
            capture_output=True,
            text=True,
            check=False,
        )
        if asked.returncode != 0:
            raise BuildFailed(f"The libraries of /{program} are not all there: {asked.stderr.strip()}")
        found = {name: Path(path) for name, path in re.findall(r"([^/\s]\S*) => (/\S+)", asked.stdout)}
        return {f"lib/{name}": path for name, path in found.items()} | {loader: self.path(loader)}

    def _lib_folders(self) -> set[str]:
        return {str(path.parent) for path in self.folder.glob("lib/*/libc.so.6")}

    def run(self, program: str, called: str, *arguments: str) -> None:
        """Run one of its programs, by the name it is called by, with its own libraries."""
        libraries = self.libraries(program)
        loader = next(name for name in libraries if name in LOADERS)
        folders = ":".join(sorted({str(path.parent) for path in libraries.values()}))
        start = [str(libraries[loader]), "--library-path", folders, "--argv0", called, str(self.path(program))]
        run([*start, *arguments], lambda _: None)


def say_to_stderr(line: str) -> None:
    print(line, file=sys.stderr)  # noqa: T201  # a build tells how it goes
