"""From bare machines to managed and installed nodes: real firmware, DHCP, TFTP, iPXE, kernels and disks, emulated.

Each scenario runs in namespaces of its own, so that whatever ends it leaves nothing.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.pxe

ROOT = Path(__file__).parents[2]
# Killed with this process, however that ends; the namespaces and all in them go with their first one.
DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL")
NAMESPACES = (*DIES_WITH_US, "unshare", "--net", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc")


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
