"""What a root file system has, and what cannot be done with it."""

import random
import subprocess
import tarfile

import pytest

from rackwright.provision.images.boot_check import NEEDS, check_bootable, describe_system
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
