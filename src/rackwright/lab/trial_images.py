"""Builds the images for tests and benchmarks once in a folder, and again when the code that builds them changes.

Tests and benchmarks need the images of this very source. A person builds their own with `rackwright image`.
"""

import fcntl
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.resources import files
from pathlib import Path

from rackwright.domain.architectures import SLEDGEHAMMERS, Architecture
from rackwright.provision.images import sledgehammer, systems
from rackwright.provision.images.packages import Say, Source
from rackwright.provision.images.shelf import NoImage, Shelf
from rackwright.provision.images.sledgehammer_parts import SUITE, Kernel, Parts


def recipe_digest(image: str) -> str:
    """Return a digest of the code that an image is built from. Only sledgehammer contains the agent."""
    folder = Path(str(files("rackwright.provision.images")))
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*") if image in SLEDGEHAMMERS else folder.glob("*.py")):
        if path.is_file() and path.suffix != ".pyc":
            digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def cached_images(
    home: Path,
    system: str,
    say: Say,
    packages: Sequence[str] = (),
    architectures: Sequence[Architecture] = (Architecture.AMD64,),
) -> Shelf:
    """Return a shelf below `home` with sledgehammer and a system with `packages`, for virtual machines.

    cloud-init, which images have otherwise, is left out unless it is among them: it makes an image a third larger.
    `architectures` are the kinds of machine that have a sledgehammer. Missing or outdated images are built first. If
    several processes call this, one of them builds and the others wait.
    """
    without = [package for package in systems.OPTIONAL if package not in packages]

    def build_system(shelf: Shelf) -> None:
        systems.build(shelf, system, None, systems.Choice(Kernel.CLOUD, packages, without), say)

    shelf = Shelf(home)
    with _building(home):
        for architecture in architectures:
            _renew(shelf, architecture.sledgehammer, (), partial(_build_sledgehammer, Kernel.CLOUD, architecture, say))
        _renew(shelf, system, packages, build_system)
    return shelf


def cached_hardware_image(home: Path, say: Say) -> Shelf:
    """Return a shelf below `home` with a sledgehammer for real hardware, which has drivers that virtual ones lack."""
    shelf, architecture = Shelf(home), Architecture.AMD64
    with _building(home):
        _renew(shelf, architecture.sledgehammer, (), partial(_build_sledgehammer, Kernel.GENERIC, architecture, say))
    return shelf


@contextmanager
def _building(home: Path) -> Iterator[None]:
    """Let no other process build images below a folder until the end of the block."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / "images.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _renew(shelf: Shelf, name: str, packages: Sequence[str], build: Callable[[Shelf], None]) -> None:
    """Build an image if it is missing, or was made by other code or of other packages."""
    recipe_file = shelf.folder.parent / f"{name}.recipe"
    recipe = " ".join([recipe_digest(name), *packages])
    if not _has(shelf, name) or not recipe_file.exists() or recipe_file.read_text() != recipe:
        build(shelf)
        recipe_file.write_text(recipe)


def _build_sledgehammer(kernel: Kernel, architecture: Architecture, say: Say, shelf: Shelf) -> None:
    sledgehammer.build(shelf, Source(SUITE), Parts(kernel, architecture), say)


def _has(shelf: Shelf, name: str) -> bool:
    try:
        shelf.find(name)
    except NoImage:
        return False
    return True
