"""What QEMU is told of a machine."""

from dataclasses import replace
from pathlib import Path

import pytest

from rackwright.domain.architectures import Architecture
from rackwright.lab.hardware import BmcInBand, Firmware, Hardware, LabFailed, check_programs, drives_of, qemu_command
from rackwright.lab.network import IPV4, IPV6
from rackwright.lab.rack import kernel_arguments


def _command(hardware: Hardware) -> str:
    folder = Path("/m1")
    return " ".join(qemu_command(hardware, folder, drives_of(hardware, folder), ["tap1"], "net0"))


def test_firmware_is_told_not_to_ask_for_ipv4_where_there_is_none() -> None:
    word = "name=opt/org.tianocore/IPv4PXESupport,string=n"
    assert word in _command(Hardware(1, Firmware.UEFI, ipv6_only=True))
    assert word not in _command(Hardware(1, Firmware.UEFI))


def test_a_bios_is_refused_where_there_is_ipv6_alone() -> None:
    with pytest.raises(LabFailed, match=r"No BIOS boots over IPv6\. Choose UEFI"):
        check_programs([Hardware(1, Firmware.UEFI, ipv6_only=True), Hardware(2, Firmware.BIOS, ipv6_only=True)])


def test_a_bios_that_finds_nothing_to_boot_tries_again() -> None:
    assert "-boot reboot-timeout=1000" in _command(Hardware(1))


def test_a_lab_has_one_family() -> None:
    assert (IPV4.host, IPV6.host) == ("10.77.0.1", "[fd77::1]")
    assert (IPV4.settings["v4_subnet"], IPV6.settings["v6_subnet"]) == ("10.77.0.0/24", "fd77::/64")
    assert "v6_subnet" not in IPV4.settings
    assert "v4_subnet" not in IPV6.settings


def test_a_machine_with_arm64_is_another_program_with_firmware_of_its_own() -> None:
    command = _command(Hardware(1, Firmware.UEFI, architecture=Architecture.ARM64))
    assert command.startswith("qemu-system-aarch64 -name m1 -machine virt -cpu cortex-a72 ")
    assert "/usr/share/AAVMF/AAVMF_CODE.fd" in command
    assert "net0" in command
    assert "romfile=" in command, "no iPXE of QEMU's comes before the firmware"
    assert _command(Hardware(1)).startswith("qemu-system-x86_64 -name m1 -machine q35 -cpu max ")


@pytest.mark.parametrize(
    ("hardware", "words"),
    [
        (Hardware(1), r"No arm64 machine starts by a BIOS\. Choose UEFI: --firmware uefi"),
        (Hardware(1, Firmware.UEFI, tpm=True), "arm64 machines of a lab have no TPM"),
        (Hardware(1, Firmware.UEFI, bmc_in_band=BmcInBand(1)), "arm64 machines of a lab have no BMC in band"),
    ],
)
def test_what_no_machine_with_arm64_has_is_refused(hardware: Hardware, words: str) -> None:
    with pytest.raises(LabFailed, match=words):
        check_programs([replace(hardware, architecture=Architecture.ARM64)])


def test_the_kernel_writes_to_the_serial_line_of_each_kind_of_machine() -> None:
    arm64 = Hardware(1, Firmware.UEFI, architecture=Architecture.ARM64)
    assert kernel_arguments([Hardware(1), Hardware(2)]).startswith("console=ttyS0 quiet ")
    assert kernel_arguments([arm64]).startswith("console=ttyAMA0 quiet ")
    assert kernel_arguments([arm64, Hardware(2)]).startswith("console=ttyAMA0 console=ttyS0 quiet ")
