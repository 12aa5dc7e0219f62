"""A virtual machine: a QEMU process that its BMC starts, ends and resets, with lasting disks and a console."""

import asyncio
import contextlib
import shutil
from collections.abc import Sequence
from pathlib import Path

from rackwright.child_process import ChildProcess, last_line
from rackwright.hammers.base import HammerFailed
from rackwright.hammers.qemu import NETWORK_CARD, boot_order, qmp
from rackwright.lab.hardware import UEFI_VARIABLES, Drive, Hardware, LabFailed, drives_of, qemu_command, tpm_command

STARTING_SECONDS = 60.0


class VirtualMachine:
    """A machine that is off until it is switched on. Its files are in `folder`. Without taps it has no network."""

    def __init__(self, hardware: Hardware, folder: Path, taps: Sequence[str] = ()) -> None:
        self.hardware = hardware
        self.folder = folder
        self.taps = tuple(taps)
        """The other end of the cable of each network card"""
        self.drives = drives_of(hardware, folder)
        """The drive in each slot; None: the slot is empty"""
        self.boot_first = NETWORK_CARD
        self.boot_once: str | None = None
        """The device for the next boot only"""
        self._process: ChildProcess | None = None
        self._tpm: ChildProcess | None = None
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

    def pull_disk(self, slot: int) -> Drive:
        """Take the drive out of a slot of a machine that is off."""
        self._check_is_off()
        drive, self.drives[slot] = self.drives[slot], None
        if drive is None:
            raise LabFailed(f"{self.hardware.name} has no disk in slot {slot}.")
        return drive

    def insert_disk(self, slot: int, drive: Drive) -> None:
        """Put a drive into an empty slot of a machine that is off."""
        self._check_is_off()
        if self.drives[slot] is not None:
            raise LabFailed(f"{self.hardware.name} has a disk in slot {slot} already.")
        self.drives[slot] = drive

    def _check_is_off(self) -> None:
        if self.is_on:
            raise LabFailed(f"{self.hardware.name} is on. Switch it off first.")

    async def plug_cable(self, nic: int, *, plugged: bool) -> None:
        """Pull the cable of a network card, or plug it in again. The machine notices, as a real one does."""
        name = NETWORK_CARD if nic == 0 else f"net{nic}"
        await qmp(self.control, {"execute": "set_link", "arguments": {"name": name, "up": plugged}})

    async def _on(self) -> None:
        if self.is_on:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self._make_files()
        usual = None if self.hardware.own_boot_order else self.boot_first
        first, self.boot_once = self.boot_once or usual, None
        with contextlib.suppress(FileNotFoundError):
            self.control.unlink()
        if self.hardware.tpm:
            await self._start_tpm()
        command = qemu_command(self.hardware, self.folder, self.drives, self.taps, first)
        self._process = await ChildProcess.start(command, self.folder / "qemu.log")
        async with asyncio.timeout(STARTING_SECONDS):
            if not await self._process.wait_ready(self._answers):
                reason = last_line(self._process.output) or "it said nothing"
                raise LabFailed(f"QEMU of {self.hardware.name} ended: {reason}")
        if first != usual:
            # From the next restart on the machine boots from its usual device.
            await qmp(self.control, *boot_order(usual))

    async def _answers(self) -> bool:
        try:
            await qmp(self.control, {"execute": "query-status"})
        except HammerFailed:
            return False
        return True

    async def _off(self) -> None:
        processes, self._process, self._tpm = (self._process, self._tpm), None, None
        for process in processes:
            if process is not None:
                await process.kill()

    def _make_files(self) -> None:
        for drive in self.drives:
            if drive is not None and not drive.file.exists():
                with drive.file.open("wb") as file:
                    file.truncate(self.hardware.disk_bytes)  # sparse: it takes only the space of what is written to it
        variables = self.folder / UEFI_VARIABLES
        if self.hardware.firmware.is_uefi and not variables.exists():
            shutil.copyfile(self.hardware.emulation.variables, variables)

    async def _start_tpm(self) -> None:
        (self.folder / "tpm").mkdir(exist_ok=True)
        socket = self.folder / "tpm.socket"
        socket.unlink(missing_ok=True)
        tpm = await ChildProcess.start(tpm_command(self.folder), self.folder / "tpm.log")
        self._tpm = tpm

        async def listens() -> bool:
            return socket.exists()

        async with asyncio.timeout(STARTING_SECONDS):
            if not await tpm.wait_ready(listens):
                reason = last_line(tpm.output) or "it said nothing"
                raise LabFailed(f"The TPM of {self.hardware.name} ended: {reason}")
