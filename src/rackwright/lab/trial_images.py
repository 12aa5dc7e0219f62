"""Builds the images for tests and benchmarks once in a folder, and again when the code that builds them changes.

Tests and benchmarks need the images of this very source. A person builds their own with `rackwright image`.
"""

import fcntl
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from rackwright.provision.images import sledgehammer, systems
from rackwright.provision.images.packages import Say, Source
from rackwright.provision.images.shelf import NoImage, Shelf
from rackwright.provision.images.sledgehammer import Kernel


def recipe_digest(image: str) -> str:
    """Return a digest of the code that an image is built from. Only sledgehammer contains the agent."""
    folder = Path(str(files("rackwright.provision.images")))
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*") if image == sledgehammer.NAME else folder.glob("*.py")):
        if path.is_file() and path.suffix != ".pyc":
            digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def cached_images(home: Path, system: str, say: Say, packages: Sequence[str] = ()) -> Shelf:
    """Return a shelf below `home` with sledgehammer and a system with `packages`, for virtual machines.

    cloud-init, which images have otherwise, is left out unless it is among them: it makes an image a third larger.

    Missing or outdated images are built first. If several processes call this, one of them builds and the others wait.
    """
    home.mkdir(parents=True, exist_ok=True)
    shelf = Shelf(home)
    with (home / "images.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in (sledgehammer.NAME, system):
            digest_file = home / f"{name}.recipe"
            recipe = " ".join([recipe_digest(name), *(packages if name == system else ())])
            if not _has(shelf, name) or not digest_file.exists() or digest_file.read_text() != recipe:
                _build(shelf, name, say, packages)
                digest_file.write_text(recipe)
    return shelf


def cached_hardware_image(home: Path, say: Say) -> Shelf:
    """Return a shelf below `home` with a sledgehammer for real hardware, which has drivers that virtual ones lack."""
    home.mkdir(parents=True, exist_ok=True)
    shelf = Shelf(home)
    with (home / "images.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        digest_file, recipe = home / f"{sledgehammer.NAME}.recipe", recipe_digest(sledgehammer.NAME)
        if not _has(shelf, sledgehammer.NAME) or not digest_file.exists() or digest_file.read_text() != recipe:
            sledgehammer.build(shelf, Source(sledgehammer.SUITE), Kernel.GENERIC, say)
            digest_file.write_text(recipe)
    return shelf


def _has(shelf: Shelf, name: str) -> bool:
    try:
        shelf.find(name)
    except NoImage:
        return False
    return True


def _build(shelf: Shelf, name: str, say: Say, packages: Sequence[str]) -> None:
    if name == sledgehammer.NAME:
        sledgehammer.build(shelf, Source(sledgehammer.SUITE), Kernel.CLOUD, say)
    else:
        without = [package for package in systems.OPTIONAL if package not in packages]
        systems.build(shelf, name, None, systems.Choice(Kernel.CLOUD, packages, without), say)
