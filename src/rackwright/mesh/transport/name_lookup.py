"""Lookup of the IP addresses of host names, in threads of its own, and connecting to them.

A rogue member may announce thousands of members at names that take long to look up. In the threads that all parts of an
agent share, everything else would wait for them.
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
"""Addresses of one name that are tried."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Lookup:
    """Looks up names in a few threads."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "lookup")

    async def connect(self, address: Address, context: ssl.SSLContext, name: str, limit: int) -> Streams:
        """Connect to the first of the host's addresses that answers.

        `name` is the name that the certificate must have, and `limit` how many bytes may wait to be read.
        """
        *others, last = await self.ips_of(address)
        for host in others:
            try:
                return await _open(host, address.port, context, name, limit)
            except (ssl.SSLError, ConnectionResetError):  # a process answers there
                raise
            except OSError:
                continue
        return await _open(last, address.port, context, name, limit)

    async def ips_of(self, address: Address) -> list[str]:
        """Return the IP addresses of the host, the one to be tried first at the front.

        Raises OSError if it has none.
        """
        if is_ip(address.host):
            return [address.host]
        look_up = partial(socket.getaddrinfo, address.host, address.port, type=socket.SOCK_STREAM)
        entries = await asyncio.get_running_loop().run_in_executor(self._threads, look_up)
        return list(dict.fromkeys(str(entry[4][0]) for entry in entries))[:MAX_ADDRESSES]

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


async def _open(host: str, port: int, context: ssl.SSLContext, name: str, limit: int) -> Streams:
    return await asyncio.open_connection(host, port, ssl=context, server_hostname=name, limit=limit)
