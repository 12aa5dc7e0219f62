"""What discovery and the installer find on disks: the agent's own shell with busybox, on file systems that their own
programs made. The disks are files, below folders in place of /sys/block and /dev."""

import json
import os
import shutil
import struct
import subprocess
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from rackwright.domain.installs.disks import Disk, read_disks

AGENT = Path(str(files("rackwright.provision.images") / "agent"))
MEGABYTE = 1 << 20
SCRIPT = """
agent_folder=$1 folder=$2
. $agent_folder/common
. $agent_folder/disks
. $agent_folder/wipes
disks_report=$agent_folder/disks.awk
late_disk_tries=0
block_folder=$folder/block device_folder=$folder/dev disks_folder=$folder/run
told() { awk -F '\\t' -v path="/$1" '$1 == path { print $3; exit }' $folder/config; }
fail_install() { echo "failed: $1"; exit 1; }
"""
INVENTORY = SCRIPT.replace("disks\n", "inventory\n", 1)
"""With what is known of the whole machine."""
MD_MAGIC = 0xA92B4EFC


class Machine:
    """Disks that are files, and what the agent finds on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("block", "dev", "programs", "content"):
            (folder / name).mkdir()
        subprocess.run(["busybox", "--install", "-s", str(folder / "programs")], check=True)
        for program in ("wipefs",):
            link = folder / "programs" / program
            link.unlink(missing_ok=True)
            link.symlink_to(f"/usr/sbin/{program}")

    def add(self, device: str, megabytes: int = 32, serial: str = "", partitions: Sequence[int] = ()) -> Path:
        """Put an empty disk into the machine; `partitions` are their sizes in megabytes. Return its content."""
        content = self._make_file(device, megabytes)
        block = self.folder / "block" / device
        (block / "device").mkdir(parents=True)
        (block / "queue").mkdir()
        (block / "removable").write_text("0\n")
        (block / "serial").write_text(f"{serial}\n")
        (block / "size").write_text(f"{content.stat().st_size // 512}\n")
        (block / "queue/rotational").write_text("0\n")
        (block / "queue/logical_block_size").write_text("512\n")
        start = 2048
        for number, size in enumerate(partitions, 1):
            part = block / f"{device}{number}"
            part.mkdir()
            self._make_file(part.name, size)
            for name, value in (("partition", number), ("start", start), ("size", size * MEGABYTE // 512)):
                (part / name).write_text(f"{value}\n")
            start += size * MEGABYTE // 512
        if partitions:
            table = "".join(f"size={size}MiB\n" for size in partitions)
            run("sfdisk", "-q", str(content), stdin=f"label: gpt\n{table}")
        return content

    def content(self, device: str) -> Path:
        return self.folder / "content" / device

    def _make_file(self, device: str, megabytes: int) -> Path:
        content = self.content(device)
        with content.open("wb") as file:
            file.truncate(megabytes * MEGABYTE)
        (self.folder / "dev" / device).symlink_to(content)
        return content

    def sh(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run the agent's functions, with none but busybox's programs and wipefs."""
        command = ["/usr/bin/busybox", "sh", "-c", SCRIPT + script, "sh", str(AGENT), str(self.folder)]
        environment = {"PATH": str(self.folder / "programs")}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    def reported(self) -> str:
        process = self.sh("disks")
        assert process.returncode == 0, process.stderr
        return f"[{process.stdout}]"

    def inventory(self) -> str:
        """Return what the machine registers with; what it keeps in /run meanwhile is kept from the host's."""
        command = ["unshare", "--mount", "--propagation", "private", "/usr/bin/busybox", "sh", "-c"]
        script = f"mount -t tmpfs tmpfs /run\n{INVENTORY}hardware >/run/hardware\ninventory ''"
        arguments = ["sh", str(AGENT), str(self.folder)]
        environment = {"PATH": str(self.folder / "programs")}
        process = subprocess.run(
            [*command, script, *arguments], env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert process.returncode == 0, process.stderr
        return process.stdout

    def disks(self) -> dict[str, Disk]:
        return {disk.device: disk for disk in read_disks(json.loads(self.reported()))}

    def check(self, *wipes: Disk) -> str:
        """Have the installer look before it writes; return why it does not, or an empty text."""
        lines = []
        for number, disk in enumerate(wipes):
            told = {"name": disk.name, "fingerprint": disk.fingerprint, "text": f"planned {number}"}
            lines += [f"/wipes/{number}/{key}\ts\t{value}\n" for key, value in told.items()]
        (self.folder / "config").write_text("".join(lines))
        process = self.sh("check_wipes; echo written")
        assert process.stdout.startswith(("written", "failed: nothing was written")), process
        return "" if process.stdout == "written\n" else process.stdout.removeprefix("failed: ").strip()


def run(*command: str, stdin: str | None = None) -> None:
    process = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


def write_raid_member(content: Path, name: str, array: bytes) -> None:
    """Write what mdadm writes at the beginning of a member of an array (metadata 1.2)."""
    block = bytearray(256)
    struct.pack_into("<II", block, 0, MD_MAGIC, 1)
    block[16:32] = array
    block[32 : 32 + len(name)] = name.encode()
    struct.pack_into("<QiiQII", block, 64, 0, 1, 0, 1000, 0, 2)
    struct.pack_into("<QQQ", block, 128, 2048, 1000, 8)
    total = sum(struct.unpack("<64I", block))
    struct.pack_into("<I", block, 216, ((total & 0xFFFFFFFF) + (total >> 32)) & 0xFFFFFFFF)
    with content.open("r+b") as file:
        file.seek(4096)
        file.write(block)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def seen(disk: Disk) -> list[tuple[str, str, str]]:
    return [(content.device, content.type, content.label) for content in disk.contents]


def test_file_systems_and_members_of_something_larger_are_named(machine: Machine) -> None:
    machine.add("vda", 200, "X 1", partitions=(40, 40, 40, 20))
    run("mkfs.ext4", "-q", "-L", "pgdata", "-M", "/srv/pg", str(machine.content("vda1")))
    run("mkswap", "-L", "paging", str(machine.content("vda2")))
    write_raid_member(machine.content("vda3"), "n1:home", bytes(range(16)))
    luks = (
        "cryptsetup",
        "luksFormat",
        "-q",
        "--pbkdf",
        "pbkdf2",
        "--pbkdf-force-iterations",
        "1000",
        "--label",
        "vault",
    )
    run(*luks, str(machine.add("vdb")), "-", stdin="password")
    machine.add("vdc")
    disks = machine.disks()
    assert seen(disks["vda"]) == [
        ("vda", "gpt", ""),
        ("vda1", "ext4", "pgdata"),
        ("vda2", "swap", "paging"),
        ("vda3", "linux_raid_member", "n1:home"),
        ("vda4", "partition", ""),
    ]
    root = disks["vda"].contents[1]
    assert (root.bytes, root.mounted_on) == (40 * MEGABYTE, "/srv/pg")
    assert disks["vda"].contents[3].uuid == "00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert (disks["vda"].name, disks["vda"].serial, disks["vda"].bus) == ("virtio-X1", "X1", "virtio")
    assert (disks["vda"].bytes, disks["vda"].rotational) == (200 * MEGABYTE, False)
    assert seen(disks["vdb"]) == [("vdb", "crypto_LUKS", "vault")]
    assert seen(disks["vdc"]) == []
    assert len({disk.fingerprint for disk in disks.values()}) == 3


def volume_group(content: Path, name: str, volumes: str = "", area_size: int = 0x100000) -> None:
    """Write what pvcreate and vgcreate write; `volumes` is the text of the logical volumes."""
    label = bytearray(512)
    label[0:8] = b"LABELONE"
    struct.pack_into("<QII", label, 8, 1, 0, 32)
    label[24:32] = b"LVM2 001"
    label[32:64] = b"abcdefghijklmnopqrstuvwxyz012345"
    struct.pack_into("<Q", label, 64, content.stat().st_size)
    struct.pack_into("<QQQQQQQQ", label, 72, 0x200000, 0, 0, 0, 4096, area_size, 0, 0)
    text = f'{name} {{\nid = "vg-{name}"\nseqno = 7\nlogical_volumes {{\n{volumes}}}\n}}\n'.encode()
    header = bytearray(512)
    header[4:20] = b" LVM2 x[5A%r0N*>"
    offset = area_size - 20  # the text is a ring: it goes on behind the header
    struct.pack_into("<IQQQQ", header, 20, 1, 4096, area_size, offset, len(text))
    with content.open("r+b") as file:
        file.seek(512)
        file.write(label)
        file.seek(4096)
        file.write(header)
        file.seek(4096 + offset)
        file.write(text[:20])
        file.seek(4096 + 512)
        file.write(text[20:])


def test_a_volume_group_is_named_with_its_volumes(machine: Machine) -> None:
    content = machine.add("vda")
    volume_group(content, "data", 'home {\nid = "h1"\n}\nvar {\nid = "v1"\n}\n')
    disk = machine.disks()["vda"]
    assert seen(disk) == [
        ("vda", "LVM2_member", "data"),
        ("data/home", "logical volume", ""),
        ("data/var", "logical volume", ""),
    ]
    volume_group(content, "data", 'home {\nid = "h1"\n}\n')
    assert machine.disks()["vda"].fingerprint != disk.fingerprint, "a volume less is a change"


@pytest.mark.skipif(not Path("/usr/sbin/vgcreate").exists(), reason="LVM is not installed")
def test_a_volume_group_of_lvm_itself_is_named(machine: Machine) -> None:
    content = machine.add("vda", 64)
    loop = subprocess.run(["losetup", "-f", "--show", str(content)], capture_output=True, text=True, check=False)
    if loop.returncode:
        pytest.skip("there is no loop device here")
    device = loop.stdout.strip()
    try:
        settings = f'devices {{ filter=["a|{device}|","r|.*|"] use_devicesfile=0 }} global {{ locking_type=0 }}'
        run("pvcreate", "-q", "--config", settings, device)
        run("vgcreate", "-q", "--config", settings, f"rackwright{os.getpid()}", device)
    finally:
        run("losetup", "-d", device)
    assert seen(machine.disks()["vda"]) == [("vda", "LVM2_member", f"rackwright{os.getpid()}")]


def test_a_machine_with_several_disks_registers_with_all_of_them(machine: Machine) -> None:
    for number in range(3):
        machine.add(f"vd{'abc'[number]}", serial=f"S{number}")
    inventory = json.loads(machine.inventory())
    assert [disk["serial"] for disk in inventory["disks"]] == ["S0", "S1", "S2"]
    assert {"cpu", "memory", "firmware", "product", "serial", "kernel", "links", "lldp"} <= inventory.keys()


def test_use_leaves_a_fingerprint_and_other_data_changes_it(machine: Machine) -> None:
    machine.add("vda", 100, partitions=(40, 20))
    first = machine.content("vda1")
    run("mkfs.ext4", "-q", "-O", "^metadata_csum", str(first))

    def fingerprint() -> str:
        return machine.disks()["vda"].fingerprint

    before = fingerprint()
    with first.open("r+b") as file:
        file.seek(1024 + 44)
        file.write(struct.pack("<IIH", 1767225600, 1767225601, 7))  # mounted, written, and how often
        file.seek(8 * MEGABYTE)
        file.write(b"a file" * 1000)
    with machine.content("vda").open("r+b") as file:
        file.write(b"another boot loader")
    assert fingerprint() == before
    run("tune2fs", "-L", "other", str(first))
    labelled = fingerprint()
    assert labelled != before
    run("mkfs.ext4", "-q", "-F", "-L", "other", str(first))
    formatted = fingerprint()
    assert formatted != labelled
    run("mkswap", str(machine.content("vda2")))
    swapping = fingerprint()
    assert swapping != formatted
    run("sfdisk", "-q", "--delete", str(machine.content("vda")), "2")
    assert fingerprint() != swapping


def test_a_disk_has_the_same_fingerprint_under_another_device_name(machine: Machine, tmp_path: Path) -> None:
    machine.add("vda", 60, "X1", partitions=(40,))
    run("mkfs.ext4", "-q", str(machine.content("vda1")))
    (tmp_path / "other").mkdir()
    other = Machine(tmp_path / "other")
    other.add("vdb", 60, "X1", partitions=(40,))
    for name in ("vda", "vda1"):
        other.content(name.replace("vda", "vdb")).write_bytes(machine.content(name).read_bytes())
    assert other.disks()["vdb"].fingerprint == machine.disks()["vda"].fingerprint


def test_data_without_a_known_form_is_no_empty_disk(machine: Machine) -> None:
    machine.add("vda").write_bytes(os.urandom(2 * MEGABYTE))
    assert seen(machine.disks()["vda"]) == [("vda", "unrecognized data", "")]


def test_a_disk_that_cannot_be_read_is_not_known(machine: Machine) -> None:
    machine.add("vda", serial="X1")
    machine.add("vdb", serial="X2")
    (machine.folder / "dev" / "vda").unlink()
    disks = machine.disks()
    assert (disks["vda"].fingerprint, disks["vda"].contents) == ("", ())
    assert disks["vdb"].fingerprint
    assert "it cannot be read now" in machine.check(disks["vda"])


def test_what_strangers_write_on_a_disk_leaves_the_report_json_and_small(machine: Machine) -> None:
    evil = 'a"b\\c\x01\n$(x)ü,\t'
    machine.add("vda", serial='S"1\\\x07\t2')
    run("mkfs.ext4", "-q", "-F", "-L", evil[:12], str(machine.content("vda")))
    content = machine.add("vdb")
    garbage = "".join(f'v{number} {{\nid = "x{number}"\n}}\n' for number in range(30_000))
    volume_group(content, "g" * 200, garbage[:900_000])
    for number in range(58):
        machine.add(
            f"vd{chr(99 + number // 26)}{chr(97 + number % 26)}", 60, f"SERIAL{number:040}", partitions=(20,) * 2
        )
    reported = machine.reported()
    disks = read_disks(json.loads(reported))
    assert len(disks) == 60
    assert all(disk.fingerprint for disk in disks)
    assert len(reported) < 48 * 1024, "a registration has 256 KiB, of which this is a part"
    assert any("not listed" in content.type for content in disks[1].contents)
    assert disks[0].name == "virtio-S12"
    [label] = [content.label for content in disks[0].contents]
    assert label.startswith('a"b\\c?')


def test_the_installer_writes_to_what_was_confirmed_and_to_empty_disks(machine: Machine) -> None:
    machine.add("vda", serial="X1")
    machine.add("vdb", serial="X2")
    run("mkfs.ext4", "-q", str(machine.content("vda")))
    disks = machine.disks()
    assert machine.check(disks["vda"], disks["vdb"]) == ""
    machine.content("vda").write_bytes(bytes(32 * MEGABYTE))
    assert machine.check(disks["vda"]) == "", "nothing is lost on a disk that is empty now"


def test_the_installer_refuses_a_disk_with_other_data_and_names_both(machine: Machine) -> None:
    machine.add("vda", serial="X1")
    run("mkfs.ext4", "-q", "-L", "pgdata", str(machine.content("vda")))
    planned = machine.disks()["vda"]
    run("mkfs.ext4", "-q", "-F", "-L", "ledger", str(machine.content("vda")))
    reason = machine.check(planned)
    assert reason.startswith("nothing was written, since the disks are not as they were confirmed: ")
    assert 'planned was virtio-X1 (planned 0), and here is virtio-X1 (33.6 MB, serial X1: vda ext4 "ledger")' in reason


def test_the_installer_refuses_another_disk_in_its_place_and_names_both(machine: Machine) -> None:
    machine.add("vda", serial="X2")
    run("mkfs.ext4", "-q", "-L", "ledger", str(machine.content("vda")))
    reason = machine.check(Disk("virtio-X1", fingerprint="f"))
    assert "planned was virtio-X1 (planned 0), and it is not here; here are virtio-X2 (" in reason
    assert '"ledger"' in reason


def test_the_installer_waits_for_a_disk_that_appears_late(machine: Machine) -> None:
    machine.add("vda", serial="X1")
    run("mkfs.ext4", "-q", str(machine.content("vda")))
    planned = machine.disks()["vda"]
    machine.add("vdb", serial="X2")
    hidden = machine.folder / "hidden"
    (machine.folder / "block/vda").rename(hidden)
    assert "it is not here; here are virtio-X2" in machine.check(planned)
    late = f"""
    late_disk_tries=2
    say() {{ :; }}
    sleep() {{ [ $1 != 2 ] && command sleep $1 || mv {hidden} $block_folder/vda; }}
    """
    process = machine.sh(f"{late}check_wipes; echo written")
    assert process.stdout == "written\n", process


def test_the_installer_refuses_two_disks_of_one_name(machine: Machine) -> None:
    machine.add("vda", serial="X1")
    machine.add("vdb", serial="X1")
    assert "several disks have that name" in machine.check(machine.disks()["vda"])


def test_the_paths_to_a_drive_with_several_ports_are_no_disks_of_their_own(machine: Machine) -> None:
    machine.add("nvme0n1", serial="X1")
    path = machine.folder / "block" / "nvme0c0n1"
    shutil.copytree(machine.folder / "block" / "nvme0n1", path)
    (path / "hidden").write_text("1\n")
    (machine.folder / "block" / "nvme0n1" / "hidden").write_text("0\n")
    disks = machine.disks()
    assert list(disks) == ["nvme0n1"]
    assert machine.check(disks["nvme0n1"]) == ""


def test_the_namespaces_of_a_drive_are_disks_of_their_own(machine: Machine) -> None:
    for number in (1, 2):
        machine.add(f"nvme0n{number}", serial="X1")
        (machine.folder / "block" / f"nvme0n{number}" / "nsid").write_text(f"{number}\n")
    names = [disk.name for disk in machine.disks().values()]
    assert names == ["nvme-_X1", "nvme-_X1_2"]


def test_the_sectors_of_a_disk_are_reported(machine: Machine) -> None:
    """Disks of different sectors cannot share an array."""
    machine.add("vda", serial="X1")
    machine.add("vdb", serial="X2")
    (machine.folder / "block/vdb/queue/logical_block_size").write_text("4096\n")
    assert [disk.sector_bytes for disk in machine.disks().values()] == [512, 4096]


def test_without_any_plan_of_disks_all_must_be_empty(machine: Machine) -> None:
    machine.add("vda")
    assert machine.check() == ""
    run("mkfs.ext4", "-q", "-L", "pgdata", str(machine.content("vda")))
    assert "no disk was known when this was planned" in machine.check()
    assert '"pgdata"' in machine.check()


def test_a_machine_without_disks_says_so(machine: Machine) -> None:
    assert json.loads(machine.reported()) == []
    planned: Any = Disk("virtio-X1", fingerprint="f")
    assert "here are no disks" in machine.check(planned)
