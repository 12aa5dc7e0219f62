"""What virtual machines are made of: QEMU takes it, and drives and cables can be pulled."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.waiting import PATIENCE

from rackwright.hammers.qemu import qmp
from rackwright.lab.hardware import Firmware, Hardware, LabFailed
from rackwright.lab.virtual import VirtualMachine

RACK_SERVER = Hardware(7, memory=64, disk="16M", disks=3, nics=2)


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[VirtualMachine]:
    machine = VirtualMachine(RACK_SERVER, tmp_path / "m7")
    try:
        yield machine
    finally:
        await machine.off()


async def _drives(machine: VirtualMachine) -> set[str]:
    [blocks] = await qmp(machine.control, {"execute": "query-block"})
    return {Path(block["inserted"]["file"]).name for block in blocks if "inserted" in block}


async def test_a_machine_has_as_many_disks_and_network_cards_as_it_was_given(machine: VirtualMachine) -> None:
    await machine.on()
    assert await _drives(machine) == {"disk.raw", "disk2.raw", "disk3.raw"}
    assert [drive.serial for drive in machine.drives if drive is not None] == ["LAB0007", "LAB0007-2", "LAB0007-3"]
    assert len(set(RACK_SERVER.macs)) == 2
    assert RACK_SERVER.mac == "52:54:00:77:00:07", "the first is the one that it always had"


async def test_a_drive_is_pulled_and_put_elsewhere_while_the_machine_is_off(machine: VirtualMachine) -> None:
    await machine.on()
    with pytest.raises(LabFailed, match="Switch it off first"):
        machine.pull_disk(0)
    await machine.off()
    drive = machine.pull_disk(0)
    with pytest.raises(LabFailed, match="no disk in slot 0"):
        machine.pull_disk(0)
    with pytest.raises(LabFailed, match="has a disk in slot 1"):
        machine.insert_disk(1, drive)
    await machine.on()
    assert await _drives(machine) == {"disk2.raw", "disk3.raw"}
    await machine.off()
    machine.insert_disk(0, machine.pull_disk(2))
    machine.insert_disk(2, drive)
    await machine.on()
    assert machine.drives[2] == drive


async def test_the_cable_of_one_card_is_pulled_and_plugged_in_again(machine: VirtualMachine) -> None:
    await machine.on()
    await machine.plug_cable(1, plugged=False)
    await machine.plug_cable(1, plugged=True)


async def test_a_bios_that_finds_nothing_to_boot_starts_anew(tmp_path: Path) -> None:
    machine = VirtualMachine(Hardware(1, memory=64, disk="16M"), tmp_path / "m1")
    try:
        await machine.on()
        reader, writer = await asyncio.open_unix_connection(machine.control)
        writer.write(b'{"execute": "qmp_capabilities"}\n')
        async with asyncio.timeout(PATIENCE):
            while (told := json.loads(await reader.readline())).get("event") != "RESET":
                pass
        assert told["data"]["reason"] == "guest-reset"
        writer.close()
    finally:
        await machine.off()


@pytest.mark.parametrize("firmware", [Firmware.UEFI, Firmware.UEFI_SECURE])
async def test_a_machine_starts_with_each_firmware_and_a_tpm(firmware: Firmware, tmp_path: Path) -> None:
    machine = VirtualMachine(Hardware(1, firmware, memory=256, disk="16M", tpm=True), tmp_path / "m1")
    try:
        await machine.on()
        [tpms] = await qmp(machine.control, {"execute": "query-tpm"})
        assert [tpm["model"] for tpm in tpms] == ["tpm-crb"]
        await machine.reset()
        assert machine.is_on
    finally:
        await machine.off()
    assert (tmp_path / "m1" / "tpm").is_dir(), "what a TPM stores outlives the machine's power"
