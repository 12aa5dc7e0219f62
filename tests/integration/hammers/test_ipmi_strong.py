"""The IPMI hammer with cipher suite 17, as it is unless a person says otherwise, on a BMC that speaks no other suite
and shows every bit of what it was told."""

from collections.abc import AsyncIterator

import pytest
from tests.support.machines.strict_ipmi_bmc import OPERATOR, StrongBmc, strong_bmc
from tests.support.waiting import PATIENCE

from rackwright.domain.catalogue import JsonObject
from rackwright.hammers import ipmi
from rackwright.hammers.base import BootDevice, HammerFailed, HammerNode, Power
from rackwright.hammers.ipmi import IpmiHammer

USER, PASSWORD = "ops", "as long as allowed !"
OFF, ON, RESET = 0, 1, 3
VALID, BY_UEFI, PXE, DISK = 0x80, 0x20, 0x04, 0x08


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine answers late: nothing is to be sent twice, or given up, for that."""
    monkeypatch.setattr(ipmi, "PAUSE", 60)
    monkeypatch.setattr(ipmi, "DEADLINE", PATIENCE)


@pytest.fixture
async def bmc() -> AsyncIterator[StrongBmc]:
    async with strong_bmc(USER, PASSWORD) as made:
        yield made


def _node(bmc: StrongBmc, other: JsonObject | None = None, mode: str = "bios") -> HammerNode:
    reached: JsonObject = {"address": bmc.address, "username": USER, "password": PASSWORD, **(other or {})}
    return HammerNode(1, "n1.example", {"bmc": reached, "firmware": {"mode": mode}})


async def test_an_operator_switches_a_machine_on_restarts_it_and_switches_it_off(bmc: StrongBmc) -> None:
    hammer, node = IpmiHammer(), _node(bmc)
    assert await hammer.status(node) is Power.OFF
    await hammer.reset(node)
    assert await hammer.status(node) is Power.ON
    await hammer.reset(node)
    await hammer.off(node)
    assert await hammer.status(node) is Power.OFF
    assert bmc.controls == [ON, RESET, OFF]


@pytest.mark.parametrize(("mode", "flags"), [("bios", VALID), ("uefi", VALID | BY_UEFI)])
@pytest.mark.parametrize(("device", "wanted"), [(BootDevice.NETWORK, PXE), (BootDevice.DISK, DISK)])
async def test_the_boot_device_is_for_one_boot_by_the_firmware_found(
    bmc: StrongBmc, mode: str, flags: int, device: BootDevice, wanted: int
) -> None:
    await IpmiHammer().boot_device(_node(bmc, mode=mode), device)
    # Bit 6 of the flags would make it last.
    assert bmc.boot_options[5] == bytes((flags, wanted, 0, 0, 0))
    assert bmc.boot_options[3] == b"\x08", "it is not forgotten after 60 s"


async def test_a_bmc_that_cannot_keep_the_boot_device_gets_it_all_the_same(bmc: StrongBmc) -> None:
    bmc.keeps_boot_device = False
    await IpmiHammer().boot_device(_node(bmc), BootDevice.NETWORK)
    assert bmc.boot_options[5][:2] == bytes((VALID, PXE))
    assert 3 not in bmc.boot_options


@pytest.mark.parametrize("wrong", [{"password": "wrong"}, {"username": "nobody"}])
async def test_a_wrong_login_is_said_to_be_one(bmc: StrongBmc, wrong: JsonObject) -> None:
    with pytest.raises(HammerFailed, match="refuses the user name or the password"):
        await IpmiHammer().on(_node(bmc, wrong))
    assert bmc.controls == []


async def test_a_user_below_operator_is_said_to_be_one() -> None:
    async with strong_bmc(USER, PASSWORD, level=OPERATOR - 1) as bmc:
        with pytest.raises(HammerFailed, match="does not let 'ops' switch power"):
            await IpmiHammer().on(_node(bmc))
        assert bmc.controls == []


async def test_a_bmc_that_speaks_suite_17_only_is_not_spoken_to_with_less(bmc: StrongBmc) -> None:
    with pytest.raises(HammerFailed, match=r"opens no session with cipher suite 3\. Go back to the strong one"):
        await IpmiHammer().on(_node(bmc, {"cipher_suite": 3}))
    assert bmc.controls == []
