"""The addresses and interfaces that this host has now, read from the kernel with the `ip` program."""

import asyncio
import json
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any

from rackwright.domain.networks.networks import Address


async def own_addresses(launcher: Sequence[str] = ()) -> list[tuple[str, Address]]:
    """Return (interface, address) of this host, as the kernel has them now; an empty list where `ip` is missing."""
    return [
        (link["ifname"], ip_address(entry["local"]))
        for link in await _read_links("address", launcher)
        for entry in link.get("addr_info", ())
        if entry.get("scope") == "global" and "local" in entry
    ]


async def interface_numbers(launcher: Sequence[str] = ()) -> dict[str, int]:
    """Return the number of each interface of this host: one that was made again has another. Empty without `ip`."""
    return {link["ifname"]: link["ifindex"] for link in await _read_links("link", launcher) if "ifindex" in link}


async def _read_links(what: str, launcher: Sequence[str]) -> list[dict[str, Any]]:
    try:
        process = await asyncio.create_subprocess_exec(
            *launcher, "ip", "-json", what, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
    except FileNotFoundError:
        return []
    output, _ = await process.communicate()
    links: list[dict[str, Any]] = json.loads(output) if process.returncode == 0 and output else []
    return links
