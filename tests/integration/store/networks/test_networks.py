"""Networks and addresses in a real database: which node gets which, that none is given twice, that all are freed."""

import asyncio
import random
from dataclasses import replace
from functools import partial
from ipaddress import IPv4Address, IPv4Network, ip_address
from pathlib import Path

import pytest
from sqlalchemy.exc import IntegrityError
from tests.support.networks import ADMIN_NETWORK, STORAGE, network, span
from tests.support.rack import ADMIN, Rack, refused, unbroken

from rackwright.barclamps.loader import built_in
from rackwright.domain.errors import Conflict, Invalid, Rule
from rackwright.domain.networks.networks import Address, Network, Use
from rackwright.domain.states import ACTIVE
from rackwright.store.bootstrap import first_start
from rackwright.store.db.database import open_database
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph.run_attribs import stage_noderoles
from rackwright.store.machines.nodes import delete_node, get_node, update_node
from rackwright.store.networks import allocations, networks
from rackwright.store.networks.allocations import AllocationRecord, ensure_addresses
from rackwright.store.networks.free_ranges import return_address, take_address, take_lowest_address
from rackwright.store.networks.network_rows import get_network, lock_network
from rackwright.store.store import Store


async def make(rack: Rack, *new_networks: Network) -> None:
    for new_network in new_networks:
        await rack.do(partial(networks.create_network, network=new_network))


async def give(rack: Rack, node: str, name: str) -> list[str]:
    id = await rack.node_id(node)
    allocated = await rack.do(lambda session: ensure_addresses(session, name, id))
    return [str(allocation.address) for allocation in allocated]


async def hint(rack: Rack, node: str, name: str, **wishes: str) -> None:
    id = await rack.node_id(node)
    await rack.do(lambda session: update_node(session, id, {"hint": {"hint": {name: {**wishes}}}}))


async def held(rack: Rack) -> list[AllocationRecord]:
    async with rack.store.read() as session:
        return await allocations.select_allocations(session, "ORDER BY a.family, a.address")


async def check_gaps(rack: Rack) -> None:
    """Check that every address of every range is either in just one gap or with a node."""
    wrong = await rack.rows(
        """
        SELECT r.name FROM ranges r WHERE
          (SELECT coalesce(sum(g.last - g.first + 1), 0) FROM range_gaps g WHERE g.range_id = r.id)
          + (SELECT count(*) FROM allocations a WHERE a.range_id = r.id) <> r.last - r.first + 1
          OR EXISTS (SELECT FROM range_gaps g JOIN allocations a ON a.range_id = g.range_id
                     AND a.address BETWEEN g.first AND g.last WHERE g.range_id = r.id)
          OR EXISTS (SELECT FROM range_gaps g WHERE g.range_id = r.id AND (g.first < r.first OR g.last > r.last))
          OR EXISTS (SELECT FROM allocations a WHERE a.range_id IS DISTINCT FROM r.id AND a.network_id = r.network_id
                     AND a.address BETWEEN r.first AND r.last)
        """
    )
    assert wrong == []


# --- who gets which


async def test_a_node_gets_the_lowest_free_address_of_each_family(rack: Rack) -> None:
    await rack.node("n1")
    await rack.node("n2")
    await make(rack, ADMIN_NETWORK)
    assert await give(rack, "n1", "admin") == ["10.77.0.20", "fd77::20"]
    assert await give(rack, "n2", "admin") == ["10.77.0.21", "fd77::21"]
    assert await give(rack, "n1", "admin") == ["10.77.0.20", "fd77::20"]
    await check_gaps(rack)


async def test_an_admin_node_gets_its_address_from_the_range_for_admin_nodes(rack: Rack) -> None:
    await make(rack, ADMIN_NETWORK)
    assert await give(rack, ADMIN, "admin") == ["10.77.0.10", "fd77::10"]


async def test_an_admin_network_comes_to_nodes_that_live_in_a_deployment_of_their_own(rack: Rack) -> None:
    await rack.deployment("web")
    await rack.node("n1", deployment="web")
    await rack.anneal()
    await make(rack, ADMIN_NETWORK)
    assert (await rack.at("n1", "network-admin")).deployment == "system"
    async with rack.store.read() as session:
        assert (await get_node(session, "n1.rack.example", EVERYTHING)).deployment_id == (await rack.record("web")).id
    await rack.anneal()
    await unbroken(rack)


async def test_an_address_that_the_host_has_already_counts_even_as_a_router(rack: Rack) -> None:
    await make(rack, ADMIN_NETWORK)
    id = await rack.node_id(ADMIN)
    has = [ip_address("192.0.2.1"), ip_address("10.77.0.1")]
    allocated = await rack.do(lambda session: ensure_addresses(session, "admin", id, None, has))
    assert [str(allocation.address) for allocation in allocated] == ["10.77.0.1", "fd77::10"]


async def test_a_hint_comes_first_and_a_changed_one_moves_the_node(rack: Rack) -> None:
    await rack.node("n1")
    await make(rack, ADMIN_NETWORK)
    await hint(rack, "n1", "admin", v4addr="10.77.0.42")
    assert await give(rack, "n1", "admin") == ["10.77.0.42", "fd77::20"]
    await hint(rack, "n1", "admin", v4addr="10.77.0.5", v6addr="fd77::42")
    assert await give(rack, "n1", "admin") == ["10.77.0.5", "fd77::42"]
    assert [allocation.range for allocation in await held(rack)] == [None, "host6"]
    await check_gaps(rack)


async def test_a_hint_that_somebody_else_has_is_a_conflict_that_names_him(rack: Rack) -> None:
    await rack.node("n1")
    await rack.node("n2")
    await make(rack, ADMIN_NETWORK)
    await give(rack, "n1", "admin")
    await hint(rack, "n2", "admin", v4addr="10.77.0.20")
    with refused(Rule.EXISTS, "10.77.0.20", "n1.rack.example"):
        await give(rack, "n2", "admin")
    assert {allocation.node for allocation in await held(rack)} == {"n1.rack.example"}


@pytest.mark.parametrize("wish", ["10.77.0.150", "10.77.0.1", "10.78.0.5", "fd77::5", "nonsense"])
async def test_a_hint_that_nobody_may_have_is_refused(rack: Rack, wish: str) -> None:
    await rack.node("n1")
    await make(rack, ADMIN_NETWORK)
    await hint(rack, "n1", "admin", v4addr=wish)
    with pytest.raises(Invalid):
        await give(rack, "n1", "admin")


async def test_the_host_part_of_the_admin_address_is_kept_where_it_is_free(rack: Rack) -> None:
    for name in ("n1", "n2", "n3"):
        await rack.node(name)
    await make(rack, ADMIN_NETWORK, STORAGE)
    await hint(rack, "n1", "admin", v4addr="10.77.0.42")
    await hint(rack, "n3", "admin", v4addr="10.77.0.43")
    await hint(rack, "n2", "storage", v4addr="10.78.0.43")
    for name in ("n1", "n2", "n3"):
        await give(rack, name, "admin")
    assert await give(rack, "n1", "storage") == ["10.78.0.42"]
    assert await give(rack, "n2", "storage") == ["10.78.0.43"]
    assert await give(rack, "n3", "storage") == ["10.78.0.10"]


async def test_a_full_network_says_so_and_what_to_do(rack: Rack) -> None:
    await rack.node("n1")
    await rack.node("n2")
    await make(rack, network("tiny", "10.79.0.0/29", None, span("host", "10.79.0.2", "10.79.0.2")))
    assert await give(rack, "n1", "tiny") == ["10.79.0.2"]
    with refused(Rule.EXISTS, "tiny", "n2.rack.example"):
        await give(rack, "n2", "tiny")
    await rack.do(lambda s: networks.change_range(s, "tiny", "host", {"last": ip_address("10.79.0.3")}))
    assert await give(rack, "n2", "tiny") == ["10.79.0.3"]
    await check_gaps(rack)


# --- nobody gets another's


async def test_no_address_is_given_twice_to_many_who_ask_at_once(rack: Rack, started_url: str, tmp_path: Path) -> None:
    """Two servers with many sessions each; half of what is asked for is a certain address that others want too."""
    nodes = [await rack.node(f"n{number}") for number in range(40)]
    await make(rack, network("one", "10.80.0.0/24", None, span("host", "10.80.0.10", "10.80.0.60")))
    contested = [IPv4Address(f"10.80.0.{number}") for number in range(10, 20)]

    async def ask(store: Store, number: int, node: int) -> bool:
        address = contested[number % len(contested)] if number % 2 else None
        try:
            await store.change(lambda session: allocations.allocate_address(session, "one", node, address))
        except Conflict as error:
            return error.rule is not Rule.EXISTS
        return True

    async with await open_database(started_url, tmp_path / "other") as database:
        stores = [rack.store, Store(database)]
        granted = await asyncio.gather(*(ask(stores[number % 2], number, node) for number, node in enumerate(nodes)))
    allocated = await held(rack)
    assert len(allocated) == sum(granted) >= 20
    assert len({allocation.address for allocation in allocated}) == len(allocated)
    await check_gaps(rack)


async def test_the_database_itself_refuses_an_address_twice_and_networks_that_overlap(rack: Rack) -> None:
    first, second = await rack.node("n1"), await rack.node("n2")
    await make(rack, ADMIN_NETWORK)
    await give(rack, "n1", "admin")
    insert = (
        "INSERT INTO allocations (network_id, node_id, address, family) SELECT id, :node, '10.77.0.20', 4 FROM networks"
    )
    with pytest.raises(IntegrityError, match="allocations_address_key"):
        await rack.do(lambda session: session.run(insert, node=second))
    with pytest.raises(IntegrityError, match="networks_v4_subnet_excl"):
        await rack.do(
            lambda session: session.run(
                "INSERT INTO networks (name, category, v4_subnet) VALUES ('x', 'general', '10.77.0.128/25')"
            )
        )
    assert first != second


async def test_gaps_stay_true_through_any_order_of_taking_and_giving_back(rack: Rack) -> None:
    await make(rack, network("one", "10.80.0.0/24", None, span("host", "10.80.0.92", "10.80.0.111")))
    dice = random.Random(7)
    async with rack.store.read() as session:
        range_id = (await get_network(session, "one")).range_ids["host"]
    every: list[Address] = [IPv4Address(f"10.80.0.{number}") for number in range(92, 112)]

    async def work(session: Session) -> None:
        taken: set[Address] = set()
        await lock_network(session, "one")
        for _ in range(300):
            address = dice.choice(every)
            if address in taken:
                assert not await take_address(session, range_id, address)
                await return_address(session, range_id, address)
                taken.remove(address)
            elif dice.random() < 0.3:
                lowest = await take_lowest_address(session, range_id)
                assert lowest == min(set(every) - taken, key=int)
                taken.add(lowest)
            else:
                assert await take_address(session, range_id, address)
                taken.add(address)
            free = [
                ip_address(row.first + offset)
                for row in await session.rows(
                    "SELECT first - inet '0.0.0.0' AS first, last - first AS more FROM range_gaps WHERE range_id = :id",
                    id=range_id,
                )
                for offset in range(row.more + 1)
            ]
            assert set(free) == set(every) - taken

    await rack.do(work)


async def test_an_address_of_a_huge_range_costs_as_little_as_of_a_small_one(rack: Rack) -> None:
    """Counted, not timed: the same statements, each by index, whatever the size."""
    await rack.node("n1")
    await make(
        rack,
        network("small", "10.81.0.0/29", None, span("host", "10.81.0.2", "10.81.0.6")),
        network("huge", None, "fd81::/64", span("host", "fd81::2", "fd81::ffff:ffff:ffff:fffe")),
    )
    assert await give(rack, "n1", "small") == ["10.81.0.2"]
    assert await give(rack, "n1", "huge") == ["fd81::2"]
    [(small,), (huge,)] = await rack.rows("SELECT count(*) FROM range_gaps GROUP BY range_id")
    assert small == huge == 1


# --- all come back


async def test_addresses_go_with_their_node(rack: Rack) -> None:
    await rack.node("n1")
    await rack.node("n2")
    await make(rack, ADMIN_NETWORK)
    await give(rack, "n1", "admin")
    await give(rack, "n2", "admin")
    id = await rack.node_id("n1")
    await rack.do(lambda session: delete_node(session, id))
    assert {allocation.node for allocation in await held(rack)} == {"n2.rack.example"}
    await rack.node("n3")
    assert await give(rack, "n3", "admin") == ["10.77.0.20", "fd77::20"]
    await check_gaps(rack)


async def test_addresses_go_when_the_role_is_unbound(rack: Rack) -> None:
    await rack.node("n1")
    await make(rack, STORAGE)
    await rack.deployment("d")
    await rack.deploy("d", ("n1", "network-storage"))
    noderole = await rack.at("n1", "network-storage")
    await rack.do(lambda session: ensure_addresses(session, "storage", noderole.node_id, noderole.id))
    assert len(await held(rack)) == 1
    await rack.propose("d")
    await rack.unbind("d", ("n1", "network-storage"))
    await rack.commit("d")
    assert await held(rack) == []
    await check_gaps(rack)


async def test_an_address_given_by_hand_stays_until_it_is_taken_back_by_hand(rack: Rack) -> None:
    id = await rack.node("n1")
    await make(rack, STORAGE)
    await rack.do(lambda session: allocations.allocate_address(session, "storage", id, ip_address("10.78.0.5")))
    await rack.do(lambda session: allocations.free_address(session, "storage", ip_address("10.78.0.5")))
    assert await held(rack) == []


async def test_an_address_of_a_bound_role_is_not_taken_back_by_hand(rack: Rack) -> None:
    await rack.node("n1")
    await make(rack, STORAGE)
    await rack.deployment("d")
    await rack.deploy("d", ("n1", "network-storage"))
    noderole = await rack.at("n1", "network-storage")
    await rack.do(lambda session: ensure_addresses(session, "storage", noderole.node_id, noderole.id))
    with refused(Rule.BOUND, "network-storage", "hint-storage-v4addr"):
        await rack.do(lambda session: allocations.free_address(session, "storage", ip_address("10.78.0.10")))


# --- the roles


async def test_every_machine_is_on_the_admin_network_whenever_it_came(rack: Rack) -> None:
    await rack.node("n1")
    await make(rack, ADMIN_NETWORK)
    await rack.node("n2")
    for node in ("admin", "n1", "n2"):
        assert "network-admin" in await rack.on(node)
    assert ("n2", "network-admin") in await rack.parents("n2", "crowbar-managed-node")
    await rack.anneal()
    assert await rack.state("n1", "network-admin") is ACTIVE
    await unbroken(rack)


async def test_a_machine_has_its_address_before_its_first_boot_but_not_in_quarantine(rack: Rack) -> None:
    await make(rack, ADMIN_NETWORK)
    await rack.node("n1", alive=False)
    stranger = await rack.node("n2", alive=False)
    await rack.do(lambda session: update_node(session, stranger, {"available": False}))
    await rack.do(allocations.allocate_for_bound_nodes)
    assert [(allocation.node, str(allocation.address)) for allocation in await held(rack)] == [
        ("n1.rack.example", "10.77.0.20"),
        ("n1.rack.example", "fd77::20"),
    ]


async def test_a_change_of_the_network_is_a_changed_input_of_its_noderoles(rack: Rack) -> None:
    await rack.node("n1")
    await make(rack, ADMIN_NETWORK)
    await rack.anneal()
    await rack.do(lambda session: networks.delete_router(session, "admin", "10.77.0.1"))
    assert ("n1", "network-admin") in await rack.anneal()


async def test_a_network_whose_addresses_nodes_have_is_not_deleted(rack: Rack) -> None:
    await rack.node("n1")
    await make(rack, STORAGE)
    await give(rack, "n1", "storage")
    with refused(Rule.BOUND, "n1.rack.example", "storage"):
        await rack.do(lambda session: networks.delete_network(session, "storage"))


async def test_a_network_goes_with_its_role_and_can_be_made_again(rack: Rack) -> None:
    await make(rack, ADMIN_NETWORK, STORAGE)
    await rack.anneal()
    await give(rack, ADMIN, "admin")
    for name in ("admin", "storage"):
        await rack.do(partial(networks.delete_network, name=name))
    assert await rack.rows("SELECT name FROM roles WHERE name LIKE 'network-%'") == []
    assert await held(rack) == []
    await unbroken(rack)
    await make(rack, ADMIN_NETWORK)


async def test_a_subnet_that_would_leave_an_address_out_is_a_conflict(rack: Rack) -> None:
    await rack.node("n1")
    await make(rack, STORAGE)
    await give(rack, "n1", "storage")
    await rack.do(lambda session: networks.delete_range(session, "storage", "host"))
    with refused(Rule.BOUND, "10.78.0.10"):
        await rack.do(
            lambda session: networks.update_network(session, "storage", {"v4_subnet": IPv4Network("10.78.0.128/25")})
        )


async def test_a_range_for_dhcp_takes_no_address_that_a_node_has(rack: Rack) -> None:
    await rack.node("n1")
    await make(rack, STORAGE)
    await give(rack, "n1", "storage")
    with refused(Rule.BOUND, "n1.rack.example", "10.78.0.10"):
        await rack.do(lambda session: networks.change_range(session, "storage", "host", {"use": Use.DYNAMIC}))


async def test_a_server_that_starts_again_leaves_networks_as_they_are(rack: Rack) -> None:
    await make(rack, ADMIN_NETWORK)
    before = await rack.on("admin")
    await first_start(rack.store, built_in(test=True), ADMIN)
    assert await rack.on("admin") == before
    async with rack.store.read() as session:
        assert (await get_network(session, "admin")).network == replace(
            ADMIN_NETWORK,
            ranges=tuple(sorted(ADMIN_NETWORK.ranges, key=lambda range: (range.family, int(range.first)))),
        )


async def test_a_role_made_in_the_middle_of_a_claim_does_not_upset_it(rack: Rack) -> None:
    await rack.node("n1")

    async def work(session: Session) -> str:
        await session.catalogue()
        await make(rack, ADMIN_NETWORK)  # another transaction, while this one goes on
        noderole = await session.value(
            "SELECT nr.id FROM node_roles nr JOIN roles r ON r.id = nr.role_id WHERE r.name = 'network-admin' LIMIT 1"
        )
        return (await stage_noderoles(session, [noderole]))[noderole].role.name

    assert await rack.store.change(work) == "network-admin"
