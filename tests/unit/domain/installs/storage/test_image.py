"""Layouts against an image: what its system could not start from is refused before a disk is wiped."""

from dataclasses import replace

import pytest
from tests.unit.domain.installs.storage.scene import EQUAL, EVERYTHING, MIXED, request

from rackwright.domain.catalogue import Json
from rackwright.domain.installs.request import SystemImage
from rackwright.domain.installs.storage.part import lay_out_disks

FULL = SystemImage("trial-1")
PLAIN_IMAGE = SystemImage("trial-1", False, False, False, False)
"""It has nothing but a kernel and a root file system."""

DATA_ARRAY = """\
version: 1
config:
  - {id: d, type: disk, name: virtio-LAB0, ptable: msdos}
  - {id: p, type: partition, device: d, flag: boot}
  - {id: f, type: format, fstype: ext4, volume: p}
  - {id: m, type: mount, device: f, path: /}
  - {id: rest, type: disk, match: rest}
  - {id: a, type: raid, name: data, raidlevel: 5, devices: [rest]}
  - {id: af, type: format, fstype: xfs, volume: a}
  - {id: am, type: mount, device: af, path: /srv}
"""


@pytest.mark.parametrize(
    ("layout", "disks", "firmware", "image", "reasons"),
    [
        ("flat", EQUAL, "bios", PLAIN_IMAGE, []),
        ("flat", EQUAL, "uefi", PLAIN_IMAGE, ["provisioner-target-os: the machine boots by UEFI, and trial-1"]),
        ("raid1", EQUAL, "bios", PLAIN_IMAGE, ["provisioner-storage: the image of trial-1 has nothing that assembles"]),
        ("lvm", EQUAL, "bios", PLAIN_IMAGE, ["provisioner-storage: the image of trial-1 has no lvm2"]),
        (DATA_ARRAY, EQUAL, "bios", PLAIN_IMAGE, ["provisioner-storage: the image of trial-1 has no mdadm"]),
        (DATA_ARRAY, EQUAL, "bios", replace(FULL, starts_from_raid=False), []),
        (EVERYTHING, MIXED[:5], "bios", replace(FULL, starts_from_raid=False), ["has nothing that assembles RAID"]),
        (EVERYTHING, MIXED[:5], "bios", replace(FULL, has_lvm=False), ["has no lvm2"]),
        (EVERYTHING, MIXED[:5], "bios", FULL, []),
        ("raid10", EQUAL, "uefi", None, []),
    ],
)
def test_an_image_is_refused_for_a_layout_that_it_cannot_start_from(
    layout: str, disks: list[Json], firmware: str, image: SystemImage | None, reasons: list[str]
) -> None:
    part = lay_out_disks(replace(request(layout, disks, firmware), image=image))
    assert len(part.problems) == len(reasons)
    for problem, reason in zip(part.problems, reasons, strict=True):
        assert reason in str(problem)
    assert bool(part.wiped) is not bool(reasons)
