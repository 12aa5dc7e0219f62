"""Layouts against a machine: what is refused, with its line and the way out."""

import pytest
from tests.unit.domain.installs.storage.scene import EQUAL, GIB, MIXED, request

from rackwright.domain.catalogue import Json
from rackwright.domain.installs.storage.part import lay_out_disks

HEAD = "version: 1\nconfig:\n"
DISK = "  - {id: d, type: disk, name: virtio-LAB0, ptable: gpt}\n"
BIOS = "  - {id: b, type: partition, device: d, size: 1M, flag: bios_grub}\n"
ROOT = "  - {id: p, type: partition, device: d}\n"
FORMAT = "  - {id: f, type: format, fstype: ext4, volume: p}\n"
MOUNT = "  - {id: m, type: mount, device: f, path: /}\n"
PLAIN = HEAD + DISK + BIOS + ROOT + FORMAT + MOUNT
"""The disk is on line 3, its partitions on 4 and 5, the file system on 6, its mount on 7."""


BOOT_ON_FAT = """\
version: 1
config:
  - {id: d, type: disk, name: virtio-LAB0, ptable: gpt}
  - {id: esp, type: partition, device: d, size: 512M, flag: boot}
  - {id: boot, type: partition, device: d, size: 1G}
  - {id: boot-fs, type: format, fstype: fat32, volume: boot}
  - {id: p, type: partition, device: d}
  - {id: f, type: format, fstype: ext4, volume: p}
  - {id: m, type: mount, device: f, path: /}
  - {id: boot-m, type: mount, device: boot-fs, path: /boot}
  - {id: esp-fs, type: format, fstype: fat32, volume: esp}
  - {id: esp-m, type: mount, device: esp-fs, path: /boot/efi}
"""


def with_line(line: str, base: str = PLAIN) -> str:
    """Return a document with an item more, on line 8 of the plain one."""
    return f"{base}  - {{{line}}}\n"


def mounted(path: str, file_system: str, size: str = "2G") -> str:
    """Return the plain document with a file system more, made on line 9 and mounted on line 10."""
    base = PLAIN.replace("{id: p, type: partition, device: d}", "{id: p, type: partition, device: d, size: 4G}")
    partition = with_line(f"id: x, type: partition, device: d, size: {size}", base)
    formatted = with_line(f"id: x-fs, type: format, fstype: {file_system}, volume: x", partition)
    return with_line(f"id: x-m, type: mount, device: x-fs, path: {path}", formatted)


def test_a_file_system_that_holds_no_part_of_a_system_may_be_fat32() -> None:
    assert lay_out_disks(request(mounted("/data", "fat32"))).problems == ()
    assert lay_out_disks(request(mounted("/usr", "xfs"))).problems == ()


@pytest.mark.parametrize("path", ["/usr/local", "/usr/local/lib", "/usr/share", "/opt/lib", "/var/lib", "/var/locked"])
def test_a_folder_that_a_system_starts_without_may_be_a_file_system_of_its_own(path: str) -> None:
    assert lay_out_disks(request(mounted(path, "ext4"))).problems == ()


@pytest.mark.parametrize("path", ["/boot/grub", "/boot/grub/fonts", "/boot/extlinux"])
def test_a_loader_for_a_bios_is_on_the_file_system_of_the_kernels(path: str) -> None:
    document = mounted(path, "ext4")
    [problem] = lay_out_disks(request(document)).problems
    assert problem.line == 9
    assert f"{path} belongs to the file system of /boot" in problem.reason
    esp = "  - {id: esp, type: partition, device: d, size: 512M, flag: boot}\n"
    esp += "  - {id: esp-fs, type: format, fstype: fat32, volume: esp}\n"
    esp += "  - {id: esp-m, type: mount, device: esp-fs, path: /boot/efi}\n"
    assert lay_out_disks(request(document + esp, firmware="uefi")).problems == (), "there it has a partition"
    assert lay_out_disks(request(mounted("/boot/grubs", "ext4"))).problems == ()


@pytest.mark.parametrize("path", ["/home", "/opt", "/srv", "/tmp", "/usr/local", "/var/log", "/var/lib/data"])
def test_a_folder_of_which_an_image_fills_nothing_may_be_small(path: str) -> None:
    assert lay_out_disks(request(mounted(path, "ext4", "16M"))).problems == ()


def test_the_plain_document_is_taken() -> None:
    assert lay_out_disks(request(PLAIN)).problems == ()


REFUSED: list[tuple[str, int | None, str]] = [
    # What it is written in.
    ("a: [", 2, "no valid YAML"),
    ("storage: {version: 1}", 1, "has no config"),
    (PLAIN.replace("version: 1", "version: 2"), 1, "version is 1"),
    ("version: 1\nconfig: []\n", 2, "a list of 1 to"),
    ("version: 1\nconfig: 7\n", 2, "a list of 1 to"),
    ("network: {}\n" + PLAIN, 1, "'network' is not known"),
    (with_line("id: x"), 8, "has its type"),
    (with_line("type: disk"), 8, "has its id"),
    (with_line("id: d, type: disk, name: virtio-LAB1"), 8, "d is declared twice; the first is on line 3"),
    (with_line("id: 'a b', type: disk, name: virtio-LAB1"), 8, "is no id"),
    # What Rackwright has not.
    (with_line("id: z, type: zfs, pool: x"), 8, "no ZFS"),
    (with_line("id: z, type: zpool, vdevs: [d]"), 8, "no ZFS"),
    (with_line("id: z, type: bcache, backing_device: d"), 8, "no bcache"),
    (with_line("id: z, type: dasd"), 8, "mainframes"),
    (with_line("id: z, type: dm_crypt, volume: p"), 8, "encrypts no disks"),
    (with_line("id: z, type: tape"), 8, "type 'tape': there are disk, partition"),
    (PLAIN.replace("device: d}", "device: d, preserve: true}"), 5, "p: preserve is always false"),
    (PLAIN.replace("ext4,", "ext4, extra_options: ['-F'],"), 6, "nothing is handed on to mkfs"),
    (PLAIN.replace("ext4,", "ext4, mkfs: x,"), 6, "'mkfs' is not known in format f"),
    (PLAIN.replace("ext4", "btrfs"), 6, "is none of ext4, xfs"),
    (PLAIN.replace("gpt}", "gpt, wipe: zero}"), 3, "is none of superblock"),
    (PLAIN.replace("gpt}", "vtoc}"), 3, "is none of gpt"),
    (PLAIN.replace("flag: bios_grub", "flag: prep"), 4, "is none of boot, bios_grub"),
    # Which disk.
    (PLAIN.replace("name: virtio-LAB0", "name: sdq"), 3, "no disk with name sdq; it has virtio-LAB0 (8.6 GB)"),
    (PLAIN.replace("name: virtio-LAB0", "serial: nope"), 3, "no disk with serial nope"),
    (PLAIN.replace("name: virtio-LAB0", "wwn: '0x1'"), 3, "no disk with wwn 0x1"),
    (PLAIN.replace("name: virtio-LAB0", "serial: LAB0, match: rest"), 3, "by one of serial"),
    (PLAIN.replace("name: virtio-LAB0, ", ""), 3, "by one of serial"),
    (PLAIN.replace("name: virtio-LAB0", "match: {size: smallest}"), 3, "which is smallest is undecided"),
    (PLAIN.replace("name: virtio-LAB0", "match: {size: '>=8G'}"), 3, "4 free disks match, and it is to be 1"),
    (PLAIN.replace("name: virtio-LAB0", "match: {size: '>8G'}"), 3, "0 free disks match"),
    (PLAIN.replace("name: virtio-LAB0", "match: {bus: nvme}, count: rest"), 3, "to be at least one"),
    (PLAIN.replace("name: virtio-LAB0", "match: {size: big}"), 3, "neither smallest nor largest"),
    (PLAIN.replace("name: virtio-LAB0", "match: {size: '>1G >2G >3G'}"), 3, "neither smallest nor largest"),
    (PLAIN.replace("name: virtio-LAB0", "match: {model: x}"), 3, "'model' is not known in match"),
    (PLAIN.replace("name: virtio-LAB0", "match: rest, count: 0"), 3, "number from 1 to 256"),
    (PLAIN.replace("name: virtio-LAB0", "match: rest, count: 3"), 3, "match: rest stands for all that are left"),
    (PLAIN.replace("name: virtio-LAB0", "match: {size: largest}, count: rest"), 3, "as many as count says"),
    (PLAIN.replace("ptable", "count: 2, ptable"), 3, "count goes with match"),
    (PLAIN.replace("name: virtio-LAB0", "path: /dev/sda"), 3, "is no stable name"),
    (with_line("id: x, type: disk, serial: LAB0, ptable: gpt"), 8, "virtio-LAB0 is taken by d already"),
    (with_line("id: x, type: disk, serial: LAB1"), 8, "nothing uses this disk"),
    # What stands on what.
    (PLAIN.replace("volume: p", "volume: q"), 6, "there is no item 'q'"),
    (PLAIN.replace("volume: p", "volume: m"), 6, "f -> m -> f is a circle"),
    (PLAIN.replace("volume: p", "volume: d"), 6, "d has a partition table"),
    (with_line("id: x, type: partition, device: p"), 8, "x stands on p, a partition; it is to be disk"),
    (
        with_line("id: g, type: lvm_volgroup, name: v, devices: [f]"),
        8,
        "f, a format; it is to be disk, partition, raid",
    ),
    (with_line("id: g, type: lvm_volgroup, name: v, devices: [p]"), 6, "f: p is used by g already"),
    (with_line("id: g, type: lvm_volgroup, name: v, devices: [p, p]"), 8, "g: p is used by g already"),
    (with_line("id: g, type: lvm_partition, name: v, volgroup: p"), 8, "p is no lvm_volgroup"),
    (with_line("id: x, type: mount, device: p, path: /srv"), 8, "p is no format"),
    (with_line("id: x, type: format, fstype: ext4"), 8, "it needs its volume"),
    # Sizes.
    (PLAIN.replace("device: d}", "device: d, size: 8G}"), 5, "p: it does not fit on virtio-LAB0: 8189 MiB of 8192 MiB"),
    (PLAIN.replace("device: d}", "device: d, size: much}"), 5, "is no size"),
    (PLAIN.replace("device: d}", "device: d, size: 50%}"), 5, "is no size"),
    (PLAIN.replace("device: d}", "device: d, size: -5}"), 5, "is no size"),
    (PLAIN.replace("size: 1M, ", ""), 4, "only the last partition"),
    (PLAIN.replace("device: d}", "device: d, number: 1}"), 5, "number 1 is taken"),
    (PLAIN.replace("device: d}", "device: d, size: 2000M}"), 6, "/ needs 2048 MiB, and has 2000 MiB"),
    (PLAIN.replace("fstype: ext4", "fstype: fat32"), 7, "/ is ext4 or xfs"),
    (mounted("/boot", "fat32"), 9, "/boot is ext4 or xfs"),
    (mounted("/usr", "fat32"), 10, "/usr is ext4 or xfs: fat32 has no owners and no links"),
    (mounted("/var/lib", "fat32"), 10, "/var/lib is ext4 or xfs"),
    (mounted("/boot/efi/x", "ext4"), 10, "nothing is mounted below /boot/efi"),
    (mounted("/boot", "ext4", "100M"), 9, "/boot needs 256 MiB, and has 100 MiB"),
    (mounted("/usr", "ext4", "1000M"), 9, "/usr needs 1024 MiB, and has 1000 MiB"),
    (mounted("/usr/share", "ext4", "200M"), 9, "/usr/share needs 256 MiB, and has 200 MiB"),
    (mounted("/var", "ext4", "16M"), 9, "/var needs 512 MiB, and has 16 MiB"),
    (mounted("/var/lib", "ext4", "16M"), 9, "/var/lib needs 256 MiB, and has 16 MiB"),
    (mounted("/var/cache", "ext4", "16M"), 9, "/var/cache needs 128 MiB, and has 16 MiB"),
    *(
        (mounted(f"/usr/{folder}", "ext4"), 10, "belongs to the file system of /usr: the system starts from it")
        for folder in ("bin", "lib", "lib/modules", "lib32", "lib64", "libx32", "sbin")
    ),
    (mounted("/var/run", "ext4"), 10, "is no place for a file system: /var/run is a link to /run"),
    (mounted("/var/lock/x", "ext4"), 10, "is no place for a file system: /var/lock is a link to /run/lock"),
    # What is missing, and what is there twice.
    (HEAD + DISK + BIOS + ROOT + FORMAT, None, "nothing is mounted at /"),
    (with_line("id: x, type: mount, device: f, path: /srv"), 8, "f is mounted by m already"),
    (PLAIN.replace("path: /", "path: srv"), 7, "is no path"),
    (PLAIN.replace("path: /", "path: /a/../b"), 7, "is no path"),
    (PLAIN.replace("path: /", "path: '/a b'"), 7, "is no path"),
    (PLAIN.replace("path: /", "path: /etc/x"), 7, "belongs to the file system of /"),
    (PLAIN.replace("path: /", "path: ''"), 7, "only swap has none"),
    (PLAIN.replace("path: /", "path: /, options: 'a b'"), 7, "is no list of mount options"),
    (PLAIN.replace("path: /", "path: /, options: 'a\\nb'"), 7, "is no list of mount options"),
    # Names.
    (PLAIN.replace("ext4,", "ext4, label: '$(reboot)',"), 6, "is no label"),
    (PLAIN.replace("ext4,", "xfs, label: longer-than-xfs,"), 6, "at most 12 characters"),
    (with_line("id: g, type: lvm_volgroup, name: 'a;b', devices: [b]"), 8, "is no name that LVM takes"),
    (with_line("id: g, type: lvm_volgroup, name: sda, devices: [b]"), 8, "the name of something in /dev"),
    (with_line("id: g, type: lvm_volgroup, devices: [b]"), 8, "it needs its name"),
    (with_line("id: g, type: raid, name: '../x', raidlevel: 1, devices: [b]"), 8, "is no name of an array"),
    (with_line("id: g, type: raid, name: a, raidlevel: 4, devices: [b]"), 8, "is none of 0, 1, 5, 6 and 10"),
    (with_line("id: g, type: raid, name: a, raidlevel: 1, devices: [p]"), 8, "raid1 needs 2 devices, and has 1"),
    # What starts it.
    (PLAIN.replace(BIOS, ""), 3, "no BIOS starts from virtio-LAB0: add a partition of 1M with flag bios_grub"),
    (PLAIN.replace("gpt}", "msdos}"), 4, "flag bios_grub is for a table of gpt"),
]


@pytest.mark.parametrize(("document", "line", "reason"), REFUSED)
def test_what_does_not_fit_is_refused_where_it_stands(document: str, line: int | None, reason: str) -> None:
    part = lay_out_disks(request(document))
    assert part.config == {}
    assert part.wiped == ()
    first = part.problems[0]
    assert (first.attrib, first.line) == ("provisioner-storage", line), first
    assert reason in first.reason


ARRAYS = """\
version: 1
config:
  - {id: d, type: disk, match: rest, ptable: gpt}
  - {id: b, type: partition, device: d, size: 1M, flag: bios_grub}
  - {id: q, type: partition, device: d, size: 3G}
  - {id: p, type: partition, device: d}
  - {id: a, type: raid, name: a, raidlevel: 10, devices: [p]}
  - {id: f, type: format, fstype: ext4, volume: a}
  - {id: m, type: mount, device: f, path: /}
"""
SMALL = ARRAYS.replace("size: 3G}", "size: 3G}\n  - {id: s, type: partition, device: d, size: 2M}")
"""Line 6 has partitions that are too small for most."""
REFUSED_ARRAYS = [
    (ARRAYS.replace("devices: [p]", "devices: [p, q]"), 7, "two of its devices are on the same disk"),
    (ARRAYS.replace("size: 3G", "size: 8150M"), 7, "at least 64 MiB"),
    (ARRAYS.replace("volume: a", "volume: q"), 8, "q is several devices, and one is mounted"),
    (ARRAYS.replace("raidlevel: 10, ", ""), 7, "it needs its raidlevel"),
    (ARRAYS + "  - {id: x, type: raid, name: a, raidlevel: 5, devices: [q]}\n", 10, "there is another array a"),
    (SMALL + "  - {id: x, type: lvm_volgroup, name: g, devices: [s]}\n", 11, "needs a device, of 12 MiB"),
    (
        ARRAYS
        + "  - {id: x, type: lvm_volgroup, name: g, devices: [q]}\n"
        + "  - {id: y, type: lvm_partition, name: l, volgroup: x, size: 1T}\n",
        11,
        "y: it does not fit: 12256 MiB of g are left",
    ),
    (
        SMALL
        + "  - {id: x, type: lvm_volgroup, name: g, devices: [q]}\n"
        + "  - {id: y, type: lvm_volgroup, name: g, devices: [s]}\n",
        12,
        "there is another volume group g",
    ),
]


@pytest.mark.parametrize(("document", "line", "reason"), REFUSED_ARRAYS)
def test_arrays_and_groups_that_do_not_fit_are_refused(document: str, line: int, reason: str) -> None:
    assert lay_out_disks(request(ARRAYS)).problems == ()
    first = lay_out_disks(request(document)).problems[0]
    assert first.line == line, first
    assert reason in first.reason


@pytest.mark.parametrize(
    "use",
    [
        "raid, name: x, raidlevel: 1, devices: [b]",
        "raid, name: x, raidlevel: 0, devices: [q, b]",
        "lvm_volgroup, name: x, devices: [b]",
        "lvm_volgroup, name: x, devices: [q, b]",
        "format, fstype: swap, volume: b",
        "format, fstype: ext4, volume: b",
    ],
)
def test_the_partition_that_grub_writes_itself_to_holds_nothing_else(use: str) -> None:
    """It would be overwritten when the boot loader is installed, after all else."""
    document = ARRAYS.replace("size: 1M, flag", "size: 100M, flag") + f"  - {{id: x, type: {use}}}\n"
    [problem] = lay_out_disks(request(document)).problems
    assert problem.line == 10
    assert problem.reason == "x: GRUB has b, with flag bios_grub, for itself, and overwrites it"


FLAGGED = """\
version: 1
config:
  - {id: d, type: disk, match: rest, ptable: gpt}
  - {id: esp, type: partition, device: d, size: 512M, flag: boot}
  - {id: b, type: partition, device: d, size: 1M, flag: bios_grub}
  - {id: e, type: partition, device: d, size: 1G, flag: boot}
  - {id: p, type: partition, device: d}
  - {id: a, type: raid, name: a, raidlevel: 10, devices: [p]}
  - {id: f, type: format, fstype: ext4, volume: a}
  - {id: m, type: mount, device: f, path: /}
  - {id: esp-fs, type: format, fstype: fat32, volume: esp}
  - {id: esp-m, type: mount, device: esp-fs, path: /boot/efi}
"""


@pytest.mark.parametrize(
    "use",
    [
        "raid, name: x, raidlevel: 1, devices: [e]",
        "lvm_volgroup, name: x, devices: [e]",
        "format, fstype: swap, volume: e",
        "format, fstype: xfs, volume: e",
    ],
)
def test_a_partition_that_is_flagged_for_uefi_is_one_that_it_starts_from(use: str) -> None:
    """As a mirror of ESPs, which the firmware cannot read: the flag promises a start that never comes."""
    assert lay_out_disks(request(FLAGGED, firmware="uefi")).problems == ()
    document = f"{FLAGGED}  - {{id: x, type: {use}}}\n"
    [problem] = lay_out_disks(request(document, firmware="uefi")).problems
    assert problem.line == 6
    assert "e: UEFI starts from a partition with flag boot if it is fat32 itself" in problem.reason
    assert "this one is used by x; leave out the flag" in problem.reason
    assert lay_out_disks(request(document)).problems == (), "to a BIOS the flag means nothing"


def test_what_is_active_in_a_table_of_dos_is_not_for_uefi() -> None:
    document = FLAGGED.replace("match: rest", "name: virtio-LAB0").replace("[p]", "[p, p2]").replace("10", "1")
    document += "  - {id: other, type: disk, name: virtio-LAB1, ptable: msdos}\n"
    document += "  - {id: p2, type: partition, device: other, flag: boot}\n"
    assert lay_out_disks(request(document, firmware="uefi")).problems == ()


@pytest.mark.parametrize(
    ("layout", "disks", "firmware", "disk", "told"),
    [
        (
            "raid5",
            EQUAL,
            "bios",
            "",
            "provisioner-storage: there is no layout 'raid5': there are flat, lvm, raid1, raid10",
        ),
        ("zfs", EQUAL, "bios", "", "provisioner-storage: there is no layout 'zfs': Rackwright makes no ZFS"),
        ("flat", [{"name": "sda"}], "bios", "", "the size of sda is not known"),
        ("flat", [{"name": "sda", "bytes": GIB}], "bios", "", "/ needs 2048 MiB, and has 1022 MiB"),
        (
            "flat",
            EQUAL,
            "bios",
            "sdq",
            "provisioner-disk: disk: the machine has no disk with name sdq; it has virtio-LAB0",
        ),
        ("lvm", EQUAL, "bios", "sdq", "provisioner-disk: disk: the machine has no disk with name sdq"),
        ("raid1", EQUAL[:1], "bios", "", "raid1 needs two disks"),
        ("raid1", [MIXED[0], MIXED[2], MIXED[4]], "bios", "", "of more than two a pair of equal size"),
        ("raid1", EQUAL, "bios", "virtio-LAB0", "provisioner-disk: raid1 is on two disks"),
        (
            "raid10",
            EQUAL[:3],
            "bios",
            "",
            "raid10 needs 4 disks; the machine has virtio-LAB0, virtio-LAB1, virtio-LAB2",
        ),
        ("raid10", EQUAL, "bios", "virtio-LAB0", "provisioner-disk: raid10 is on all disks"),
        (PLAIN, EQUAL, "uefi", "", "UEFI has nothing to start from"),
        (BOOT_ON_FAT, EQUAL, "uefi", "", "line 6: /boot is ext4 or xfs"),
        (7, EQUAL, "bios", "", "the document is a mapping"),
        ("x: 1\n" * 20_000, EQUAL, "bios", "", "more than 65536 characters"),
    ],
)
def test_a_layout_that_does_not_fit_the_machine_is_refused(
    layout: Json, disks: list[Json], firmware: str, disk: str, told: str
) -> None:
    part = lay_out_disks(request(layout, disks, firmware, disk))
    assert part.config == {}
    assert told in str(part.problems[0])


def test_a_machine_of_which_no_disk_is_known_is_refused() -> None:
    unknown = request("flat")
    unknown.facts["disks"] = []
    assert "no disk of the machine is known" in str(lay_out_disks(unknown).problems[0])


def test_a_volume_group_that_is_on_a_kept_disk_is_not_made_twice() -> None:
    old: Json = {"device": "vdb1", "type": "LVM2_member", "label": "system"}
    kept: Json = {"name": "old", "bytes": 8 * GIB, "contents": [old]}
    part = lay_out_disks(request("lvm", [EQUAL[0], kept]))
    assert "there is a volume group system on old, which is kept" in str(part.problems[0])
    assert lay_out_disks(request("lvm", [EQUAL[0], kept], disk="old")).problems == ()


@pytest.mark.parametrize(("length", "fits"), [(63, True), (64, False)])
def test_the_names_of_a_group_and_a_volume_fit_into_the_kernels(length: int, fits: bool) -> None:
    """Device mapper has 127 characters for both, and LVM writes each '-' twice: lvcreate fails on wiped disks."""
    group = "g" * 63 if length == 63 else "g" * 62 + "-g"
    document = ARRAYS.replace("devices: [p]}", "devices: [p]}\n  - {id: v, type: lvm_volgroup, name: %s, devices: [a]}")
    document = document.replace("%s", group[:63]) + "  - {id: l, type: lvm_partition, name: %s, volgroup: v}\n"
    volume = "v" * 63 if fits else "v" * 61 + "-v"
    part = lay_out_disks(request(document.replace("%s", volume).replace("volume: a", "volume: l")))
    assert [problem.line for problem in part.problems] == ([] if fits else [11])
    assert fits or "of which each '-' takes two" in part.problems[0].reason


@pytest.mark.parametrize("item", ["raid, name: x, raidlevel: 0", "lvm_volgroup, name: x"])
def test_disks_with_sectors_of_different_sizes_do_not_go_into_one_array_or_group(item: str) -> None:
    disks: list[Json] = [
        disk | {"sector_bytes": 4096 if n == 3 else 512} for n, disk in enumerate(EQUAL) if isinstance(disk, dict)
    ]
    document = with_line("id: r, type: disk, match: rest") + f"  - {{id: x, type: {item}, devices: [r]}}\n"
    assert lay_out_disks(request(document)).problems == (), "an older sledgehammer does not tell"
    assert lay_out_disks(request(document, disks[:3])).problems == ()
    [problem] = lay_out_disks(request(document, disks)).problems
    assert problem.line == 9
    assert "virtio-LAB2 has 512 bytes, virtio-LAB3 has 4096 bytes" in problem.reason


@pytest.mark.parametrize(("gib", "refused"), [(2047, False), (2048, True), (3000, True)])
def test_a_fat32_that_cannot_count_its_sectors_is_refused(gib: int, refused: bool) -> None:
    """mkdosfs makes one of 952 GiB on 3000 GiB, and nobody is told."""
    large: Json = {"name": "large", "bytes": 4000 * GIB}
    part = lay_out_disks(request(mounted("/data", "fat32", f"{gib}G").replace("virtio-LAB0", "large"), [large]))
    told = [(9, f"x-fs: fat32 ends below 2 TiB, and this is of {gib << 10} MiB")] if refused else []
    assert [(problem.line, problem.reason) for problem in part.problems] == told


def test_a_disk_that_was_chosen_beside_a_document_is_said_to_change_nothing() -> None:
    [note] = lay_out_disks(request(PLAIN, disk="virtio-LAB1")).notes
    assert str(note) == "provisioner-disk: is not looked at, since the document of provisioner-storage names its disks"
    assert lay_out_disks(request("lvm", disk="virtio-LAB1")).notes == ()


NAMESPACES: list[Json] = [
    {"name": "nvme-fast_S1", "device": f"nvme0n{n}", "bytes": 8 * GIB, "serial": "S1", "wwn": f"eui.00{n}"}
    for n in (1, 2)
]


@pytest.mark.parametrize(
    "layout",
    [
        "flat",
        PLAIN.replace("name: virtio-LAB0", "name: nvme-fast_S1"),
        PLAIN.replace("name: virtio-LAB0", "serial: S1"),
        PLAIN.replace("name: virtio-LAB0", "wwn: eui.001"),
        PLAIN.replace("name: virtio-LAB0", "match: {size: '<9G'}"),
    ],
)
def test_two_disks_of_one_name_are_none_that_can_be_installed_on(layout: str) -> None:
    """Two namespaces of an NVMe controller: the second one is neither forgotten nor wiped by chance."""
    [problem] = lay_out_disks(request(layout, NAMESPACES)).problems
    assert "2 disks say that they are nvme-fast_S1: nvme0n1, nvme0n2" in problem.reason
    part = lay_out_disks(request(PLAIN, [*NAMESPACES, *EQUAL]))
    assert [disk.name for disk in part.wiped] == ["virtio-LAB0"], "one that is kept is in nobody's way"


def test_namespaces_with_names_of_their_own_are_disks_like_others() -> None:
    apart: list[Json] = [
        disk | {"name": f"nvme-fast_S1_{n}"} for n, disk in enumerate(NAMESPACES) if isinstance(disk, dict)
    ]
    part = lay_out_disks(request(PLAIN.replace("name: virtio-LAB0", "wwn: '0x002'"), apart))
    assert [disk.name for disk in part.wiped] == ["nvme-fast_S1_1"]
    [problem] = lay_out_disks(request(PLAIN.replace("name: virtio-LAB0", "serial: S1"), apart)).problems
    assert "2 disks have serial S1: nvme-fast_S1_0 (8.6 GB), nvme-fast_S1_1 (8.6 GB)" in problem.reason
