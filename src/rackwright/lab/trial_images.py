"""Images to try things with: made once in a folder, and made again when what makes them changes.

For tests and benchmarks, which need the images of this very source. A person's own are made by `rackwright image`.
"""

import fcntl
import hashlib
from importlib.resources import files
from pathlib import Path

from rackwright.provision.images import sledgehammer, systems
from rackwright.provision.images.packages import Say, Source
from rackwright.provision.images.shelf import NoImage, Shelf
from rackwright.provision.images.sledgehammer import Kernel


def recipe(image: str) -> str:
    """What an image is made from, as one digest. The agent is in sledgehammer alone."""
    folder = Path(str(files("rackwright.provision.images")))
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*") if image == sledgehammer.NAME else folder.glob("*.py")):
        if path.is_file() and path.suffix != ".pyc":
            digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def kept_images(home: Path, system: str, say: Say) -> Shelf:
    """A shelf below `home` with sledgehammer and one system, for virtual machines. One caller makes, others wait."""
    home.mkdir(parents=True, exist_ok=True)
    shelf = Shelf(home)
    with (home / "images.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in (sledgehammer.NAME, system):
            made_from = home / f"{name}.recipe"
            if not _has(shelf, name) or not made_from.exists() or made_from.read_text() != recipe(name):
                _make(shelf, name, say)
                made_from.write_text(recipe(name))
    return shelf


def _has(shelf: Shelf, name: str) -> bool:
    try:
        shelf.find(name)
    except NoImage:
        return False
    return True


def _make(shelf: Shelf, name: str, say: Say) -> None:
    if name == sledgehammer.NAME:
        sledgehammer.build(shelf, Source(sledgehammer.SUITE), Kernel.CLOUD, say)
    else:
        systems.build(shelf, name, None, Kernel.CLOUD, say)
