"""The partition tables that the installer writes, by sfdisk on files: what a layout says is what is on the disk.

Arrays, volumes and mounts need kernel modules that a host of tests may not have: virtual machines try those
(`tests/e2e/storage_scenarios.py`).
"""

import json
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

from rackwright.domain.catalogue import Json
from rackwright.domain.installs.request import InstallRequest
from rackwright.domain.installs.storage.part import lay_out_disks
from rackwright.reach.attribute_lines import attribute_lines

AGENT = files("rackwright.provision.images") / "agent"
MIB = 1 << 20
DISK_MIB = 8192
KINDS = {
    "C12A7328-F81F-11D2-BA4B-00A0C93EC93B": "uefi",
    "21686148-6449-6E6F-744E-656564454649": "bios",
    "A19D880F-05FC-4D3B-A006-743F0F84911E": "raid",
    "E6D6D379-F507-44C2-A23C-238F2A3DF928": "lvm",
    "0FC63DAF-8483-4772-8E79-3D69D8477DE4": "linux",
    "83": "active",
}
PREAMBLE = """
mount -t tmpfs tmpfs /run
mkdir /run/bin
busybox --install -s /run/bin
PATH=/run/bin:/usr/sbin:/sbin:/usr/bin
rm /run/bin/fdisk
"""
SAY = """
say() { echo "$*"; }
fail_install() { echo "failed: $1"; exit 1; }
"""
BUILD = """
cd $1
cp config /run/config
disk_count=0
for file in disk?; do
    eval "disk_$disk_count=$1/$file"
    disk_count=$((disk_count + 1))
done
await_device() { echo "$1"; }
build_array() { :; }
build_group() { :; }
build_volume() { :; }
format() { :; }
partition
echo "boot=$boot_disks efi=$efi_partitions"
"""


def run_agent(folder: Path, config: Json, script: str) -> subprocess.CompletedProcess[str]:
    assert isinstance(config, dict)
    (folder / "config").write_text("".join(f"{line}\n" for line in attribute_lines(config)))
    parts = "".join((AGENT / part).read_text() for part in ("install", "inventory", "storage"))
    parts = parts[parts.index("# told PATH") :]  # it begins with reading the parts that are given here
    return subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "busybox", "sh", "-s", str(folder)],
        input=f"{PREAMBLE}agent_folder={AGENT}\n{parts}{SAY}{script}",
        capture_output=True,
        text=True,
        check=False,
    )


def make_disks(folder: Path, count: int) -> list[Json]:
    for number in range(count):
        with (folder / f"disk{number}").open("wb") as file:
            file.truncate(DISK_MIB * MIB)
    return [{"name": f"disk{number}", "bytes": DISK_MIB * MIB} for number in range(count)]


@pytest.mark.parametrize("firmware", ["bios", "uefi"])
@pytest.mark.parametrize("layout", ["flat", "lvm", "raid1", "raid10"])
def test_the_tables_are_those_of_the_layout(layout: str, firmware: str, tmp_path: Path) -> None:
    disks = make_disks(tmp_path, 2 if layout == "raid1" else 4)
    facts: dict[str, Json] = {"disks": disks, "firmware": {"mode": firmware}}
    config = lay_out_disks(InstallRequest("n1", {"storage": layout}, facts)).config
    storage = config["storage"]
    assert isinstance(storage, dict)
    assert isinstance(storage["build"], list)
    done = run_agent(tmp_path, config, BUILD)
    assert done.returncode == 0, done.stdout + done.stderr
    tables = [str(step).split()[1:] for step in storage["build"] if str(step).startswith("table ")]
    for disk, label, *partitions in tables:
        on_disk = json.loads(subprocess.check_output(["sfdisk", "--json", tmp_path / disk]))["partitiontable"]
        assert on_disk["label"] == label
        sector = on_disk["sectorsize"]
        written = [
            f"{number}:{entry['start'] * sector // MIB}:{entry['size'] * sector // MIB}:{KINDS[entry['type']]}"
            for number, entry in enumerate(on_disk["partitions"], start=1)
        ]
        assert written == partitions


def test_numbers_and_old_tables_do_not_get_in_the_way(tmp_path: Path) -> None:
    disks = make_disks(tmp_path, 1)
    facts: dict[str, Json] = {"disks": disks, "firmware": {"mode": "bios"}}
    for layout in ("lvm", "flat", "lvm"):
        done = run_agent(tmp_path, lay_out_disks(InstallRequest("n1", {"storage": layout}, facts)).config, BUILD)
        assert done.returncode == 0, done.stdout + done.stderr
    on_disk = json.loads(subprocess.check_output(["sfdisk", "--json", tmp_path / "disk0"]))["partitiontable"]
    assert (on_disk["label"], len(on_disk["partitions"])) == ("gpt", 2)


CHECK = """
cp $1/config /run/config
mkdir -p /run/sys/class/dmi
mount -t tmpfs tmpfs /sys
mkdir -p /sys/block/sda/device /sys/block/sdb/device
for name in sda sdb; do
    echo 0 >/sys/block/$name/removable
    echo $name >/sys/block/$name/serial
done
echo 16777216 >/sys/block/sda/size
echo 4096 >/sys/block/sdb/size
"""


@pytest.mark.parametrize(
    ("arrange", "told"),
    [
        ("", "checked /dev/sda"),
        ("mkdir -p /sys/firmware/efi", "failed: the machine boots by uefi now, and the install was planned for bios"),
        ("echo 16777217 >/sys/block/sda/size", "failed: disk scsi-sda has 8589935104 bytes, and had 8589934592"),
        ("echo other >/sys/block/sda/serial", "failed: this machine has no disk scsi-sda; it has: scsi-other scsi-sdb"),
        ("echo sda >/sys/block/sdb/serial", "failed: this machine has several disks scsi-sda: sda sdb"),
    ],
)
def test_a_disk_that_is_not_what_was_planned_with_is_not_written_to(arrange: str, told: str, tmp_path: Path) -> None:
    facts: dict[str, Json] = {"disks": [{"name": "scsi-sda", "bytes": 8 << 30}], "firmware": {"mode": "bios"}}
    config = lay_out_disks(InstallRequest("n1", {}, facts)).config
    done = run_agent(tmp_path, config, f'{CHECK}{arrange}\ncheck_disks\necho "checked $disk_0"\n')
    assert told in done.stdout, done.stdout + done.stderr


def test_a_server_that_names_no_disk_installs_on_none(tmp_path: Path) -> None:
    config: Json = {"storage": {"firmware": "bios", "disks": []}}
    done = run_agent(tmp_path, config, f"{CHECK}check_disks\necho done\n")
    assert done.stdout == "failed: the server names no disk to install on\n", done.stdout + done.stderr


FORMAT = """
cp $1/config /run/config
mkdir /run/disks
disk_0=/run/disks/disk0
truncate -s "$2" $disk_0
make_file_system disk0 "$3" data
dumpe2fs -h $disk_0 2>/dev/null | sed -n 's/^Filesystem features: */features: /p'
"""


def make_file_system(folder: Path, gib: int, made_as: str) -> str:
    """Return what the installer says when it makes a file system on a sparse disk, and the features that it has."""
    done = run_agent(folder, {"storage": {"loader": "extlinux"}}, f"set -- $1 {gib << 30} {made_as}\n{FORMAT}")
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def test_a_file_system_of_more_than_16_tib_is_made_beside_one_that_extlinux_reads(tmp_path: Path) -> None:
    features = make_file_system(tmp_path, 17 << 10, "ext4").split()
    assert features[0] == "features:"
    assert {"64bit", "metadata_csum"} <= {*features}


def test_what_extlinux_cannot_read_is_left_out_of_its_file_system(tmp_path: Path) -> None:
    features = make_file_system(tmp_path, 1, "ext4-extlinux").split()
    assert features[0] == "features:"
    assert not {"64bit", "metadata_csum", "metadata_csum_seed", "orphan_file"} & {*features}


def test_a_type_that_an_installer_does_not_know_is_refused(tmp_path: Path) -> None:
    assert make_file_system(tmp_path, 1, "ext5") == "failed: this sledgehammer makes no ext5\n"
