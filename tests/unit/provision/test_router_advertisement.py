"""Router advertisements: machines that ask are answered, and a stranger who floods gets few and stops none."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from ipaddress import IPv6Network

import pytest
from tests.support.waiting import until

from rackwright.provision import router_advertisement

SOLICITATION = bytes([router_advertisement.SOLICITATION, 0, 0, 0, 0, 0, 0, 0])
NOISE = bytes([128, 0, 0, 0])


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A pair of sockets: the one that answers, and the one that machines ask through."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with here, there:
        here.setblocking(False)
        there.setblocking(False)
        yield here, there


class Sending:
    def __init__(self, *troubles: OSError) -> None:
        self.sent = 0
        self._troubles = list(troubles)

    async def __call__(self) -> None:
        if self._troubles:
            raise self._troubles.pop()
        self.sent += 1


@asynccontextmanager
async def answering(here: socket.socket, sending: Sending) -> AsyncIterator[None]:
    task = asyncio.create_task(router_advertisement._answer(here, "eth0", sending))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def flood(there: socket.socket, packets: int) -> None:
    for _ in range(packets):
        await asyncio.get_running_loop().sock_sendall(there, SOLICITATION)


LINK_LAYER = bytes([1, 1, 0x52, 0x54, 0, 0, 0, 1])


@pytest.mark.parametrize("packet", [SOLICITATION, SOLICITATION + LINK_LAYER, SOLICITATION + 2 * LINK_LAYER])
def test_a_solicitation_is_known(packet: bytes) -> None:
    assert router_advertisement.is_solicitation(packet)


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        SOLICITATION[:7],
        b"\x85\x01" + SOLICITATION[2:],
        b"\x86\x00" + SOLICITATION[2:],
        SOLICITATION + b"\x01",
        SOLICITATION + bytes(8),
        SOLICITATION + LINK_LAYER[:-1],
        SOLICITATION + b"\x01\xff" + bytes(6),
    ],
)
def test_what_is_not_well_formed_is_no_solicitation(packet: bytes) -> None:
    assert not router_advertisement.is_solicitation(packet)


async def test_a_flood_of_other_packets_leaves_other_tasks_their_turn() -> None:
    class Flooded:
        """A socket on which there always is another packet, but for what a test can stand."""

        received = 0

        def recv(self, size: int) -> bytes:
            self.received += 1
            assert self.received < 10 * router_advertisement.MOST_AT_ONCE, "nobody else had a turn"
            return NOISE

        def gettimeout(self) -> float:
            return 0.0

        def fileno(self) -> int:
            return -1

    waiting = asyncio.create_task(router_advertisement._wait_for_solicitation(Flooded()))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


def test_the_kernel_hands_on_solicitations_alone() -> None:
    words = struct.unpack("@8I", router_advertisement._only(router_advertisement.SOLICITATION))
    passing = [kind for kind in range(256) if not words[kind // 32] >> kind % 32 & 1]
    assert passing == [router_advertisement.SOLICITATION]


def test_an_advertisement_says_nothing_where_no_subnet_is_served() -> None:
    assert router_advertisement.advertisement([]) == bytes([134, 0, 0, 0, 64, 0, 0, 0]) + bytes(8)


def test_an_advertisement_names_dhcp6_and_the_subnet_and_no_router() -> None:
    packet = router_advertisement.advertisement([IPv6Network("fd77::/64")])
    assert (packet[0], packet[5]) == (134, 0xC0), "the flags M and O"
    assert packet[6:8] == b"\0\0", "it is no router"
    option = packet[16:]
    assert (option[0], option[1] * 8, option[2]) == (3, len(option), 64)
    assert option[3] == 0x80, "on the link, and no prefix to make addresses of"
    assert option[16:] == IPv6Network("fd77::/64").network_address.packed


async def test_who_asks_is_answered_and_what_else_is_heard_is_not(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router_advertisement, "PAUSE", 0)
    here, there = ends
    sending = Sending()
    async with answering(here, sending):
        for number in (1, 2):
            there.send(NOISE)
            there.send(SOLICITATION)
            await until(lambda: sending.sent == number, "it was answered")  # noqa: B023  # it is over before the next


async def test_a_flood_of_questions_has_one_answer(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router_advertisement, "PAUSE", 0.2)
    here, there = ends
    sending = Sending()
    async with answering(here, sending):
        began = asyncio.get_running_loop().time()
        await flood(there, 2000)
        took = asyncio.get_running_loop().time() - began
    assert 1 <= sending.sent <= 2 + took / 0.2


async def test_an_answer_that_could_not_be_sent_is_not_the_last(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(router_advertisement, "PAUSE", 0)
    here, there = ends
    sending = Sending(*[OSError(105, "No buffer space available")] * 3)
    async with answering(here, sending):

        async def answered() -> bool:
            there.send(SOLICITATION)
            return sending.sent > 0

        await until(answered, "it answers again")
    assert len(caplog.records) == 1
