"""An unpacked tree of packages, and what a program in it needs to run.

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

from rackwright.provision.images.packages import BuildFailed, run

LIBRARY_FOLDERS = ("lib/*-linux-gnu*", "usr/lib/*-linux-gnu*", "lib", "usr/lib", "lib64", "usr/lib64")
"""Where the loader of Debian and its kin looks without being told, in its order."""
NEEDED = attrgetter("needed")
"""The name in such an entry; the library gives entries their attributes when it reads them."""
MOST_LINKS = 40
"""As the kernel has it: more links in one path are a circle."""


@dataclass(frozen=True)
class Needs:
    """What an ELF file asks its loader for."""

    loader: str
    """Its place in the file system; empty for a library."""
    libraries: tuple[str, ...]


class Tree:
    """Unpacked packages below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        """Return a file of the tree, every link on the way followed within the tree."""
        place = self._follow(name)
        if place is None:
            raise BuildFailed(f"The packages do not have /{name}. Have their names changed?")
        return place

    def libraries(self, program: str) -> dict[str, Path]:
        """Return the shared libraries a program loads, its loader among them: place in the image -> file."""
        loader = read_needs(self.path(program)).loader
        if not loader:
            raise BuildFailed(f"/{program} names no dynamic loader. Is it linked statically now?")
        found = {loader: self.path(loader)}
        left = [self.path(program)]
        while left:
            needing = left.pop()
            for library in read_needs(needing).libraries:
                place = f"lib/{library}"
                if place not in found and library != PurePosixPath(loader).name:
                    found[place] = self._find_library(library, needing)
                    left.append(found[place])
        return found

    def run(self, program: str, called: str, *arguments: str) -> None:
        """Run one of its programs, by the name it is called by, with its own libraries."""
        libraries = self.libraries(program)
        loader = libraries[read_needs(self.path(program)).loader]
        folders = ":".join(dict.fromkeys(str(path.parent) for path in libraries.values()))
        start = [str(loader), "--inhibit-cache", "--library-path", folders, "--argv0", called, str(self.path(program))]
        run([*start, *arguments], lambda _: None)

    def _find_library(self, library: str, needing: Path) -> Path:
        for pattern in LIBRARY_FOLDERS:
            for folder in sorted(self.folder.glob(pattern)):
                place = self._follow(f"{folder.relative_to(self.folder)}/{library}")
                if place is not None:
                    return place
        wanted_by = needing.relative_to(self.folder)
        raise BuildFailed(f"The packages do not have {library}, which /{wanted_by} loads. Add the package that has it.")

    def _follow(self, name: str) -> Path | None:
        """Where a name leads if the tree is the root directory; None: nowhere. No link leads out of the tree."""
        place, links = self.folder, 0
        left = list(reversed(PurePosixPath(name).parts))
        while left:
            part = left.pop()
            if part in ("/", "//"):
                place = self.folder
            elif part == "..":
                place = place if place == self.folder else place.parent
            elif (place / part).is_symlink():
                links += 1
                if links > MOST_LINKS:
                    return None
                left += reversed(PurePosixPath((place / part).readlink()).parts)
            else:
                place = place / part
        return place if place.exists() else None


def read_needs(path: Path) -> Needs:
    """Return what an ELF file asks its loader for."""
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
