"""Somebody who speaks the mesh's protocol and means harm: with no certificate, a foreign one, or a member's own."""

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path

from tests.support.waiting import PATIENCE

from rackwright.mesh.address import Address
from rackwright.mesh.identity.server_identity import IdentityFiles
from rackwright.mesh.membership.messages import Body, Message, Update, encode
from rackwright.mesh.transport import http
from rackwright.mesh.transport.link import HEADER, Kind
from rackwright.mesh.transport.tls import Contexts, joiner_context


@dataclass
class Stream:
    """A connection that has become a member's stream, with the power to send whatever it likes."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, payload: bytes, kind: int = Kind.MESSAGE, length: int | None = None) -> None:
        size = len(payload) if length is None else length
        self.writer.write(bytes([kind]) + size.to_bytes(HEADER - 1, "big") + payload)

    async def ended(self) -> bool:
        """Whether the other side ends it in time. What it sends until then is not looked at."""
        try:
            async with asyncio.timeout(PATIENCE):
                while await self.reader.read(65536):
                    pass
        except TimeoutError:
            return False
        except OSError:
            return True
        return True

    def close(self) -> None:
        self.writer.transport.abort()


async def request(address: Address, context: ssl.SSLContext, sent: bytes) -> bytes:
    """Send these bytes and return all that comes back until the end."""
    reader, writer = await asyncio.open_connection(
        address.host, address.port, ssl=context, server_hostname=address.host
    )
    try:
        writer.write(sent)
        async with asyncio.timeout(PATIENCE):
            return await reader.read()
    finally:
        writer.transport.abort()


async def as_member(folder: Path, address: Address) -> Stream:
    """Come in with the identity of this folder."""
    context = Contexts(IdentityFiles(folder)).seed
    reader, writer = await asyncio.open_connection(
        address.host, address.port, ssl=context, server_hostname=address.host
    )
    writer.write(http.upgrade_request("mesh"))
    async with asyncio.timeout(PATIENCE):
        head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 101 "):
        writer.transport.abort()
        raise ConnectionRefusedError(head.decode())
    return Stream(reader, writer)


def nameless() -> ssl.SSLContext:
    return joiner_context(None)


def message(sender: str, sequence: int, body: Body, *updates: Update, session: int = 1) -> bytes:
    return encode(Message(sender, session, sequence, body, updates))
