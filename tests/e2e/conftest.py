"""The images that virtual machines boot and are installed with. Made once and kept below `build/`, and made again when
what makes them changes."""

import fcntl
import hashlib
import shutil
from pathlib import Path

import pytest

from rackwright.images import sledgehammer, systems
from rackwright.images.packages import Source
from rackwright.images.shelf import NoImage, Shelf
from rackwright.images.sledgehammer import Kernel

ROOT = Path(__file__).parents[2]
OS = "debian-12"


def _recipe() -> str:
    """What the images are made from, as one digest."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "src/rackwright/images").rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]


@pytest.fixture(scope="session")
def images() -> Path:
    home = ROOT / "build" / f"images-{_recipe()}"
    home.parent.mkdir(exist_ok=True)
    shelf = Shelf(home)
    with (home.parent / "images.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for old in home.parent.glob("images-*"):
            if old != home:
                shutil.rmtree(old)
        for name in (sledgehammer.NAME, OS):
            try:
                shelf.find(name)
            except NoImage:
                _make(shelf, name)
    return shelf.folder


def _make(shelf: Shelf, name: str) -> None:
    if name == sledgehammer.NAME:
        sledgehammer.build(shelf, Source(sledgehammer.SUITE), Kernel.CLOUD, lambda _: None)
    else:
        systems.build(shelf, name, None, Kernel.CLOUD, lambda _: None)
