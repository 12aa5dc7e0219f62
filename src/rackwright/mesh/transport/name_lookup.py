"""Finds the IP addresses of a host's name, in threads of its own, and connects to them.

A rogue member may tell of thousands of members at names that take long to find. In the threads that all of an agent
shares, everything else would wait for them.
"""

import asyncio
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from rackwright.mesh.address import Address
from rackwright.mesh.identity.authority import is_ip

THREADS = 4
MAX_ADDRESSES = 8
"""Of one name that are tried."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Lookup:
    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "lookup")

    async def connect(self, address: Address, context: ssl.SSLContext, name: str, limit: int) -> Streams:
        """Connect to the first of the host's addresses at which somebody answers. `name` is whom the certificate has to
        be of, and `limit` how much may wait to be read.
        """
        *others, last = await self.ips_of(address)
        for host in others:
            try:
                return await _open(host, address.port, context, name, limit)
            except (ssl.SSLError, ConnectionResetError):  # somebody is there
                raise
            except OSError:
                continue
        return await _open(last, address.port, context, name, limit)

    async def ips_of(self, address: Address) -> list[str]:
        """The IP addresses of the host, the one to be tried first at the front. Raises OSError if it has none."""
        if is_ip(address.host):
            return [address.host]
        find = partial(socket.getaddrinfo, address.host, address.port, type=socket.SOCK_STREAM)
        found = await asyncio.get_running_loop().run_in_executor(self._threads, find)
        return list(dict.fromkeys(str(entry[4][0]) for entry in found))[:MAX_ADDRESSES]

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


async def _open(host: str, port: int, context: ssl.SSLContext, name: str, limit: int) -> Streams:
    return await asyncio.open_connection(host, port, ssl=context, server_hostname=name, limit=limit)
