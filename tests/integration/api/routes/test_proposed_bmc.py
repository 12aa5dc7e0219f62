"""Where a machine says that its BMC is: not proposed where somebody else is known to be."""

import json

import pytest
from tests.support.networks import ADMIN_NETWORK
from tests.support.servers.api_server import Api, Site, ok

from rackwright.domain.catalogue import Json, JsonObject
from rackwright.store.db.session import Session
from rackwright.store.networks.networks import create_network

NODE, OTHER = "n1.rack.example", "n2.rack.example"


async def _discover(site: Site, name: str, discovery: JsonObject) -> None:
    async def work(session: Session) -> None:
        query = "UPDATE nodes SET discovery = CAST(:found AS jsonb) WHERE name = :name"
        await session.run(query, found=json.dumps(discovery), name=name)

    await site.rack.store.change(work)


async def _proposed(site: Site, api: Api, address: str) -> Json:
    await _discover(site, NODE, {"address": "10.77.0.150", "bmc": {"kind": "ipmi", "address": address}})
    shown: JsonObject = ok(await api.get(f"/nodes/{NODE}"))
    return shown["proposed_bmc"]


@pytest.fixture
async def nodes(site: Site, api: Api) -> None:
    for name in (NODE, OTHER):
        ok(await api.post("/nodes", json={"name": name}), 201)
    await _discover(site, OTHER, {"address": "10.77.0.151"})


@pytest.mark.usefixtures("nodes")
async def test_an_address_of_nobody_is_proposed(site: Site, api: Api) -> None:
    assert await _proposed(site, api, "192.0.2.7") == {"kind": "ipmi", "address": "192.0.2.7"}


@pytest.mark.usefixtures("nodes")
@pytest.mark.parametrize("address", ["10.77.0.150", "10.77.0.151", "127.0.0.1", "::ffff:127.0.0.1", "169.254.0.17"])
async def test_where_a_machine_is_already_no_bmc_is_proposed(site: Site, api: Api, address: str) -> None:
    assert await _proposed(site, api, address) is None


@pytest.mark.usefixtures("nodes")
@pytest.mark.parametrize(
    ("given", "reported"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("192.0.2.7:8443", "192.0.2.7"),
        ("[2001:db8::7]", "2001:db8::7"),
        ("[2001:db8::7]:8443", "2001:db8::7"),
    ],
)
async def test_the_bmc_of_another_node_is_not_proposed(site: Site, api: Api, given: str, reported: str) -> None:
    body = {"kind": "redfish", "address": given, "username": "ops", "password": "hidden"}
    ok(await api.put(f"/nodes/{OTHER}/bmc", json=body), 204)
    assert await _proposed(site, api, reported) is None
    assert await _proposed(site, api, "192.0.2.70") is not None


@pytest.mark.usefixtures("nodes")
async def test_a_router_is_no_bmc(site: Site, api: Api) -> None:
    await site.rack.do(lambda session: create_network(session, ADMIN_NETWORK))
    assert await _proposed(site, api, "10.77.0.1") is None
