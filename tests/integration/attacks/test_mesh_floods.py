"""What is sent to an agent of the mesh in masses: by strangers at the join endpoint, and by a member taken over.

Strangers get a bounded share and no more, whatever they do with it, and members keep theirs. A member may tell of as
many made-up members as a table holds; that must cost the others neither their time, their memory nor their datastore.
"""

import asyncio
import contextlib
import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.mesh.netns import cluster
from tests.support.mesh.stranger import as_member, message, nameless
from tests.support.waiting import PATIENCE, until, wait_until

from rackwright.lab.mesh_fleet import Fleet
from rackwright.mesh.address import Address, parse_address
from rackwright.mesh.datastore.datastore_gossip import Hint, Part
from rackwright.mesh.datastore.local_datastore import MAX_ENDPOINTS
from rackwright.mesh.health.health_checks import CheckReport, Status, pack_reports
from rackwright.mesh.health.software import MAX_RECORDS, SoftwareTracker
from rackwright.mesh.identity.server_identity import IdentityFiles, make_signing_request, new_key
from rackwright.mesh.joining import join
from rackwright.mesh.membership.member import Entry, State
from rackwright.mesh.membership.member_table import MemberTable
from rackwright.mesh.membership.messages import Alive, Gossip, SyncState
from rackwright.mesh.membership.metadata import Section, pack_sections
from rackwright.mesh.membership.swim import MemberRecord
from rackwright.mesh.transport import http
from rackwright.mesh.transport.link import Kind
from rackwright.mesh.transport.name_lookup import THREADS, Lookup
from rackwright.mesh.transport.tls import Contexts
from rackwright.mesh.transport.transport import DEFAULTS

PAIR = ["s1", "s2"]
JUNK = b"GET /nothing HTTP/1.1\r\n\r\n"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with cluster(tmp_path_factory.mktemp("pair"), PAIR) as fleet:
        yield fleet


@pytest.fixture(scope="module", autouse=True)
def mallory(pair: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one who was let in, before any flood, and turns out to be rogue. Another has been removed."""
    enter(pair, tmp_path_factory.mktemp("removed"), "removed")
    pair.ask("s1", "remove", name="removed")
    return enter(pair, tmp_path_factory.mktemp("mallory"), "mallory")


def enter(fleet: Fleet, folder: Path, name: str) -> Path:
    token = join.read_token(fleet.ask("s1", "token", name=name)["token"])
    here = parse_address("127.0.0.1:11111")
    asyncio.run(join.join(folder, join.JoinOptions(token.name, token.address, token.ca, here, here, token)))
    return folder


def address(fleet: Fleet, server: str = "s1") -> Address:
    return parse_address(fleet.address(server))


def descriptors(fleet: Fleet, server: str = "s1") -> int:
    return len(list(Path(f"/proc/{fleet.pid(server)}/fd").iterdir()))


def processor_seconds(fleet: Fleet, server: str = "s1") -> float:
    """How long an agent has kept a processor busy."""
    fields = Path(f"/proc/{fleet.pid(server)}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def most_memory(fleet: Fleet, server: str = "s1") -> int:
    """How many bytes an agent has held at most."""
    lines = Path(f"/proc/{fleet.pid(server)}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


# Strangers


def secured(address: Address, source: str = "") -> ssl.SSLSocket:
    """A connection of a stranger with TLS."""
    wire = socket.create_connection(address, PATIENCE, (source, 0) if source else None)
    return nameless().wrap_socket(wire, server_hostname=address.host)


def test_strangers_that_never_hang_up_hold_no_more_than_their_share(pair: Fleet) -> None:
    """TLS waits half a minute for the other side to agree that a connection is over."""
    server, before = address(pair), descriptors(pair)
    with contextlib.ExitStack() as stack:
        for _ in range(20 * DEFAULTS.strangers_from_one):
            with contextlib.suppress(OSError):
                wire = stack.enter_context(secured(server))
                wire.sendall(JUNK)
                wire.recv(1)
        assert descriptors(pair) - before <= 2 * DEFAULTS.strangers_from_one


async def test_strangers_at_many_addresses_do_not_shut_members_out(pair: Fleet, mallory: Path) -> None:
    """They hold every place that there is for strangers, and say nothing."""
    server = address(pair)
    (await as_member(mallory, server)).close()
    with contextlib.ExitStack() as stack:
        for number in range(2 * DEFAULTS.strangers):
            source = f"127.0.9.{1 + number // DEFAULTS.strangers_from_one}"
            stack.enter_context(socket.create_connection(server, PATIENCE, (source, 0)))
        stream = await as_member(mallory, server)
        stream.close()


async def test_strangers_do_not_keep_a_member_from_renewing_its_certificate(pair: Fleet, mallory: Path) -> None:
    """Not for a minute, or by asking every minute they could wait for its certificate to expire."""
    server = address(pair)
    limited = 0
    for number in range(1000):
        with (
            contextlib.suppress(OSError),
            await asyncio.to_thread(secured, server, f"127.0.8.{1 + number // 50}") as wire,
        ):
            wire.sendall(b"GET /mesh/v1/join HTTP/1.1\r\n\r\n")
            limited += b" 429 " in wire.recv(100)
        if limited > 2:
            break
    assert limited > 2, "strangers have used up what there is"
    wish = {"csr": make_signing_request("mallory", new_key()).decode()}
    answer = await http.call(server, Contexts(IdentityFiles(mallory)).client, "POST", http.RENEW, wish, "s1")
    assert answer.status == 200, answer.content


# A member


async def test_a_member_that_asks_and_never_reads_is_cut_off(pair: Fleet, mallory: Path) -> None:
    """Each question is twelve bytes, and each answer the whole list of who is shut out."""
    stream = await as_member(mallory, address(pair))
    before = most_memory(pair)
    stream.reader._limit = 1  # type: ignore[attr-defined] # stops reading: what comes is left to pile up over there
    questions = (bytes([Kind.REVOCATIONS_VERSION]) + (8).to_bytes(3, "big") + bytes(8)) * 5000

    async def ask_on() -> None:
        for _ in range(200):
            stream.writer.write(questions)
            await stream.writer.drain()

    with pytest.raises(ConnectionError):
        await ask_on()
    assert most_memory(pair) - before < 20e6


def made_up(number: int, hint: bytes) -> MemberRecord:
    address = f"127.1.{number // 200 % 200}.{1 + number % 200}:1"
    return MemberRecord(f"made-up-{number}", address, 1, 1, metadata=pack_sections({Section.DATASTORE: hint}))


async def test_made_up_members_cost_neither_time_nor_the_datastore(pair: Fleet, mallory: Path) -> None:
    """As many as a table holds, all of which are said to be datastores, of the last datastore that can be counted."""
    voter = Hint(Part.VOTER, True, 1, 2379, 2380).pack()
    newest = Hint(Part.VOTER, True, 2**32 - 1, 2379, 2380).pack()
    records = [made_up(number, newest if number % 2 else voter) for number in range(20_000)]
    stream = await as_member(mallory, address(pair))
    began = processor_seconds(pair)
    for number in range(0, len(records), 500):
        page = tuple((State.ALIVE, record) for record in records[number : number + 500])
        stream.send(message("mallory", number + 1, SyncState(0, False, page), session=7))
    await stream.writer.drain()
    stream.send(message("mallory", 30_000, Gossip(), Alive(made_up(30_000, voter)), session=7))

    def known() -> int:
        return sum(pair.ask("s1", "status")["members"].values())

    await until(lambda: known() > 15_000, "they are in the table", every=0.5)
    assert processor_seconds(pair) - began < 60
    datastore = pair.ask("s1", "datastore")
    assert datastore["era"] == 1
    assert len(datastore["endpoints"]) <= MAX_ENDPOINTS
    peers_file = pair.home("s1") / "peers.json"
    wait_until(
        lambda: pair.address("s2") in json.loads(peers_file.read_text()), "who is proved is sought first", every=0.5
    )
    assert pair.states("s1")["s2"] == "alive"
    stream.close()


def test_names_that_take_long_to_find_hold_nothing_else_up(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    def slow(*lookups: object, **more: object) -> list[object]:
        release.wait(PATIENCE)
        raise socket.gaierror

    async def trial() -> None:
        lookup = Lookup()
        lookups = [asyncio.create_task(lookup.ips_of(Address(f"slow-{n}.example", 1))) for n in range(20 * THREADS)]
        await asyncio.sleep(0)
        async with asyncio.timeout(PATIENCE / 2):
            assert await asyncio.to_thread(lambda: "done") == "done"
        release.set()
        await asyncio.gather(*lookups, return_exceptions=True)
        lookup.close()

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    asyncio.run(trial())


def test_what_is_remembered_of_the_software_of_members_has_an_end() -> None:
    watch = SoftwareTracker()
    health = pack_reports([CheckReport("web", Status.FAILING, "it is down")])
    for number in range(MAX_RECORDS + 10):
        watch.changes(MemberRecord(f"m{number}", "127.0.0.1:1", metadata=pack_sections({Section.HEALTH: health})))
    assert len(watch._last_records) == MAX_RECORDS
    for number in range(MAX_RECORDS + 10):
        watch.changes(MemberRecord(f"m{number}", "127.0.0.1:1"))
    assert not watch._last_records


def test_the_member_that_went_first_is_found_without_a_look_at_all_the_others() -> None:
    """A full table forgets one for each new member; a message tells of a thousand."""
    table = MemberTable()
    for number in range(20_000):
        table.put(Entry(MemberRecord(f"m{number}", "127.0.0.1:1"), State.DEAD, float(number)))
    began = time.process_time()
    for number in range(5000):
        oldest = table.oldest_gone()
        assert oldest is not None
        assert oldest.name == f"m{number}"
        table.drop(oldest.name)
    assert time.process_time() - began < 5


async def test_a_name_of_several_addresses_is_reached_at_the_one_that_answers(
    pair: Fleet, mallory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = address(pair)
    entries = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, where.port)) for host in ("127.255.0.1", where.host)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments, **more: entries)
    lookup = Lookup()
    _, writer = await lookup.connect(
        Address("several.example", where.port), Contexts(IdentityFiles(mallory)).client, "s1", 1024
    )
    assert writer.get_extra_info("peername")[0] == where.host
    writer.transport.abort()
    lookup.close()
