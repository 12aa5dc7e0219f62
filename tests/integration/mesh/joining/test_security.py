"""What an untrusted network and a rogue certificate try: each is refused, logged and counted, and changes nothing."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.support.mesh.netns import cluster
from tests.support.mesh.stranger import Stream, as_member, message, nameless, request
from tests.support.waiting import PATIENCE, until, wait_until

from rackwright.lab.mesh_fleet import Fleet
from rackwright.mesh.address import Address, parse_address
from rackwright.mesh.errors import BadToken
from rackwright.mesh.identity.revocation import Revocations, Revoked, sign_revocations
from rackwright.mesh.identity.server_identity import IdentityFiles
from rackwright.mesh.joining import founding, join
from rackwright.mesh.membership.messages import Alive, Dead, Gossip, Ping
from rackwright.mesh.membership.swim import MemberRecord
from rackwright.mesh.transport import http
from rackwright.mesh.transport.link import MAX_MESSAGE, Kind
from rackwright.mesh.transport.tls import Contexts
from rackwright.mesh.transport.transport import DEFAULTS

SERVERS = ["s1", "s2"]
ALIVE = dict.fromkeys(SERVERS, "alive")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with cluster(tmp_path_factory.mktemp("pair"), SERVERS) as made:
        yield made


@pytest.fixture(scope="module")
def mallory(pair: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one who was let in, and turns out to be rogue."""
    folder = tmp_path_factory.mktemp("mallory")
    asyncio.run(enter(pair, folder, "mallory"))
    return folder


@pytest.fixture
async def stream(pair: Fleet, mallory: Path) -> AsyncIterator[Stream]:
    made = await as_member(mallory, address(pair))
    yield made
    made.close()


async def enter(pair: Fleet, folder: Path, name: str) -> None:
    token = join.read_token(pair.ask("s1", "token", name=name)["token"])
    nowhere = parse_address("127.0.0.1:1")
    await join.join(folder, join.JoinOptions(token.name, token.address, token.ca, nowhere, nowhere, token))


def address(pair: Fleet, server: str = "s1") -> Address:
    return parse_address(pair.address(server))


def refusals(pair: Fleet, reason: str, server: str = "s1") -> float:
    return pair.metric(server, f'rackwright_mesh_refused_total{{reason="{reason}"}}')


class CountedRefusal:
    """Checks around an attack: one more refusal of this reason is counted and logged, and the members are as before."""

    def __init__(self, pair: Fleet, reason: str) -> None:
        self.pair, self.reason = pair, reason

    def __enter__(self) -> None:
        self.before = refusals(self.pair, self.reason)
        self.members = self.state()

    def __exit__(self, kind: type[BaseException] | None, problem: object, trace: object) -> None:
        if kind is not None:
            return
        wait_until(lambda: refusals(self.pair, self.reason) > self.before, f"a refusal is counted as {self.reason}")
        lines = [line for line in self.pair.log("s1") if line["event"] == "refused"]
        assert any(line["reason"] == self.reason for line in lines)
        assert self.state() == self.members

    def state(self) -> list[tuple[str, bool, int]]:
        """Return the members. A slow server may be suspected and refute at any time; and mallory, a member that is
        never there, is on its way to being dead."""
        members = self.pair.ask("s1", "members")["members"]
        return [
            (member["name"], member["state"] in ("alive", "suspect"), member["session"])
            for member in members
            if member["name"] != "mallory"
        ]


async def test_a_certificate_of_another_ca_is_refused(pair: Fleet, tmp_path: Path) -> None:
    where = parse_address("127.0.0.1:1")
    await asyncio.to_thread(founding.found_cluster, tmp_path, "s2", "other", where, where)
    with CountedRefusal(pair, "bad_certificate"):
        # It holds the other CA, so it must not check ours to get as far as showing its own certificate.
        context = Contexts(IdentityFiles(tmp_path)).seed
        context.verify_mode = ssl.CERT_NONE
        answered = b""
        with contextlib.suppress(OSError):
            answered = await request(address(pair), context, http.upgrade_request("s1"))
        assert answered == b""


async def test_a_stream_without_a_certificate_is_refused(pair: Fleet) -> None:
    with CountedRefusal(pair, "no_certificate"):
        assert b"403 Forbidden" in await request(address(pair), nameless(), http.upgrade_request("s1"))


async def test_bytes_that_are_not_tls_are_refused(pair: Fleet) -> None:
    with CountedRefusal(pair, "bad_certificate"):
        reader, writer = await asyncio.open_connection(*address(pair))
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert b"HTTP" not in await reader.read()
        writer.close()


async def test_a_stranger_reaches_nothing_but_the_join_endpoint(pair: Fleet) -> None:
    for sent in (b"GET / HTTP/1.1\r\n\r\n", b"POST /mesh/v1/renew HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"):
        with CountedRefusal(pair, "bad_request"):
            assert b"400 Bad Request" in await request(address(pair), nameless(), sent)


async def test_a_body_that_is_too_long_is_refused_unread(pair: Fleet) -> None:
    with CountedRefusal(pair, "bad_request"):
        sent = b"POST /mesh/v1/join HTTP/1.1\r\nContent-Length: 999999\r\n\r\n"
        assert b"400 Bad Request" in await request(address(pair), nameless(), sent)


async def test_a_message_in_another_members_name_is_refused(pair: Fleet, stream: Stream) -> None:
    with CountedRefusal(pair, "forged"):
        stream.send(message("s2", 1, Gossip(), Dead("s2", 99, "s2"), session=99))


async def test_a_replayed_message_is_refused(pair: Fleet, stream: Stream) -> None:
    sent = message("mallory", 7, Ping(7), session=2)
    stream.send(sent)
    with CountedRefusal(pair, "replayed"):
        stream.send(sent)


async def test_an_oversized_message_ends_the_connection(pair: Fleet, stream: Stream) -> None:
    with CountedRefusal(pair, "oversized"):
        stream.send(b"", length=MAX_MESSAGE + 1)
        assert await stream.ended()


async def test_a_message_that_cannot_be_read_is_refused(pair: Fleet, stream: Stream) -> None:
    with CountedRefusal(pair, "bad_message"):
        stream.send(b"\xff" * 100)


async def test_an_unsigned_revocation_list_is_refused(pair: Fleet, stream: Stream, mallory: Path) -> None:
    forged = sign_revocations(Revocations(999, {"s2": Revoked(999, 2**40)}), IdentityFiles(mallory).load().key)
    with CountedRefusal(pair, "bad_records"):
        stream.send(forged, Kind.REVOCATIONS)
    assert pair.ask("s1", "status")["revocations"] == 0


async def test_a_rogue_member_cannot_declare_a_living_one_dead(pair: Fleet, stream: Stream) -> None:
    """It may say so; whoever is accused says otherwise, and is believed."""
    me = MemberRecord("mallory", "127.0.0.1:1", 1, 3)
    for sequence in range(1, 4):
        stream.send(message("mallory", sequence, Gossip(), Alive(me), Dead("s2", 1, "mallory"), session=3))

    def refuted() -> bool:
        accused = next(member for member in pair.ask("s1", "members")["members"] if member["name"] == "s2")
        return bool(accused["state"] == "alive" and accused["incarnation"] > 1)

    wait_until(refuted, "s2 is believed to live", every=0.2)


async def test_a_used_token_is_refused_to_another_key(pair: Fleet, tmp_path: Path) -> None:
    token = join.read_token(pair.ask("s1", "token", name="once")["token"])
    where = parse_address("127.0.0.1:1")
    wish = join.JoinOptions(token.name, token.address, token.ca, where, where, token)
    await join.join(tmp_path / "first", wish)
    with CountedRefusal(pair, "bad_token"), pytest.raises(join.JoinRefused, match="wrong, used or too old"):
        await join.join(tmp_path / "second", wish)
    assert not (tmp_path / "second" / "node.pem").exists()


async def test_a_token_with_a_wrong_secret_is_refused_and_stays_usable(pair: Fleet, tmp_path: Path) -> None:
    token = join.read_token(pair.ask("s1", "token", name="guess")["token"])
    where = parse_address("127.0.0.1:1")
    guess = join.OneTimeToken(token.name, token.address, token.ca, token.id, bytes(32))
    with CountedRefusal(pair, "bad_token"), pytest.raises(join.JoinRefused):
        await join.join(tmp_path, join.JoinOptions(token.name, token.address, token.ca, where, where, guess))
    await join.join(tmp_path, join.JoinOptions(token.name, token.address, token.ca, where, where, token))


def test_a_text_that_is_no_token_is_named_as_such() -> None:
    with pytest.raises(BadToken, match="not a join token"):
        join.read_token("rwj1.nonsense")


async def test_strangers_that_say_nothing_are_bounded(pair: Fleet) -> None:
    before = refusals(pair, "too_many")
    silent: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def one_more_is_refused() -> bool:
        silent.append(await asyncio.open_connection(*address(pair)))
        return refusals(pair, "too_many") > before

    try:
        with CountedRefusal(pair, "too_many"):
            # Each is given up after some seconds, so on a busy machine more than the bound and one may be needed.
            await until(one_more_is_refused, "one stranger is too many")
            assert len(silent) > DEFAULTS.strangers_from_one
            async with asyncio.timeout(PATIENCE):
                assert await silent[-1][0].read() == b""
    finally:
        for _, writer in silent:
            writer.transport.abort()
    wait_until(lambda: {pair.states(server)["s1"] for server in SERVERS} == {"alive"}, "s1 is alive to both", every=0.2)


async def test_a_removed_member_is_cut_off_by_all_and_stays_out(pair: Fleet, tmp_path: Path) -> None:
    await enter(pair, tmp_path, "eve")
    links = [await as_member(tmp_path, address(pair, server)) for server in SERVERS]
    before = {server: refusals(pair, "revoked", server) for server in SERVERS}
    pair.rackwright("s1", "mesh", "remove", "eve", "--yes")
    assert all([await link.ended() for link in links])
    for server in SERVERS:
        with pytest.raises(ConnectionRefusedError, match="403"):
            await as_member(tmp_path, address(pair, server))
        assert refusals(pair, "revoked", server) > before[server]
    # Nor after a restart of the one that has only heard of it.
    pair.kill("s2")
    pair.start("s2")
    with pytest.raises(ConnectionRefusedError, match="403"):
        await as_member(tmp_path, address(pair, "s2"))


async def test_a_removed_name_may_come_back_with_a_new_certificate(pair: Fleet, tmp_path: Path) -> None:
    await enter(pair, tmp_path / "old", "carol")
    pair.rackwright("s1", "mesh", "remove", "carol", "--yes")
    revocations = pair.ask("s1", "status")["revocations"]
    wait_until(lambda: pair.ask("s2", "status")["revocations"] == revocations, "s2 has heard of the removal", every=0.2)
    await enter(pair, tmp_path / "new", "carol")
    for server in SERVERS:
        (await as_member(tmp_path / "new", address(pair, server))).close()
        with pytest.raises(ConnectionRefusedError, match="403"):
            await as_member(tmp_path / "old", address(pair, server))
