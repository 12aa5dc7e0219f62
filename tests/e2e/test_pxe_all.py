"""The scenarios that take minutes each: `make e2e-pxe-all`."""

from pathlib import Path

import pytest
from tests.e2e.conftest import OS, ROOT
from tests.e2e.image_scenarios import DEBIAN_13
from tests.e2e.playing import play

from rackwright.domain.architectures import Architecture
from rackwright.lab.trial_images import cached_hardware_image, cached_images
from rackwright.provision.images.systems import CLOUD_INIT

pytestmark = pytest.mark.pxe_all

SCENARIOS: tuple[tuple[str, ...], ...] = (
    ("scenarios", "install_by_uefi"),
    ("firmware_scenarios", "secure_boot_lvm"),
    ("firmware_scenarios", "http_boot"),
    ("firmware_scenarios", "refuse_unsigned_kernel"),
    ("firmware_scenarios", "reinstall_disk_first"),
    ("kill_scenarios", "kill_server_at_each_stage"),
    ("kill_scenarios", "cut_power_at_each_stage"),
    *(
        ("kill_scenarios", scenario, layout)
        for scenario in ("kill_server_at_each_stage", "cut_power_at_each_stage")
        for layout in ("lvm", "raid1", "raid10")
    ),
    ("network_scenarios", "bond_with_vlan"),
    ("network_scenarios", "wrong_network_comes_back"),
    ("ipv6_scenarios", "ipv6_only"),
    ("storage_scenarios", "raid1_by_uefi"),
    ("storage_scenarios", "lvm_by_bios"),
    ("storage_scenarios", "raid10_by_bios"),
    ("storage_scenarios", "document_by_bios"),
    ("wipe_scenarios", "swapped_disks"),
)
"""Each a module of this folder, one of its scenarios, and the arguments of it."""


@pytest.mark.parametrize("scenario", SCENARIOS, ids="-".join)
def test_scenario(scenario: tuple[str, ...], folder: Path, images: Path) -> None:
    module, name, *arguments = scenario
    play(name, folder, images, *arguments, module=module)


def test_a_machine_is_installed_with_debian_13(folder: Path) -> None:
    images = cached_images(ROOT / "build" / "lab", DEBIAN_13, lambda _: None).folder
    play("install_debian_13", folder, images, module="image_scenarios")


def test_cloud_init(folder: Path) -> None:
    """Its image has cloud-init, which the others do without."""
    images = cached_images(ROOT / "build" / "lab-cloud-init", OS, lambda _: None, (CLOUD_INIT,)).folder
    play("cloud_init", folder, images, module="cloud_init_scenarios")


@pytest.mark.parametrize("scenario", ["arm64", "arm64_secure_boot", "arm64_http_boot", "arm64_ipv6_only"])
def test_arm64(scenario: str, folder: Path) -> None:
    """They have a sledgehammer of their own, which is served beside that of the others."""
    images = cached_images(ROOT / "build" / "lab", OS, lambda _: None, architectures=tuple(Architecture)).folder
    play(scenario, folder, images, module="arm64_scenarios")


def test_bmc_in_band(folder: Path) -> None:
    """Machines find their BMCs, which takes the drivers of an image for real hardware."""
    images = cached_hardware_image(ROOT / "build" / "lab-hardware", lambda _: None).folder
    play("bmc_in_band", folder, images, module="bmc_scenarios")
