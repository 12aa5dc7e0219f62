"""What a virtual machine is made of, and how QEMU is told: firmware, disks, network cards, a TPM.

Always emulated, never accelerated: a /dev/kvm may exist and boot nothing, and what works emulated works everywhere.
"""

import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from rackwright.domain.architectures import Architecture
from rackwright.hammers.qemu import DISK, NETWORK_CARD

SWTPM = "swtpm"
UEFI_VARIABLES = "uefi-variables"
NO_IPV4 = ("-fw_cfg", "name=opt/org.tianocore/IPv4PXESupport,string=n")
"""Has OVMF boot over IPv6 alone."""
MORE_DISKS_BOOT_INDEX = 20
"""The boot index of the second disk: after the first disk and the network card, whichever of these is first."""
TRY_AGAIN = ("-boot", "reboot-timeout=1000")
"""Has a BIOS that found nothing to boot start anew after a second: a machine may be on before the server answers."""
HTTP_ONLY = tuple(
    word for family in (4, 6) for word in ("-fw_cfg", f"name=opt/org.tianocore/IPv{family}PXESupport,string=n")
)
"""Arguments for QEMU that take TFTP out of the firmware's ways to boot."""


class LabFailed(Exception):
    """The lab cannot do what was asked; the text says why."""


class Firmware(StrEnum):
    BIOS = "bios"
    UEFI = "uefi"
    UEFI_SECURE = "uefi-secure"
    """With Secure Boot on, and Microsoft's keys, as machines are sold."""
    UEFI_HTTP = "uefi-http"
    """Boots over the network by HTTP only, without TFTP."""

    @property
    def is_uefi(self) -> bool:
        return self is not Firmware.BIOS


@dataclass(frozen=True)
class Emulation:
    """How QEMU is a machine of one kind."""

    program: str
    machine: str
    """Its board, and its processor: one that is emulated fast."""
    serial: str
    """What Linux calls its serial line."""
    code: Path
    """The UEFI firmware itself."""
    variables: Path
    """The variables that a new machine begins with, its keys among them."""
    packages: str
    firmware_package: str
    arguments: tuple[str, ...] = ()
    """More arguments of QEMU, for the firmware."""
    is_pc: bool = True
    """Whether the board has a place for a TPM, and for a BMC in band."""


EMULATIONS = {
    Architecture.AMD64: Emulation(
        program="qemu-system-x86_64",
        machine="-machine q35 -cpu max",
        serial="ttyS0",
        code=Path("/usr/share/OVMF/OVMF_CODE_4M.fd"),
        variables=Path("/usr/share/OVMF/OVMF_VARS_4M.fd"),
        packages="qemu-system-x86 ipxe-qemu",
        firmware_package="ovmf",
    ),
    Architecture.ARM64: Emulation(
        program="qemu-system-aarch64",
        machine="-machine virt -cpu cortex-a72",
        serial="ttyAMA0",
        code=Path("/usr/share/AAVMF/AAVMF_CODE.fd"),
        variables=Path("/usr/share/AAVMF/AAVMF_VARS.fd"),
        packages="qemu-system-arm",
        firmware_package="qemu-efi-aarch64",
        is_pc=False,
    ),
}
SECURE_EMULATIONS = {
    Architecture.AMD64: replace(
        EMULATIONS[Architecture.AMD64],
        machine="-machine q35,smm=on -cpu max",
        code=Path("/usr/share/OVMF/OVMF_CODE_4M.secboot.fd"),
        variables=Path("/usr/share/OVMF/OVMF_VARS_4M.ms.fd"),
        arguments=(
            *("-global", "driver=cfi.pflash01,property=secure,value=on"),
            *("-global", "ICH9-LPC.disable_s3=1"),
        ),
    ),
    Architecture.ARM64: replace(
        EMULATIONS[Architecture.ARM64],
        variables=Path("/usr/share/AAVMF/AAVMF_VARS.ms.fd"),
    ),
}
"""The same with Secure Boot."""


@dataclass(frozen=True)
class BmcInBand:
    """What a machine can find out of a BMC from inside."""

    ipmi_port: int = 0
    """The TCP port of this host at which a simulated BMC speaks IPMI with the machine; 0: there is none."""
    host_interface: Path | None = None
    """A file with an SMBIOS structure of type 42."""


@dataclass(frozen=True)
class Hardware:
    """What a machine is made of."""

    number: int
    firmware: Firmware = Firmware.BIOS
    memory: int = 1024
    """MiB. An install needs 1024, discovery 256."""
    disk: str = "8G"
    """The size of each disk."""
    direct: tuple[str, ...] = ()
    """More arguments for QEMU, such as a kernel to start directly"""
    disks: int = 1
    nics: int = 1
    tpm: bool = False
    bmc_in_band: BmcInBand | None = None
    ipv6_only: bool = False
    """UEFI asks for no IPv4, which it would do first, and wait for"""
    own_boot_order: bool = False
    """Whether the firmware boots in the order of its own variables, unless the BMC was told otherwise."""
    architecture: Architecture = Architecture.AMD64

    @property
    def emulation(self) -> Emulation:
        emulations = SECURE_EMULATIONS if self.firmware is Firmware.UEFI_SECURE else EMULATIONS
        return emulations[self.architecture]

    @property
    def name(self) -> str:
        return f"m{self.number}"

    @property
    def mac(self) -> str:
        """The MAC of the first network card, by which it boots."""
        return self.macs[0]

    @property
    def macs(self) -> tuple[str, ...]:
        last = f"{self.number >> 8 & 255:02x}:{self.number & 255:02x}"
        return tuple(f"52:54:00:{0x77 + nic:02x}:{last}" for nic in range(self.nics))

    @property
    def uuid(self) -> str:
        return f"52570000-0000-4000-8000-{self.number:012x}"

    @property
    def serial(self) -> str:
        return f"LAB{self.number:04d}"

    @property
    def disk_bytes(self) -> int:
        units = {"M": 1 << 20, "G": 1 << 30}
        return int(self.disk[:-1]) * units[self.disk[-1]]


@dataclass(frozen=True)
class Drive:
    """A disk that can be put into a machine: what is printed on it, and the file with its content."""

    serial: str
    file: Path


def drives_of(hardware: Hardware, folder: Path) -> list[Drive | None]:
    """Return the drives that a new machine comes with, slot by slot."""
    numbers = range(2, hardware.disks + 1)
    first = Drive(hardware.serial, folder / "disk.raw")
    return [first, *(Drive(f"{hardware.serial}-{number}", folder / f"disk{number}.raw") for number in numbers)]


def qemu_command(
    hardware: Hardware, folder: Path, drives: Sequence[Drive | None], taps: Sequence[str], first: str | None
) -> list[str]:
    """Return the command that is a machine which boots from the device `first`; None: its firmware decides."""
    boot_index = boot_indexes(first, len(drives))
    log_file = f"logfile={folder / 'console.log'},logappend=on"
    emulation = hardware.emulation
    machine = f"{emulation.machine} -accel tcg,thread=multi -smp 1 -m {hardware.memory}"
    return [
        *(emulation.program, "-name", hardware.name, *machine.split(), "-nodefaults", "-display", "none"),
        *("-uuid", hardware.uuid),
        *("-smbios", f"type=1,manufacturer=Rackwright,product=Lab,serial={hardware.serial}"),
        *("-chardev", f"socket,id=serial,path={folder / 'serial'},server=on,wait=off,{log_file}"),
        *("-serial", "chardev:serial", "-qmp", f"unix:{folder / 'qmp'},server=on,wait=off"),
        *_disk_arguments(drives, boot_index),
        *_card_arguments(hardware, taps, boot_index),
        *("-device", "virtio-rng-pci"),
        *_firmware_arguments(hardware, folder),
        *(NO_IPV4 if hardware.ipv6_only else ()),
        *(_tpm_arguments(folder) if hardware.tpm else ()),
        *_in_band_arguments(hardware.bmc_in_band),
        *hardware.direct,
    ]


def _in_band_arguments(bmc: BmcInBand | None) -> list[str]:
    arguments: list[str] = []
    if bmc is not None and bmc.ipmi_port:
        arguments += ["-chardev", f"socket,id=bmc,host=127.0.0.1,port={bmc.ipmi_port},reconnect=1"]
        arguments += ["-device", "ipmi-bmc-extern,id=bmc0,chardev=bmc", "-device", "isa-ipmi-kcs,bmc=bmc0"]
    if bmc is not None and bmc.host_interface is not None:
        arguments += ["-smbios", f"file={bmc.host_interface}"]
    return arguments


def boot_indexes(first: str | None, disks: int) -> dict[str, int]:
    """Return the boot index of each device that has one: the lowest is booted from."""
    if first is None:
        return {}
    more = {f"disk{slot}": MORE_DISKS_BOOT_INDEX + slot - 1 for slot in range(1, disks)}
    return {first: 1, (DISK if first == NETWORK_CARD else NETWORK_CARD): 2, **more}


def _boot_index(device: str, index: Mapping[str, int]) -> str:
    return f",bootindex={index[device]}" if device in index else ""


def _disk_arguments(drives: Sequence[Drive | None], boot_index: Mapping[str, int]) -> list[str]:
    arguments: list[str] = []
    for slot, drive in enumerate(drives):
        if drive is None:
            continue
        name = DISK if slot == 0 else f"disk{slot}"
        content = f"if=none,id=drive{slot},file={drive.file},format=raw,cache=unsafe,discard=unmap"
        device = f"virtio-blk-pci,id={name},drive=drive{slot},serial={drive.serial}{_boot_index(name, boot_index)}"
        arguments += ["-drive", content, "-device", device]
    return arguments


def _card_arguments(hardware: Hardware, taps: Sequence[str], boot_index: Mapping[str, int]) -> list[str]:
    arguments: list[str] = []
    # OVMF has a network stack of its own, as real firmware does. A BIOS has iPXE as ROM.
    rom = ",romfile=" if hardware.firmware.is_uefi else ""
    for nic, mac in enumerate(hardware.macs):
        way = f"tap,ifname={taps[nic]},script=no,downscript=no" if taps else "user,restrict=on"
        name = NETWORK_CARD if nic == 0 else f"net{nic}"
        card = f"virtio-net-pci,id={name},netdev=cable{nic},mac={mac}{_boot_index(name, boot_index)}{rom}"
        arguments += ["-netdev", f"{way},id=cable{nic}", "-device", card]
    return arguments


def _firmware_arguments(hardware: Hardware, folder: Path) -> list[str]:
    firmware = hardware.firmware
    if not firmware.is_uefi:
        return [*TRY_AGAIN]
    return [
        *hardware.emulation.arguments,
        *("-drive", f"if=pflash,format=raw,unit=0,readonly=on,file={hardware.emulation.code}"),
        *("-drive", f"if=pflash,format=raw,unit=1,file={folder / UEFI_VARIABLES}"),
        *(HTTP_ONLY if firmware is Firmware.UEFI_HTTP else ()),
    ]


def _tpm_arguments(folder: Path) -> list[str]:
    return [
        *("-chardev", f"socket,id=tpm,path={folder / 'tpm.socket'}"),
        *("-tpmdev", "emulator,id=tpm0,chardev=tpm", "-device", "tpm-crb,tpmdev=tpm0"),
    ]


def tpm_command(folder: Path) -> list[str]:
    """Return the command that is the TPM of a machine. It ends with the machine; what it stores stays in `folder`."""
    return [
        *(SWTPM, "socket", "--tpm2", "--tpmstate", f"dir={folder / 'tpm'}", "--flags", "startup-clear", "--terminate"),
        *("--ctrl", f"type=unixio,path={folder / 'tpm.socket'}"),
    ]


def check_programs(hardware: Collection[Hardware]) -> None:
    """Raise LabFailed, with what to do, if a machine cannot be, or a program or a firmware is missing."""
    for machine in hardware:
        _check_possible(machine)
        emulation = machine.emulation
        if shutil.which(emulation.program) is None:
            raise LabFailed(f"There is no {emulation.program} here. Install it: apt-get install {emulation.packages}")
        if machine.firmware.is_uefi and not emulation.code.exists():
            package = emulation.firmware_package
            raise LabFailed(f"There is no UEFI firmware for QEMU here. Install it: apt-get install {package}")
    if any(machine.ipv6_only and not machine.firmware.is_uefi for machine in hardware):
        raise LabFailed("No BIOS boots over IPv6. Choose UEFI: --firmware uefi")
    if any(machine.tpm for machine in hardware) and shutil.which(SWTPM) is None:
        raise LabFailed(f"There is no {SWTPM} here. Install it: apt-get install swtpm")


def _check_possible(machine: Hardware) -> None:
    """Raise LabFailed if the parts of a machine do not go together."""
    architecture = machine.architecture
    if not machine.firmware.is_uefi and not architecture.has_bios:
        raise LabFailed(f"No {architecture} machine starts by a BIOS. Choose UEFI: --firmware uefi")
    parts = {"TPM": machine.tpm, "BMC in band": machine.bmc_in_band is not None}
    asked = [part for part, is_asked in parts.items() if is_asked]
    if asked and not machine.emulation.is_pc:
        raise LabFailed(f"{architecture} machines of a lab have no {', and no '.join(asked)}.")
