"""Orders for a machine's power where only one of two servers is on the network of its BMC."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.servers.api_server import NODE, Api, Site, ok, refused
from tests.support.waiting import PATIENCE, until

from rackwright.annealer.installs import Reach
from rackwright.annealer.power_orders import PowerOrders
from rackwright.api.app import create_app
from rackwright.domain.machines.power import PowerOrder
from rackwright.hammers.base import ControllerUnreachable, Hammer, HammerFailed, HammerNode
from rackwright.hammers.redfish import RedfishHammer
from rackwright.lab.bmc import Login, create_bmc
from rackwright.lab.hardware import Hardware
from rackwright.lab.virtual import VirtualMachine
from rackwright.server.listener import listening
from rackwright.store.machines import power_orders

PASSWORD = "right"  # of a BMC that lives as long as a test
NOBODY = "127.0.0.1:1"
"""Where a BMC is for a server that is not on its network: nothing answers there."""
AT_ONCE = 0.5
"""Seconds that a server waits for others, in tests in which there is none that could."""


def _reach(*, near: bool) -> Reach:
    """How a server reaches machines that is on the network of their BMCs, or is not."""
    hammer = RedfishHammer()

    def choose(node: HammerNode) -> Hammer:
        return hammer

    def probe(node: HammerNode) -> None:
        raise AssertionError("nothing is looked at")

    return Reach(choose if near else lambda node: _Elsewhere(), probe)  # type: ignore[arg-type]


class _Elsewhere(RedfishHammer):
    """The hammer of a server that is not on the network of the BMCs: it connects, and nothing answers."""

    async def _with_system(self, node: HammerNode, do):  # type: ignore[no-untyped-def]
        bmc = node.settings["bmc"]
        assert isinstance(bmc, dict)
        return await super()._with_system(replace(node, settings={"bmc": {**bmc, "address": NOBODY}}), do)


@pytest.fixture
async def machine(tmp_path: Path, api: Api) -> AsyncIterator[VirtualMachine]:
    """The machine of a node, whose BMC the servers are told of."""
    machine = VirtualMachine(Hardware(1, memory=64, disk="16M"), tmp_path / "m1")
    async with listening(create_bmc(machine, Login("admin", PASSWORD))) as address:
        ok(await api.post("/nodes", json={"name": NODE}), 201)
        body = {"address": address.removeprefix("http://"), "username": "admin", "password": PASSWORD, "plain": True}
        ok(await api.put(f"/nodes/{NODE}/bmc", json=body), 204)
        try:
            yield machine
        finally:
            await machine.off()


@pytest.fixture
def asked(site: Site) -> Callable[[float], Api]:
    """Make clients of a server that does not reach the BMC, and waits so long for others."""

    def client(patience: float) -> Api:
        orders = PowerOrders(site.server.store, _reach(near=False), "alpha", patience=patience)
        return Site(site.server, create_app(replace(site.server, power_orders=orders)), site.token).client()

    return client


@contextlib.asynccontextmanager
async def _other_server(site: Site, name: str, *, near: bool) -> AsyncIterator[None]:
    """Run the part of another server that takes orders over."""
    orders = PowerOrders(site.server.store, _reach(near=near), name, patience=PATIENCE)
    running = asyncio.create_task(orders.run())
    try:
        yield
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def _no_orders(site: Site) -> bool:
    return await site.rack.rows("SELECT id FROM power_orders") == []


async def test_an_order_goes_to_the_server_that_reaches_the_bmc(
    site: Site, machine: VirtualMachine, asked: Callable[[float], Api]
) -> None:
    async with asked(PATIENCE) as alpha, _other_server(site, "beta", near=True):
        assert ok(await alpha.get(f"/nodes/{NODE}/power"))["power"] == "off"
        assert ok(await alpha.post(f"/nodes/{NODE}/power", json={"action": "on"}))["power"] == "on"
        assert machine.is_on
        assert ok(await alpha.post(f"/nodes/{NODE}/boot_device", json={"device": "network"}))["power"] == "on"
        assert ok(await alpha.post(f"/nodes/{NODE}/power", json={"action": "off"}))["power"] == "off"
        assert not machine.is_on
    assert await _no_orders(site)


async def test_where_no_server_reaches_the_bmc_each_is_named(
    site: Site, machine: VirtualMachine, asked: Callable[[float], Api]
) -> None:
    async with asked(5.0) as alpha, _other_server(site, "beta", near=False):
        problem = refused(await alpha.get(f"/nodes/{NODE}/power"), 502, "hammer-failed")
    assert problem["detail"].startswith("no server reaches it. alpha: ")
    assert "; beta: " in problem["detail"]
    assert await _no_orders(site)


async def test_a_server_alone_says_why_it_does_not_reach_the_bmc(
    site: Site, machine: VirtualMachine, asked: Callable[[float], Api]
) -> None:
    async with asked(AT_ONCE) as alpha:
        problem = refused(await alpha.post(f"/nodes/{NODE}/power", json={"action": "on"}), 502, "hammer-failed")
    assert NOBODY in problem["detail"]
    assert "no server" not in problem["detail"]
    assert not machine.is_on


async def test_what_the_bmc_refuses_is_told_by_the_server_that_was_asked(
    site: Site, api: Api, machine: VirtualMachine, asked: Callable[[float], Api]
) -> None:
    hint = ok(await api.get(f"/nodes/{NODE}"))["hint"]["bmc"]
    body = {key: hint[key] for key in ("address", "username", "plain")} | {"password": "wrong"}
    ok(await api.put(f"/nodes/{NODE}/bmc", json=body), 204)
    async with asked(PATIENCE) as alpha, _other_server(site, "beta", near=True):
        problem = refused(await alpha.get(f"/nodes/{NODE}/power"), 502, "hammer-failed")
    assert "refuses the user name or the password" in problem["detail"]


async def test_a_machine_that_was_switched_off_to_be_cycled_is_left_to_no_other_server(
    site: Site, machine: VirtualMachine
) -> None:
    """Another server would begin with switching it off, which may be long after."""

    class Lost(RedfishHammer):
        async def off(self, node: HammerNode) -> None:
            """Switch off, as the last thing that the controller hears."""

        async def on(self, node: HammerNode) -> None:
            raise ControllerUnreachable("no route to it")

    hammer = Lost()
    orders = PowerOrders(
        site.server.store, Reach(lambda node: hammer, _reach(near=True).probe), "alpha", patience=AT_ONCE
    )
    with pytest.raises(HammerFailed, match=r"was switched off, but then: no route to it") as failed:
        await orders.carry_out(await site.rack.node_id(NODE), PowerOrder.CYCLE)
    assert not isinstance(failed.value, ControllerUnreachable)
    assert await _no_orders(site)


async def test_an_order_that_nobody_waits_for_is_not_begun(site: Site, machine: VirtualMachine) -> None:
    """The server that was asked was killed while it waited."""
    node_id = await site.rack.node_id(NODE)
    store = site.server.store
    await store.change(lambda session: power_orders.place_order(session, node_id, PowerOrder.ON, "alpha", "dead"))
    late = PowerOrders(store, _reach(near=True), "beta", patience=AT_ONCE)
    await until(lambda: _is_older(site, AT_ONCE), "the order is too old")
    assert await late.take() == []
    assert not machine.is_on


async def _is_older(site: Site, seconds: float) -> bool:
    ages = await site.rack.rows(f"SELECT id FROM power_orders WHERE acted_at < now() - {seconds} * interval '1 second'")
    return bool(ages)


async def test_an_order_is_taken_once(site: Site, machine: VirtualMachine) -> None:
    node_id = await site.rack.node_id(NODE)
    store = site.server.store
    await store.change(lambda session: power_orders.place_order(session, node_id, PowerOrder.ON, "alpha", "far"))
    servers = [PowerOrders(store, _reach(near=True), name, patience=PATIENCE) for name in ("alpha", "beta", "gamma")]
    taken = [len(await server.take()) for server in servers]
    assert taken == [0, 1, 0], "who has tried it leaves it to the others, and one of these takes it"
