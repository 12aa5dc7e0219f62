"""The sledgehammer image: a kernel and an initramfs from Debian's own packages, with a shell agent and no Python.

The agent's files are in `agent/`. The iPXE binaries, which a machine's firmware fetches first, are built along with it.
"""

import subprocess
import tempfile
from enum import StrEnum
from importlib.resources import files
from pathlib import Path

from rackwright.provision.images.cpio import Cpio
from rackwright.provision.images.packages import Say, Source, fetch_packages, require_programs
from rackwright.provision.images.shelf import Shelf
from rackwright.provision.images.tree import Tree

NAME = "sledgehammer"
SUITE = "bookworm"
IPXE = {"undionly.kpxe": "usr/lib/ipxe/undionly.kpxe", "ipxe.efi": "usr/lib/ipxe/ipxe.efi"}
"""The files that TFTP serves for BIOS and for UEFI: name -> file of the package."""
PROGRAMS = (
    *("usr/sbin/dropbear", "usr/bin/openssl", "usr/bin/zstd", "sbin/sfdisk", "sbin/mkfs.ext4", "usr/bin/extlinux"),
    "usr/bin/tee",  # busybox has one, which reads a kilobyte at a time: an image takes twenty times as long through it
    "usr/bin/socat",  # receives LLDP: nothing that has a packet socket and is in a package of its own is smaller
)
PACKAGES = (
    *("busybox-static", "dropbear-bin", "openssl", "zstd", "fdisk", "e2fsprogs", "extlinux", "kmod", "ipxe"),
    *("coreutils", "socat"),
)
"""The packages that have the programs, beside the kernel's package."""
MASTER_BOOT_RECORD = "usr/lib/EXTLINUX/mbr.bin"


COMMON_MODULES = (
    *("drivers/virtio", "drivers/block/virtio_blk.ko", "drivers/char/hw_random", "drivers/nvme", "net/core"),
    *("fs/fat", "fs/nls", "fs/ext4"),
)
HARDWARE_MODULES = (
    *("drivers/net", "drivers/scsi", "drivers/ata", "drivers/message", "drivers/block", "drivers/usb/host"),
    *("drivers/usb/storage", "drivers/hv", "drivers/xen", "drivers/md", "drivers/pci", "lib", "crypto"),
)
"""Folders and files below the kernel's module folder; the modules they depend on are added."""


class Kernel(StrEnum):
    """Debian's kernels that an image can have."""

    GENERIC = "generic"
    """For real hardware: all drivers of networks and disks."""
    CLOUD = "cloud"
    """For virtual machines: a third of the size."""

    @property
    def package(self) -> str:
        return "linux-image-amd64" if self is Kernel.GENERIC else "linux-image-cloud-amd64"

    @property
    def modules(self) -> tuple[str, ...]:
        """The folders of modules that go into the initramfs."""
        if self is Kernel.CLOUD:
            return (*COMMON_MODULES, "drivers/net/virtio_net.ko", "drivers/net/net_failover.ko")
        return (*COMMON_MODULES, *HARDWARE_MODULES)


def build(shelf: Shelf, source: Source, kernel: Kernel, say: Say) -> None:
    """Make the image and put it on the shelf."""
    require_programs("mmdebstrap", "zstd")
    with tempfile.TemporaryDirectory(prefix="rackwright-image-") as folder:
        tree = Tree(Path(folder) / "tree")
        fetch_packages([*PACKAGES, kernel.package], source, tree.folder, say)
        version = next((tree.folder / "lib/modules").iterdir()).name
        say(f"kernel {version}")
        with shelf.making(NAME, {"kernel": version, "suite": source.suite}) as image:
            (image / "kernel").write_bytes(tree.path(f"boot/vmlinuz-{version}").read_bytes())
            for name, file in IPXE.items():
                (image / name).write_bytes(tree.path(file).read_bytes())
            _write_initramfs(tree, Path(folder), version, kernel, image / "initrd")
    say(f"{NAME}: {(shelf.file(NAME, 'initrd').size) / 1e6:.1f} MB initramfs")


def _write_initramfs(tree: Tree, work: Path, version: str, kernel: Kernel, to: Path) -> None:
    modules = work / "modules"
    _gather_modules(tree, version, kernel, modules)
    plain = work / "initrd.cpio"
    with plain.open("wb") as out:
        archive = Cpio(out)
        archive.folder("dev")
        archive.device("dev/console", 5, 1)  # the kernel opens it before /init can make devices
        archive.file("bin/busybox", tree.path("bin/busybox").read_bytes(), 0o755)
        archive.link("bin/sh", "busybox")
        libraries: dict[str, Path] = {}
        for program in PROGRAMS:
            archive.file(program, tree.path(program).read_bytes(), 0o755)
            libraries |= tree.libraries(program)
        for name, path in libraries.items():
            archive.file(name, path.read_bytes(), 0o755)
        archive.file("lib/rackwright/mbr.bin", tree.path(MASTER_BOOT_RECORD).read_bytes())
        archive.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
        archive.file("etc/group", b"root:x:0:\n")
        archive.file("etc/shells", b"/bin/sh\n")
        archive.tree(modules)
        _add_agent(archive)
        archive.close()
    subprocess.run(["zstd", "-q", "-19", "-T0", str(plain), "-o", str(to)], check=True)


def _add_agent(archive: Cpio) -> None:
    agent = files("rackwright.provision.images") / "agent"
    for part in sorted(agent.iterdir(), key=lambda path: path.name):
        if part.name == "init":
            archive.file("init", part.read_bytes(), 0o755)
        else:
            archive.file(f"lib/rackwright/{part.name}", part.read_bytes(), 0o755)
    report = files("rackwright.provision.images") / "installed"
    for part in sorted(report.iterdir(), key=lambda path: path.name):
        archive.file(f"lib/rackwright/installed/{part.name}", part.read_bytes(), 0o755)


def _gather_modules(tree: Tree, version: str, kernel: Kernel, into: Path) -> None:
    """Copy the kernel's modules for an image, those they depend on, and the tables that find them by hardware."""
    all_modules = tree.folder / "lib/modules" / version
    tree.run("bin/kmod", "depmod", "-b", str(tree.folder), version)
    dependencies = {}
    for line in (all_modules / "modules.dep").read_text().splitlines():
        module, _, names = line.partition(":")
        dependencies[module] = names.split()
    chosen = [name for name in dependencies if any(name.startswith(f"kernel/{prefix}") for prefix in kernel.modules)]
    for name in dict.fromkeys(name for module in chosen for name in (module, *dependencies[module])):
        copy = into / "lib/modules" / version / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((all_modules / name).read_bytes())
    for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
        (into / "lib/modules" / version / name).write_bytes((all_modules / name).read_bytes())
    tree.run("bin/kmod", "depmod", "-b", str(into), version)
