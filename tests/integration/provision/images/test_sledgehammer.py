"""The programs of sledgehammer, from Debian's packages, on a host that has none of their libraries.

The host's own copies are hidden in a mount namespace, as on a machine where they were never installed. A build that
takes libraries from its host fails there, and ships the host's versions anywhere else.
"""

import json
import subprocess
import sys
from pathlib import Path

from rackwright.domain.architectures import Architecture
from rackwright.provision.images.agent_version import check_agent
from rackwright.provision.images.packages import Source, fetch_packages
from rackwright.provision.images.shelf import Shelf
from rackwright.provision.images.sledgehammer import build
from rackwright.provision.images.sledgehammer_parts import SUITE, Kernel, Parts

PARTS = Parts(Kernel.CLOUD)
HIDE_LIBRARIES = """
set -eu
work=$1; shift
mount -t tmpfs tmpfs "$work"
for folder in /usr/lib/*-linux-gnu; do
    upper=$work/$(basename "$folder")
    mkdir "$upper" "$upper.work"
    for pattern in 'libtom*' 'libfdisk*' 'libsmartcols*' 'libext2fs*' 'libe2p*' 'libblkid*' 'libwrap*'; do
        for library in "$folder"/$pattern; do
            if [ -e "$library" ]; then mknod "$upper/$(basename "$library")" c 0 0; fi
        done
    done
    mount -t overlay overlay -o "lowerdir=$folder,upperdir=$upper,workdir=$upper.work" "$folder"
done
exec "$@"
"""
"""A device 0:0 in the upper folder of an overlay is a file that is not there. Programs that are used here need none of
these libraries."""

LIST_LIBRARIES = """
import json, sys
from pathlib import Path
from rackwright.provision.images.tree import Tree
tree = Tree(Path(sys.argv[1]))
found = {program: {place: str(path) for place, path in tree.libraries(program).items()} for program in sys.argv[2:]}
json.dump(found, sys.stdout)
"""


def test_all_libraries_come_from_the_packages_on_a_host_that_has_none_of_them(tmp_path: Path) -> None:
    tree, work = tmp_path / "tree", tmp_path / "work"
    work.mkdir()
    fetch_packages(PARTS.packages, Source(SUITE), tree, lambda _: None)
    listed = subprocess.run(
        [
            *("unshare", "--mount", "--propagation", "private", "sh", "-c", HIDE_LIBRARIES, "hide", str(work)),
            *(sys.executable, "-c", LIST_LIBRARIES, str(tree), *PARTS.programs),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert listed.returncode == 0, listed.stderr
    libraries = json.loads(listed.stdout)
    assert "lib/libtomcrypt.so.1" in libraries["usr/sbin/dropbear"]
    paths = {path for found in libraries.values() for path in found.values()}
    assert {path for path in paths if not Path(path).is_relative_to(tree)} == set()


def _pe_machine(program: bytes) -> int:
    """The kind of processor that a program for UEFI is for, as its own head says."""
    assert program[:2] == b"MZ", "firmware starts no other"
    head = int.from_bytes(program[0x3C:0x40], "little")
    assert program[head : head + 4] == b"PE\0\0"
    return int.from_bytes(program[head + 4 : head + 6], "little")


def test_an_image_for_another_kind_of_machine_is_made_without_running_any_of_it(tmp_path: Path) -> None:
    """Its boot loaders and its kernel are programs for UEFI there; its kernel finds modules by hardware."""
    shelf, parts = Shelf(tmp_path), Parts(Kernel.CLOUD, Architecture.ARM64)
    build(shelf, Source(SUITE), parts, lambda _: None)
    image = shelf.find("sledgehammer-arm64")
    assert image.files.keys() == {"kernel", "initrd", "shimaa64.efi", "grubaa64.efi"}
    assert image.architecture == "arm64"
    for name in ("kernel", "shimaa64.efi", "grubaa64.efi"):
        assert _pe_machine(image.files[name].path.read_bytes()) == 0xAA64, name
    listed = subprocess.run(
        ["sh", "-c", 'zstd -dc "$1" | busybox cpio -t', "list", str(image.files["initrd"].path)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert {"init", "bin/busybox", "usr/sbin/dropbear", "lib/ld-linux-aarch64.so.1"} <= set(listed)
    assert any(name.endswith("virtio_net.ko") for name in listed)
    assert any(name.endswith("modules.alias.bin") for name in listed)
    assert not [name for name in listed if "extlinux" in name or "mbr.bin" in name or "tools" in name]
    check_agent(shelf, image.name)
