"""The transport over real TLS on loopback: what it carries, what it reports, and where its bounds are."""

import math
import os
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from tests.support.clock import pass_time
from tests.support.mesh.stranger import as_member
from tests.support.waiting import PATIENCE, until

from rackwright.mesh.address import Address
from rackwright.mesh.identity.authority import LIFE, Authority, AuthorityFiles
from rackwright.mesh.identity.server_identity import Identity, IdentityFiles, new_key
from rackwright.mesh.log import Log
from rackwright.mesh.metrics import Metrics
from rackwright.mesh.transport import http
from rackwright.mesh.transport.link import Link
from rackwright.mesh.transport.tls import Contexts, Peer
from rackwright.mesh.transport.transport import Limits, Transport

UNHURRIED = Limits(dial=PATIENCE, handshake=PATIENCE)
"""What is sent while a member is dialled is dropped if that takes too long: here it never does."""


class Member:
    """A transport, and what it reported."""

    def __init__(self, name: str, contexts: Contexts, limits: Limits) -> None:
        self.name = name
        self.heard: list[tuple[str, bytes]] = []
        self.reports: list[str] = []
        self.revoked: set[str] = set()
        self.metrics = Metrics()
        self.lines: list[str] = []
        log = Log(name, self.lines.append)
        # The machine's own process id keeps two test workers apart.
        high, low = divmod(os.getpid() % 65_024, 256)
        self.address = Address(f"127.{high + 1}.{low}.{200 + int(name[1:])}", 7947)
        self.contexts = contexts
        self.transport = Transport(name, self.address, contexts, self, log, self.metrics, limits)

    def received(self, peer: str, kind: int, payload: bytes) -> None:
        self.heard.append((peer, payload))

    def connected(self, link: Link) -> None:
        self.reports.append(f"connected {link.peer.name}")

    def closed(self, peer: str) -> None:
        self.reports.append(f"closed {peer}")

    def refused(self, peer: str) -> None:
        self.reports.append(f"refused {peer}")

    def is_revoked(self, peer: Peer) -> bool:
        return peer.name in self.revoked

    async def answer(self, request: http.Request) -> http.Response:
        return http.Response(404, {})

    def count(self, name: str, label: str) -> float:
        label_name = {"dials": "outcome"}.get(name, "reason")
        return self.metrics.registry.get_sample_value(f"rackwright_mesh_{name}_total", {label_name: label}) or 0.0

    def send(self, to: "Member", message: bytes, *, reliable: bool = True) -> None:
        self.transport.send(to.name, to.address, message, reliable=reliable)


class House:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority: Authority = AuthorityFiles(folder / "ca").create("test")
        self.stack = AsyncExitStack()

    async def member(self, name: str, limits: Limits = UNHURRIED) -> Member:
        member = Member(name, Contexts(await self.identify(name, LIFE)), limits)
        await member.transport.start(member.address)
        self.stack.push_async_callback(member.transport.stop)
        return member

    async def identify(self, name: str, life: timedelta) -> IdentityFiles:
        """Give a member a key and a certificate with so long to live."""
        self.authority.life = life
        key = new_key()
        files = IdentityFiles(self.folder / name)
        files.save(Identity(key, await self.authority.issue(name, key.public_key()), self.authority.ca))
        return files


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    made = House(tmp_path)
    async with made.stack:
        yield made


async def test_both_sides_speak_over_the_one_connection_that_one_of_them_dialled(house: House) -> None:
    first, second = await house.member("m1"), await house.member("m2")
    first.send(second, b"hello")
    await until(lambda: second.heard == [("m1", b"hello")], "m2 has the message")
    second.send(first, b"and to you")
    await until(lambda: first.heard == [("m2", b"and to you")], "m1 has the answer")
    assert [len(member.transport.links) for member in (first, second)] == [1, 1]
    assert second.count("dials", "connected") == 0


async def test_no_side_waits_for_the_others_acknowledgement(house: House) -> None:
    """With Nagle's algorithm on, a message that follows another waits for a delayed ACK: 40 ms."""
    first, second = await house.member("m1"), await house.member("m2")
    first.send(second, b"hello")
    await until(lambda: bool(second.heard), "m2 has the message")
    for member, peer in ((first, "m2"), (second, "m1")):
        wire = member.transport.links[peer][0]._writer.get_extra_info("socket")
        assert wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1, member.name


async def test_what_is_sent_while_dialling_arrives_in_order_and_is_bounded(house: House) -> None:
    first, second = await house.member("m1"), await house.member("m2")
    for number in range(40):
        first.send(second, b"%d" % number)
    await until(lambda: len(second.heard) == UNHURRIED.waiting, "m2 has all that is kept while dialling")
    assert [payload for _, payload in second.heard] == [b"%d" % number for number in range(UNHURRIED.waiting)]


async def test_an_end_with_a_goodbye_is_not_reported_as_a_cut(house: House) -> None:
    first, second = await house.member("m1"), await house.member("m2")
    first.send(second, b"hello")
    await until(lambda: bool(second.heard), "m2 has the message")
    await second.transport.stop()
    await until(lambda: not first.transport.links, "m1 has no link any more")
    assert first.reports == ["connected m2"]


async def test_an_end_without_a_goodbye_is_reported_once(house: House) -> None:
    first, second = await house.member("m1"), await house.member("m2")
    first.send(second, b"hello")
    await until(lambda: bool(second.heard), "m2 has the message")
    second.transport.links["m1"][0].cut()
    await until(lambda: first.reports == ["connected m2", "closed m2"], "the end is reported")


async def test_a_peer_whose_port_nobody_listens_on_is_reported_as_refused(house: House) -> None:
    first = await house.member("m1")
    first.transport.dial("m2", Address(first.address.host, 9))
    await until(lambda: first.reports == ["refused m2"], "the refusal is reported")


async def test_another_member_at_the_peers_address_is_neither_the_peer_nor_its_refusal(house: House) -> None:
    first, third = await house.member("m1"), await house.member("m3")
    first.transport.dial("m2", third.address)
    await until(lambda: first.count("dials", "bad_identity") == 1, "the wrong identity is counted")
    assert first.reports == []
    assert not first.transport.links


async def test_a_revoked_peer_is_cut_at_once_and_counts_as_refusing(house: House) -> None:
    first, second = await house.member("m1"), await house.member("m2")
    first.send(second, b"hello")
    await until(lambda: bool(second.heard), "m2 has the message")
    first.revoked.add("m2")
    first.transport.shut_out()
    await until(lambda: "closed m2" in first.reports, "the end is reported")
    first.transport.dial("m2", second.address)
    await until(lambda: first.reports[-1] == "refused m2", "the refusal is reported")


async def test_a_new_connection_takes_the_place_of_the_old_one_without_a_report(house: House) -> None:
    first, second = await house.member("m1"), await house.member("m2")
    first.send(second, b"hello")
    await until(lambda: bool(second.heard), "m2 has the message")
    first.transport.dial("m2", second.address)
    await until(lambda: first.reports == ["connected m2", "connected m2"], "both connections are reported")
    first.send(second, b"again")
    await until(lambda: second.heard[-1] == ("m1", b"again"), "m2 has the second message")
    await until(lambda: [len(held) for held in second.transport.links.values()] == [1], "m2 holds one link")
    assert not any(report.startswith("closed") for report in first.reports + second.reports)


async def test_beyond_the_limit_the_least_used_connection_is_closed_with_a_goodbye(house: House) -> None:
    first = await house.member("m1", replace(UNHURRIED, links=2))
    others = [await house.member(f"m{number}") for number in (2, 3, 4)]
    for other in others:
        first.send(other, b"hello")
        await until(partial(bool, other.heard), f"{other.name} has the message")
    await until(lambda: set(first.transport.links) == {"m3", "m4"}, "the least used link is closed")
    await until(lambda: not others[0].transport.links, "m2 has no link any more")
    assert others[0].reports == ["connected m1"]


async def test_an_idle_connection_is_closed_with_a_goodbye(house: House) -> None:
    first, second = await house.member("m1"), await house.member("m2", replace(UNHURRIED, idle=math.inf))
    first.send(second, b"hello")
    await until(lambda: bool(second.heard), "m2 has the message")
    pass_time(UNHURRIED.idle)
    await until(lambda: not first.transport.links and not second.transport.links, "neither has a link any more")
    assert second.reports == ["connected m1"]


async def test_a_connection_does_not_outlive_the_peers_certificate(house: House) -> None:
    never_idle = replace(UNHURRIED, idle=math.inf)
    first, second = await house.member("m1", never_idle), await house.member("m2", never_idle)
    first.send(second, b"hello")
    await until(lambda: bool(second.heard), "m2 has the message")
    pass_time(LIFE.total_seconds())
    await until(lambda: not first.transport.links and not second.transport.links, "neither has a link any more")
    assert any("link_outlived_certificate" in line for line in first.lines)
    expired = (await house.identify("m2", timedelta(seconds=1))).load().expires + timedelta(seconds=1)
    await until(lambda: datetime.now(UTC) > expired, "the certificate of m2 has expired")
    second.contexts.reload()
    second.send(first, b"still me")
    await until(lambda: first.count("refused", "bad_certificate") > 0, "the expired certificate is refused")
    assert first.heard == []


async def test_gossip_for_a_peer_that_does_not_read_is_dropped_and_then_it_is_cut(house: House) -> None:
    first, second = await house.member("m1"), await house.member("m2")
    lazy = await as_member(house.folder / "m2", first.address)
    lazy.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await until(lambda: first.reports == ["connected m2"], "the connection is reported")

    def dropped() -> bool:
        if not (count := first.count("dropped", "slow")):
            first.send(second, b"x" * 60_000, reliable=False)
        return count > 0

    def cut() -> bool:
        if links := first.transport.links:
            first.send(second, b"x" * 60_000, reliable=True)
        return not links

    # Two kernels take some megabytes before they push back.
    await until(dropped, "what the peer does not read is dropped", every=0)
    await until(cut, "the connection is cut", every=0)
    lazy.close()
    assert first.count("refused", "slow") >= 1
    assert "closed m2" in first.reports


async def test_a_message_beyond_its_bound_is_not_sent(house: House) -> None:
    first, second = await house.member("m1"), await house.member("m2")
    first.send(second, b"x" * 65_537)
    first.send(second, b"x" * 65_536)
    await until(
        lambda: [len(payload) for _, payload in second.heard] == [65_536], "the message within the bound arrives"
    )
    assert first.count("dropped", "oversized") == 1


async def test_a_frame_of_a_kind_from_a_newer_version_ends_nothing(house: House) -> None:
    first = await house.member("m1")
    await house.member("m2")
    newer = await as_member(house.folder / "m2", first.address)
    newer.send(b"new", kind=77)
    newer.send(b"old")
    await until(lambda: first.heard == [("m2", b"new"), ("m2", b"old")], "both messages arrive")
    newer.close()
