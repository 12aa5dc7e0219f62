"""The IPMI hammer, ipmitool and all, on the simulated BMC of OpenIPMI.

That one knows nothing of cipher suite 17, of UEFI, or of levels of users: these are seen in how ipmitool is called and
what it asks for on the wire, and in `test_ipmi_strong.py`.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.clock import pass_time
from tests.support.machines.ipmi_simulator import (
    PASSWORD,
    NotedProgram,
    SimulatedBmc,
    node_at,
    noted_program,
    relay,
    simulated_bmc,
)
from tests.support.processes import is_alive
from tests.support.waiting import PATIENCE, until

from rackwright.domain.catalogue import JsonObject
from rackwright.hammers import ipmi
from rackwright.hammers.base import BootDevice, ControllerUnreachable, HammerFailed, Power
from rackwright.hammers.ipmi import IpmiHammer

SHA256_SUITE, SHA1_SUITE = (3, 4, 1), (1, 1, 1)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine answers late: nothing is to be sent twice, or given up, for that."""
    monkeypatch.setattr(ipmi, "PAUSE", 60)
    monkeypatch.setattr(ipmi, "DEADLINE", PATIENCE)
    monkeypatch.setattr(ipmi, "SWITCH_SECONDS", PATIENCE)
    monkeypatch.setattr(ipmi, "POLL_SECONDS", 0.01)


@pytest.fixture
async def bmc(tmp_path: Path) -> AsyncIterator[SimulatedBmc]:
    async with simulated_bmc(tmp_path / "bmc") as made:
        yield made


@pytest.fixture
def program(tmp_path: Path) -> NotedProgram:
    return noted_program(tmp_path / "program")


async def test_a_machine_is_switched_on_restarted_and_off(bmc: SimulatedBmc) -> None:
    hammer, node = IpmiHammer(), bmc.node()
    assert await hammer.status(node) is Power.OFF
    await hammer.on(node)
    assert await hammer.status(node) is Power.ON
    await hammer.on(node)
    assert bmc.asked().count("set power 1") == 1, "it was on already"
    await hammer.reset(node)
    assert bmc.asked()[-1] == "set reset 1"
    await hammer.off(node)
    await hammer.off(node)
    assert bmc.asked().count("set power 0") == 1, "it was off already"
    assert await hammer.status(node) is Power.OFF
    await hammer.reset(node)
    assert bmc.asked().count("set reset 1") == 1
    assert await hammer.status(node) is Power.ON, "a restart of what is off is a start"


async def test_off_is_over_when_the_bmc_says_so_and_not_before(bmc: SimulatedBmc) -> None:
    hammer, node = IpmiHammer(), bmc.node()
    await hammer.on(node)
    before = len(bmc.asked())
    bmc.lag(2)
    await hammer.off(node)
    # A look before, two that still find it on, and the one that does not.
    assert bmc.asked()[before:] == ["get power", "set power 0", *["get power"] * 3]
    assert await hammer.status(node) is Power.OFF


async def test_a_machine_that_does_not_switch_is_told_of(bmc: SimulatedBmc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ipmi, "SWITCH_SECONDS", 0.0)
    bmc.lag(1000)
    with pytest.raises(HammerFailed, match=r"took the order to switch on, but after 0 s its power is off"):
        await IpmiHammer().on(bmc.node())


async def test_a_restart_whose_answer_is_lost_is_not_ordered_again(
    bmc: SimulatedBmc, monkeypatch: pytest.MonkeyPatch
) -> None:
    hammer, node = IpmiHammer(), bmc.node()
    await hammer.on(node)
    monkeypatch.setattr(ipmi, "PAUSE", 1)
    bmc.relay.loses = lambda: "set reset 1" in bmc.asked()
    with pytest.raises(
        HammerFailed, match="did not answer the order to reset, which it may have carried out"
    ) as failed:
        await hammer.reset(node)
    assert not isinstance(failed.value, ControllerUnreachable), "no other server may do it again"
    assert bmc.asked().count("set reset 1") == 1


def falls_silent(bmc: SimulatedBmc, monkeypatch: pytest.MonkeyPatch, after: str, answers: int) -> None:
    """Have a BMC answer nothing any more once it was asked something, and gave so many answers since."""
    given = 0

    def loses() -> bool:
        nonlocal given
        if after in bmc.asked():
            given += 1
        if given >= answers:  # what is asked from here on need not be waited for
            monkeypatch.setattr(ipmi, "PAUSE", 1)
            monkeypatch.setattr(ipmi, "TRIES", 1)
        return given > answers

    bmc.relay.loses = loses


async def test_a_bmc_that_is_silent_after_an_order_is_left_to_no_other_server(
    bmc: SimulatedBmc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another server would give the order again, in the middle of what the first one began."""
    bmc.lag(1000)
    falls_silent(bmc, monkeypatch, "set power 1", answers=2)  # to the order, and to the end of that session
    with pytest.raises(HammerFailed, match="was ordered to on, and does not answer since") as failed:
        await IpmiHammer().on(bmc.node())
    assert not isinstance(failed.value, ControllerUnreachable)
    assert bmc.asked().count("set power 1") == 1


async def test_a_bmc_that_does_not_even_answer_the_order_is_left_to_no_other_server(
    bmc: SimulatedBmc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ipmi, "PAUSE", 1)
    bmc.lag(1000)
    falls_silent(bmc, monkeypatch, "set power 1", answers=0)
    with pytest.raises(HammerFailed, match="was ordered to on, and does not answer since") as failed:
        await IpmiHammer().on(bmc.node())
    assert not isinstance(failed.value, ControllerUnreachable)
    assert bmc.asked().count("set power 1") == 1


async def test_a_bmc_that_is_silent_after_a_look_is_one_that_this_server_reaches(
    bmc: SimulatedBmc, monkeypatch: pytest.MonkeyPatch
) -> None:
    falls_silent(bmc, monkeypatch, "get power", answers=2)
    with pytest.raises(HammerFailed, match="does not answer") as failed:
        await IpmiHammer().on(bmc.node())
    assert not isinstance(failed.value, ControllerUnreachable)


async def test_whether_an_order_was_heard_is_told_by_the_power(
    bmc: SimulatedBmc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ipmi, "PAUSE", 1)
    bmc.relay.loses = lambda: bmc.asked()[-1:] == ["set power 1"]
    hammer, node = IpmiHammer(), bmc.node()
    looks = bmc.folder / "asked"

    async def hear_again() -> None:
        await until(lambda: "set power 1" in looks.read_text(), "the order is given")
        await until(lambda: bmc.relay.lost > 0, "its answer is lost")
        bmc.relay.loses = lambda: False

    hearing = asyncio.create_task(hear_again())
    await hammer.on(node)
    await hearing
    assert bmc.asked().count("set power 1") == 1


@pytest.mark.parametrize(("device", "there"), [(BootDevice.NETWORK, "pxe"), (BootDevice.DISK, "default")])
async def test_the_boot_device_reaches_the_machine(bmc: SimulatedBmc, device: BootDevice, there: str) -> None:
    await IpmiHammer().boot_device(bmc.node(), device)
    assert bmc.asked() == [f"set boot {there}"]


@pytest.mark.parametrize("mode", ["uefi", "bios"])
async def test_the_boot_device_is_for_one_boot_however_late_and_for_the_firmware_found(
    bmc: SimulatedBmc, program: NotedProgram, mode: str
) -> None:
    await IpmiHammer(str(program.path)).boot_device(bmc.node(mode=mode), BootDevice.NETWORK)
    keep, boot = (call.partition(" -v ")[2] for call in program.calls())
    assert keep == "raw 0x00 0x08 0x03 0x08"
    assert boot == ("chassis bootdev pxe options=efiboot" if mode == "uefi" else "chassis bootdev pxe")


async def test_the_password_is_on_no_command_line(bmc: SimulatedBmc, program: NotedProgram) -> None:
    assert await IpmiHammer(str(program.path)).status(bmc.node()) is Power.OFF
    [call] = program.calls()
    assert PASSWORD not in call.split()
    assert " -E " in call


async def test_nothing_weaker_than_suite_17_is_asked_for_unless_a_person_says_so(bmc: SimulatedBmc) -> None:
    hammer, node = IpmiHammer(), bmc.node({"cipher_suite": 17})
    with pytest.raises(
        HammerFailed, match=r"opens no session with cipher suite 17.*n1\.example --kind ipmi --cipher-suite 3"
    ):
        await hammer.on(node)
    assert bmc.relay.suites == {SHA256_SUITE}
    assert bmc.asked() == []
    await hammer.on(bmc.node())
    assert bmc.relay.suites == {SHA256_SUITE, SHA1_SUITE}


@pytest.mark.parametrize("wrong", [{"password": "wrong"}, {"username": "nobody"}, {"password": ""}])
async def test_a_wrong_login_is_said_to_be_one_and_tried_once(
    bmc: SimulatedBmc, program: NotedProgram, wrong: JsonObject
) -> None:
    with pytest.raises(HammerFailed, match="refuses the user name or the password"):
        await IpmiHammer(str(program.path)).reset(bmc.node(wrong))
    assert len(program.calls()) == 1, "a BMC locks users out"
    assert bmc.asked() == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"password": "x" * 21}, "password is longer than 20 bytes"),
        ({"username": "x" * 17}, "Username is too long"),
        ({"password": "a\0b"}, "has a NUL"),
        ({"cipher_suite": 0}, "cipher suite 0: it is 17 or 3"),
        ({"cipher_suite": True}, "cipher suite True"),
        ({"address": "::1:x"}, "neither a host nor host:port"),
        ({"address": "host:port"}, "neither a host nor host:port"),
        ({"address": ""}, "neither a host nor host:port"),
    ],
)
async def test_what_no_bmc_can_be_reached_with_is_told(wrong: JsonObject, said: str) -> None:
    with pytest.raises(HammerFailed, match=said):
        await IpmiHammer().status(node_at("127.0.0.1:9", wrong))


async def test_a_bmc_that_does_not_answer_is_named_and_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ipmi, "PAUSE", 1)
    monkeypatch.setattr(ipmi, "TRIES", 1)
    async with relay() as silent:
        with pytest.raises(
            ControllerUnreachable, match=rf"n1\.example at {silent.address} does not answer.*UDP port \d+ open"
        ):
            await IpmiHammer().on(node_at(silent.address))
        assert 0 < silent.received < 5


async def test_nobody_waits_longer_than_the_deadline_and_nothing_is_left_running(
    program: NotedProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ipmi, "DEADLINE", 3600.0)
    async with relay() as silent:
        asking = asyncio.create_task(IpmiHammer(str(program.path)).status(node_at(silent.address)))
        await until(lambda: silent.received > 0, "the BMC is asked")
        pass_time(3600)
        with pytest.raises(HammerFailed, match=r"n1\.example did not answer within 3600 s"):
            await asking
    processes = program.processes()
    assert len(processes) == 2
    await until(lambda: not any(map(is_alive, processes)), "ipmitool and its child are gone")


async def test_one_who_is_cancelled_takes_ipmitool_and_its_children_along(program: NotedProgram) -> None:
    async with relay() as silent:
        task = asyncio.create_task(IpmiHammer(str(program.path)).on(node_at(silent.address)))
        await until(lambda: silent.received > 0, "the BMC is asked")
        ipmitool, child = program.processes()
        assert is_alive(ipmitool)
        assert is_alive(child)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: not is_alive(ipmitool) and not is_alive(child), "ipmitool and its child are gone")


async def test_two_at_once_on_one_bmc_take_turns(bmc: SimulatedBmc) -> None:
    hammer, node = IpmiHammer(), bmc.node()
    await hammer.on(node)
    before = len(bmc.asked())
    await asyncio.gather(*(hammer.reset(node) for _ in range(3)))
    assert bmc.asked()[before:] == ["get power", "set reset 1"] * 3


async def test_one_bmc_that_is_silent_holds_up_no_other(bmc: SimulatedBmc) -> None:
    hammer = IpmiHammer()
    async with relay() as silent:
        task = asyncio.create_task(hammer.status(node_at(silent.address)))
        await until(lambda: silent.received > 0, "the BMC is asked")
        assert await hammer.status(bmc.node()) is Power.OFF
        assert not task.done()
        task.cancel()
        await asyncio.wait([task])


async def test_a_server_without_ipmitool_says_which_package_has_it(tmp_path: Path) -> None:
    with pytest.raises(HammerFailed, match="apt-get install ipmitool"):
        await IpmiHammer(str(tmp_path / "ipmitool")).status(node_at("127.0.0.1:9"))


async def test_a_node_without_a_bmc_is_told_how_to_get_one() -> None:
    with pytest.raises(HammerFailed, match=r"rackwright node bmc n1\.example --kind ipmi"):
        await IpmiHammer().on(replace(node_at(""), settings={}))
