"""The lab itself, as the first process of its namespaces: `python -m rackwright.lab.lab_process FOLDER JSON`.

The only ways in are files of FOLDER: a socket `api` to the server, and a socket `serial` a machine. It lives until its
standard input ends.
"""

import asyncio
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

from rackwright.lab.network import SERVER
from rackwright.lab.rack import PORT, Rack, running_rack
from rackwright.lab.relay import both_ways
from rackwright.lab.virtual import Firmware, Hardware, LabFailed


async def _connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await both_ways((reader, writer), await asyncio.open_connection(SERVER, PORT))


async def live(folder: Path, wanted: dict[str, Any]) -> None:
    firmware = Firmware.UEFI if wanted["uefi"] else Firmware.BIOS
    hardware = [Hardware(number, firmware, wanted["memory"]) for number in range(1, wanted["machines"] + 1)]
    home = folder / "home"
    home.mkdir()
    (home / "images").symlink_to(wanted["images"])
    async with running_rack(home, folder, hardware) as rack:
        door = await asyncio.start_unix_server(_connect, folder / "api")
        async with door:
            if wanted["power_on"]:
                await _power_on(rack)
            await asyncio.Event().wait()


async def _power_on(rack: Rack) -> None:
    for one in rack.machines:
        await one.machine.on()


def main() -> int:
    logging.basicConfig(level=logging.WARNING)
    loop = asyncio.new_event_loop()
    life = loop.create_task(live(Path(sys.argv[1]), json.loads(sys.argv[2])))

    def end() -> None:
        loop.remove_reader(sys.stdin.fileno())
        life.cancel()

    # Signals do not get here: `unshare` ignores them and passes none on. The end of standard input does.
    loop.add_reader(sys.stdin.fileno(), end)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lambda: None)
    try:
        loop.run_until_complete(life)
    except asyncio.CancelledError:
        return 0
    except LabFailed as error:
        os.write(2, f"rackwright: {error}\n".encode())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
