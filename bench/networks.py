"""What an address costs: of a small range, of a huge one, and of one of which much is taken, within one run.

Goal: the last two cost no more than twice the first; the size of a range is no part of the price.
"""

import asyncio
import tempfile
import time
from functools import partial
from ipaddress import IPv4Network, IPv6Network, ip_address
from pathlib import Path

from rackwright.barclamps.loader import built_in
from rackwright.domain.networks.networks import Network, Range, Use
from rackwright.store.bootstrap import first_start
from rackwright.store.db.database import open_database
from rackwright.store.db.session import Session
from rackwright.store.machines.nodes import NewNode, create_node
from rackwright.store.networks.allocations import ensure_addresses
from rackwright.store.networks.network_rows import get_network
from rackwright.store.networks.networks import create_network
from rackwright.store.store import Store
from report import at_most, emit

NODES = 200
TAKEN = 50_000

NETWORKS = (
    Network(
        "small",
        v4_subnet=IPv4Network("10.1.0.0/23"),
        ranges=(Range("host", Use.HOST, ip_address("10.1.0.10"), ip_address("10.1.1.250")),),
    ),
    Network(
        "huge",
        v6_subnet=IPv6Network("fd00::/64"),
        ranges=(Range("host", Use.HOST, ip_address("fd00::10"), ip_address("fd00::ffff:ffff:ffff:fff0")),),
    ),
    Network(
        "taken",
        v4_subnet=IPv4Network("10.8.0.0/13"),
        ranges=(Range("host", Use.HOST, ip_address("10.8.0.10"), ip_address("10.15.255.250")),),
    ),
)


async def _take_much(store: Store) -> None:
    """Every second address of the range is taken already, so that there are as many gaps."""

    async def work(session: Session) -> None:
        range_id = (await get_network(session, "taken")).range_ids["host"]
        await session.run("DELETE FROM range_gaps WHERE range_id = :id", id=range_id)
        await session.run(
            "INSERT INTO range_gaps SELECT id, first + 2 * n, first + 2 * n"
            " FROM ranges, generate_series(0, :taken) AS n WHERE id = :id",
            id=range_id,
            taken=TAKEN,
        )

    await store.change(work)


async def _measure(store: Store, nodes: list[int]) -> dict[str, float]:
    """Milliseconds for one address of each network, the middle of all; in turns, so that noise is everybody's."""
    took: dict[str, list[float]] = {network.name: [] for network in NETWORKS}
    for node in nodes:
        for name, times in took.items():
            start = time.perf_counter()
            await store.change(partial(ensure_addresses, network=name, node_id=node))
            times.append(time.perf_counter() - start)
    return {f"{name}_ms": round(sorted(times)[len(times) // 2] * 1000, 2) for name, times in took.items()}


async def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        async with await open_database(None, Path(home)) as database:
            store = Store(database)
            await first_start(store, built_in(), "admin.rack.example")
            nodes = []
            for number in range(NODES):
                new = NewNode(f"n{number}.rack.example")
                nodes.append(await store.change_graph(partial(create_node, new=new)))
            for network in NETWORKS:
                await store.change_graph(partial(create_network, network=network))
            await _take_much(store)
            figures = await _measure(store, nodes)
    small = figures["small_ms"]
    emit(
        "networks",
        figures,
        [at_most(f"{name} range against a small one", figures[f"{name}_ms"] / small, 2) for name in ("huge", "taken")],
    )


if __name__ == "__main__":
    asyncio.run(main())
