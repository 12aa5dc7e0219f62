"""From bare machines to managed and installed nodes: real firmware, DHCP, TFTP, iPXE, kernels and disks, emulated.

Each scenario runs in namespaces of its own, so that whatever ends it leaves nothing. The images are made once and kept
below `build/`; they are made again when what makes them changes.
"""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rackwright.images import sledgehammer, systems
from rackwright.images.packages import Source
from rackwright.images.shelf import NoImage, Shelf
from rackwright.images.sledgehammer import Kernel

pytestmark = [pytest.mark.pxe, pytest.mark.xdist_group("pxe")]

ROOT = Path(__file__).parents[2]
NAMESPACES = ("unshare", "--net", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc")
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


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "run"
    shutil.rmtree(tmp_path / "run", ignore_errors=True)  # disks, which nobody wants to keep


def _play(scenario: str, folder: Path, images: Path) -> None:
    done = subprocess.run(
        [*NAMESPACES, sys.executable, "-m", "tests.e2e.scenarios", scenario, str(folder), str(images)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        errors="replace",
    )
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, f"{scenario} failed; its last words are above"


def test_a_bare_machine_becomes_an_installed_node(folder: Path, images: Path) -> None:
    _play("install", folder, images)


def test_three_machines_are_discovered_at_once(folder: Path, images: Path) -> None:
    _play("discover_three_at_once", folder, images)


def test_a_machine_with_uefi_is_discovered(folder: Path, images: Path) -> None:
    _play("discover_by_uefi", folder, images)
