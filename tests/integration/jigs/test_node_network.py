"""The dead man's switch of a node's network: the jig against a real sshd, whose network really breaks.

Only networkd is a stand-in: `networkctl reload` puts the addresses of the files on the node's one link.
"""

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import asyncssh
import pytest
from tests.support.machines.ssh_node import SshNode, ssh_node
from tests.support.waiting import PATIENCE, until

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.installs.node_network.living import NodeNetwork
from rackwright.domain.installs.node_network.networkd import FOLDER, PREFIX
from rackwright.domain.installs.request import RootFile
from rackwright.domain.runs import Answer, Outcome, Run
from rackwright.jigs.node_network import NodeNetworkJig
from rackwright.reach.network_switch import STATE, SwitchState
from rackwright.reach.ssh_connections import Connections, HostKeyWatch

KEY = asyncssh.generate_private_key("ssh-ed25519")
NETWORK_FILE = f"{PREFIX}eth0.network"
NETWORKCTL = """#!/bin/sh
[ "$1" != list ] || { echo "2 eth0 ether routable configured"; exit; }
echo "$1" >>/run/networkctl
[ ! -e /run/hang ] || exec sleep 1000
ip addr flush dev eth0
sed -n 's/^Address=//p' /etc/systemd/network/05-rackwright-eth0.network | while read -r address; do
    ip addr add "$address" dev eth0
done
"""
LONG, SHORT = max(int(PATIENCE), 30), 6
"""Seconds until the node goes back: so many that a slow test is in time, and so few that one can wait for it."""
Answered = TypeVar("Answered")
ids = itertools.count(1)


@dataclass
class Server:
    """The jig as a server has it, and what it recorded."""

    node: SshNode
    lines: list[str] = field(default_factory=list)
    recorded: list[str] = field(default_factory=list)

    @property
    def log(self) -> str:
        return "".join(self.lines)

    async def change(self, wanted: str, seconds: int = LONG, *candidates: str) -> Outcome:
        """Run the jig for a node whose link is to have an address; empty: none."""
        connections = Connections(KEY, HostKeyWatch(_ignore, _ignore), deadline=PATIENCE)
        network = NodeNetwork((_network_file(wanted),), candidates)
        jig = NodeNetworkJig(
            _answering(network),
            _answering(self.node.target()),
            connections,
            self._record,
            settled=1,
            returning=PATIENCE,
        )
        settings: JsonObject = {"provisioner": {"network_seconds": seconds}}
        role = "provisioner-node-network"
        run = Run(next(ids), 1, 1, "n1.example", role, "node-network", "node-network", settings, deadline=600.0)
        try:
            return await jig.run(run, self.lines.append)
        finally:
            await connections.close()

    async def _record(self, run: Run, address: str) -> None:
        self.recorded.append(address)


def _network_file(address: str) -> RootFile:
    lines = f"Address={address}\n" if address else ""
    return RootFile(f"{FOLDER}/{NETWORK_FILE}", f"[Match]\nName=eth0\n\n[Network]\n{lines}DHCP=no\n")


def _answering(value: Answered) -> Callable[[object], Awaitable[Answered]]:
    async def answer(_: object) -> Answered:
        return value

    return answer


async def _ignore(node_id: int, key: str) -> None:
    raise AssertionError("its host key is known")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[SshNode]:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "networkctl").write_text(NETWORKCTL)
    (programs / "networkctl").chmod(0o755)
    with ssh_node(tmp_path / "node", KEY, programs=programs) as started:
        folder = started.path(FOLDER)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / NETWORK_FILE).write_text(_network_file(f"{started.address}/30").content)
        yield started


@pytest.fixture
def server(node: SshNode) -> Server:
    return Server(node)


def _in_force(node: SshNode) -> str:
    return node.path(f"{FOLDER}/{NETWORK_FILE}").read_text()


def _pending(node: SshNode) -> bool:
    return node.path(f"{STATE}/pending").exists()


def _is_applied(node: SshNode) -> bool:
    return _pending(node) and node.path(f"{STATE}/applied").exists()


def _reloads(node: SshNode) -> int:
    record = node.path("/run/networkctl")
    return record.read_text().count("reload") if record.exists() else 0


def _new_address(node: SshNode) -> str:
    """An address of the node that the server reaches, too, and that it does not have yet."""
    subprocess.run(["ip", "addr", "add", "198.18.77.1/24", "dev", node.link], check=True)
    return "198.18.77.2"


async def test_a_change_is_final_once_the_node_was_reached_again(server: Server, node: SshNode) -> None:
    outcome = await server.change(f"{node.address}/29")
    assert outcome.answer is Answer.SUCCEEDED, outcome.error
    assert f"+Address={node.address}/29\n" in server.log
    assert f"-Address={node.address}/30\n" in server.log
    assert _in_force(node) == _network_file(f"{node.address}/29").content
    assert not _pending(node)
    assert not node.path(f"{STATE}/old").exists(), "the old files are dropped"
    assert server.recorded == [], "its address is the same"


async def test_the_same_network_again_changes_nothing(server: Server, node: SshNode) -> None:
    assert (await server.change(f"{node.address}/29")).answer is Answer.SUCCEEDED
    before = _reloads(node)
    assert (await server.change(f"{node.address}/29")).answer is Answer.SUCCEEDED
    assert "The network is as it is wanted." in server.log
    assert _reloads(node) == before


async def test_the_node_is_reached_at_the_address_that_the_change_gives_it(server: Server, node: SshNode) -> None:
    address = _new_address(node)
    outcome = await server.change(f"{address}/24", LONG, address)
    assert outcome.answer is Answer.SUCCEEDED, outcome.error
    assert server.recorded == [address]


async def test_a_network_that_cuts_the_node_off_comes_back(server: Server, node: SshNode) -> None:
    outcome = await server.change("", SHORT)
    assert outcome.answer is Answer.FAILED
    assert f"n1.example went back by itself, and answers on its old network at {node.address}." in outcome.error
    assert _in_force(node) == _network_file(f"{node.address}/30").content
    assert (await server.change(f"{node.address}/29")).answer is Answer.SUCCEEDED, "a right change goes through then"


async def test_a_node_goes_back_without_its_server(server: Server, node: SshNode) -> None:
    """The server dies before it confirms; the run is taken over when the node is back."""
    await _die_when(lambda: _is_applied(node), server.change("", SHORT))
    await until(lambda: not _pending(node), "the node went back")
    assert _in_force(node) == _network_file(f"{node.address}/30").content
    assert (await server.change(f"{node.address}/29")).answer is Answer.SUCCEEDED


async def test_a_change_is_taken_over_before_the_node_goes_back(server: Server, node: SshNode) -> None:
    await _die_when(lambda: _is_applied(node), server.change(f"{node.address}/29"))
    assert _pending(node)
    assert (await server.change(f"{node.address}/29")).answer is Answer.SUCCEEDED
    assert "An unconfirmed change is taken over." in server.log
    assert not _pending(node)


async def test_a_change_that_is_taken_over_goes_back_to_what_was_confirmed_last(server: Server, node: SshNode) -> None:
    await _die_when(lambda: _is_applied(node), server.change(f"{node.address}/29"))
    assert (await server.change("", SHORT)).answer is Answer.FAILED
    assert _in_force(node) == _network_file(f"{node.address}/30").content


async def test_a_change_whose_confirmation_was_not_answered_is_final(
    server: Server, node: SshNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def confirm_unheard(self: NodeNetworkJig, change: Any) -> None:
        await until(lambda: _is_applied(node), "it is applied")
        answer = await change.ask(change.target, "confirm")
        assert answer.state is SwitchState.CONFIRMED

    monkeypatch.setattr(NodeNetworkJig, "_confirm", confirm_unheard)
    outcome = await server.change(f"{node.address}/29")
    assert outcome.answer is Answer.SUCCEEDED, outcome.error


async def test_who_applies_is_killed_in_the_middle(server: Server, node: SshNode) -> None:
    node.path("/run/hang").touch()
    change = asyncio.create_task(server.change("", SHORT))
    await until(lambda: _reloads(node) == 1, "networkd is being told")
    node.path("/run/hang").unlink()
    for command, process in node.processes():
        if " apply " in command or "sleep 1000" in command:
            os.kill(process.pid, signal.SIGKILL)
    outcome = await change
    assert outcome.answer is Answer.FAILED
    assert "went back by itself" in outcome.error
    assert _in_force(node) == _network_file(f"{node.address}/30").content


async def test_a_node_that_boots_in_the_middle_goes_back(server: Server, node: SshNode) -> None:
    await _die_when(lambda: _is_applied(node), server.change(f"{node.address}/29"))
    node.shut_down()
    node.boot()
    assert _pending(node)
    unit = node.path("/etc/systemd/system/systemd-networkd.service.wants/rackwright-network-switch.service")
    text = (node.path("/etc/systemd/system") / unit.readlink().name).read_text()
    [start] = [line.removeprefix("ExecStart=") for line in text.splitlines() if line.startswith("ExecStart=")]
    async with asyncssh.connect(node.address, known_hosts=None, client_keys=[KEY], username="root") as connection:
        await connection.run(start, check=True)
    assert _in_force(node) == _network_file(f"{node.address}/30").content
    assert not _pending(node)


async def _die_when(is_time: Callable[[], bool], running: Coroutine[Any, Any, Outcome]) -> None:
    task = asyncio.create_task(running)
    await until(is_time, "it is time for the server to die")
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
