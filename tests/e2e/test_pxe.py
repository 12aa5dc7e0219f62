"""From bare machines to managed and installed nodes: real firmware, DHCP, TFTP, iPXE, kernels and disks, emulated.

Each scenario runs in namespaces of its own, so that whatever ends it leaves nothing.
"""

from pathlib import Path

import pytest
from tests.e2e.playing import play

pytestmark = pytest.mark.pxe


def test_a_bare_machine_becomes_an_installed_node(folder: Path, images: Path) -> None:
    play("install", folder, images)


def test_three_machines_are_discovered_at_once(folder: Path, images: Path) -> None:
    play("discover_three_at_once", folder, images)


def test_a_machine_with_secure_boot_becomes_an_installed_node(folder: Path, images: Path) -> None:
    play("secure_boot", folder, images, module="firmware_scenarios")
