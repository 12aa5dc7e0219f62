"""What QEMU is told of a machine."""

from pathlib import Path

import pytest

from rackwright.lab.hardware import Firmware, Hardware, LabFailed, check_programs, drives_of, qemu_command
from rackwright.lab.network import IPV4, IPV6


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


def test_a_lab_has_one_family() -> None:
    assert (IPV4.host, IPV6.host) == ("10.77.0.1", "[fd77::1]")
    assert (IPV4.settings["v4_subnet"], IPV6.settings["v6_subnet"]) == ("10.77.0.0/24", "fd77::/64")
    assert "v6_subnet" not in IPV4.settings
    assert "v4_subnet" not in IPV6.settings
