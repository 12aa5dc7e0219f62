"""The network of a lab, in this process's namespace: a bridge with the server on it, and a tap for each machine."""

import asyncio

from rackwright.lab.virtual import LabFailed

BRIDGE = "lab0"
SERVER = "10.77.0.1"
PREFIX = 24


async def ip(*arguments: str) -> None:
    process = await asyncio.create_subprocess_exec(
        "ip", *arguments, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    if process.returncode != 0:
        raise LabFailed(f"ip {' '.join(arguments)}: {errors.decode(errors='replace').strip()}")


async def make_bridge() -> None:
    await ip("link", "set", "lo", "up")
    await ip("link", "add", BRIDGE, "type", "bridge")
    # No port of the bridge leads out, so there can be no loop, and no need to wait for one to be found.
    await ip("link", "set", BRIDGE, "type", "bridge", "stp_state", "0", "forward_delay", "0")
    await ip("addr", "add", f"{SERVER}/{PREFIX}", "dev", BRIDGE)
    await ip("link", "set", BRIDGE, "up")


async def add_tap(name: str) -> None:
    await ip("tuntap", "add", name, "mode", "tap")
    await ip("link", "set", name, "master", BRIDGE, "up")
