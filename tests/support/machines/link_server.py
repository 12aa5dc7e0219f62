"""What machines of a link are served without a database: router advertisements, and files by TFTP.

A program of its own, run inside a network namespace: `python -m tests.support.machines.link_server INTERFACE SUBNETS
FOLDER`. It serves until its standard input ends, and says that it is ready with a line.
"""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path

from rackwright.provision.router_advertisement import advertising
from rackwright.provision.tftp import serving_tftp


async def serve(interface: str, subnets: Path, files: Mapping[str, Path]) -> None:
    async with advertising(interface, subnets), serving_tftp(lambda: files, "::"):
        print("ready", flush=True)  # noqa: T201  # to the test that waits for it
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    served = {path.name: path for path in Path(sys.argv[3]).iterdir()}
    asyncio.run(serve(sys.argv[1], Path(sys.argv[2]), served))
