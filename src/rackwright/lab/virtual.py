"""A virtual machine: a QEMU process that its BMC starts, ends and resets, with a lasting disk and a console.

Always emulated, never accelerated: a /dev/kvm may exist and boot nothing, and what works emulated works everywhere.
"""

import asyncio
import contextlib
import shutil
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from rackwright.child_process import ChildProcess, last_line
from rackwright.hammers.base import HammerFailed
from rackwright.hammers.qemu import DISK, NETWORK_CARD, boot_order, qmp

QEMU = "qemu-system-x86_64"
OVMF_CODE, OVMF_VARIABLES = Path("/usr/share/OVMF/OVMF_CODE_4M.fd"), Path("/usr/share/OVMF/OVMF_VARS_4M.fd")
STARTING_SECONDS = 60.0


class Firmware(StrEnum):
    BIOS = "bios"
    UEFI = "uefi"


@dataclass(frozen=True)
class Hardware:
    """What a machine is made of."""

    number: int
    firmware: Firmware = Firmware.BIOS
    memory: int = 1024
    """MiB. An install needs 1024, discovery 256."""
    disk: str = "8G"
    direct: tuple[str, ...] = ()
    """More arguments for QEMU, such as a kernel to start directly"""

    @property
    def name(self) -> str:
        return f"m{self.number}"

    @property
    def mac(self) -> str:
        return f"52:54:00:77:{self.number >> 8 & 255:02x}:{self.number & 255:02x}"

    @property
    def uuid(self) -> str:
        return f"52570000-0000-4000-8000-{self.number:012x}"


class LabFailed(Exception):
    """The lab cannot do what was asked; the text says why."""


class VirtualMachine:
    """A machine that is off until it is switched on. Its files are in `folder`. Without a tap it has no network."""

    def __init__(self, hardware: Hardware, folder: Path, tap: str | None = None) -> None:
        self.hardware = hardware
        self.folder = folder
        self.tap = tap
        self.boot_first = NETWORK_CARD
        self.boot_once: str | None = None
        """The device for the next boot only"""
        self._process: ChildProcess | None = None
        self._power_lock = asyncio.Lock()

    @property
    def control(self) -> Path:
        return self.folder / "qmp"

    @property
    def console(self) -> Path:
        """The file with everything that the machine wrote to its serial line."""
        return self.folder / "console.log"

    @property
    def is_on(self) -> bool:
        return self._process is not None and self._process.running

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self.is_on else None

    async def on(self) -> None:
        async with self._power_lock:
            await self._on()

    async def off(self) -> None:
        """Switch the machine off at once, as if the plug were pulled."""
        async with self._power_lock:
            await self._off()

    async def reset(self) -> None:
        """Start the machine anew: the device that was set for a single boot counts for this boot, and is then unset."""
        async with self._power_lock:
            await self._off()
            await self._on()

    async def _on(self) -> None:
        if self.is_on:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self._make_files()
        first, self.boot_once = self.boot_once or self.boot_first, None
        with contextlib.suppress(FileNotFoundError):
            self.control.unlink()
        self._process = await ChildProcess.start(self._command(first), self.folder / "qemu.log")
        async with asyncio.timeout(STARTING_SECONDS):
            if not await self._process.wait_ready(self._answers):
                reason = last_line(self._process.output) or "it said nothing"
                raise LabFailed(f"QEMU of {self.hardware.name} ended: {reason}")
        if first != self.boot_first:
            # From the next restart on the machine boots from its usual device.
            await qmp(self.control, *boot_order(self.boot_first))

    async def _answers(self) -> bool:
        try:
            await qmp(self.control, {"execute": "query-status"})
        except HammerFailed:
            return False
        return True

    async def _off(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await process.kill()

    def _make_files(self) -> None:
        disk = self.folder / "disk.raw"
        if not disk.exists():
            with disk.open("wb") as file:
                file.truncate(
                    _bytes(self.hardware.disk)
                )  # a sparse file: it takes only the space of what is written to it
        variables = self.folder / "uefi-variables"
        if self.hardware.firmware is Firmware.UEFI and not variables.exists():
            shutil.copyfile(OVMF_VARIABLES, variables)

    def _command(self, first: str) -> list[str]:
        hardware = self.hardware
        boot_index = {first: 1, (DISK if first == NETWORK_CARD else NETWORK_CARD): 2}
        # OVMF has a network stack of its own, as real firmware does: it fetches iPXE by TFTP. A BIOS has iPXE as ROM.
        rom = ",romfile=" if hardware.firmware is Firmware.UEFI else ""
        card = f"mac={hardware.mac},bootindex={boot_index[NETWORK_CARD]}{rom}"
        cable = f"tap,id=net,ifname={self.tap},script=no,downscript=no" if self.tap else "user,id=net,restrict=on"
        serial = f"LAB{hardware.number:04d}"
        log_file = f"logfile={self.console},logappend=on"
        machine = f"-name {hardware.name} -machine q35 -accel tcg,thread=multi -cpu max -smp 1 -m {hardware.memory}"
        command = [
            *(QEMU, *machine.split(), "-nodefaults", "-display", "none", "-uuid", hardware.uuid),
            *("-smbios", f"type=1,manufacturer=Rackwright,product=Lab,serial={serial}"),
            *("-chardev", f"socket,id=serial,path={self.folder / 'serial'},server=on,wait=off,{log_file}"),
            *("-serial", "chardev:serial", "-qmp", f"unix:{self.control},server=on,wait=off"),
            *("-drive", f"if=none,id=drive0,file={self.folder / 'disk.raw'},format=raw,cache=unsafe,discard=unmap"),
            *("-device", f"virtio-blk-pci,id={DISK},drive=drive0,serial={serial},bootindex={boot_index[DISK]}"),
            *("-netdev", cable, "-device", f"virtio-net-pci,id={NETWORK_CARD},netdev=net,{card}"),
            *("-device", "virtio-rng-pci"),
        ]
        if hardware.firmware is Firmware.UEFI:
            command += ["-drive", f"if=pflash,format=raw,readonly=on,file={OVMF_CODE}"]
            command += ["-drive", f"if=pflash,format=raw,file={self.folder / 'uefi-variables'}"]
        return [*command, *hardware.direct]


def _bytes(size: str) -> int:
    units = {"M": 1 << 20, "G": 1 << 30}
    return int(size[:-1]) * units[size[-1]]


def check_programs(firmwares: set[Firmware]) -> None:
    """Raise LabFailed, with what to install, if a program or a firmware is missing."""
    if shutil.which(QEMU) is None:
        raise LabFailed(f"There is no {QEMU} here. Install it: apt-get install qemu-system-x86 ipxe-qemu")
    if Firmware.UEFI in firmwares and not OVMF_CODE.exists():
        raise LabFailed("There is no UEFI firmware for QEMU here. Install it: apt-get install ovmf")
