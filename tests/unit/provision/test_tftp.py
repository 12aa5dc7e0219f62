"""TFTP over real sockets of loopback: what is served, what is not, and what a lost packet does."""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from tests.support.machines.tftp_requests import Sent, request
from tests.support.waiting import PATIENCE, until

from rackwright.provision import tftp
from rackwright.provision.tftp import serving_tftp

HOST = "127.0.0.1"
CONTENT = bytes(range(256)) * 9 + b"end"


class Client(asyncio.DatagramProtocol):
    """A TFTP client that queues the packets it receives."""

    def __init__(self) -> None:
        self.received: asyncio.Queue[tuple[bytes, tuple[str, int]]] = asyncio.Queue()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.received.put_nowait((data, addr))

    async def receive(self) -> tuple[bytes, tuple[str, int]]:
        async with asyncio.timeout(PATIENCE):
            return await self.received.get()


@asynccontextmanager
async def client(address: str = HOST) -> AsyncIterator[tuple[asyncio.DatagramTransport, Client]]:
    transport, protocol = await asyncio.get_running_loop().create_datagram_endpoint(Client, local_addr=(address, 0))
    try:
        yield transport, protocol
    finally:
        transport.close()


def ack(number: int) -> bytes:
    return b"\0\4" + number.to_bytes(2, "big")


@pytest.fixture
def served(tmp_path: Path) -> Mapping[str, tftp.Content]:
    (tmp_path / "ipxe.efi").write_bytes(CONTENT)
    (tmp_path / "secret").write_text("not for you")
    (tmp_path / "even").write_bytes(b"x" * 1024)
    return {"ipxe.efi": tmp_path / "ipxe.efi", "even": tmp_path / "even", "grub/grub.cfg": CONTENT[:700]}


async def fetch(port: int, name: str, host: str = HOST, **options: str) -> tuple[bytes, bytes | None]:
    """Fetch a file; return its content, and the options that were agreed to."""
    async with client(host) as (transport, protocol):
        transport.sendto(request(name, **options), (host, port))
        content, agreed, block, expected = b"", None, int(options.get("blksize", "512")), 1
        while True:
            packet, peer = await protocol.receive()
            kind, number = packet[1], int.from_bytes(packet[2:4], "big")
            assert kind in (3, 6), packet
            if kind == 6:
                agreed = packet[2:]
                transport.sendto(ack(0), peer)
                continue
            transport.sendto(ack(number), peer)
            if number != expected:  # sent again, because this end was slow to acknowledge it
                continue
            content, expected = content + packet[4:], expected + 1
            if len(packet) - 4 < block:
                return content, agreed


async def test_a_file_of_the_map_is_read_out_whole(served: Mapping[str, tftp.Content]) -> None:
    async with serving_tftp(lambda: served, HOST, 0) as port:
        assert await fetch(port, "ipxe.efi") == (CONTENT, None)
        assert await fetch(port, "/ipxe.efi") == (CONTENT, None)


async def test_a_file_is_read_out_over_ipv6(served: Mapping[str, tftp.Content]) -> None:
    async with serving_tftp(lambda: served, "::1", 0) as port:
        content, agreed = await fetch(port, "ipxe.efi", "::1", blksize="1428")
    assert (content, agreed) == (CONTENT, b"blksize\x001428\0")


async def test_bytes_that_are_in_no_file_are_read_out_as_one(served: Mapping[str, tftp.Content]) -> None:
    async with serving_tftp(lambda: served, HOST, 0) as port:
        assert await fetch(port, "/grub/grub.cfg", tsize="0") == (CONTENT[:700], b"tsize\x00700\0")


async def test_a_file_of_whole_blocks_ends_with_an_empty_one(served: Mapping[str, tftp.Content]) -> None:
    async with serving_tftp(lambda: served, HOST, 0) as port:
        assert (await fetch(port, "even"))[0] == b"x" * 1024


async def test_block_size_and_file_size_are_agreed_on(served: Mapping[str, tftp.Content]) -> None:
    async with serving_tftp(lambda: served, HOST, 0) as port:
        content, agreed = await fetch(port, "ipxe.efi", blksize="1024", tsize="0")
    assert content == CONTENT
    assert agreed == b"blksize\x001024\0tsize\0" + str(len(CONTENT)).encode() + b"\0"


@pytest.mark.parametrize(
    "name", ["secret", "../secret", "./ipxe.efi", "ipxe.efi/../secret", "/etc/passwd", "..\\secret", "", "IPXE.EFI"]
)
async def test_what_is_not_in_the_map_is_not_there(served: Mapping[str, tftp.Content], name: str) -> None:
    async with serving_tftp(lambda: served, HOST, 0) as port, client() as (transport, protocol):
        transport.sendto(request(name), (HOST, port))
        packet, _ = await protocol.receive()
        assert packet[:4] == b"\0\5\0\1"


@pytest.mark.parametrize(
    "packet",
    [
        b"\0\2x\0octet\0",
        b"\0\1ipxe.efi\0netascii\0",
        b"\0\1ipxe.efi\0octet",
        b"\0\1" + b"a" * 600 + b"\0octet\0",
        b"\0\1\xff\xfe\0octet\0",
        b"\0\1ipxe.efi\0octet\0blksize\0",
    ],
)
async def test_writing_and_what_is_not_well_formed_is_refused(
    served: Mapping[str, tftp.Content], packet: bytes
) -> None:
    async with serving_tftp(lambda: served, HOST, 0) as port, client() as (transport, protocol):
        transport.sendto(packet, (HOST, port))
        answer, _ = await protocol.receive()
        assert answer[:4] == b"\0\5\0\4"


@pytest.mark.parametrize("packet", [b"\0\5\0\4no\0", b"\0\4\0\1", b"\0\3\0\1x", b"\0\6", b"\0", b"", b"\xff" * 600])
async def test_what_is_no_request_is_not_answered(served: Mapping[str, tftp.Content], packet: bytes) -> None:
    """An answer to an error may be answered by an error, and so on."""
    async with serving_tftp(lambda: served, HOST, 0) as port, client() as (transport, protocol):
        transport.sendto(packet, (HOST, port))
        transport.sendto(request("nothing"), (HOST, port))
        first, _ = await protocol.receive()
        assert first[:4] == b"\0\5\0\1"
        assert protocol.received.empty()


async def test_two_servers_cannot_be_set_against_each_other(served: Mapping[str, tftp.Content]) -> None:
    """A stranger sends one packet in the name of the other server."""
    answers = 0

    class Counting(tftp.TftpServer):
        def _answer(self, packet: bytes, to: tftp.Address) -> None:
            nonlocal answers
            answers += 1
            super()._answer(packet, to)

    loop = asyncio.get_running_loop()
    servers = [
        await loop.create_datagram_endpoint(lambda: Counting(lambda: served, HOST), local_addr=(HOST, 0))
        for _ in range(2)
    ]
    (first, judge), (second, _) = servers
    judge.datagram_received(request("nothing"), second.get_extra_info("sockname"))
    async with client() as (transport, protocol):
        for _ in range(3):  # by then the two have long heard each other
            transport.sendto(request("nothing"), first.get_extra_info("sockname"))
            await protocol.receive()
    assert answers == 4
    for transport, _ in servers:
        transport.close()


async def test_a_block_nobody_acknowledged_is_sent_again(
    served: Mapping[str, tftp.Content], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tftp, "FIRST_WAIT", 0.01)
    async with serving_tftp(lambda: served, HOST, 0) as port, client() as (transport, protocol):
        transport.sendto(request("ipxe.efi"), (HOST, port))
        first, _ = await protocol.receive()
        again, peer = await protocol.receive()
        assert first == again
        transport.sendto(ack(1), peer)
        while (packet := (await protocol.receive())[0]) == first:
            pass
        assert packet[:4] == b"\0\3\0\2"


async def test_a_stranger_cannot_acknowledge_for_a_client(
    served: Mapping[str, tftp.Content], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tftp, "FIRST_WAIT", 0.01)
    async with (
        serving_tftp(lambda: served, HOST, 0) as port,
        client() as (transport, protocol),
        client() as (stranger, _),
    ):
        transport.sendto(request("ipxe.efi"), (HOST, port))
        first, peer = await protocol.receive()
        stranger.sendto(ack(1), peer)
        for _ in range(3):  # the last of them was sent after the stranger was heard
            assert (await protocol.receive())[0] == first


async def test_one_address_has_only_so_many_transfers_at_once(
    served: Mapping[str, tftp.Content], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tftp, "SILENT", 3600)
    async with serving_tftp(lambda: served, HOST, 0) as port, client() as (transport, protocol):
        for _ in range(50):
            transport.sendto(request("ipxe.efi"), (HOST, port))
        transport.sendto(request("nothing"), (HOST, port))
        ports = set()
        while True:
            packet, peer = await protocol.receive()
            if packet[1] == 5:
                break
            ports.add(peer[1])
        assert len(ports) <= tftp.MOST_PER_ADDRESS


async def test_clients_that_never_answer_do_not_keep_others_out(
    served: Mapping[str, tftp.Content], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody can ask in the name of addresses that are nobody's."""
    monkeypatch.setattr(tftp, "MOST_TRANSFERS", 8)
    monkeypatch.setattr(tftp, "SILENT", 0)
    async with serving_tftp(lambda: served, HOST, 0) as port, AsyncExitStack() as stack:
        for number in range(16):
            transport, silent = await stack.enter_async_context(client(f"127.0.0.{number + 2}"))
            for _ in range(2):
                transport.sendto(request("ipxe.efi"), (HOST, port))
                await silent.receive()
        assert await fetch(port, "ipxe.efi") == (CONTENT, None)


async def test_requests_in_a_machines_name_do_not_keep_that_machine_out(
    served: Mapping[str, tftp.Content], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is to answer them never asked, and drops what comes."""
    monkeypatch.setattr(tftp, "SILENT", 0)
    async with serving_tftp(lambda: served, HOST, 0) as port, AsyncExitStack() as stack:
        for _ in range(tftp.MOST_PER_ADDRESS):
            transport, forged = await stack.enter_async_context(client())
            transport.sendto(request("ipxe.efi"), (HOST, port))
            await forged.receive()
        assert await fetch(port, "ipxe.efi") == (CONTENT, None)


async def test_a_client_that_answers_keeps_its_transfer(
    served: Mapping[str, tftp.Content], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tftp, "MOST_TRANSFERS", 1)
    async with (
        serving_tftp(lambda: served, HOST, 0) as port,
        client() as (transport, protocol),
        client("127.0.0.2") as (another, _),
    ):
        transport.sendto(request("ipxe.efi"), (HOST, port))
        _, peer = await protocol.receive()
        another.sendto(request("ipxe.efi"), (HOST, port))
        transport.sendto(ack(1), peer)
        while (packet := (await protocol.receive())[0])[:4] != b"\0\3\0\2":
            assert packet[:4] == b"\0\3\0\1"


async def test_a_few_addresses_that_acknowledge_slowly_do_not_keep_others_out(
    served: Mapping[str, tftp.Content], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tftp, "MOST_TRANSFERS", 8)
    monkeypatch.setattr(tftp, "SILENT", 3600)
    async with serving_tftp(lambda: served, HOST, 0) as port, AsyncExitStack() as stack:
        for number in (2, 3):
            for _ in range(tftp.MOST_PER_ADDRESS):
                transport, slow = await stack.enter_async_context(client(f"127.0.0.{number}"))
                transport.sendto(request("ipxe.efi"), (HOST, port))
                await slow.receive()
        assert await fetch(port, "ipxe.efi") == (CONTENT, None)


@pytest.fixture
async def heard(served: Mapping[str, tftp.Content]) -> AsyncIterator[tuple[tftp.TftpServer, Sent]]:
    """A server that hears packets of any address, though no transfer gets anywhere."""

    class Idle(tftp.TftpServer):
        async def _transfer(self, *_: object) -> None:
            await asyncio.Event().wait()

    server, sent = Idle(lambda: served, HOST), Sent()
    server.connection_made(sent)
    yield server, sent
    await server.close()


def running(server: tftp.TftpServer, beginning: str) -> int:
    return sum(record.source.startswith(beginning) for record in server._transfers.values())


async def test_at_the_limit_of_an_address_only_its_silent_transfers_give_way(
    heard: tuple[tftp.TftpServer, Sent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Firmware that asks again for a file that it is being sent must not end what it gets."""
    monkeypatch.setattr(tftp, "SILENT", 3600)
    server, _ = heard

    def ask(port: int) -> asyncio.Task[None] | None:
        before = set(server._transfers)
        server.datagram_received(request("ipxe.efi"), ("192.0.2.1", port))
        return next(iter(set(server._transfers) - before), None)

    server.datagram_received(request("ipxe.efi"), ("192.0.2.2", 1000))
    [neighbour] = server._transfers
    tasks = [task for port in range(tftp.MOST_PER_ADDRESS) if (task := ask(port))]
    assert len(tasks) == tftp.MOST_PER_ADDRESS
    assert ask(1000) is None, "none of them is silent yet"
    assert set(server._transfers) == {neighbour, *tasks}
    silent, live = tasks[:2], tasks[2:]
    for task in (*silent, neighbour):
        server._transfers[task].acknowledged_at -= 3600
    replacing = [ask(1001), ask(1002)]
    assert ask(1003) is None, "those that are left are not silent"
    assert set(server._transfers) == {neighbour, *live, *replacing}
    await asyncio.gather(*silent, return_exceptions=True)
    assert all(task.cancelled() for task in silent)


async def test_one_ipv6_network_does_not_take_the_transfers_of_all(
    heard: tuple[tftp.TftpServer, Sent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tftp, "SILENT", 3600)
    server, _ = heard
    for number in range(1000):
        server.datagram_received(request("ipxe.efi"), (f"2001:db8::{number + 1:x}", 1000, 0, 0))
    assert running(server, "2001:db8::") == tftp.MOST_PER_NETWORK
    server.datagram_received(request("ipxe.efi"), ("2001:db8:0:1::1", 1000, 0, 0))
    server.datagram_received(request("ipxe.efi"), ("192.0.2.1", 1000))
    assert running(server, "2001:db8:0:1::1") == 1
    assert running(server, "192.0.2.1") == 1


async def test_at_the_limit_the_network_with_most_transfers_gives_way(
    heard: tuple[tftp.TftpServer, Sent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tftp, "SILENT", 3600)
    monkeypatch.setattr(tftp, "MOST_TRANSFERS", tftp.MOST_PER_NETWORK)
    server, _ = heard
    for number in range(tftp.MOST_PER_NETWORK):
        server.datagram_received(request("ipxe.efi"), (f"2001:db8::{number + 1:x}", 1000, 0, 0))
    for number in range(10):
        server.datagram_received(request("ipxe.efi"), (f"192.0.2.{number + 1}", 1000))
    assert running(server, "192.0.2.") == 10
    assert running(server, "2001:db8::") == tftp.MOST_PER_NETWORK - 10


async def test_in_one_network_the_address_with_most_transfers_gives_way(
    heard: tuple[tftp.TftpServer, Sent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tftp, "SILENT", 3600)
    monkeypatch.setattr(tftp, "MOST_PER_NETWORK", tftp.MOST_PER_ADDRESS)
    server, _ = heard
    for port in range(tftp.MOST_PER_ADDRESS):
        server.datagram_received(request("ipxe.efi"), ("2001:db8::66", port + 1, 0, 0))
    server.datagram_received(request("ipxe.efi"), ("2001:db8::1", 1, 0, 0))
    assert running(server, "2001:db8::1") == 1


async def test_errors_are_few_to_one_network_and_to_all(
    heard: tuple[tftp.TftpServer, Sent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tftp, "ERRORS_SECONDS", 3600)
    server, sent = heard
    for number in range(1000):
        server.datagram_received(request("nothing"), ("192.0.2.66", 1000 + number))
    assert len(sent.to) == tftp.MOST_ERRORS_PER_NETWORK
    server.datagram_received(request("nothing"), ("192.0.2.1", 1000))
    assert sent.to[-1] == "192.0.2.1", "another one is told"
    for number in range(1000):
        server.datagram_received(request("nothing", "netascii"), (f"198.18.{number // 250}.{number % 250}", 1000))
    assert len(sent.to) == tftp.MOST_ERRORS


async def test_what_is_not_served_fills_no_log(
    heard: tuple[tftp.TftpServer, Sent], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tftp, "ERRORS_SECONDS", 3600)
    caplog.set_level("INFO")
    for number in range(1000):
        heard[0].datagram_received(request("nothing"), ("192.0.2.66", 1000 + number))
    assert len(caplog.records) == tftp.MOST_ERRORS_PER_NETWORK


async def test_transfers_to_addresses_without_a_route_fill_no_log(
    served: Mapping[str, tftp.Content], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody can ask in the name of such addresses: a line for each packet would fill the disk."""
    tried = 0

    def no_route(*_: object) -> socket.socket:
        nonlocal tried
        tried += 1
        raise OSError(errno.ENETUNREACH, "Network is unreachable")

    monkeypatch.setattr(tftp, "_connected_socket", no_route)
    server = tftp.TftpServer(lambda: served, HOST)
    for number in range(tftp.MOST_PER_NETWORK):
        server.datagram_received(request("ipxe.efi"), (f"2001:db8::{number + 1:x}", 1000, 0, 0))
    await until(lambda: tried == tftp.MOST_PER_NETWORK and not server._transfers, "all of them were tried")
    [record] = caplog.records
    assert "ipxe.efi for 2001:db8::1: [Errno 101] Network is unreachable" in record.getMessage()
