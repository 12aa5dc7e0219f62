"""A tree of unpacked packages, and the libraries that a program in it needs to run.

Everything is looked up within the tree, as if it were the root directory. A loader is never asked: it brings in the
building host's library cache, preloaded libraries and processor, and with them libraries that the packages do not have.
"""

from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path, PurePosixPath

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.segments import InterpSegment

from rackwright.provision.images.packages import BuildFailed, run_program

LIBRARY_FOLDERS = ("lib/*-linux-gnu*", "usr/lib/*-linux-gnu*", "lib", "usr/lib", "lib64", "usr/lib64")
"""The folders in which the loader of Debian and its kin looks by default, in its order."""
NEEDED = attrgetter("needed")
"""Returns the library's name in a DT_NEEDED entry; pyelftools gives entries their attributes when it reads them."""
MOST_LINKS = 40
"""The kernel's own limit: more links in one path are a circle."""


@dataclass(frozen=True)
class Needs:
    """The loader and the libraries that an ELF file asks for."""

    loader: str
    """The loader's path in the file system; empty for a library."""
    libraries: tuple[str, ...]


class Tree:
    """A folder with unpacked packages, as if it were the root directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        """Return a file of the tree, every link on the way followed within the tree."""
        path = self._follow(name)
        if path is None:
            raise BuildFailed(f"The packages do not have /{name}. Have their names changed?")
        return path

    def libraries(self, program: str) -> dict[str, Path]:
        """Return the shared libraries a program loads, its loader among them: path in the image -> file."""
        loader = read_needs(self.path(program)).loader
        if not loader:
            raise BuildFailed(f"/{program} names no dynamic loader. Is it linked statically now?")
        libraries = {loader: self.path(loader)}
        unread = [self.path(program)]
        while unread:
            needing = unread.pop()
            for library in read_needs(needing).libraries:
                name = f"lib/{library}"
                if name not in libraries and library != PurePosixPath(loader).name:
                    libraries[name] = self._find_library(library, needing)
                    unread.append(libraries[name])
        return libraries

    def run(self, program: str, called: str, *arguments: str) -> None:
        """Run a program of the tree with the libraries of the tree; `called` is the name that the program sees as its
        own."""
        libraries = self.libraries(program)
        loader = libraries[read_needs(self.path(program)).loader]
        folders = ":".join(dict.fromkeys(str(path.parent) for path in libraries.values()))
        start = [str(loader), "--inhibit-cache", "--library-path", folders, "--argv0", called, str(self.path(program))]
        run_program([*start, *arguments], lambda _: None)

    def _find_library(self, library: str, needing: Path) -> Path:
        for pattern in LIBRARY_FOLDERS:
            for folder in sorted(self.folder.glob(pattern)):
                path = self._follow(f"{folder.relative_to(self.folder)}/{library}")
                if path is not None:
                    return path
        loaded_by = needing.relative_to(self.folder)
        raise BuildFailed(f"The packages do not have {library}, which /{loaded_by} loads. Add the package that has it.")

    def _follow(self, name: str) -> Path | None:
        """Return the path that a name leads to if the tree is the root directory; None if it leads nowhere.

        No link leads out of the tree.
        """
        path, links = self.folder, 0
        parts_left = list(reversed(PurePosixPath(name).parts))
        while parts_left:
            part = parts_left.pop()
            if part in ("/", "//"):
                path = self.folder
            elif part == "..":
                path = path if path == self.folder else path.parent
            elif (path / part).is_symlink():
                links += 1
                if links > MOST_LINKS:
                    return None
                parts_left += reversed(PurePosixPath((path / part).readlink()).parts)
            else:
                path = path / part
        return path if path.exists() else None


def read_needs(path: Path) -> Needs:
    """Return the loader and the libraries that an ELF file asks for."""
    loader, libraries = "", list[str]()
    try:
        with path.open("rb") as file:
            for segment in ELFFile(file).iter_segments():
                if isinstance(segment, InterpSegment):
                    loader = segment.get_interp_name().lstrip("/")
                elif isinstance(segment, DynamicSegment):
                    libraries += map(NEEDED, segment.iter_tags("DT_NEEDED"))
    except ELFError as error:
        raise BuildFailed(f"{path} is no program or library that can be read: {error}") from error
    return Needs(loader, tuple(libraries))
