"""The steps of layouts, compared with golden ones. `REWRITE=1` writes them anew, to be read by a person."""

import os
from pathlib import Path

import pytest
import yaml
from tests.unit.domain.installs.storage.scene import EQUAL, EVERYTHING, GIB, MIXED, request

from rackwright.domain.catalogue import Json
from rackwright.domain.installs.storage.part import lay_out_disks

GOLDEN = Path(__file__).parent / "golden"


def check_golden(name: str, layout: Json, disks: list[Json], firmware: str) -> None:
    part = lay_out_disks(request(layout, disks, firmware))
    assert part.problems == ()
    shown = yaml.safe_dump(part.config, sort_keys=False, width=120)
    golden = GOLDEN / f"{name}.yml"
    if os.environ.get("REWRITE"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(shown)
    assert shown == golden.read_text()


@pytest.mark.parametrize("firmware", ["bios", "uefi"])
@pytest.mark.parametrize("layout", ["flat", "lvm", "raid1", "raid10"])
def test_the_named_layouts_are_the_golden_ones(layout: str, firmware: str) -> None:
    check_golden(f"{layout}-{firmware}", layout, EQUAL, firmware)


def test_a_document_with_everything_is_the_golden_one() -> None:
    check_golden("everything-bios", EVERYTHING, MIXED, "bios")


def test_a_document_is_a_text_or_an_object() -> None:
    as_object = lay_out_disks(request(yaml.safe_load(EVERYTHING), MIXED))
    assert as_object.config == lay_out_disks(request(EVERYTHING, MIXED)).config


@pytest.mark.parametrize("nothing", [None, "", {}])
def test_without_a_layout_it_is_flat(nothing: Json) -> None:
    assert lay_out_disks(request(nothing)).config == lay_out_disks(request("flat")).config


def test_a_sledgehammer_that_knows_no_layouts_installs_flat_and_nothing_else() -> None:
    assert lay_out_disks(request("flat", disk="virtio-LAB1")).config["disk"] == "virtio-LAB1"
    for layout in ("lvm", "raid1", "raid10"):
        assert "needs a newer sledgehammer" in str(lay_out_disks(request(layout)).config["disk"])


def wiped(layout: Json, disks: list[Json], disk: str = "") -> list[str]:
    part = lay_out_disks(request(layout, disks, disk=disk))
    assert part.problems == ()
    return [found.name for found in part.wiped]


def test_only_the_disks_of_the_layout_are_wiped() -> None:
    assert wiped("flat", EQUAL) == ["virtio-LAB0"]
    assert wiped("lvm", EQUAL, "virtio-LAB2") == ["virtio-LAB2"]
    assert wiped("raid1", MIXED[:5]) == ["nvme-fast_1", "nvme-fast_2"], "the smallest pair"
    assert wiped("raid1", [MIXED[4], MIXED[2]]) == ["nvme-small", "nvme-fast_1"], "two are a pair"
    assert wiped("raid10", EQUAL) == [f"virtio-LAB{n}" for n in range(4)]


def test_a_disk_that_dos_does_not_reach_the_end_of_gets_gpt() -> None:
    part = lay_out_disks(request("flat", [{"name": "sda", "bytes": 3000 * GIB}]))
    storage = part.config["storage"]
    assert isinstance(storage, dict)
    assert storage["build"] == ["table disk0 gpt 1:1:1:bios 2:2:3071997:linux"]
    assert storage["loader"] == "grub"


BESIDE_EXTLINUX = """\
version: 1
config:
  - {id: d, type: disk, name: virtio-LAB0, ptable: msdos}
  - {id: big, type: disk, name: virtio-LAB1}
  - {id: boot, type: partition, device: d, size: 1G, flag: boot}
  - {id: p, type: partition, device: d}
  - {id: boot-fs, type: format, fstype: ext4, volume: boot}
  - {id: f, type: format, fstype: ext4, volume: p}
  - {id: big-fs, type: format, fstype: ext4, volume: big}
  - {id: m, type: mount, device: f, path: /}
  - {id: boot-m, type: mount, device: boot-fs, path: /boot}
  - {id: big-m, type: mount, device: big-fs, path: /srv}
"""


def test_only_the_file_system_that_extlinux_reads_is_made_for_it() -> None:
    """Without 64-bit block numbers no ext4 of more than 16 TiB can be made: mkfs fails, on a disk that is wiped."""
    disks: list[Json] = [EQUAL[0], {"name": "virtio-LAB1", "bytes": 18_000 * GIB}]
    storage = lay_out_disks(request(BESIDE_EXTLINUX, disks)).config["storage"]
    assert isinstance(storage, dict)
    assert isinstance(storage["file_systems"], list)
    assert storage["loader"] == "extlinux"
    assert [step for step in storage["file_systems"] if str(step).startswith("format ")] == [
        "format disk0p2 ext4 -",
        "format disk0p1 ext4-extlinux -",
        "format disk1 ext4 -",
    ]
    assert "mount disk0p1 /boot ext4 defaults 2" in storage["file_systems"]


def test_no_file_system_is_made_for_extlinux_where_grub_starts_the_system() -> None:
    storage = lay_out_disks(request(BESIDE_EXTLINUX.replace(", flag: boot", ""))).config["storage"]
    assert isinstance(storage, dict)
    assert storage["loader"] == "grub"
    assert "ext4-extlinux" not in str(storage["file_systems"])


def test_a_machine_that_says_nothing_of_its_firmware_is_taken_for_one_with_a_bios() -> None:
    plain = request("flat")
    del plain.facts["firmware"]
    assert lay_out_disks(plain).config == lay_out_disks(request("flat")).config


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("serial: N2", ["nvme-fast_2"]),
        ("wwn: '0x5000c50001'", ["wwn-0x5000c50001"]),
        ("wwn: naa.5000C50002", ["wwn-0x5000c50002"]),
        ("name: nvme-small", ["nvme-small"]),
        ("path: /dev/disk/by-id/nvme-small", ["nvme-small"]),
        ("match: {size: smallest}", ["nvme-small"]),
        ("match: {size: '>=65G <1T'}, count: 2", ["nvme-fast_1", "nvme-fast_2"]),
        ("match: {size: largest, bus: scsi}, count: 2", ["wwn-0x5000c50001", "wwn-0x5000c50002"]),
        ("match: {bus: nvme, size: '<100GiB'}", ["nvme-small"]),
        ("match: {rotational: true}, count: rest", ["wwn-0x5000c50001", "wwn-0x5000c50002"]),
    ],
)
def test_disks_are_chosen_by_what_they_are(selector: str, names: list[str]) -> None:
    count = len(names)
    document = f"""\
version: 1
config:
  - {{id: d, type: disk, {selector}, ptable: gpt}}
  - {{id: b, type: partition, device: d, size: 1M, flag: bios_grub}}
  - {{id: p, type: partition, device: d}}
  - {{id: a, type: {"raid, raidlevel: 1, devices: [p]" if count > 1 else "lvm_volgroup, name: v, devices: [p]"}}}
  - {{id: g, type: lvm_volgroup, name: v2, devices: [a]}}
  - {{id: v, type: lvm_partition, name: r, volgroup: {"g" if count > 1 else "a"}}}
  - {{id: f, type: format, fstype: ext4, volume: v}}
  - {{id: m, type: mount, device: f, path: /}}
"""
    if count == 1:
        document = "".join(line for line in document.splitlines(keepends=True) if "id: g," not in line)
    assert wiped(document, MIXED) == names
