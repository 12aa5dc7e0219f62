"""What a root file system has, and what cannot be done with it."""

import random
import subprocess
import tarfile

import pytest

from rackwright.domain.installs.request import SystemImage
from rackwright.provision.images.boot_check import (
    ARRAYS_HOOK,
    FIRST_PROGRAM,
    NEEDS,
    UEFI_LOADERS,
    check_bootable,
    describe_abilities,
    describe_system,
    missing_comforts,
    wants_content,
)
from rackwright.provision.images.manifest import Image
from rackwright.provision.images.packages import BuildFailed
from rackwright.provision.images.root_archive import RootFacts

VERSIONS = [
    "5.10.0-30-amd64",
    "6.1.0-9-amd64",
    "6.1.0-18-amd64",
    "6.1.0-18-cloud-amd64",
    "6.10~rc1-amd64",
    "6.10-amd64",
]
"""Kernels, the newest last."""


def elf_head(machine: int) -> bytes:
    """The head of a program with 64 bits, for a kind of processor by its number."""
    return b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00" + machine.to_bytes(2, "little") + bytes(44)


def system(*files: str) -> RootFacts:
    """A root file system with what each needs, and these files."""
    needed = [need.paths[0] for need in NEEDS]
    return RootFacts(kinds=dict.fromkeys([*needed, *files], tarfile.REGTYPE))


def with_kernels(kernels: list[str], initrds: list[str]) -> RootFacts:
    names = [f"boot/vmlinuz-{version}" for version in kernels] + [f"boot/initrd.img-{version}" for version in initrds]
    return system(*names)


def test_the_newest_kernel_is_the_one_with_the_highest_version() -> None:
    shuffled = VERSIONS[:]
    random.Random(7).shuffle(shuffled)
    for count in range(1, len(VERSIONS) + 1):
        kernels = [version for version in shuffled if version in VERSIONS[:count]]
        assert describe_system(with_kernels(kernels, kernels))["kernel"] == VERSIONS[count - 1]


def test_versions_are_in_the_order_of_sort() -> None:
    text = "".join(f"{version}\n" for version in reversed(VERSIONS))
    done = subprocess.run(["sort", "-V"], input=text, capture_output=True, text=True, check=True)
    assert done.stdout.split() == VERSIONS


def test_the_initial_file_system_is_that_of_the_newest_kernel() -> None:
    check_bootable(with_kernels(["6.1.0-9", "6.1.0-18"], ["6.1.0-9", "6.1.0-18"]))
    with pytest.raises(BuildFailed, match=r"has the kernel 6\.1\.0-18, and an initial file system for 6\.1\.0-9"):
        check_bootable(with_kernels(["6.1.0-9", "6.1.0-18"], ["6.1.0-9"]))


@pytest.mark.parametrize(
    ("files", "abilities"),
    [
        ((*UEFI_LOADERS, ARRAYS_HOOK, "usr/sbin/mdadm", "usr/sbin/lvm"), SystemImage("x")),
        ((*UEFI_LOADERS, ARRAYS_HOOK, "sbin/mdadm", "sbin/lvm"), SystemImage("x")),
        ((*UEFI_LOADERS, "sbin/mdadm", "sbin/lvm"), SystemImage("x", starts_from_raid=False)),
        ((*UEFI_LOADERS, "sbin/lvm"), SystemImage("x", starts_from_raid=False, assembles_raid=False)),
        ((*UEFI_LOADERS, ARRAYS_HOOK, "sbin/mdadm"), SystemImage("x", has_lvm=False)),
        ((ARRAYS_HOOK, "sbin/mdadm", "sbin/lvm"), SystemImage("x", starts_by_uefi=False)),
    ],
)
def test_what_an_image_lacks_for_a_layout_is_written_into_it(files: tuple[str, ...], abilities: SystemImage) -> None:
    facts = system(*files)
    assert describe_abilities("x", describe_system(facts)) == abilities
    assert any("no LVM" in text for text in missing_comforts(facts)) is not abilities.has_lvm


def test_an_image_from_before_anything_was_written_of_that_can_all() -> None:
    assert describe_abilities("x", {"system": "Debian"}) == SystemImage("x")


@pytest.mark.parametrize(
    ("head", "architecture"),
    [
        (elf_head(62), "amd64"),
        (elf_head(3), "amd64"),
        (elf_head(183), "arm64"),
        (elf_head(243), "a processor of another kind (ELF machine 243)"),
        (b"\x7fELF\x02\x02" + bytes(12) + b"\x00\x16", "a processor of another kind (ELF machine 22)"),
        (b"#!/bin/sh\nexec something-that-is-no-elf\n", "amd64"),
        (elf_head(183)[:19], "amd64"),
        (b"", "amd64"),
    ],
)
@pytest.mark.parametrize("path", FIRST_PROGRAM)
def test_an_image_says_of_its_first_program_for_which_processor_it_is(
    path: str, head: bytes, architecture: str
) -> None:
    facts = system()
    facts.contents[path] = head
    about = describe_system(facts)
    assert describe_abilities("x", about).architecture == architecture
    assert Image("x", {}, about).architecture == architecture


def test_the_first_program_is_looked_into() -> None:
    assert all(wants_content(path) for path in FIRST_PROGRAM)
    assert Image("x", {}, {}).architecture == "amd64", "as all images were before it was written down"
