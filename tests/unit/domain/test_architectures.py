"""What kinds of processor are called, by all who name them."""

import pytest

from rackwright.domain.architectures import (
    SLEDGEHAMMERS,
    Architecture,
    architecture_of_grub,
    build_command,
    machine_architecture,
)
from rackwright.domain.catalogue import Json
from rackwright.domain.errors import Invalid

AMD64, ARM64 = Architecture.AMD64, Architecture.ARM64


def test_loaders_have_the_names_by_which_shim_and_firmware_look_for_them() -> None:
    assert (AMD64.shim, AMD64.grub, AMD64.fallback_loader) == ("shimx64.efi", "grubx64.efi", "/EFI/BOOT/BOOTX64.EFI")
    assert (ARM64.shim, ARM64.grub, ARM64.fallback_loader) == ("shimaa64.efi", "grubaa64.efi", "/EFI/BOOT/BOOTAA64.EFI")


def test_no_number_or_name_stands_for_two_kinds() -> None:
    for names in (
        [number for architecture in Architecture for number in architecture.tftp_clients + architecture.http_clients],
        [number for architecture in Architecture for number in architecture.elf_machines],
        [name for architecture in Architecture for name in (architecture.shim, architecture.grub)],
        [architecture.sledgehammer for architecture in Architecture],
        [architecture.grub_name for architecture in Architecture],
    ):
        assert len(names) == len(set(names)), names
    assert SLEDGEHAMMERS == {"sledgehammer": AMD64, "sledgehammer-arm64": ARM64}


@pytest.mark.parametrize(("name", "architecture"), [("x86_64", AMD64), ("arm64", ARM64)])
def test_grub_says_what_it_runs_on(name: str, architecture: Architecture) -> None:
    assert architecture_of_grub(name) is architecture


@pytest.mark.parametrize("name", ["riscv64", "i386", "aarch64", "", "arm64'; exit", "x" * 1000])
def test_grub_on_anything_else_is_given_nothing(name: str) -> None:
    with pytest.raises(Invalid, match="it is for x86_64, arm64") as refused:
        architecture_of_grub(name)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("cpu", "architecture"),
    [
        ({"architecture": "x86_64"}, "amd64"),
        ({"architecture": "aarch64"}, "arm64"),
        ({"architecture": "riscv64"}, "riscv64"),
        ({"architecture": ""}, None),
        ({"architecture": 64}, None),
        ({"cores": 8}, None),
        ("aarch64", None),
        (None, None),
    ],
)
def test_a_machine_says_of_what_kind_it_is_or_that_is_not_known(cpu: Json, architecture: str | None) -> None:
    assert machine_architecture({"cpu": cpu}) == architecture
    assert machine_architecture({}) is None


def test_the_command_that_makes_an_image_is_one_that_there_is() -> None:
    assert build_command("debian-12") == "rackwright image build debian-12"
    assert build_command("sledgehammer") == "rackwright image build sledgehammer"
    assert build_command("sledgehammer-arm64") == "rackwright image build sledgehammer --architecture arm64"
