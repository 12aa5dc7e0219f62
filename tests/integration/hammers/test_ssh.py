"""The SSH hammer and probe against a real SSH server on loopback, which runs reading commands and records all."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh
import pytest
from tests.support.waiting import PATIENCE

from rackwright.hammers.base import BootDevice, HammerFailed, HammerNode, Power
from rackwright.hammers.ssh import LOOK, SshHammer
from rackwright.reach.ssh_connections import ANSWER_LIMIT, Connections, HostKeyWatch, Target

NODE = HammerNode(1, "n1.example", {})
BOOT_ID = Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@dataclass
class Machine:
    """A machine: the commands it was sent, and how it is reached."""

    target: Target
    asked: list[str] = field(default_factory=list)
    differed: list[str] = field(default_factory=list)
    answer: str | None = None
    """What it prints for any command; None: the output of the command."""

    async def reached(self, node_id: int) -> Target:
        return self.target


async def _ignore(node_id: int, key: str) -> None:
    raise AssertionError("a pinned key is never pinned anew")


async def _print(process: asyncssh.SSHServerProcess[str], text: str) -> None:
    """Print the text, as far as the other side takes it."""
    with contextlib.suppress(asyncssh.Error, OSError):
        for start in range(0, len(text), 32768):
            process.stdout.write(text[start : start + 32768])
            await process.stdout.drain()
        process.exit(0)


@pytest.fixture
async def machine_and_hammer() -> AsyncIterator[tuple[Machine, SshHammer]]:
    server_key, host_key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    machine = Machine(Target("127.0.0.1"))

    async def handle(process: asyncssh.SSHServerProcess[str]) -> None:
        command = process.command or ""
        machine.asked.append(command)
        if "reboot" in command or "poweroff" in command:
            process.exit(0)
            return
        if machine.answer is not None:
            await _print(process, machine.answer)
            return
        here = await asyncio.create_subprocess_shell(command, stdout=asyncio.subprocess.PIPE)
        output, _ = await here.communicate()
        process.stdout.write(output.decode())
        process.exit(here.returncode or 0)

    async def differs(node_id: int, key: str) -> None:
        machine.differed.append(key)

    listener = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_host_keys=[host_key],
        authorized_client_keys=asyncssh.import_authorized_keys(server_key.export_public_key().decode()),
        process_factory=handle,
    )
    pinned = host_key.export_public_key().decode().strip()
    machine.target = Target("127.0.0.1", port=listener.get_port(), host_key=pinned)
    connections = Connections(server_key, HostKeyWatch(_ignore, differs), deadline=PATIENCE)
    try:
        yield machine, SshHammer(connections, machine.reached)
    finally:
        await connections.close()
        listener.close()
        await listener.wait_closed()


async def test_a_look_finds_the_boot_id_and_the_root_device(machine_and_hammer: tuple[Machine, SshHammer]) -> None:
    machine, hammer = machine_and_hammer
    seen = await hammer.look(NODE)
    assert seen.boot_id == BOOT_ID
    assert seen.root_device
    assert await hammer.status(NODE) is Power.ON
    assert LOOK.split(";")[0] in machine.asked[0]


async def test_a_restart_is_asked_for_and_what_follows_connects_anew(
    machine_and_hammer: tuple[Machine, SshHammer],
) -> None:
    machine, hammer = machine_and_hammer
    await hammer.boot_device(NODE, BootDevice.NETWORK)
    await hammer.reset(NODE)
    await hammer.off(NODE)
    network_next, *restarts = machine.asked
    assert "efibootmgr" in network_next, "firmware that can be told boots the network next"
    assert ["reboot" in command or "poweroff" in command for command in restarts] == [True, True]
    assert (await hammer.look(NODE)).boot_id


async def test_another_host_key_is_told_and_nothing_is_sent(machine_and_hammer: tuple[Machine, SshHammer]) -> None:
    machine, hammer = machine_and_hammer
    other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().strip()
    machine.target = Target("127.0.0.1", port=machine.target.port, host_key=other)
    with pytest.raises(HammerFailed, match="is pinned"):
        await hammer.look(NODE)
    assert machine.asked == []
    assert len(machine.differed) == 1


async def test_a_machine_that_does_not_answer_cannot_be_switched_on(
    machine_and_hammer: tuple[Machine, SshHammer],
) -> None:
    machine, hammer = machine_and_hammer
    machine.target = Target("127.0.0.1", port=1, host_key=machine.target.host_key)
    assert await hammer.status(NODE) is Power.UNKNOWN
    with pytest.raises(HammerFailed, match="no controller"):
        await hammer.on(NODE)


async def test_a_machine_that_prints_without_end_gave_no_answer_and_is_not_listened_to(
    machine_and_hammer: tuple[Machine, SshHammer],
) -> None:
    machine, hammer = machine_and_hammer
    machine.answer = "x" * 16 * ANSWER_LIMIT
    with pytest.raises(HammerFailed, match=f"more than {ANSWER_LIMIT} bytes"):
        await hammer.look(NODE)
    machine.answer = None
    assert (await hammer.look(NODE)).boot_id == BOOT_ID


@pytest.mark.parametrize("answer", ["a\0b\n", "x" * 65, "; rm -rf /\n", "boot-1 /dev/\x1b[2J\n"])
async def test_an_answer_that_is_no_boot_id_or_device_is_refused(
    machine_and_hammer: tuple[Machine, SshHammer], answer: str
) -> None:
    machine, hammer = machine_and_hammer
    machine.answer = answer
    with pytest.raises(HammerFailed, match="which is no"):
        await hammer.look(NODE)
