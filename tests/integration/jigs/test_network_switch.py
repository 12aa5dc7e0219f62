"""The switch on the node, without a server: each step of it as the last one that was taken."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.machines.switched_node import Files, SwitchedNode, switched_node
from tests.support.waiting import wait_until

from rackwright.reach.network_switch import STATE, SwitchState

LINK = "[Match]\nName={name}\n\n[Network]\n{lines}"
BRIDGE = "[NetDev]\nName={name}\nKind=bridge\n"
VLAN = "[NetDev]\nName=v7\nKind=vlan\n\n[VLAN]\nId=7\n"
OLD: Files = {
    "eth0.network": LINK.format(name="eth0", lines="DHCP=yes\n"),
    "br0.netdev": BRIDGE.format(name="br0"),
    "br0.network": LINK.format(name="br0", lines="DHCP=no\n"),
}
NEW: Files = {
    "eth0.network": LINK.format(name="eth0", lines="DHCP=no\n"),
    "br1.netdev": BRIDGE.format(name="br1"),
    "br1.network": LINK.format(name="br1", lines="DHCP=no\n"),
}
OTHER: Files = {"eth0.network": LINK.format(name="eth0", lines="DHCP=ipv4\n")}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[SwitchedNode]:
    with switched_node(tmp_path / "node") as started:
        started.set_files(OLD)
        started.run("networkctl", "reload")
        assert started.is_there("br0")
        yield started


def _apply(node: SwitchedNode, token: int, files: Files, seconds: int = 1000) -> None:
    armed = node.arm(token, files, seconds)
    assert armed.returncode == 0, armed.stderr
    wait_until(lambda: node.switch("status", token).state is SwitchState.APPLIED, node.log)


def test_a_change_and_back(node: SwitchedNode) -> None:
    _apply(node, 1, NEW)
    assert node.files() == NEW
    assert node.is_there("br1")
    assert not node.is_there("br0")
    node.switch("back", 1)
    assert node.files() == OLD
    assert node.is_there("br0")
    assert not node.is_there("br1")
    assert node.switch("status", 1).state is SwitchState.BACK


def test_what_is_confirmed_never_comes_back(node: SwitchedNode) -> None:
    _apply(node, 1, NEW)
    assert node.switch("confirm", 1).state is SwitchState.CONFIRMED
    node.switch("back", 1)
    node.switch("boot")
    assert node.files() == NEW
    assert node.switch("status", 1).state is SwitchState.CONFIRMED


def test_only_what_is_in_force_is_confirmed(node: SwitchedNode) -> None:
    _apply(node, 1, NEW)
    node.set_files(OTHER)
    assert node.switch("confirm", 1).state is SwitchState.APPLIED
    assert node.pending == "1"


def test_what_is_being_taken_back_is_not_confirmed(node: SwitchedNode) -> None:
    _apply(node, 1, NEW)
    node.path("/run/reload-fails").touch()
    back = node.start_switch("back", 1)
    wait_until(lambda: "it is not back yet" in node.log(), node.log)
    assert node.switch("confirm", 1).state is SwitchState.ARMED
    node.path("/run/reload-fails").unlink()
    assert back.wait() == 0
    assert node.files() == OLD
    assert node.switch("status", 1).state is SwitchState.BACK


def test_a_full_disk_refuses_before_anything_is_changed(node: SwitchedNode) -> None:
    sent = node.send(NEW)
    node.run("sh", "-c", f"mkdir -p {STATE}; cp {sent}/switch {STATE}/switch")
    node.fill_disk()
    armed = node.arm(1, NEW)
    assert armed.returncode != 0
    assert "cannot be" in armed.stderr
    assert not node.pending
    assert node.files() == OLD


def test_a_disk_that_filled_up_does_not_keep_the_node_from_going_back(node: SwitchedNode) -> None:
    _apply(node, 1, OTHER)
    node.fill_disk()
    node.switch("back", 1)
    assert node.files() == OLD
    assert not node.pending


@pytest.mark.parametrize("command", ["back", "boot"])
def test_a_node_that_cannot_write_the_old_files_stays_on_its_way_back(node: SwitchedNode, command: str) -> None:
    _apply(node, 1, OTHER)
    node.program("mv", "#!/bin/sh\nexit 1\n")
    process = node.start_switch(command, 1)
    if command == "back":
        wait_until(lambda: "it is not back yet" in node.log(), node.log)
        os.kill(process.pid, signal.SIGKILL)
        for hanging in node.processes("switch back 1"):
            hanging.kill()
    process.wait()
    assert node.pending == "1", "the next boot is to try again"
    node.program("mv", "")
    node.switch("boot")
    assert node.files() == OLD
    assert not node.pending


def test_a_clock_that_is_killed_while_it_takes_back_begins_again(node: SwitchedNode) -> None:
    _apply(node, 1, NEW, seconds=8)
    node.path("/run/reload-fails").touch()
    wait_until(lambda: "it is not back yet" in node.log(), node.log)
    for process in node.processes(f"sh {STATE}/switch back 1"):
        if "sleep" not in " ".join(process.cmdline()):
            process.kill()
    node.path("/run/reload-fails").unlink()
    wait_until(lambda: not node.pending, node.log)
    assert node.files() == OLD


def test_who_applies_and_hangs_does_not_go_on_once_the_node_is_back(node: SwitchedNode) -> None:
    """Each file is put there by mv: the second one hangs, and would be put there after the old ones are back."""
    node.program("mv", '#!/bin/sh\n[ ! -e /run/hang ] || case $* in */05-*) sleep 4321 ;; esac\nexec /bin/mv "$@"\n')
    node.path("/run/hang").touch()
    assert node.arm(1, NEW).returncode == 0
    wait_until(lambda: bool(node.processes("sleep 4321")), "the change hangs")
    node.path("/run/hang").unlink()
    node.switch("back", 1)
    assert node.processes("switch apply 1") == []
    assert node.files() == OLD


def test_a_change_that_cannot_be_taken_over_still_goes_back(node: SwitchedNode) -> None:
    _apply(node, 1, NEW)
    node.program("sync", '#!/bin/sh\ncase $1 in *pending.part) exit 1 ;; esac\nexec /bin/sync "$@"\n')
    assert node.arm(2, OTHER).returncode != 0
    assert node.pending == "1"
    node.switch("back", 1)
    assert node.files() == OLD


def test_the_clock_of_a_change_does_not_touch_the_one_that_took_it_over(node: SwitchedNode) -> None:
    _apply(node, 1, NEW)
    _apply(node, 2, OTHER)
    node.switch("back", 1)
    assert node.pending == "2"
    assert node.files() == OTHER
    assert node.switch("confirm", 1).state is SwitchState.UNKNOWN
    node.switch("back", 2)
    assert node.files() == OLD, "what was confirmed last"
    assert not node.is_there("br1")


def test_two_changes_at_once(node: SwitchedNode) -> None:
    """One is armed while the other is: it waits for its turn, and says so if that does not come."""
    _apply(node, 1, NEW)
    node.program("flock", "#!/bin/sh\nexit 1\n")
    armed = node.arm(2, OTHER)
    assert armed.returncode != 0
    assert "another change" in armed.stderr
    assert node.pending == "1"


def test_devices_of_a_change_that_was_cut_off_go_too(node: SwitchedNode) -> None:
    """One change took over another, and was killed before it removed the other's devices."""
    _apply(node, 1, NEW)
    node.program("ip", '#!/bin/sh\n[ "$1 $2" != \'link del\' ] || sleep 4321\nexec /sbin/ip "$@"\n')
    assert node.arm(2, OTHER).returncode == 0
    wait_until(lambda: bool(node.processes("sleep 4321")), "the device is to be removed")
    for process in node.processes("switch apply 2"):
        process.kill()
    node.program("ip", "")
    node.switch("back", 2)
    assert node.files() == OLD
    assert not node.is_there("br1")


def test_a_vlan_moves_to_another_link_and_back(node: SwitchedNode) -> None:
    def on(parent: str, other: str) -> Files:
        return {
            "v7.netdev": VLAN,
            f"{parent}.network": LINK.format(name=parent, lines="VLAN=v7\n"),
            f"{other}.network": LINK.format(name=other, lines="DHCP=no\n"),
        }

    _apply(node, 1, on("eth0", "eth1"))
    assert node.switch("confirm", 1).state is SwitchState.CONFIRMED
    assert node.parent_of("v7") == "eth0"
    _apply(node, 2, on("eth1", "eth0"))
    assert node.parent_of("v7") == "eth1"
    node.switch("back", 2)
    assert node.parent_of("v7") == "eth0"


def test_name_servers_that_were_not_there_go_again(node: SwitchedNode) -> None:
    resolver = node.path("/etc/resolv.conf")
    _apply(node, 1, {**NEW, "resolv.conf": "nameserver 10.0.0.1\n"})
    assert resolver.read_text() == "nameserver 10.0.0.1\n"
    node.switch("back", 1)
    assert not resolver.exists()


def test_a_file_that_was_half_replaced_is_none_of_the_old_files(node: SwitchedNode) -> None:
    node.set_files({"eth0.network.rackwright": "half a fi"})
    _apply(node, 1, NEW)
    node.switch("back", 1)
    assert node.files() == OLD


def test_all_that_a_power_cut_needs_is_on_the_disk_before_anything_is_pending(node: SwitchedNode) -> None:
    node.program("sync", '#!/bin/sh\necho "$1" >>/run/synced\nexec /bin/sync "$@"\n')
    assert node.arm(1, NEW).returncode == 0
    synced = node.path("/run/synced").read_text().splitlines()
    units = "/etc/systemd/system"
    pending = synced.index(f"{STATE}/pending.part")
    wanted = [f"{units}/systemd-networkd.service.wants", f"{units}/rackwright-network-switch.service"]
    for path in [*wanted, f"{STATE}/switch", f"{STATE}/old", f"{STATE}/old/05-rackwright-eth0.network"]:
        assert path in synced[:pending], path
    assert synced[pending + 1] == STATE


def test_a_copy_that_does_not_get_to_the_disk_is_none(node: SwitchedNode) -> None:
    node.program("sync", '#!/bin/sh\ncase $1 in */old/*) exit 1 ;; esac\n[ -z "$1" ] || exec /bin/sync "$@"\n')
    armed = node.arm(1, NEW)
    assert armed.returncode != 0
    assert "cannot be copied" in armed.stderr
    assert not node.pending
    assert node.files() == OLD
