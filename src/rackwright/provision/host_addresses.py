"""The addresses that this host has now, read from the kernel with the `ip` program."""

import asyncio
import json
from collections.abc import Sequence
from ipaddress import ip_address

from rackwright.domain.networks.networks import Address


async def own_addresses(launcher: Sequence[str] = ()) -> list[tuple[str, Address]]:
    """Return (interface, address) of this host, as the kernel has them now; an empty list where `ip` is missing."""
    try:
        process = await asyncio.create_subprocess_exec(
            *launcher, "ip", "-json", "address", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
    except FileNotFoundError:
        return []
    output, _ = await process.communicate()
    links = json.loads(output) if process.returncode == 0 and output else []
    return [
        (link["ifname"], ip_address(entry["local"]))
        for link in links
        for entry in link.get("addr_info", ())
        if entry.get("scope") == "global" and "local" in entry
    ]
