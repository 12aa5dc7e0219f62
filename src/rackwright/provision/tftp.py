"""A TFTP server for firmware that knows nothing better: it serves a fixed map of files for reading, and nothing else.

RFC 1350 with blksize and tsize (RFC 2347 to 2349). A name is looked up, never opened as a path. Each transfer has a
port of its own, as the protocol requires, and their number is limited: that of one address, of one network (an IPv6
host has all addresses of its network) and of all. Anybody can ask in the name of addresses that will never answer, so
at a limit a new transfer replaces the one whose client is silent for longest: of its own address, at the limit of one
address, so that nobody is kept out by requests in its name. If none is silent, one of the network or address that has
most of them is replaced, and an address that has as many as it may waits. Only requests are answered: a server that
answers errors with an error can be set, by one packet in another server's name, to exchange errors with that one for
ever. Errors are few, since they may be sent to whom nobody knows.
"""

import asyncio
import io
import logging
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from rackwright.domain.networks.source_networks import source_network
from rackwright.rare_warning import RareWarning

log = logging.getLogger(__name__)

Address = tuple[str, int] | tuple[str, int, int, int]
"""Host and port and, for IPv6, flow and scope, as sockets have them."""
Content = Path | bytes
"""What is served under a name: a file, or the bytes themselves."""
Files = Callable[[], Mapping[str, Content]]
"""Returns the map of all that is served, by name."""
OnMissing = Callable[[str], None]
"""Is told the name of a file that was asked for and is not served."""

RRQ, WRQ, DATA, ACK, ERROR, OACK = 1, 2, 3, 4, 5, 6
REQUESTS = (RRQ, WRQ)
NOT_FOUND, NOT_ALLOWED, ILLEGAL = 1, 2, 4
BLOCK = 512
LARGEST_BLOCK = 1468
"""Bytes that fit an Ethernet frame: firmware does not put fragments together."""
MOST_TRANSFERS = 128
MOST_PER_ADDRESS = 4
MOST_PER_NETWORK = 64
"""Of the IPv6 addresses of one network, which may all be one host's, and may be those of a whole rack."""
MOST_ERRORS, MOST_ERRORS_PER_NETWORK = 256, 64
"""Errors that are answered within ERRORS_SECONDS. Who gets none asks again."""
ERRORS_SECONDS = 1.0
TRIES = 6
FIRST_WAIT = 0.5
"""Seconds before a block is sent again; doubled with each try."""
SILENT = 2.0
"""Seconds without an acknowledgement after which a transfer may be replaced by another."""


@dataclass(frozen=True)
class Request:
    """A read request: the name of a file, and the options of the transfer."""

    name: str
    options: Mapping[str, str]


def parse_request(packet: bytes) -> Request | None:
    """Return the read request in a packet; None if it is none, or not well formed."""
    if len(packet) > 512 or packet[:2] != RRQ.to_bytes(2, "big") or not packet.endswith(b"\0"):
        return None
    try:
        words = packet[2:-1].decode("ascii").split("\0")
    except UnicodeDecodeError:
        return None
    if len(words) < 2 or len(words) % 2:
        return None
    if words[1].lower() != "octet":
        return None
    pairs = zip(words[2::2], words[3::2], strict=True)
    return Request(words[0], {key.lower(): value for key, value in pairs})


def negotiate_options(options: Mapping[str, str], size: int) -> dict[str, str]:
    """Return the options of a request that are accepted, with the values they get."""
    accepted: dict[str, str] = {}
    block_size = options.get("blksize", "")
    if block_size.isdecimal() and 8 <= int(block_size) <= 65464:
        accepted["blksize"] = str(min(int(block_size), LARGEST_BLOCK))
    if "tsize" in options:
        accepted["tsize"] = str(size)
    return accepted


def error_packet(code: int, text: str) -> bytes:
    return ERROR.to_bytes(2, "big") + code.to_bytes(2, "big") + text.encode() + b"\0"


def size_of(file: BinaryIO) -> int:
    """Return the size of an open file, which is at its beginning afterwards."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    return size


class _Transfer(asyncio.DatagramProtocol):
    """The transfer of one file to one client. Packets of others to its port are ignored."""

    def __init__(self, client: Address, on_acknowledged: Callable[[], None]) -> None:
        self._client = client
        self._on_acknowledged = on_acknowledged
        self._acknowledged = asyncio.Event()
        self._expected = -1
        self.over = False
        """Whether the client is done, or wants no more."""

    def datagram_received(self, data: bytes, addr: Address) -> None:
        if addr[:2] != self._client[:2] or len(data) < 4:
            return
        kind, number = int.from_bytes(data[:2], "big"), int.from_bytes(data[2:4], "big")
        if kind == ERROR:  # firmware asks for the size only, and stops there
            self.over = True
            self._acknowledged.set()
        elif kind == ACK and number == self._expected:
            self._on_acknowledged()
            self._acknowledged.set()

    async def send(self, transport: asyncio.DatagramTransport, packet: bytes, number: int) -> bool:
        """Send a packet until it is acknowledged; return whether the transfer goes on."""
        self._expected = number
        self._acknowledged.clear()
        wait = FIRST_WAIT
        for _ in range(TRIES):
            transport.sendto(packet)
            try:
                async with asyncio.timeout(wait):
                    await self._acknowledged.wait()
            except TimeoutError:
                wait *= 2
            else:
                return not self.over
        return False


@dataclass
class _TransferRecord:
    """The address of a transfer's client, its network, and when that client last acknowledged a packet."""

    source: str
    network: str
    acknowledged_at: float
    """The time of the last acknowledgement, by the clock of the event loop."""

    def note_acknowledged(self) -> None:
        self.acknowledged_at = asyncio.get_running_loop().time()


class TftpServer(asyncio.DatagramProtocol):
    """Receives requests, and starts a task for each that is accepted."""

    def __init__(self, files: Files, host: str, on_missing: OnMissing = lambda _: None) -> None:
        self._files = files
        self._host = host
        self._on_missing = on_missing
        self._transfers: dict[asyncio.Task[None], _TransferRecord] = {}
        self._transport: asyncio.DatagramTransport | None = None
        self._errors: Counter[str] = Counter()
        """Errors answered of late, by network."""
        self._errors_end = 0.0
        self._warn_failed = RareWarning()  # addresses to which there is no route are strangers' to choose

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: Address) -> None:
        if int.from_bytes(data[:2], "big") not in REQUESTS:
            return
        request = parse_request(data)
        if request is None:
            self._answer_error(ILLEGAL, "only reading, as octets", addr)
            return
        name = request.name.lstrip("/")
        content = self._files().get(name)
        if content is None:
            if self._answer_error(NOT_FOUND, "no such file", addr):
                log.info("tftp: %s asked for %r, which is not served", addr[0], request.name[:80])
                self._on_missing(name)
            return
        if not self._make_room(addr[0]):
            return  # it asks again by itself
        record = _TransferRecord(addr[0], source_network(addr[0]), asyncio.get_running_loop().time())
        task = asyncio.create_task(self._transfer(content, request, addr, record), name=f"tftp {addr[0]}")
        self._transfers[task] = record
        task.add_done_callback(lambda ended: self._transfers.pop(ended, None))

    def _make_room(self, source: str) -> bool:
        """Return whether one more transfer can start; if need be, end another for it."""
        network = source_network(source)
        neighbours = {task: record for task, record in self._transfers.items() if record.network == network}
        own = {task: record for task, record in neighbours.items() if record.source == source}
        if len(own) >= MOST_PER_ADDRESS:
            task = _silent_transfer(own)
        elif len(neighbours) >= MOST_PER_NETWORK:
            task = _transfer_to_end({task: (record, record.source) for task, record in neighbours.items()}, source)
        elif len(self._transfers) >= MOST_TRANSFERS:
            everybody = self._transfers.items()
            task = _transfer_to_end({task: (record, record.network) for task, record in everybody}, network)
        else:
            return True
        if task is None:
            return False
        del self._transfers[task]
        task.cancel()
        return True

    async def close(self) -> None:
        tasks = list(self._transfers)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _answer_error(self, code: int, text: str, to: Address) -> bool:
        """Answer an error unless there were too many of late; return whether it was answered."""
        now, network = asyncio.get_running_loop().time(), source_network(to[0])
        if now >= self._errors_end:
            self._errors.clear()
            self._errors_end = now + ERRORS_SECONDS
        if self._errors[network] >= MOST_ERRORS_PER_NETWORK or self._errors.total() >= MOST_ERRORS:
            return False
        self._errors[network] += 1
        self._answer(error_packet(code, text), to)
        return True

    def _answer(self, packet: bytes, to: Address) -> None:
        assert self._transport is not None
        self._transport.sendto(packet, to)

    async def _transfer(self, content: Content, request: Request, client: Address, record: _TransferRecord) -> None:
        try:
            with content.open("rb") if isinstance(content, Path) else io.BytesIO(content) as file:
                await self._deliver(file, request, client, record)
        except OSError as error:
            self._warn_failed(f"tftp: {request.name[:80]} for {client[0]}: {error}.")

    async def _deliver(self, file: BinaryIO, request: Request, client: Address, record: _TransferRecord) -> None:
        options = negotiate_options(request.options, size_of(file))
        loop = asyncio.get_running_loop()
        transport, transfer = await loop.create_datagram_endpoint(
            lambda: _Transfer(client, record.note_acknowledged), sock=_connected_socket(self._host, client)
        )
        try:
            if options:
                words = b"".join(f"{key}\0{value}\0".encode() for key, value in options.items())
                if not await transfer.send(transport, OACK.to_bytes(2, "big") + words, 0):
                    return
            size = int(options.get("blksize", BLOCK))
            number = 0
            while True:
                block = file.read(size)
                number += 1
                head = DATA.to_bytes(2, "big") + (number & 0xFFFF).to_bytes(2, "big")
                if not await transfer.send(transport, head + block, number & 0xFFFF) or len(block) < size:
                    return
        finally:
            transport.close()


def _silent_transfer(transfers: Mapping[asyncio.Task[None], _TransferRecord]) -> asyncio.Task[None] | None:
    """Return the transfer whose client is silent for longest; None: none is for long enough to be ended."""
    task, record = min(transfers.items(), key=lambda item: item[1].acknowledged_at)
    is_silent = asyncio.get_running_loop().time() - record.acknowledged_at >= SILENT
    return task if is_silent else None


def _transfer_to_end(
    transfers: Mapping[asyncio.Task[None], tuple[_TransferRecord, str]], source: str
) -> asyncio.Task[None] | None:
    """Return the transfer to end for one of `source`: a silent client's, or one of a source that has too many.

    `transfers`: each with what it is counted as.
    """
    silent = _silent_transfer({task: record for task, (record, _) in transfers.items()})
    if silent is not None:
        return silent
    shares = Counter(counted for _, counted in transfers.values())
    greedy, share = shares.most_common(1)[0]
    if share <= shares[source] + 1:
        return None
    return next(task for task, (_, counted) in transfers.items() if counted == greedy)


def _connected_socket(host: str, client: Address) -> socket.socket:
    """Return a socket of a free port, for one client. Made here, because asyncio would forget a client's scope."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    connected = socket.socket(family, socket.SOCK_DGRAM)
    try:
        connected.setblocking(False)
        connected.bind((host, 0))
        connected.connect(client)
    except OSError:
        connected.close()
        raise
    return connected


@asynccontextmanager
async def serving_tftp(
    files: Files, host: str, port: int = 69, on_missing: OnMissing = lambda _: None
) -> AsyncIterator[int]:
    """Serve `files` on one address while the context is open; yield the port."""
    transport, server = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: TftpServer(files, host, on_missing), local_addr=(host, port)
    )
    try:
        yield transport.get_extra_info("sockname")[1]
    finally:
        transport.close()
        await server.close()
