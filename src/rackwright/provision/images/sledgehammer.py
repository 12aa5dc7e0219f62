"""The sledgehammer image: a kernel and an initramfs from Debian's own packages, with a shell agent and no Python.

The agent's files are in `agent/`. The boot loaders that a machine's firmware fetches first come along with it: iPXE,
and for UEFI shim and GRUB, which are signed.
"""

import datetime
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from importlib.resources import files
from pathlib import Path

from rackwright.provision.images import agent_version
from rackwright.provision.images.cpio import Cpio
from rackwright.provision.images.disk_space import require_space
from rackwright.provision.images.manifest import Image
from rackwright.provision.images.packages import Say, Source, fetch_packages, require_programs
from rackwright.provision.images.shelf import Shelf
from rackwright.provision.images.storage_tools import MODULES as TOOLS_MODULES
from rackwright.provision.images.storage_tools import PACKAGES as TOOLS_PACKAGES
from rackwright.provision.images.storage_tools import TOOLS_FILE, write_tools
from rackwright.provision.images.tree import Tree

NAME = "sledgehammer"
SUITE = "bookworm"
IPXE = {"undionly.kpxe": "usr/lib/ipxe/undionly.kpxe", "ipxe.efi": "usr/lib/ipxe/ipxe.efi"}
"""iPXE for BIOS and for UEFI: name -> file of the package."""
SIGNED = {
    "shimx64.efi": "usr/lib/shim/shimx64.efi.signed",
    "grubx64.efi": "usr/lib/grub/x86_64-efi-signed/grubnetx64.efi.signed",
}
"""Signed loaders for UEFI: name -> file of the package. shim starts the file `grubx64.efi` beside itself."""
SIGNED_SUITE = "trixie"
"""The Debian that they come from: GRUB of the one before cannot fetch files by HTTP."""
SIGNED_PACKAGES = ("shim-signed", "grub-efi-amd64-signed")
LOADERS = (*IPXE, *SIGNED)
"""What firmware fetches, by TFTP or HTTP."""
PROGRAMS = (
    *("usr/sbin/dropbear", "usr/bin/openssl", "usr/bin/zstd", "sbin/sfdisk", "sbin/mkfs.ext4", "usr/bin/extlinux"),
    "bin/efibootmgr",
    "usr/bin/tee",  # busybox has one, which reads a kilobyte at a time: an image takes twenty times as long through it
    "bin/sync",  # with -f says what was not written; that of busybox does not, whatever the kernel told it
    "sbin/wipefs",  # knows what is on a disk; busybox's blkid knows the half, and one thing a disk
    "usr/sbin/dhcpcd",  # for IPv6: Debian's busybox has no DHCPv6 client
    "sbin/blkid",  # the UUIDs of new file systems
    "usr/bin/socat",  # receives LLDP: nothing that has a packet socket and is in a package of its own is smaller
)
PACKAGES = (
    *("busybox-static", "dropbear-bin", "openssl", "zstd", "fdisk", "e2fsprogs", "extlinux", "kmod", "ipxe"),
    *("coreutils", "socat", "util-linux", "dhcpcd-base", "efibootmgr", *TOOLS_PACKAGES),
)
"""The packages that have the programs, beside the kernel's package."""
HARDWARE_PROGRAMS = ("usr/bin/ipmitool",)
"""Of images for real hardware: asks the machine's own BMC where it is. 2 MB, with its libraries."""
HARDWARE_PACKAGES = ("ipmitool",)
INITRD_BLOCK = 512
"""What the size of the initramfs is a multiple of."""
MASTER_BOOT_RECORD = "usr/lib/EXTLINUX/mbr.bin"


COMMON_MODULES = (
    *("drivers/virtio", "drivers/block/virtio_blk.ko", "drivers/char/hw_random", "drivers/nvme", "net/core"),
    *("fs/fat", "fs/nls", "fs/ext4", "fs/efivarfs"),
)
HARDWARE_MODULES = (
    *("drivers/net", "drivers/scsi", "drivers/ata", "drivers/message", "drivers/block", "drivers/usb/host"),
    *("drivers/usb/storage", "drivers/hv", "drivers/xen", "drivers/pci", "lib", "crypto"),
    "drivers/char/ipmi",
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

    @property
    def programs(self) -> tuple[str, ...]:
        return PROGRAMS if self is Kernel.CLOUD else (*PROGRAMS, *HARDWARE_PROGRAMS)

    @property
    def packages(self) -> tuple[str, ...]:
        """The packages that have its programs, its own among them."""
        return (*PACKAGES, *(() if self is Kernel.CLOUD else HARDWARE_PACKAGES), self.package)


WORK_NEEDS, SHELF_NEEDS = 1_200_000_000, 200_000_000
"""Bytes that a build has on the disk at a time, and that its image takes."""


def build(shelf: Shelf, source: Source, kernel: Kernel, say: Say, sign: Callable[[Image], str] | None = None) -> None:
    """Make the image and put it on the shelf."""
    require_programs("mmdebstrap", "zstd")
    require_space({Path(tempfile.gettempdir()): WORK_NEEDS, shelf.folder: SHELF_NEEDS})
    with tempfile.TemporaryDirectory(prefix="rackwright-image-") as folder:
        tree = Tree(Path(folder) / "tree")
        fetch_packages([*kernel.packages], source, tree.folder, say)
        signed = Tree(Path(folder) / "signed")
        fetch_packages(SIGNED_PACKAGES, replace(source, suite=SIGNED_SUITE), signed.folder, say)
        version = next((tree.folder / "lib/modules").iterdir()).name
        say(f"kernel {version}")
        made = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        agent = str(agent_version.NUMBER)
        about = {"kernel": version, "suite": source.suite, "made": made, agent_version.KEY: agent}
        with shelf.making(NAME, about, sign=sign) as image:
            (image / "kernel").write_bytes(tree.path(f"boot/vmlinuz-{version}").read_bytes())
            for name, file in IPXE.items():
                (image / name).write_bytes(tree.path(file).read_bytes())
            for name, file in SIGNED.items():
                (image / name).write_bytes(signed.path(file).read_bytes())
            _write_archives(tree, Path(folder), version, kernel, image)
    sizes = [shelf.file(NAME, file).size / 1e6 for file in ("initrd", TOOLS_FILE)]
    say(f"{NAME}: {sizes[0]:.1f} MB initramfs, and {sizes[1]:.1f} MB for layouts of several disks")


def _write_archives(tree: Tree, work: Path, version: str, kernel: Kernel, image: Path) -> None:
    """Write the initramfs, and the archive of tools that installers fetch when they need them."""
    modules, tools_modules = work / "modules", work / "tools-modules"
    gathered = _gather_modules(tree, version, kernel.modules, modules)
    _gather_modules(tree, version, (*kernel.modules, *TOOLS_MODULES), tools_modules)
    for name in gathered:
        (tools_modules / "lib/modules" / version / name).unlink()
    libraries = {name: path for program in kernel.programs for name, path in tree.libraries(program).items()}
    digest = write_tools(tree, tools_modules, libraries, image / TOOLS_FILE)
    plain = work / "initrd.cpio"
    with plain.open("wb") as out:
        archive = Cpio(out)
        archive.folder("dev")
        archive.device("dev/console", 5, 1)  # the kernel opens it before /init can make devices
        archive.file("bin/busybox", tree.path("bin/busybox").read_bytes(), 0o755)
        archive.link("bin/sh", "busybox")
        for program in kernel.programs:
            archive.file(program, tree.path(program).read_bytes(), 0o755)
        for name, path in libraries.items():
            archive.file(name, path.read_bytes(), 0o755)
        archive.file("lib/rackwright/mbr.bin", tree.path(MASTER_BOOT_RECORD).read_bytes())
        archive.file("lib/rackwright/tools.sha256", f"{digest}  -\n".encode())
        archive.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
        archive.file("etc/group", b"root:x:0:\n")
        archive.file("etc/shells", b"/bin/sh\n")
        archive.tree(modules)
        _add_agent(archive)
        archive.close()
    subprocess.run(["zstd", "-q", "-19", "-T0", str(plain), "-o", str(image / "initrd")], check=True)
    _pad(image / "initrd")


def _pad(archive: Path) -> None:
    """Fill an archive up with zeros, as the kernel has it, so that another may follow.

    UEFI loads the second initrd file just behind the first one, and the kernel reads no archive that begins elsewhere
    than at a multiple of four bytes: an installer would boot without its secret.
    """
    with archive.open("ab") as out:
        out.write(bytes(-out.tell() % INITRD_BLOCK))


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


def _gather_modules(tree: Tree, version: str, folders: Sequence[str], into: Path) -> list[str]:
    """Copy kernel modules, those they depend on, and the tables that find them by hardware; return their paths."""
    all_modules = tree.folder / "lib/modules" / version
    tree.run("bin/kmod", "depmod", "-b", str(tree.folder), version)
    dependencies = {}
    for line in (all_modules / "modules.dep").read_text().splitlines():
        module, _, names = line.partition(":")
        dependencies[module] = names.split()
    chosen = [name for name in dependencies if any(name.startswith(f"kernel/{prefix}") for prefix in folders)]
    gathered = list(dict.fromkeys(name for module in chosen for name in (module, *dependencies[module])))
    for name in gathered:
        copy = into / "lib/modules" / version / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((all_modules / name).read_bytes())
    for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
        (into / "lib/modules" / version / name).write_bytes((all_modules / name).read_bytes())
    tree.run("bin/kmod", "depmod", "-b", str(into), version)
    return gathered
