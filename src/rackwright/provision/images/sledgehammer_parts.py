"""What sledgehammer is made of: packages, programs, kernel modules and boot loaders, by processor and kernel."""

from dataclasses import dataclass
from enum import StrEnum

from rackwright.domain.architectures import Architecture
from rackwright.provision.images.storage_tools import PACKAGES as TOOLS_PACKAGES

SUITE = "bookworm"
SIGNED_SUITE = "trixie"
"""The Debian that signed loaders come from: GRUB of the one before cannot fetch files by HTTP."""
IPXE = {"undionly.kpxe": "usr/lib/ipxe/undionly.kpxe", "ipxe.efi": "usr/lib/ipxe/ipxe.efi"}
"""iPXE for BIOS, and for UEFI beside it: name -> file of the package."""
PROGRAMS = (
    *("usr/sbin/dropbear", "usr/bin/openssl", "usr/bin/zstd", "sbin/sfdisk", "sbin/mkfs.ext4"),
    "bin/efibootmgr",
    "usr/bin/tee",  # busybox has one, which reads a kilobyte at a time: an image takes twenty times as long through it
    "bin/sync",  # with -f says what was not written; that of busybox does not, whatever the kernel told it
    "sbin/wipefs",  # knows what is on a disk; busybox's blkid knows the half, and one thing a disk
    "usr/sbin/dhcpcd",  # for IPv6: Debian's busybox has no DHCPv6 client
    "sbin/blkid",  # the UUIDs of new file systems
    "usr/bin/socat",  # receives LLDP: nothing that has a packet socket and is in a package of its own is smaller
)
PACKAGES = (
    *("busybox-static", "dropbear-bin", "openssl", "zstd", "fdisk", "e2fsprogs", "kmod"),
    *("coreutils", "socat", "util-linux", "dhcpcd-base", "efibootmgr"),
)
"""The packages that have the programs, beside the kernel's package."""
BIOS_PROGRAMS, BIOS_PACKAGES = ("usr/bin/extlinux",), ("extlinux", "ipxe")
"""Of images for machines that may have a BIOS."""
MASTER_BOOT_RECORD = "usr/lib/EXTLINUX/mbr.bin"
HARDWARE_PROGRAMS = ("usr/bin/ipmitool",)
"""Of images for real hardware: asks the machine's own BMC where it is. 2 MB, with its libraries."""
HARDWARE_PACKAGES = ("ipmitool",)

COMMON_MODULES = (
    *("drivers/virtio", "drivers/block/virtio_blk.ko", "drivers/char/hw_random", "drivers/nvme", "net/core"),
    *("fs/fat", "fs/nls", "fs/ext4", "fs/efivarfs"),
)
CLOUD_MODULES = ("drivers/net/virtio_net.ko", "drivers/net/net_failover.ko")
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

    def package(self, architecture: Architecture) -> str:
        return f"linux-image-{'' if self is Kernel.GENERIC else 'cloud-'}{architecture}"


def signed_loaders(architecture: Architecture) -> dict[str, str]:
    """Return the signed loaders for UEFI: name -> file of the package."""
    folder = f"usr/lib/grub/{architecture.grub_name}-efi-signed"
    return {
        architecture.shim: f"usr/lib/shim/{architecture.shim}.signed",
        architecture.grub: f"{folder}/{architecture.grub.replace('grub', 'grubnet')}.signed",
    }


def signed_packages(architecture: Architecture) -> tuple[str, ...]:
    return "shim-signed", f"grub-efi-{architecture}-signed"


def loaders(architecture: Architecture) -> tuple[str, ...]:
    """Return the names of what firmware fetches, by TFTP or HTTP."""
    return (*(IPXE if architecture.has_bios else ()), *signed_loaders(architecture))


@dataclass(frozen=True)
class Parts:
    """What one image of sledgehammer is made of."""

    kernel: Kernel
    architecture: Architecture = Architecture.AMD64

    @property
    def name(self) -> str:
        """The name of the image."""
        return self.architecture.sledgehammer

    @property
    def programs(self) -> tuple[str, ...]:
        hardware = () if self.kernel is Kernel.CLOUD else HARDWARE_PROGRAMS
        return (*PROGRAMS, *(BIOS_PROGRAMS if self.architecture.has_bios else ()), *hardware)

    @property
    def packages(self) -> tuple[str, ...]:
        """The packages that have its programs, its kernel among them."""
        hardware = () if self.kernel is Kernel.CLOUD else HARDWARE_PACKAGES
        bios = BIOS_PACKAGES if self.architecture.has_bios else ()
        tools = TOOLS_PACKAGES if self.architecture.is_installed else ()
        return (*PACKAGES, *bios, *tools, *hardware, self.kernel.package(self.architecture))

    @property
    def modules(self) -> tuple[str, ...]:
        """The folders of modules that go into the initramfs."""
        return (*COMMON_MODULES, *(CLOUD_MODULES if self.kernel is Kernel.CLOUD else HARDWARE_MODULES))
