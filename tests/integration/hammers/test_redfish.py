"""The Redfish hammer, sushy and all, on the BMC of a real virtual machine that has nothing to boot from."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from rackwright.hammers.base import BootDevice, ControllerUnreachable, HammerFailed, HammerNode, Power
from rackwright.hammers.qemu import DISK, NETWORK_CARD, QemuHammer, qmp
from rackwright.hammers.redfish import RedfishHammer
from rackwright.lab.bmc import Login, create_bmc
from rackwright.lab.hardware import Hardware
from rackwright.lab.virtual import VirtualMachine
from rackwright.server.listener import listening


@dataclass(frozen=True)
class Trial:
    machine: VirtualMachine
    node: HammerNode

    def with_bmc(self, **other: object) -> HammerNode:
        bmc = self.node.settings["bmc"]
        assert isinstance(bmc, dict)
        return replace(self.node, settings={"bmc": {**bmc, **other}})  # type: ignore[dict-item]


@pytest.fixture
async def trial(tmp_path: Path) -> AsyncIterator[Trial]:
    machine = VirtualMachine(Hardware(1, memory=64, disk="16M"), tmp_path / "m1")
    async with listening(create_bmc(machine, Login("admin", "right"))) as address:
        bmc = {"address": address.removeprefix("http://"), "username": "admin", "password": "right", "plain": True}
        try:
            yield Trial(machine, HammerNode(1, "n1.example", {"bmc": bmc}))  # type: ignore[dict-item]
        finally:
            await machine.off()


async def _boots_first(machine: VirtualMachine) -> str:
    """Return the device that the firmware tries first, asked of QEMU itself."""
    boot_indexes = {}
    for device in (NETWORK_CARD, DISK):
        arguments = {"path": f"/machine/peripheral/{device}", "property": "bootindex"}
        [boot_indexes[device]] = await qmp(machine.control, {"execute": "qom-get", "arguments": arguments})
    return min(boot_indexes, key=lambda device: int(boot_indexes[device]))


async def test_a_machine_is_switched_on_restarted_and_off(trial: Trial) -> None:
    hammer, machine = RedfishHammer(), trial.machine
    assert await hammer.status(trial.node) is Power.OFF
    await hammer.on(trial.node)
    assert await hammer.status(trial.node) is Power.ON
    first = machine.pid
    await hammer.on(trial.node)
    assert machine.pid == first, "it was on already"
    await hammer.reset(trial.node)
    assert machine.is_on
    assert machine.pid != first
    await hammer.off(trial.node)
    await hammer.off(trial.node)
    assert await hammer.status(trial.node) is Power.OFF
    await hammer.reset(trial.node)
    assert machine.is_on, "a restart of what is off is a start"


async def test_the_boot_device_is_for_one_boot_only(trial: Trial) -> None:
    hammer, machine = RedfishHammer(), trial.machine
    machine.boot_first = DISK
    await hammer.boot_device(trial.node, BootDevice.NETWORK)
    assert machine.boot_once == NETWORK_CARD
    await hammer.on(trial.node)
    assert machine.boot_once is None
    assert await _boots_first(machine) == DISK, "from the next restart on"


async def test_a_wrong_password_is_said_to_be_one(trial: Trial) -> None:
    with pytest.raises(HammerFailed, match="refuses the user name or the password") as failure:
        await RedfishHammer().status(trial.with_bmc(password="wrong"))
    assert not isinstance(failure.value, ControllerUnreachable), "no other server would do better"
    assert not trial.machine.is_on


async def test_a_bmc_that_is_not_there_is_named(trial: Trial) -> None:
    with pytest.raises(ControllerUnreachable, match=r"n1\.example at 127\.0\.0\.1:1"):
        await RedfishHammer().on(trial.with_bmc(address="127.0.0.1:1"))


async def test_a_node_without_a_bmc_is_told_how_to_get_one(trial: Trial) -> None:
    with pytest.raises(HammerFailed, match=r"rackwright node bmc n1\.example"):
        await RedfishHammer().on(replace(trial.node, settings={}))


async def test_qemu_itself_is_driven_by_its_socket(trial: Trial) -> None:
    machine, hammer = trial.machine, QemuHammer(trial.machine.folder)
    node = HammerNode(1, "n1.example", {"bmc": {"address": "qmp"}})
    assert await hammer.status(node) is Power.OFF
    await machine.on()
    assert await hammer.status(node) is Power.ON
    await hammer.boot_device(node, BootDevice.DISK)
    assert await _boots_first(machine) == DISK
    await hammer.off(node)
    assert await hammer.status(node) is Power.OFF
    await hammer.on(node)
    await hammer.reset(node)
    assert await hammer.status(node) is Power.ON


@pytest.mark.parametrize("name", ["../qmp", "/tmp/qmp", "", "a b", 5])
async def test_no_socket_but_those_of_the_lab_is_reached(trial: Trial, name: object) -> None:
    node = HammerNode(1, "n1.example", {"bmc": {"address": name}})  # type: ignore[dict-item]
    with pytest.raises(HammerFailed, match="no QEMU socket name"):
        await QemuHammer(trial.machine.folder).on(node)
