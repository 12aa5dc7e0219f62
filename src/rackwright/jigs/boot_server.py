"""The jig of `provisioner-server`: checks that machines which boot now find everything they need on this host.

The serving itself belongs to the server's process. The check asks for it as a machine would: a missing image is an
error that people see before any machine boots.
"""

import asyncio
from typing import Self

from rackwright.domain.runs import Outcome, Run
from rackwright.jigs.base import Jig
from rackwright.jigs.ports import InspectBoot, JigPorts
from rackwright.reach.run_log import Log

DATA = b"\0\3"
ENOUGH = b"\0\5\0\0that is enough\0"
"""The error of TFTP by which a client ends a transfer."""


class BootTrouble(Exception):
    """A machine that boots now would not find what it needs; the text says what, and what to do."""


async def inspect_no_network() -> list[str]:
    """Return the line of a server that boots no machines."""
    return ["this server has no network to boot machines from (--provision-address)"]


class BootServerJig(Jig):
    kind = "boot-server"

    def __init__(self, inspect_boot: InspectBoot) -> None:
        self._inspect_boot = inspect_boot

    @classmethod
    def make(cls, ports: JigPorts) -> Self:
        return cls(ports.inspect_boot)

    async def run(self, run: Run, log: Log) -> Outcome:
        try:
            for line in await self._inspect_boot():
                log(f"{line}\n")
        except BootTrouble as error:
            return Outcome.failure(str(error))
        return Outcome.success()


async def tftp_answers(host: str, port: int, name: str, patience: float = 10.0) -> bool:
    """Return whether a TFTP server sends the first block of a file. It is told to send no more: it has few transfers
    for one address, and many files may be asked for."""
    received: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    class Client(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
            if data.startswith(DATA):
                transport.sendto(ENOUGH, addr)
            if not received.done():
                received.set_result(data)

    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(Client, local_addr=(host, 0))
    try:
        transport.sendto(b"\0\1" + name.encode() + b"\0octet\0", (host, port))
        async with asyncio.timeout(patience):
            packet = await received
    except TimeoutError:
        return False
    finally:
        transport.close()
    return packet.startswith(DATA + b"\0\1")
