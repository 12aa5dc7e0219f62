"""Something that answers at a node's SSH port and is no sshd: it fails to be that node, and nothing else happens.

Before it has proved anything it may choose algorithms, numbers and keys. Here it chooses those that a client must not
compute with.
"""

import asyncio
import os
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import asyncssh
import pytest
from tests.support.waiting import PATIENCE

from rackwright.hammers.base import HammerFailed, HammerNode
from rackwright.hammers.ssh import SshHammer
from rackwright.reach.ssh_connections import RECEIVE_BUFFER, Connections, HostKeyWatch, Target

CURVE, GROUP_EXCHANGE = b"curve25519-sha256", b"diffie-hellman-group-exchange-sha256"
KEXINIT, GROUP, REPLY = b"\x14", b"\x1f", b"\x1f"
IGNORE = 2


def text(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def number(value: int) -> bytes:
    return text(value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def packet(payload: bytes) -> bytes:
    padding = 16 - (len(payload) + 5) % 8
    return struct.pack(">IB", len(payload) + padding + 1, padding) + payload + bytes(padding)


def offer(key_exchange: bytes, host_key: bytes) -> bytes:
    named = [key_exchange, host_key, *[b"aes128-ctr"] * 2, *[b"hmac-sha2-256"] * 2, b"none", b"none", b"", b""]
    return KEXINIT + os.urandom(16) + b"".join(map(text, named)) + bytes(5)


def reply(host_key: bytes) -> bytes:
    return REPLY + text(host_key) + text(os.urandom(32)) + text(text(b"ssh-ed25519") + text(bytes(64)))


@asynccontextmanager
async def answering(*payloads: bytes) -> AsyncIterator[int]:
    """Says these one after the other, whatever it is asked; gives its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(b"SSH-2.0-made_up\r\n")
            await reader.readline()
            for payload in payloads:
                await reader.read(1)  # it spoke
                writer.write(packet(payload))
            await reader.read()
        except ConnectionError:
            pass  # it hung up
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1") as server:
        yield server.sockets[0].getsockname()[1]


KEYS = {
    "of nothing": b"",
    "of no kind": os.urandom(40),
    "of the wrong size": text(b"ssh-ed25519") + text(bytes(31)),
    "with a negative modulus": text(b"ssh-rsa") + number(65537) + number(-(2**2048)),
    "with no modulus": text(b"ssh-rsa") + number(3) + number(0),
    "of very many digits": text(b"ssh-rsa") + number(2**100_000 + 1) + number(2**100_000 + 1),
    "on no curve": text(b"ecdsa-sha2-nistp256") + text(b"nistp256") + text(b"\x04" + bytes(64)),
}
GROUPS = {
    "of zero": [0, 2],
    "that is negative": [-5, 2],
    "that is even": [2**2048, 2],
    "as large as can be computed with": [2**9999 + 1, 3],
    "of a million digits": [2**800_000 + 1, 3],
}
CASES: dict[str, Sequence[bytes]] = {
    **{f"a key {name}": [offer(CURVE, b"ssh-ed25519,rsa-sha2-512"), reply(key)] for name, key in KEYS.items()},
    **{
        f"a group {name}": [offer(GROUP_EXCHANGE, b"ssh-ed25519"), GROUP + b"".join(map(number, numbers))]
        for name, numbers in GROUPS.items()
    },
}


@pytest.mark.parametrize("payloads", CASES.values(), ids=CASES.keys())
async def test_whatever_answers_in_place_of_sshd_only_fails_to_be_the_node(payloads: Sequence[bytes]) -> None:
    suspected: list[str] = []

    async def ignore(node_id: int, key: str) -> None: ...

    async def differs(node_id: int, key: str) -> None:
        suspected.append(key)

    connections = Connections(
        asyncssh.generate_private_key("ssh-ed25519"), HostKeyWatch(ignore, differs), deadline=PATIENCE
    )
    pinned = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    async with answering(*payloads) as port:

        async def target(node_id: int) -> Target:
            return Target("127.0.0.1", port, host_key=pinned)

        with pytest.raises(HammerFailed):
            await SshHammer(connections, target).look(HammerNode(1, "n1.example", {}))
    assert "" not in suspected, "what is no key is not another key"


class LetsAllIn(asyncssh.SSHServer):
    def begin_auth(self, username: str) -> bool:
        return False


async def test_a_flood_of_tiny_packets_is_worked_off_in_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of a megabyte of them at once kept the server from all other work for two seconds, again and again."""
    largest = 0
    received = asyncssh.SSHClientConnection.data_received

    def measure(self: asyncssh.SSHClientConnection, data: bytes, datatype: object = None) -> None:
        nonlocal largest
        largest = max(largest, len(data))
        received(self, data)

    async def flood(process: asyncssh.SSHServerProcess[str]) -> None:
        connection = process.channel.get_connection()
        for _ in range(30_000):
            connection.send_packet(IGNORE, text(b""))
        process.stdout.write("a-boot-id /dev/vda1")
        process.exit(0)

    async def ignore(node_id: int, key: str) -> None: ...

    monkeypatch.setattr(asyncssh.SSHClientConnection, "data_received", measure)
    key = asyncssh.generate_private_key("ssh-ed25519")
    server = await asyncssh.create_server(LetsAllIn, "127.0.0.1", 0, server_host_keys=[key], process_factory=flood)

    async def target(node_id: int) -> Target:
        return Target("127.0.0.1", server.get_port(), host_key=key.export_public_key().decode())

    connections = Connections(key, HostKeyWatch(ignore, ignore), deadline=PATIENCE)
    async with server:
        seen = await SshHammer(connections, target).look(HammerNode(1, "n1.example", {}))
        await connections.close()
    assert seen.boot_id == "a-boot-id"
    assert 1000 < largest <= 4 * RECEIVE_BUFFER


async def test_no_key_exchange_is_offered_in_which_the_other_side_chooses_the_numbers() -> None:
    offered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-made_up\r\n")
        await reader.readline()
        offered.set_result(await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big")))
        writer.close()

    async def ignore(node_id: int, key: str) -> None: ...

    connections = Connections(
        asyncssh.generate_private_key("ssh-ed25519"), HostKeyWatch(ignore, ignore), deadline=PATIENCE
    )
    async with await asyncio.start_server(listen, "127.0.0.1") as server:

        async def target(node_id: int) -> Target:
            return Target("127.0.0.1", server.sockets[0].getsockname()[1], first_use=True)

        with pytest.raises(HammerFailed):
            await SshHammer(connections, target).look(HammerNode(1, "n1.example", {}))
    assert CURVE in await offered
    assert GROUP_EXCHANGE not in await offered
