"""DNS by a real Knot on a loopback address of the test's own: names follow the nodes, and only we may change them."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path

import dns.asyncquery
import dns.message
import dns.query
import dns.rcode
import dns.update
import psutil
import pytest
from tests.support.machines.boot_provider import Provider
from tests.support.networks import ADMIN_NETWORK, STORAGE
from tests.support.waiting import PATIENCE, until

from rackwright.domain.networks.dns import Record, RecordType
from rackwright.provision import dns_update
from rackwright.provision.daemon import DaemonFailed
from rackwright.provision.dns_update import DnsClient, TsigKey
from rackwright.provision.knot import Knot
from rackwright.server.composition import running_server
from rackwright.server.settings import Options
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph.deployments import SYSTEM, get_deployment
from rackwright.store.machines.nodes import delete_node
from rackwright.store.networks.allocations import ensure_addresses
from rackwright.store.networks.domains import create_domain
from rackwright.store.networks.networks import create_network

PORT = 5353
N1 = "n1.rack.example"


class Names(Provider):
    @property
    def address(self) -> str:
        assert self.options.dns_address is not None
        return self.options.dns_address

    async def records_of(self, name: str, kind: str, seconds: float = PATIENCE) -> list[str]:
        """Return the records that the server has for a name, or its error code in their place."""
        query = dns.message.make_query(name, kind)
        answer = await dns.asyncquery.udp(query, self.address, seconds, PORT)
        if answer.rcode() != dns.rcode.NOERROR:
            return [dns.rcode.to_text(answer.rcode())]
        return sorted(str(data) for rrset in answer.answer for data in rrset)

    async def look_up(self, address: str) -> list[str]:
        return await self.records_of(ip_address(address).reverse_pointer, "PTR")

    async def caught_up(self, role: str = "dns-database") -> None:
        await super().caught_up(role)

    def client(self) -> DnsClient:
        return Knot(self.options.home, self.address, PORT)._client()

    def pid(self) -> int:
        [pid] = [one.pid for one in psutil.Process().children(recursive=True) if one.name() == "knotd"]
        return int(pid)


async def _serve_domain(session: Session) -> None:
    await create_domain(session, "rack.example", await get_deployment(session, SYSTEM, EVERYTHING))


def _own_address() -> str:
    return f"127.{random.randrange(1, 255)}.{random.randrange(1, 255)}.{random.randrange(1, 255)}"


@asynccontextmanager
async def naming(home: Path, url: str) -> AsyncIterator[Names]:
    options = Options(home, database_url=url, tick=0.5, dns_address=_own_address(), dns_port=PORT)
    async with running_server(options) as server:
        names = Names(None, server, options)  # type: ignore[arg-type]  # it needs no wires
        await names.change(lambda session: create_network(session, ADMIN_NETWORK))
        await names.change(_serve_domain)
        yield names


@pytest.fixture
async def names(migrated_url: str, tmp_path: Path) -> AsyncIterator[Names]:
    async with naming(tmp_path, migrated_url) as made:
        yield made


async def test_a_node_is_found_by_name_and_address_and_gone_when_it_goes(names: Names) -> None:
    await names.change(lambda session: create_network(session, STORAGE))
    id = await names.node(N1)
    await names.caught_up()
    await names.change(lambda session: ensure_addresses(session, "storage", id))
    await names.caught_up()
    assert await names.records_of(N1, "A") == ["10.77.0.20"]
    assert await names.records_of(N1, "AAAA") == ["fd77::20"]
    for address in ("10.77.0.20", "fd77::20", "10.78.0.20"):
        assert await names.look_up(address) == [f"{N1}."]
    await names.node("n2.rack.example")
    await names.caught_up()
    await names.change(lambda session: delete_node(session, id))
    await names.caught_up()
    assert await names.records_of(N1, "A") == ["NXDOMAIN"]
    for address in ("10.77.0.20", "fd77::20", "10.78.0.20"):
        assert await names.look_up(address) == ["NXDOMAIN"]
    assert await names.records_of("n2.rack.example", "A") == ["10.77.0.21"]


async def test_what_somebody_else_put_there_goes_with_the_next_look(names: Names) -> None:
    await names.node(N1)
    await names.caught_up()
    stale = Record("old.rack.example", RecordType.A, "10.77.0.99")
    await names.client().update("rack.example", [], [stale])
    assert await names.records_of("old.rack.example", "A") == ["10.77.0.99"]
    await names.node("n2.rack.example")
    await names.caught_up()
    assert await names.records_of("old.rack.example", "A") == ["NXDOMAIN"]


async def test_only_who_has_the_key_may_read_a_zone_whole_or_change_it(names: Names) -> None:
    await names.node(N1)
    await names.caught_up()
    stranger = DnsClient(names.address, PORT, TsigKey("rackwright", b"x" * 32))
    with pytest.raises(DaemonFailed):
        await stranger.update("rack.example", [], [Record("evil.rack.example", RecordType.A, "10.0.0.1")])
    with pytest.raises(DaemonFailed):
        await stranger.read_records("rack.example")
    unsigned = dns.update.UpdateMessage("rack.example")
    unsigned.add("evil", 60, "A", "10.0.0.1")
    answer = await dns.asyncquery.tcp(unsigned, names.address, PATIENCE, PORT)
    assert dns.rcode.to_text(answer.rcode()) in ("NOTAUTH", "REFUSED")
    assert await names.records_of("evil.rack.example", "A") == ["NXDOMAIN"]


async def test_knot_killed_while_nodes_change_comes_back_and_catches_up_by_itself(names: Names) -> None:
    id = await names.node(N1)
    await names.caught_up()
    first = names.pid()
    os.kill(first, signal.SIGKILL)
    await names.node("n2.rack.example")
    await names.change(lambda session: delete_node(session, id))
    await names.caught_up()
    [address] = await names.records_of("n2.rack.example", "A")
    assert address in ("10.77.0.20", "10.77.0.21")  # the first one's may have been free already
    assert await names.look_up(address) == ["n2.rack.example."]
    assert await names.records_of(N1, "A") == ["NXDOMAIN"]
    assert names.pid() != first


async def test_a_zone_that_is_not_loaded_yet_is_read_once_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone = "rack.example"
    knot = Knot(tmp_path, _own_address(), PORT)
    try:
        await knot.start()
        knot._write_config([zone])
        await knot._run_control("reload")
        monkeypatch.setattr(dns_update, "LOADING_TIME", 0.0)
        with pytest.raises(DaemonFailed, match=r"rack\.example .* SERVFAIL"):
            await knot._client().read_records(zone)
        monkeypatch.setattr(dns_update, "LOADING_TIME", PATIENCE)
        reading = asyncio.create_task(knot._client().read_records(zone))
        knot._write_zone(zone)
        await knot._run_control("zone-reload", zone)
        assert await reading == frozenset()
    finally:
        await knot.stop()


async def test_a_server_that_starts_again_has_its_names_again(migrated_url: str, tmp_path: Path) -> None:
    async with naming(tmp_path, migrated_url) as names:
        await names.node(N1)
        await names.caught_up()
        options = names.options
    async with running_server(options) as server:
        again = Names(None, server, options)  # type: ignore[arg-type]  # it needs no wires

        async def answers() -> bool:
            try:
                return await again.records_of(N1, "A", 5) == ["10.77.0.20"]  # what was asked too early is lost
            except (OSError, dns.exception.DNSException):
                return False

        await until(answers, "the name is served again")
