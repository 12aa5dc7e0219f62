"""Finds the IP address of a host's name, in threads of its own.

A rogue member may tell of thousands of members at names that take long to find. In the threads that all of an agent
shares, everything else would wait for them.
"""

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from rackwright.mesh.address import Address
from rackwright.mesh.authority import is_ip

THREADS = 4


class Lookup:
    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "lookup")

    async def ip_of(self, address: Address) -> str:
        """The first IP address of the host. Raises OSError if it has none."""
        if is_ip(address.host):
            return address.host
        find = partial(socket.getaddrinfo, address.host, address.port, type=socket.SOCK_STREAM)
        found = await asyncio.get_running_loop().run_in_executor(self._threads, find)
        return str(found[0][4][0])

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
