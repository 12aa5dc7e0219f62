"""One tenant against another: an operator of one deployment cannot have the server log in to, or hand out secrets of,
machines of another deployment.

The server is root wherever it believes a node to be. So what an operator says of an address is believed only with the
machine's host key, never for an address that another node has, and how a BMC is reached is not for operators to say.
"""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import asyncssh
import httpx
import pytest
from tests.support.mesh.netns import network
from tests.support.servers.people_of_all_kinds import House, house, ok, refused

from rackwright.annealer.installs import read_hammer_node
from rackwright.domain.catalogue import JsonObject
from rackwright.domain.networks.dns import DnsState, RecordType
from rackwright.reach.ssh_connections import Target, Unreachable
from rackwright.server.jig_ports import ServerPorts
from rackwright.store.machines.nodes import update_node
from rackwright.store.networks.dns_names import read_dns_state

VICTIM, VICTIM_ADDRESS = "db1.blue.example", "192.0.2.10"
MINE = "n1.red.example"


@pytest.fixture
async def home(migrated_url: str, tmp_path: Path) -> AsyncIterator[House]:
    """Two tenants, red and blue; a machine of blue's registered from its address."""
    async with house(tmp_path / "server", migrated_url) as opened:
        for tenant in ("red", "blue"):
            await ok(opened.admin.post("/deployments", json={"name": tenant}))
        await ok(opened.admin.post("/nodes", json={"name": VICTIM, "deployment": "blue", "alive": True}))
        registered: JsonObject = {"address": VICTIM_ADDRESS}
        await opened.store.change(lambda session: update_node(session, VICTIM, {"discovery": registered}))
        yield opened


@pytest.fixture
async def red(home: House) -> httpx.AsyncClient:
    """The operator of red."""
    return await home.someone("red-operator", "none", red="operator")


async def add_mine(client: httpx.AsyncClient, **hint: str) -> int:
    body: dict[str, Any] = {"name": MINE, "deployment": "red", "alive": True, "hint": hint}
    return int((await ok(client.post("/nodes", json=body)))["id"])


async def target_of(home: House, tmp_path: Path, node_id: int, launcher: Sequence[str] = ()) -> Target:
    return await ServerPorts(home.store, tmp_path / "means", own_node=None, launcher=launcher).target(node_id)


TRUST = {"trust_on_first_use": True}


def new_host_key() -> str:
    return asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().strip()


# --- where a machine is


@pytest.mark.parametrize("address", [VICTIM_ADDRESS, f"::ffff:{VICTIM_ADDRESS}", f"64:ff9b::{VICTIM_ADDRESS}"])
async def test_an_address_of_another_tenants_machine_is_not_logged_in_to(
    home: House, red: httpx.AsyncClient, tmp_path: Path, address: str
) -> None:
    node_id = await add_mine(red, address=address)
    await ok(red.put(f"/nodes/{MINE}/host_key", json={"host_key": new_host_key()}))
    with pytest.raises(Unreachable, match="address of another node"):
        await target_of(home, tmp_path, node_id)


async def test_the_owner_of_an_address_is_reached_whatever_others_say(
    home: House, red: httpx.AsyncClient, tmp_path: Path
) -> None:
    await add_mine(red, address=VICTIM_ADDRESS)
    victim = (await ok(home.admin.get(f"/nodes/{VICTIM}")))["id"]
    assert (await target_of(home, tmp_path, victim)).address == VICTIM_ADDRESS


async def test_an_allocated_address_of_another_node_is_not_logged_in_to(
    home: House, red: httpx.AsyncClient, tmp_path: Path
) -> None:
    network = {"name": "lan", "category": "general", "v4_subnet": "10.9.0.0/24"}
    await ok(home.admin.post("/networks", json=network))
    body = {"name": "host", "first": "10.9.0.10", "last": "10.9.0.99"}
    await ok(home.admin.post("/networks/lan/ranges", json=body))
    await ok(home.admin.post("/networks/lan/allocations", json={"node": VICTIM, "address": "10.9.0.10"}))
    node_id = await add_mine(red, address="10.9.0.10")
    with pytest.raises(Unreachable, match="address of another node"):
        await target_of(home, tmp_path, node_id)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "0.0.0.0", "169.254.169.254", "224.0.0.1", "localhost"])
async def test_no_operator_sends_the_server_to_itself(
    home: House, red: httpx.AsyncClient, tmp_path: Path, address: str
) -> None:
    node_id = await add_mine(red, address=address)
    with pytest.raises(Unreachable, match="no address of another machine"):
        await target_of(home, tmp_path, node_id)


async def test_no_host_key_is_believed_at_first_sight_on_an_operators_word(
    home: House, red: httpx.AsyncClient, tmp_path: Path
) -> None:
    node_id = await add_mine(red, address="192.0.2.77")
    assert await target_of(home, tmp_path, node_id) == Target("192.0.2.77", host_key=None, first_use=False, node=MINE)


async def test_a_host_key_that_an_operator_gives_is_the_only_one_that_is_taken(
    home: House, red: httpx.AsyncClient, tmp_path: Path
) -> None:
    node_id, key = await add_mine(red, address="192.0.2.77"), new_host_key()
    await ok(red.put(f"/nodes/{MINE}/host_key", json={"host_key": f"{key} root@n1"}))
    assert await target_of(home, tmp_path, node_id) == Target("192.0.2.77", host_key=key, node=MINE)
    refused(await red.put(f"/nodes/{MINE}/host_key", json={"host_key": "ssh-ed25519 rubbish"}), 422)
    refused(await red.put(f"/nodes/{VICTIM}/host_key", json={"host_key": new_host_key()}), 403)


async def test_the_host_key_of_another_node_cannot_be_given(home: House, red: httpx.AsyncClient) -> None:
    key = new_host_key()
    await ok(home.admin.put(f"/nodes/{VICTIM}/host_key", json={"host_key": key}))
    await add_mine(red, address="192.0.2.77")
    refused(await red.put(f"/nodes/{MINE}/host_key", json={"host_key": key}), 409)


async def test_what_an_administrator_approved_ends_when_an_operator_says_something_else(
    home: House, red: httpx.AsyncClient, tmp_path: Path
) -> None:
    node_id = await add_mine(home.admin, address="192.0.2.77")
    assert not (await target_of(home, tmp_path, node_id)).first_use, "nobody has said that it may be"
    refused(await red.put(f"/nodes/{MINE}/host_key", json=TRUST), 403)
    await ok(home.admin.put(f"/nodes/{MINE}/host_key", json=TRUST))
    assert (await target_of(home, tmp_path, node_id)).first_use
    await ok(red.put(f"/nodes/{MINE}/attribs/ssh-port", json={"value": 2222}))
    assert not (await target_of(home, tmp_path, node_id)).first_use, "another port is another service"
    await ok(red.patch(f"/nodes/{MINE}", json={"hint": {"address": "192.0.2.78"}}))
    assert not (await target_of(home, tmp_path, node_id)).first_use
    await ok(home.admin.patch(f"/nodes/{MINE}", json={"description": "An edit of something else is no approval"}))
    assert not (await target_of(home, tmp_path, node_id)).first_use
    await ok(home.admin.patch(f"/nodes/{MINE}", json={"hint": {"address": "192.0.2.79"}}))
    assert not (await target_of(home, tmp_path, node_id)).first_use, "where it is, is not what may be trusted there"
    await ok(home.admin.put(f"/nodes/{MINE}/host_key", json=TRUST))
    assert (await target_of(home, tmp_path, node_id)).first_use


async def test_no_operator_sends_the_server_to_an_address_of_its_own(
    home: House, red: httpx.AsyncClient, tmp_path: Path
) -> None:
    with network(["admin"]) as wires:
        node_id = await add_mine(red, address=wires.address("admin"))
        await ok(red.put(f"/nodes/{MINE}/attribs/ssh-port", json={"value": 2222}))
        with pytest.raises(Unreachable, match="which is this server"):
            await target_of(home, tmp_path, node_id, launcher=wires.command("admin", []))


# --- how a BMC is reached

BMC = {"kind": "redfish", "address": "192.0.2.20", "username": "ops", "password": "sesame"}


async def bmc_of(home: House, node_id: int) -> dict[str, Any]:
    """As a hammer gets it."""
    async with home.store.read() as session:
        bmc = (await read_hammer_node(session, node_id)).settings["bmc"]
    assert isinstance(bmc, dict)
    return bmc


async def test_an_operator_cannot_repoint_a_bmc_to_get_its_password(home: House, red: httpx.AsyncClient) -> None:
    node_id = await add_mine(home.admin)
    await ok(home.admin.put(f"/nodes/{MINE}/bmc", json=BMC))
    evil = {"hint": {"bmc": {"address": "198.51.100.66", "plain": True}}}
    refused(await red.patch(f"/nodes/{MINE}", json=evil), 403)
    refused(await red.put(f"/nodes/{MINE}/attribs/bmc-address", json={"value": "198.51.100.66"}), 403)
    refused(await red.put(f"/nodes/{MINE}/attribs/bmc-plain", json={"value": True}), 403)
    refused(await red.delete(f"/nodes/{MINE}/attribs/bmc-address"), 403)
    refused(await red.put(f"/nodes/{MINE}/bmc", json=BMC), 403)
    refused(await red.post("/nodes", json={"name": "n2.red.example", "deployment": "red", **evil}), 403)
    assert (await bmc_of(home, node_id)).items() >= BMC.items()


async def test_an_operator_edits_what_is_his_beside_the_bmc(home: House, red: httpx.AsyncClient) -> None:
    node_id = await add_mine(home.admin)
    await ok(home.admin.put(f"/nodes/{MINE}/bmc", json=BMC))
    await ok(red.patch(f"/nodes/{MINE}", json={"hint": {"place": "top"}, "description": "Mine"}))
    seen = await ok(red.get(f"/nodes/{MINE}"))
    await ok(red.patch(f"/nodes/{MINE}", json={"hint": {**seen["hint"], "place": "bottom"}}))
    assert (await bmc_of(home, node_id))["password"] == "sesame"


@pytest.mark.parametrize(
    ("attrib", "value"), [("bmc-address", "192.0.2.21"), ("bmc-plain", True), ("bmc-kind", "ipmi")]
)
async def test_a_changed_target_drops_the_password_that_was_for_another(
    home: House, attrib: str, value: object
) -> None:
    node_id = await add_mine(home.admin)
    await ok(home.admin.put(f"/nodes/{MINE}/bmc", json=BMC))
    await ok(home.admin.put(f"/nodes/{MINE}/attribs/{attrib}", json={"value": value}))
    assert "password" not in await bmc_of(home, node_id)
    await ok(home.admin.put(f"/nodes/{MINE}/attribs/bmc-password", json={"value": "another"}))
    assert (await bmc_of(home, node_id))["password"] == "another"


# --- what DNS serves


async def names_served(home: House) -> set[str]:
    state: DnsState = await home.store.change(read_dns_state)
    return {record.name for zone in state.zones.values() for record in zone if record.type is not RecordType.PTR}


async def test_a_tenants_names_are_served_in_his_own_domains_alone(home: House, red: httpx.AsyncClient) -> None:
    await ok(home.admin.post("/domains", json={"name": "red.example", "deployment": "red"}))
    await ok(home.admin.post("/domains", json={"name": "blue.example", "deployment": "blue"}))
    for name in (MINE, "evil.com", "n2.other.example"):
        await ok(red.post("/nodes", json={"name": name, "deployment": "red", "alive": True}))
        await home.store.change(
            lambda session, name=name: update_node(session, name, {"discovery": {"address": "192.0.2.66"}})
        )
    refused(await red.post("/nodes", json={"name": "www.blue.example", "deployment": "red"}), 403)
    refused(await red.post("/nodes", json={"name": "gateway.internal", "deployment": "red"}), 403)
    refused(await red.post("/domains", json={"name": "com"}), 403)
    assert await names_served(home) >= {VICTIM, MINE}
    assert not await names_served(home) & {"evil.com", "n2.other.example"}


async def test_an_address_that_an_operator_hints_is_in_no_record(home: House, red: httpx.AsyncClient) -> None:
    await ok(home.admin.post("/domains", json={"name": "red.example", "deployment": "red"}))
    await add_mine(red, address=VICTIM_ADDRESS)
    assert MINE not in await names_served(home)


async def test_a_node_that_moves_to_another_tenant_takes_no_name_along(home: House) -> None:
    await ok(home.admin.post("/domains", json={"name": "blue.example", "deployment": "blue"}))
    assert VICTIM in await names_served(home)
    await ok(home.admin.post(f"/nodes/{VICTIM}/move", json={"deployment": "red"}))
    assert VICTIM not in await names_served(home)


async def test_no_zone_is_ever_a_whole_top_level_domain(home: House) -> None:
    refused(await home.admin.post("/domains", json={"name": "com"}), 422)
    await ok(home.admin.post("/nodes", json={"name": "evil.com", "alive": True}))
    state: DnsState = await home.store.change(read_dns_state)
    assert "com" not in state.zones
