"""The process of a lab, the first of its namespaces: `python -m rackwright.lab.lab_process FOLDER SETTINGS_AS_JSON`.

It can only be reached through sockets in FOLDER: `api` of the server, and `serial` of each machine. It runs until its
standard input ends.
"""

import asyncio
import json
import logging
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

from rackwright.domain.architectures import Architecture
from rackwright.lab.hardware import Firmware, Hardware, LabFailed
from rackwright.lab.network import IPV4, IPV6, LabNetwork
from rackwright.lab.rack import PORT, Rack, running_rack
from rackwright.lab.relay import relay_both_ways


async def _connect(network: LabNetwork, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await relay_both_ways((reader, writer), await asyncio.open_connection(network.server, PORT))


async def run_lab(folder: Path, settings: dict[str, Any]) -> None:
    hardware = [
        Hardware(
            number,
            Firmware(settings["firmware"]),
            settings["memory"],
            disks=settings["disks"],
            nics=settings["nics"],
            tpm=settings["tpm"],
            ipv6_only=settings["ipv6_only"],
            architecture=Architecture(settings["architecture"]),
        )
        for number in range(1, settings["machines"] + 1)
    ]
    network = IPV6 if settings["ipv6_only"] else IPV4
    home = folder / "home"
    home.mkdir()
    (home / "images").symlink_to(settings["images"])
    async with running_rack(home, folder, hardware, network=network) as rack:
        listener = await asyncio.start_unix_server(partial(_connect, network), folder / "api")
        async with listener:
            if settings["power_on"]:
                await _power_on(rack)
            await asyncio.Event().wait()


async def _power_on(rack: Rack) -> None:
    for racked in rack.machines:
        await racked.machine.on()


def main() -> int:
    logging.basicConfig(level=logging.WARNING)
    loop = asyncio.new_event_loop()
    lab_task = loop.create_task(run_lab(Path(sys.argv[1]), json.loads(sys.argv[2])))

    def end() -> None:
        loop.remove_reader(sys.stdin.fileno())
        lab_task.cancel()

    # Signals do not reach this process: `unshare` ignores them and passes none on. The end of standard input does.
    loop.add_reader(sys.stdin.fileno(), end)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lambda: None)
    try:
        loop.run_until_complete(lab_task)
    except asyncio.CancelledError:
        return 0
    except LabFailed as error:
        os.write(2, f"rackwright: {error}\n".encode())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
