"""A BMC to speak IPMI with: OpenIPMI's simulator behind a relay that sees what is asked; and an ipmitool that is noted.

The simulator knows cipher suite 3 only, and of a boot device only which one it is: not for how long, nor for which
firmware. It hands power, reset and boot device to a program, which writes them down here.
"""

import asyncio
import contextlib
import random
import shutil
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.waiting import until

from rackwright.domain.catalogue import JsonObject
from rackwright.hammers.base import HammerNode

USER, PASSWORD = "admin", "right"

LAN = """
name "bmc"
set_working_mc 0x20
startlan 1
  addr {host} {port}
  priv_limit admin
  allowed_auths_admin md5
  guid 5261636b777269676874206e31000000
{more}endlan
chassis_control "{folder}/chassis 0x20"
user 2 true "{user}" "{password}" admin 10 md5
"""

CONTROLLER = """
mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02
mc_enable 0x20
"""

CHASSIS = """#!/bin/sh
# DEVICE get NAME | DEVICE set NAME VALUE. After a switch, power is told as it was for `lag` looks.
cd {folder} || exit 1
echo "$2 $3${{4:+ $4}}" >>asked
case "$2 $3" in
"get power")
    left=$(cat left)
    if [ "$left" -gt 0 ]; then
        echo $((left - 1)) >left
        echo power:$(cat power.before)
    else
        echo power:$(cat power)
    fi ;;
"get boot") echo boot:$(cat boot) ;;
"set power") cp lag left; cp power power.before; echo "$4" >power ;;
"set boot") echo "$4" >boot ;;
esac
"""

NOTED = """#!/bin/sh
# ipmitool, noted: its number, how it was called, and what stays behind if only it is ended.
sleep 600 </dev/null >/dev/null 2>&1 &
echo "$$ $!" >>{folder}/processes
echo "$*" >>{folder}/calls
exec {program} "$@"
"""


class Relay(asyncio.DatagramProtocol):
    """Between hammers and a BMC, or before nothing, if there is no BMC: it sees which cipher suites are asked for."""

    def __init__(self, bmc: tuple[str, int] | None) -> None:
        self._bmc = bmc
        self._ways: dict[tuple[str, int], socket.socket] = {}
        self.received = 0
        self.loses: Callable[[], bool] = lambda: False
        """Whether an answer of the BMC is lost now."""
        self.lost = 0
        self.suites: set[tuple[int, int, int]] = set()
        """Authentication, integrity and confidentiality, by their numbers in RMCP+."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.address = "{}:{}".format(*transport.get_extra_info("sockname"))

    def datagram_received(self, message: bytes, client: tuple[str, int]) -> None:
        self.received += 1
        if message[4] == 6 and message[5] & 0x3F == 0x10:  # RMCP+ Open Session Request
            self.suites.add((message[28], message[36], message[44]))
        if self._bmc is not None:
            self._way(client, self._bmc).send(message)

    def _way(self, client: tuple[str, int], bmc: tuple[str, int]) -> socket.socket:
        if client not in self._ways:
            way = self._ways[client] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            way.setblocking(False)
            way.connect(bmc)
            loop = asyncio.get_running_loop()
            loop.add_reader(way, lambda: self._answer(way.recv(2048), client))
        return self._ways[client]

    def _answer(self, message: bytes, client: tuple[str, int]) -> None:
        if self.loses():
            self.lost += 1
        else:
            self._transport.sendto(message, client)

    def close(self) -> None:
        for way in self._ways.values():
            asyncio.get_running_loop().remove_reader(way)
            way.close()
        self._transport.close()


@asynccontextmanager
async def relay(bmc: tuple[str, int] | None = None) -> AsyncIterator[Relay]:
    loop = asyncio.get_running_loop()
    _, made = await loop.create_datagram_endpoint(lambda: Relay(bmc), local_addr=("127.0.0.1", 0))
    try:
        yield made
    finally:
        made.close()


@dataclass(frozen=True)
class SimulatedBmc:
    folder: Path
    relay: Relay

    def node(self, other: JsonObject | None = None, mode: str = "bios") -> HammerNode:
        return node_at(self.relay.address, other, mode)

    def asked(self) -> list[str]:
        """What reached the machine, but for looks at its boot device, which ipmitool takes as it likes."""
        lines = (self.folder / "asked").read_text().splitlines()
        return [line for line in lines if line != "get boot"]

    def lag(self, looks: int) -> None:
        """After each switch, tell of power as it was, that many times."""
        (self.folder / "lag").write_text(f"{looks}\n")


def node_at(where: str, other: JsonObject | None = None, mode: str = "bios") -> HammerNode:
    """`other`: what of its BMC is not as usual."""
    bmc: JsonObject = {"kind": "ipmi", "address": where, "username": USER, "password": PASSWORD, "cipher_suite": 3}
    return HammerNode(1, "n1.example", {"bmc": {**bmc, **(other or {})}, "firmware": {"mode": mode}})


@asynccontextmanager
async def simulated_bmc(folder: Path, lan_program: str = "") -> AsyncIterator[SimulatedBmc]:
    """A BMC. `lan_program` answers what it is set to on its network."""
    # It takes no port 0. Hardly anybody else is on such an address, so the port that is free stays free.
    host = f"127.{random.randint(1, 254)}.{random.randint(1, 254)}.{random.randint(1, 254)}"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind((host, 0))
        port = free.getsockname()[1]
    _furnish(folder, host, port, lan_program)
    with_us = ["setpriv", "--pdeathsig", "KILL"]
    command = [
        *with_us,
        "ipmi_sim",
        "-n",
        "-c",
        f"{folder}/lan.conf",
        "-f",
        f"{folder}/controller",
        "-s",
        f"{folder}/state",
    ]
    simulator = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL)
    try:

        def listens() -> bool:
            assert simulator.returncode is None, f"ipmi_sim ended with status {simulator.returncode}"
            return _is_taken(host, port)

        await until(listens, "the simulated BMC listens")
        async with relay((host, port)) as between:
            yield SimulatedBmc(folder, between)
    finally:
        with contextlib.suppress(ProcessLookupError):
            simulator.kill()
        await simulator.wait()


def _furnish(folder: Path, host: str, port: int, lan_program: str) -> None:
    (folder / "state").mkdir(parents=True)
    for name, text in (("asked", ""), ("lag", "0"), ("left", "0"), ("power", "0"), ("boot", "none")):
        (folder / name).write_text(text)
    (folder / "chassis").write_text(CHASSIS.format(folder=folder))
    (folder / "chassis").chmod(0o755)
    (folder / "controller").write_text(CONTROLLER)
    more = f'  lan_config_program "{lan_program} 1"\n' if lan_program else ""
    lan = LAN.format(more=more, folder=folder, host=host, port=port, user=USER, password=PASSWORD)
    (folder / "lan.conf").write_text(lan)


def _is_taken(host: str, port: int) -> bool:
    """Asked of the kernel, since a bind of our own would be in the way. What is sent from then on will be read."""
    place = f" {int.from_bytes(socket.inet_aton(host), 'little'):08X}:{port:04X} "
    return place in Path("/proc/net/udp").read_text()


@dataclass(frozen=True)
class NotedProgram:
    """ipmitool, with its calls written down."""

    path: Path

    def calls(self) -> list[str]:
        return (self.path.parent / "calls").read_text().splitlines()

    def processes(self) -> list[int]:
        """Of all calls: ipmitool itself, and what it has left in the background."""
        return [int(one) for one in (self.path.parent / "processes").read_text().split()]


def noted_program(folder: Path) -> NotedProgram:
    folder.mkdir()
    found = shutil.which("ipmitool")
    assert found is not None
    for name in ("calls", "processes"):
        (folder / name).touch()
    path = folder / "ipmitool"
    path.write_text(NOTED.format(folder=folder, program=found))
    path.chmod(0o755)
    return NotedProgram(path)
