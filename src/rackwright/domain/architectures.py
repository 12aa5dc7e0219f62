"""The kinds of processor that machines have, and what each is called: by Debian, by firmware, by GRUB, by the kernel.

All that differs between them and can be said in a word is here. What is made of the words is where it is used: images
in `provision/images/sledgehammer_parts.py`, virtual machines in `lab/hardware.py`.
"""

from dataclasses import dataclass
from enum import StrEnum

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.errors import Invalid


@dataclass(frozen=True)
class _Names:
    """What one kind of processor is called."""

    kernel: str
    grub: str
    efi: str
    elf: tuple[int, ...]
    tftp_clients: tuple[int, ...]
    http_clients: tuple[int, ...]
    sledgehammer: str
    has_bios: bool
    is_installed: bool


class Architecture(StrEnum):
    """A kind of processor, as Debian names it."""

    AMD64 = "amd64"
    ARM64 = "arm64"

    @property
    def kernel_name(self) -> str:
        """What `uname -m` says there, and with it an inventory."""
        return _NAMES[self].kernel

    @property
    def grub_name(self) -> str:
        """The value of GRUB's variable `grub_cpu`, and a part of the names of GRUB's folders."""
        return _NAMES[self].grub

    @property
    def shim(self) -> str:
        """The file that UEFI fetches first. It is signed, and starts the file `grub` beside itself."""
        return f"shim{_NAMES[self].efi}.efi"

    @property
    def grub(self) -> str:
        return f"grub{_NAMES[self].efi}.efi"

    @property
    def fallback_loader(self) -> str:
        """What firmware starts of a disk of which it knows nothing."""
        return f"/EFI/BOOT/BOOT{_NAMES[self].efi.upper()}.EFI"

    @property
    def elf_machines(self) -> tuple[int, ...]:
        """The numbers in the heads of programs that it runs; those of systems with 32 bits among them."""
        return _NAMES[self].elf

    @property
    def tftp_clients(self) -> tuple[int, ...]:
        """The numbers by which UEFI tells DHCP that it is of this kind, and fetches files by TFTP."""
        return _NAMES[self].tftp_clients

    @property
    def http_clients(self) -> tuple[int, ...]:
        """The same for UEFI that fetches files by HTTP."""
        return _NAMES[self].http_clients

    @property
    def sledgehammer(self) -> str:
        """The image that such machines boot to be discovered: each kind has its own, so that all are served at once."""
        return _NAMES[self].sledgehammer

    @property
    def has_bios(self) -> bool:
        """Whether such machines may start by a BIOS; else by UEFI alone."""
        return _NAMES[self].has_bios

    @property
    def is_installed(self) -> bool:
        """Whether systems are installed on such machines; else they are discovered, and their disks are left alone."""
        return _NAMES[self].is_installed


_NAMES = {
    Architecture.AMD64: _Names(
        "x86_64", "x86_64", "x64", (62, 3), (0x0007, 0x0009), (0x0010,), "sledgehammer", True, True
    ),
    Architecture.ARM64: _Names(
        "aarch64", "arm64", "aa64", (183,), (0x000B,), (0x0013,), "sledgehammer-arm64", False, False
    ),
}
SLEDGEHAMMERS = {architecture.sledgehammer: architecture for architecture in Architecture}
"""The images that machines boot to be discovered, by name."""


def architecture_of_grub(name: str) -> Architecture:
    """Return the kind of machine that a GRUB runs on; Invalid if nothing is booted there."""
    for architecture in Architecture:
        if architecture.grub_name == name:
            return architecture
    known = ", ".join(architecture.grub_name for architecture in Architecture)
    raise Invalid(f"GRUB for {name[:40]!r} is given nothing to boot; it is for {known}.")


def name_architecture(kernel_name: str) -> str:
    """Return the name of a kind of processor, from what the kernel calls it; of one that is not here, that itself."""
    return next((known.value for known in Architecture if known.kernel_name == kernel_name), kernel_name)


def machine_architecture(facts: JsonObject) -> str | None:
    """Return the kind of a machine's processor, from what is known of the machine; None: that is not known."""
    cpu = facts.get("cpu")
    name = cpu.get("architecture") if isinstance(cpu, dict) else None
    return name_architecture(name) if isinstance(name, str) and name else None


def build_command(image: str) -> str:
    """Return the command that makes an image, by the image's name."""
    architecture = SLEDGEHAMMERS.get(image, Architecture.AMD64)
    if architecture is Architecture.AMD64:
        return f"rackwright image build {image}"
    return f"rackwright image build {Architecture.AMD64.sledgehammer} --architecture {architecture}"
