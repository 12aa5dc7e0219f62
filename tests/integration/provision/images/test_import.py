"""Images that were made elsewhere, by the programs that people make them with, and by people who mean harm."""

import hashlib
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.machines.imported_images import assert_is_tree, files_below, put_program, unpack_image
from tests.support.machines.root_trees import VERSION, make_root_tree, pack_tree

from rackwright.domain.installs.request import SystemImage
from rackwright.jigs.os_install import BadInstall
from rackwright.provision.images.boot_check import UEFI_LOADERS, check_firmware, read_abilities
from rackwright.provision.images.importing import disk_images
from rackwright.provision.images.importing.sources import import_image
from rackwright.provision.images.packages import BuildFailed
from rackwright.provision.images.shelf import CLOUD_SCHEMA_FILE, NoImage, Shelf
from rackwright.server.jig_ports import check_image_firmware

SCHEMAS = "usr/lib/python3/dist-packages/cloudinit/config/schemas"


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "home")


@pytest.mark.parametrize("options", [(), ("--gzip",), ("--xz",), ("--zstd",), ("--format=pax",)], ids=str)
def test_a_tar_archive_becomes_an_image(shelf: Shelf, tmp_path: Path, options: tuple[str, ...]) -> None:
    tree = make_root_tree(tmp_path / "tree", size=700_000)
    archive = pack_tree(tree, tmp_path / "root.tar", *options)
    said: list[str] = []
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    image = import_image(shelf, "trial-1", str(archive), said.append, sha256=digest)
    assert_is_tree(unpack_image(shelf, "trial-1", tmp_path / "out"), tree)
    assert image.about["system"] == "Trial Linux 1"
    assert image.about["kernel"] == VERSION
    assert image.about["sha256"] == digest
    assert any("BIOS" in line for line in said), "what it lacks is told"


def _make_disk(tmp_path: Path, tree: Path, *, boot: Path | None = None) -> Path:
    """A disk with a partition table, a small first partition that is no root, and the tree."""
    raw = tmp_path / "disk.raw"
    sizes = {"boot": "12MiB", "root": "40MiB"}
    table = "label: gpt\nstart=1MiB, size=12MiB, type=linux\nstart=13MiB, size=40MiB, type=linux\n"
    with raw.open("wb") as file:
        file.truncate(56 << 20)
    subprocess.run(["sfdisk", "-q", raw], input=table.encode(), check=True)
    for folder, offset, size in ((boot, 1, sizes["boot"]), (tree, 13, sizes["root"])):
        part = tmp_path / f"part-{offset}"
        with part.open("wb") as file:
            file.truncate(int(size.removesuffix("MiB")) << 20)
        options = ["-L", "root" if folder is tree else "BOOT", *(["-d", str(folder)] if folder else [])]
        subprocess.run(["mkfs.ext4", "-q", *options, part], check=True)
        subprocess.run(["dd", f"if={part}", f"of={raw}", "bs=1M", f"seek={offset}", "conv=notrunc"], check=True)
    return raw


@pytest.mark.parametrize("form", ["raw", "qcow2", "qcow2-compressed"])
def test_the_root_of_a_disk_becomes_an_image(shelf: Shelf, tmp_path: Path, form: str) -> None:
    tree = make_root_tree(tmp_path / "tree", size=3_000_000)
    (tree / ("long-" * 40)).symlink_to("x" * 200)
    (tree / "a name\nof two lines").write_text("lines")
    os.chown(tree / "etc/fstab", 1234, 56)
    disk = _make_disk(tmp_path, tree)
    if form != "raw":
        image = tmp_path / "disk.qcow2"
        compressed = ["-c"] if form.endswith("compressed") else []
        subprocess.run(["qemu-img", "convert", "-q", *compressed, "-f", "raw", "-O", "qcow2", disk, image], check=True)
        disk.unlink()
        disk = image
    import_image(shelf, "trial-1", str(disk), lambda _: None)
    out = unpack_image(shelf, "trial-1", tmp_path / "out")
    assert_is_tree(out, tree)
    assert os.readlink(out / ("long-" * 40)) == "x" * 200
    assert (out / "a name\nof two lines").read_text() == "lines"
    assert ((out / "etc/fstab").stat().st_uid, (out / "etc/fstab").stat().st_gid) == (1234, 56)
    assert (out / "etc/fstab").stat().st_mtime == int((tree / "etc/fstab").stat().st_mtime)


def test_a_partition_of_its_own_for_boot_is_put_back_into_the_root(shelf: Shelf, tmp_path: Path) -> None:
    tree = make_root_tree(tmp_path / "tree")
    boot = tmp_path / "boot"
    (tree / "boot").rename(boot)
    (tree / "boot").mkdir()
    (tree / "etc/fstab").write_text("LABEL=root / ext4 defaults 0 1\nLABEL=BOOT /boot ext4 defaults 0 2\n")
    import_image(shelf, "trial-1", str(_make_disk(tmp_path, tree, boot=boot)), lambda _: None)
    out = unpack_image(shelf, "trial-1", tmp_path / "out")
    assert (out / f"boot/vmlinuz-{VERSION}").read_text() == "kernel"


def test_an_image_that_refers_to_another_file_is_refused(shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"x" * (1 << 20))
    image = tmp_path / "disk.qcow2"
    options = ["-f", "qcow2", "-b", str(tmp_path / "secret"), "-F", "raw"]
    subprocess.run(["qemu-img", "create", "-q", *options, image], check=True)
    with pytest.raises(BuildFailed, match="refers to another file"):
        import_image(shelf, "trial-1", str(image), lambda _: None)


@pytest.mark.parametrize("field", [b"backing", b"data"])
def test_what_a_qcow2_refers_to_is_not_even_asked_for(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: bytes
) -> None:
    """qemu-img was made to open files while it was only asked what an image is."""
    offset, features = (104, 0) if field == b"backing" else (0, 4)
    head = struct.pack(">4sIQIIQIIQQIIQQ", b"QFI\xfb", 3, offset, 11, 16, 1 << 20, 0, 1, 4096, 8192, 1, 0, 0, features)
    (tmp_path / "image").write_bytes(head.ljust(104, b"\0") + b"/etc/passwd")
    put_program(tmp_path, monkeypatch, "qemu-img", f"touch {tmp_path}/asked")
    with pytest.raises(BuildFailed, match="refers to another file"):
        import_image(shelf, "trial-1", str(tmp_path / "image"), lambda _: None)
    assert not (tmp_path / "asked").exists()


def test_a_raw_disk_that_says_it_is_qcow2_inside_is_read_as_raw(shelf: Shelf, tmp_path: Path) -> None:
    disk = _make_disk(tmp_path, make_root_tree(tmp_path / "tree", size=300_000))
    with disk.open("r+b") as file:
        file.seek(446 + 16)  # in the table, where a second look may look
        file.write(b"QFI\xfb")
    image = import_image(shelf, "trial-1", str(disk), lambda _: None)
    assert image.about["kind"] == "raw disk image"


def test_the_name_of_a_disk_image_is_never_a_protocol(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = _make_disk(tmp_path, make_root_tree(tmp_path / "tree", size=300_000))
    name = "nbd:localhost:1"
    command = ["qemu-img", "convert", "-q", "-f", "raw", "-O", "qcow2", str(disk), str(tmp_path / name)]
    subprocess.run(command, check=True)
    monkeypatch.chdir(tmp_path)
    assert import_image(shelf, "trial-1", name, lambda _: None).about["kind"] == "qcow2 disk image"


def test_partitions_over_each_other_are_refused(shelf: Shelf, tmp_path: Path) -> None:
    """A copy of each would be as large as all of the disk."""
    disk = _make_disk(tmp_path, make_root_tree(tmp_path / "tree", size=300_000))
    table = "label: dos\nstart=13MiB, size=40MiB, type=83\n"
    subprocess.run(["sfdisk", "-q", disk], input=table.encode(), check=True)
    entries = _entries_twice(disk)
    with disk.open("r+b") as file:
        file.seek(446)
        file.write(entries)
    with pytest.raises(BuildFailed, match="begins within partition"):
        import_image(shelf, "trial-1", str(disk), lambda _: None)


def test_a_raw_disk_larger_than_may_be_is_refused(shelf: Shelf, tmp_path: Path) -> None:
    disk = _make_disk(tmp_path, make_root_tree(tmp_path / "tree"))
    with disk.open("r+b") as file:
        file.truncate(2 << 40)
    with pytest.raises(BuildFailed, match="the most is"):
        disk_images.open_disk(disk, tmp_path, shelf.folder, lambda _: None)


def _entries_twice(disk: Path) -> bytes:
    """Return the first entry of a partition table two times."""
    with disk.open("rb") as file:
        file.seek(446)
        return file.read(16) * 2


def test_a_disk_without_a_system_is_refused_with_what_there_is(shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    disk = _make_disk(tmp_path, tmp_path / "tree")
    with pytest.raises(BuildFailed, match=r"1 \(ext4, .*2 \(ext4, .*tar archive"):
        import_image(shelf, "trial-1", str(disk), lambda _: None)
    assert files_below(shelf.folder) == []


def test_what_cannot_boot_is_refused_with_all_that_it_lacks(shelf: Shelf, tmp_path: Path) -> None:
    without = [f"boot/vmlinuz-{VERSION}", "usr/sbin/sshd", "usr/bin/curl"]
    archive = pack_tree(make_root_tree(tmp_path / "tree", without), tmp_path / "tar")
    with pytest.raises(BuildFailed, match=r"has no kernel .*: it cannot be installed on a machine.*SSH server.*curl"):
        import_image(shelf, "trial-1", str(archive), lambda _: None)
    assert files_below(shelf.folder) == []


def test_a_wrong_digest_is_refused_and_nothing_stays(shelf: Shelf, tmp_path: Path) -> None:
    archive = pack_tree(make_root_tree(tmp_path / "tree"), tmp_path / "tar")
    with pytest.raises(BuildFailed, match="Nothing was imported"):
        import_image(shelf, "trial-1", str(archive), lambda _: None, sha256="0" * 64)
    with pytest.raises(NoImage):
        shelf.find("trial-1")
    assert not shelf.folder.exists()


def test_a_bad_archive_leaves_the_image_that_was_there(shelf: Shelf, tmp_path: Path) -> None:
    archive = pack_tree(make_root_tree(tmp_path / "tree", size=300_000), tmp_path / "tar", "--gzip")
    import_image(shelf, "trial-1", str(archive), lambda _: None)
    before = files_below(shelf.folder)
    archive.write_bytes(archive.read_bytes()[:200_000])
    with pytest.raises(BuildFailed):
        import_image(shelf, "trial-1", str(archive), lambda _: None)
    assert files_below(shelf.folder) == before
    shelf.installable("trial-1")


def _cut(content: bytes) -> bytes:
    return content[:-6]


def _continued(content: bytes) -> bytes:
    return content + b"something else"


def _wrong_checksum(content: bytes) -> bytes:
    """Change the checksum of gzip, and the index of xz and the checksum of zstd, which are at the end."""
    return content[:-8] + bytes(byte ^ 0x55 for byte in content[-8:])


@pytest.mark.parametrize("option", ["--gzip", "--xz", "--zstd"])
@pytest.mark.parametrize("spoil", [_cut, _continued, _wrong_checksum])
def test_all_of_a_compressed_archive_is_read_and_has_to_be_right(
    shelf: Shelf, tmp_path: Path, option: str, spoil: Callable[[bytes], bytes]
) -> None:
    """The archive in it is whole: its end is before what is spoilt."""
    archive = pack_tree(
        make_root_tree(tmp_path / "tree", size=300_000), tmp_path / "tar", "--blocking-factor=2000", option
    )
    archive.write_bytes(spoil(archive.read_bytes()))
    with pytest.raises(BuildFailed):
        import_image(shelf, "trial-1", str(archive), lambda _: None)
    assert files_below(shelf.folder) == []


@pytest.mark.parametrize("options", [(), ("--gzip",)], ids=str)
def test_what_follows_the_end_of_an_archive_is_refused(shelf: Shelf, tmp_path: Path, options: tuple[str, ...]) -> None:
    tree = make_root_tree(tmp_path / "tree", size=300_000)
    archive = pack_tree(tree, tmp_path / "tar")
    with archive.open("ab") as file:
        file.write(pack_tree(tree, tmp_path / "second").read_bytes())
    if options:
        subprocess.run(["gzip", archive], check=True)
        archive = archive.with_name("tar.gz")
    with pytest.raises(BuildFailed, match="more behind the end of the tar archive"):
        import_image(shelf, "trial-1", str(archive), lambda _: None)


def test_names_that_are_no_utf_8_are_imported_and_told_in_letters(shelf: Shelf, tmp_path: Path) -> None:
    tree = make_root_tree(tmp_path / "tree", size=300_000)
    odd = os.fsencode(tree) + b"/etc/caf\xe9"
    Path(os.fsdecode(odd)).write_text("coffee")
    archive = pack_tree(tree, tmp_path / os.fsdecode(b"r\xf6\xf6t.tar"))
    image = import_image(shelf, "trial-1", str(archive), lambda _: None)
    assert image.about["from"].encode().decode() == "r??t.tar"
    out = unpack_image(shelf, "trial-1", tmp_path / "out")
    assert Path(os.fsdecode(os.fsencode(out) + b"/etc/caf\xe9")).read_text() == "coffee"


def test_an_import_that_is_killed_leaves_nothing_that_the_next_one_does_not_remove(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr("tempfile.tempdir", None)
    tree = make_root_tree(tmp_path / "tree", size=1_000_000)
    disk = _make_disk(tmp_path, tree)
    killed = subprocess.run([sys.executable, "-c", KILLED, shelf.folder.parent, disk], check=False)
    assert killed.returncode == -9
    assert list((tmp_path / "temporary").iterdir())
    assert [path for path in shelf.folder.iterdir() if path.name.startswith(".trial-1.")]
    import_image(shelf, "trial-2", str(pack_tree(tree, tmp_path / "tar")), lambda _: None)
    assert list((tmp_path / "temporary").iterdir()) == []
    assert sorted(path.name for path in shelf.folder.iterdir() if path.is_symlink()) == ["trial-2"]
    assert not [path for path in shelf.folder.iterdir() if path.name.startswith(".trial-1.")]


KILLED = """
import os, signal, sys
from pathlib import Path
from rackwright.provision.images import root_images
from rackwright.provision.images.importing import disk_images, oci_images
from rackwright.provision.images.importing.sources import import_image
from rackwright.provision.images.shelf import Shelf
root_images.check_bootable = lambda facts: os.kill(os.getpid(), signal.SIGKILL)
import_image(Shelf(Path(sys.argv[1])), "trial-1", sys.argv[2], lambda _: None)
"""


def test_cloud_init_stays_off_and_its_schema_comes_along(shelf: Shelf, tmp_path: Path) -> None:
    tree = make_root_tree(tmp_path / "tree")
    (tree / SCHEMAS).mkdir(parents=True)
    (tree / "usr/bin/cloud-init").write_text("cloud-init")
    (tree / SCHEMAS / "schema-cloud-config-v1.json").write_text('{"of": "users"}')
    (tree / SCHEMAS / "schema-network-config-v1.json").write_text('{"of": "networks"}')
    image = import_image(shelf, "trial-1", str(pack_tree(tree, tmp_path / "tar")), lambda _: None)
    assert image.files[CLOUD_SCHEMA_FILE].path.read_text() == '{"of": "users"}'
    assert image.files["network-config.schema.json"].path.read_text() == '{"of": "networks"}'
    assert image.about["cloud-init"] == "22.4.2-1"
    assert (unpack_image(shelf, "trial-1", tmp_path / "out") / "etc/cloud/cloud-init.disabled").exists()


FULL_DISK = """
import sys
from pathlib import Path
from rackwright.provision.images import disk_space
from rackwright.provision.images.importing import sources
from rackwright.provision.images.packages import BuildFailed
from rackwright.provision.images.shelf import Shelf
if sys.argv[3] == "unasked":
    sources.require_space = lambda needs: None
try:
    sources.import_image(Shelf(Path(sys.argv[1])), "trial-1", sys.argv[2], lambda _: None)
except BuildFailed as error:
    print(error)
    left = [path for path in Path(sys.argv[1]).rglob("*") if path.is_file() and path.name != ".lock"]
    print("left:", left)
"""


@pytest.mark.parametrize(("asked", "words"), [("asked", "Nothing was begun"), ("unasked", "The disk is full")])
def test_a_disk_without_room_leaves_nothing_half(tmp_path: Path, asked: str, words: str) -> None:
    archive = pack_tree(make_root_tree(tmp_path / "tree", size=12_000_000), tmp_path / "tar", "--zstd")
    (tmp_path / "home").mkdir()
    (tmp_path / "run.py").write_text(FULL_DISK)
    script = 'mount -t tmpfs -o size=8M tmpfs "$1" && exec "$2" "$3" "$1" "$4" "$5"'
    arguments = [tmp_path / "home", sys.executable, tmp_path / "run.py", archive, asked]
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert words in done.stdout, done.stderr
    assert "left: []" in done.stdout


def test_an_image_without_a_loader_for_uefi_is_kept_from_machines_with_it(shelf: Shelf, tmp_path: Path) -> None:
    """The installer would find out when the disks are wiped."""
    tree = make_root_tree(tmp_path / "tree", size=700_000)
    for loader in UEFI_LOADERS:
        (tree / loader).unlink(missing_ok=True)
    lacking = import_image(shelf, "trial-1", str(pack_tree(tree, tmp_path / "root.tar")), lambda _: None)
    check_firmware("trial-1", lacking.about, "bios")
    with pytest.raises(NoImage, match="trial-1 starts only from a BIOS"):
        check_firmware("trial-1", lacking.about, "uefi")
    with pytest.raises(BadInstall, match="trial-1 starts only from a BIOS"):
        check_image_firmware(shelf, "trial-1", {"storage": {"firmware": "uefi"}})
    for loader in UEFI_LOADERS:
        (tree / loader).parent.mkdir(parents=True, exist_ok=True)
        (tree / loader).write_bytes(b"loader")
    complete = import_image(shelf, "trial-2", str(pack_tree(tree, tmp_path / "root2.tar")), lambda _: None)
    check_firmware("trial-2", complete.about, "uefi")


def test_an_image_that_was_made_elsewhere_says_for_which_processor_it_is(shelf: Shelf, tmp_path: Path) -> None:
    tree = make_root_tree(tmp_path / "tree", size=50_000)
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00" + (183).to_bytes(2, "little")
    (tree / "usr/lib/systemd/systemd").write_bytes(head + bytes(2 << 20))
    image = import_image(shelf, "mine", str(pack_tree(tree, tmp_path / "root.tar")), lambda _: None)
    assert image.architecture == "arm64"
    assert read_abilities(shelf, "mine") == SystemImage("mine", False, False, False, False, architecture="arm64")


@pytest.mark.parametrize("name", ["sledgehammer", "sledgehammer-arm64"])
def test_nothing_is_imported_in_place_of_what_machines_boot(shelf: Shelf, tmp_path: Path, name: str) -> None:
    archive = pack_tree(make_root_tree(tmp_path / "tree", size=50_000), tmp_path / "root.tar")
    with pytest.raises(BuildFailed, match="is no name for an image that is imported"):
        import_image(shelf, name, str(archive), lambda _: None)
