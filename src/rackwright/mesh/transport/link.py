"""A link: one lasting connection to a member, with frames of a kind and a bounded length over a TLS stream.

A frame is one byte of kind, three of length, and the payload. A link that ends after a goodbye was closed on purpose;
one that ends without was cut. Who may have a link, and how many, is `transport.py`.
"""

import asyncio
import contextlib
import enum

from rackwright.mesh.errors import MeshError
from rackwright.mesh.identity.revocation import MAX_BYTES
from rackwright.mesh.transport.tls import Peer

HEADER = 4
MAX_MESSAGE = 64 * 1024
MAX_UNSENT = 256 * 1024
"""Bytes. Beyond this a peer is too slow for gossip: messages that may be lost are dropped."""
MAX_STUCK = 2 * MAX_BYTES
"""Bytes. Beyond this a peer is too slow for anything: the link is cut."""
PAYLOAD_SECONDS = 10.0
GOODBYE_SECONDS = 2.0


class Kind(enum.IntEnum):
    """The kind of a frame. Only append: members of two versions talk to each other."""

    MESSAGE = 0
    BYE = 1
    REVOCATIONS_VERSION = 2
    REVOCATIONS = 3
    LOOK = 4  # something in the datastore concerns the receiver


LIMITS = {Kind.MESSAGE: MAX_MESSAGE, Kind.BYE: 0, Kind.REVOCATIONS_VERSION: 8, Kind.REVOCATIONS: MAX_BYTES}
LIMITS |= {Kind.LOOK: 0}


class Oversized(MeshError):
    """A frame longer than its kind may be"""

    code = "oversized"


class Silent(MeshError):
    """A frame whose payload did not follow its header in time"""

    code = "slow"


class Link:
    """One link to a peer; `dialled` by us, else accepted."""

    def __init__(
        self,
        peer: Peer,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        dialled: bool,
        advertise: str | None = None,
    ) -> None:
        self.peer, self.dialled, self.advertise = peer, dialled, advertise
        self._reader, self._writer = reader, writer
        now = asyncio.get_running_loop().time()
        self.last_used = now
        # Counted from here on a clock that cannot be set: a stepped wall clock must not cut living links.
        self.expires = now + peer.seconds_left()
        self.said_goodbye = False

    @property
    def source(self) -> str:
        """The address of the other side."""
        return str((self._writer.get_extra_info("peername") or ("",))[0])

    @property
    def unsent(self) -> int:
        """Bytes that wait to be sent."""
        return self._writer.transport.get_write_buffer_size()

    def send(self, kind: Kind, payload: bytes) -> None:
        """Send a frame, unless the link is closing."""
        if self._writer.is_closing():
            return
        self.last_used = asyncio.get_running_loop().time()
        self._writer.write(bytes([kind]) + len(payload).to_bytes(HEADER - 1, "big") + payload)

    async def receive(self) -> tuple[int, bytes] | None:
        """Return the kind and payload of the next frame; None when the peer is gone."""
        try:
            header = await self._reader.readexactly(HEADER)
            kind, length = header[0], int.from_bytes(header[1:], "big")
            limit = LIMITS[Kind(kind)] if kind in LIMITS else MAX_MESSAGE
            if length > limit:
                raise Oversized(f"a frame of {length} bytes where {limit} are allowed")
            async with asyncio.timeout(PAYLOAD_SECONDS):
                payload = await self._reader.readexactly(length)
        except TimeoutError as problem:
            raise Silent from problem
        except (OSError, asyncio.IncompleteReadError):
            return None
        self.last_used = asyncio.get_running_loop().time()
        return kind, payload

    def close(self) -> None:
        """Say goodbye, so that the peer does not take this for a death."""
        self.said_goodbye = True
        self.send(Kind.BYE, b"")
        self._writer.close()
        # A peer that never answers the end of the TLS session must not hold the socket.
        asyncio.get_running_loop().call_later(GOODBYE_SECONDS, self.cut)

    def cut(self) -> None:
        """End the link at once, without a goodbye."""
        self._writer.transport.abort()

    async def wait_closed(self) -> None:
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
