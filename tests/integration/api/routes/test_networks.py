"""Networks over the API: what people see, and what they are told when something is wrong."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.servers.install_site import Site, running_site

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.states import ACTIVE, ERROR
from rackwright.server.first_admin import TOKEN_FILE
from rackwright.store.machines.nodes import update_node

NETWORK: dict[str, Any] = {
    "name": "admin",
    "category": "admin",
    "v4_subnet": "10.77.0.0/24",
    "v6_subnet": "fd77::/64",
    "ranges": [
        {"name": "admin", "use": "admin", "first": "10.77.0.10", "last": "10.77.0.19"},
        {"name": "admin6", "use": "admin", "first": "fd77::10", "last": "fd77::1f"},
        {"name": "host", "first": "10.77.0.20", "last": "10.77.0.99"},
        {"name": "dhcp", "use": "dynamic", "first": "10.77.0.100", "last": "10.77.0.199"},
        {"name": "host6", "first": "fd77::20", "last": "fd77::ffff"},
    ],
    "routers": [{"address": "10.77.0.1"}],
}


class Api:
    def __init__(self, site: Site) -> None:
        self.site = site
        self.token = (site.options.home / TOKEN_FILE).read_text().strip()

    async def __call__(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        answer = await self.site.ask(method, f"/api/v2{path}", body, self.token, "192.0.2.1")
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None


@pytest.fixture
async def api(started_url: str, tmp_path: Path) -> AsyncIterator[Api]:
    async with running_site(tmp_path, started_url) as site:
        yield Api(site)


async def test_a_network_is_made_shown_changed_and_taken_away(api: Api) -> None:
    created = await api("POST", "/networks", NETWORK, 201)
    assert created == await api("GET", "/networks/admin")
    assert [range_out["name"] for range_out in created["ranges"]] == ["admin", "host", "dhcp", "admin6", "host6"]
    changed = await api("PATCH", "/networks/admin", {"description": "all machines", "vlan": 7})
    assert (changed["description"], changed["vlan"], changed["v4_subnet"]) == ("all machines", 7, "10.77.0.0/24")
    shorter = await api("PATCH", "/networks/admin/ranges/host", {"first": "10.77.0.30"})
    assert shorter["ranges"][1]["first"] == "10.77.0.30"
    await api("POST", "/networks/admin/ranges", {"name": "more", "first": "10.77.0.200", "last": "10.77.0.210"}, 201)
    await api("DELETE", "/networks/admin/ranges/more")
    await api("POST", "/networks/admin/routers", {"address": "fd77::1", "preference": 5}, 201)
    assert len((await api("DELETE", "/networks/admin/routers/fd77::1"))["routers"]) == 1
    await api("DELETE", "/networks/admin", status=204)
    await api("GET", "/networks/admin", status=404)


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"name": "a\nb"}, "/name"),
        ({"name": 'a"b'}, "/name"),
        ({"name": "$(reboot)"}, "/name"),
        ({"v4_subnet": "10.77.0.1/24"}, "/v4_subnet"),
        ({"v4_subnet": None}, "/ranges/0/first"),
        ({"v6_subnet": "10.0.0.0/24"}, "/v6_subnet"),
        ({"vlan": 5000}, "/vlan"),
        ({"routers": [{"address": "10.78.0.1"}]}, "/routers/0/address"),
        ({"routers": [{"address": "10.77.0.50"}]}, "/routers/0/address"),
        ({"routers": [{"address": "10.77.0.1; reboot"}]}, "/routers/0/address"),
        ({"ranges": [{"name": "host", "first": "10.77.0.20", "last": "10.77.1.99"}]}, "/ranges/0/last"),
        ({"ranges": [{"name": "ho'st", "first": "10.77.0.20", "last": "10.77.0.99"}]}, "/ranges/0/name"),
    ],
)
async def test_what_is_wrong_is_a_422_with_a_pointer_and_changes_nothing(api: Api, change: Any, pointer: str) -> None:
    problem = await api("POST", "/networks", NETWORK | change, 422)
    assert problem["pointer"] == pointer
    assert (await api("GET", "/networks"))["items"] == []
    assert await api.site.rack.rows("SELECT 1 FROM roles WHERE name LIKE 'network-%'") == []


async def test_a_wrong_part_is_pointed_at_by_itself(api: Api) -> None:
    await api("POST", "/networks", NETWORK, 201)
    overlapping = {"name": "more", "first": "10.77.0.90", "last": "10.77.0.210"}
    assert (await api("POST", "/networks/admin/ranges", overlapping, 422))["pointer"] == "/first"
    inside = {"address": "10.77.0.50"}
    assert (await api("POST", "/networks/admin/routers", inside, 422))["pointer"] == "/address"
    other = {"name": "other", "v4_subnet": "10.77.0.0/25"}
    assert (await api("POST", "/networks", other, 422))["pointer"] == "/v4_subnet"
    await api("POST", "/networks", NETWORK, 409)


async def test_addresses_are_given_by_hand_and_taken_back(api: Api) -> None:
    await api("POST", "/nodes", {"name": "n1.rack.example"}, 201)
    await api("POST", "/networks", NETWORK | {"name": "san", "category": "general"}, 201)
    allocated = await api("POST", "/networks/san/allocations", {"node": "n1.rack.example", "address": "10.77.0.5"}, 201)
    assert [(allocation["address"], allocation["range"], allocation["bound"]) for allocation in allocated["items"]] == [
        ("10.77.0.5", None, False)
    ]
    await api("POST", "/networks/san/allocations", {"node": "n1.rack.example", "address": "10.77.0.6"}, 409)
    await api("POST", "/networks/san/allocations", {"node": "n1.rack.example", "address": "10.77.0.150"}, 409)
    assert await api("GET", "/networks/san/allocations") == allocated
    await api("DELETE", "/networks/san/allocations/10.77.0.5", status=204)
    await api("DELETE", "/networks/san/allocations/10.77.0.5", status=404)
    problem = await api("POST", "/networks/san/allocations", {"node": "n1.rack.example", "address": "10.77.0.150"}, 422)
    assert problem["pointer"] == "/address"


async def test_a_discovered_machine_gets_its_address_and_keeps_what_a_person_hinted(api: Api) -> None:
    await api("POST", "/networks", NETWORK, 201)
    machine = await api.site.discovered(1)
    listed = (await api("GET", "/networks/admin/allocations"))["items"]
    assert [allocation["address"] for allocation in listed if allocation["node"] == machine.name] == [
        "10.77.0.20",
        "fd77::20",
    ]
    noderole = await api.site.rack.at(machine.short, "network-admin")
    assert noderole.state is ACTIVE
    assert noderole.wall == {"network": {"admin": {"addresses": ["10.77.0.20/24", "fd77::20/64"]}}}
    wish: JsonObject = {"hint": {"admin": {"v4addr": "10.77.0.50"}}}
    await api.site.change(lambda session: update_node(session, machine.name, {"hint": wish}))
    await api.site.anneal()
    allocations = (await api("GET", "/networks/admin/allocations"))["items"]
    assert "10.77.0.50" in {allocation["address"] for allocation in allocations}
    bad: JsonObject = {"hint": {"admin": {"v4addr": "10.77.0.150"}}}
    await api.site.change(lambda session: update_node(session, machine.name, {"hint": bad}))
    await api.site.anneal()
    noderole = await api.site.rack.at(machine.short, "network-admin")
    assert noderole.state is ERROR
    assert "10.77.0.150" in noderole.error


async def test_a_network_that_somebody_else_changed_meanwhile_is_not_changed(api: Api) -> None:
    created = await api("POST", "/networks", NETWORK, 201)
    await api("PATCH", "/networks/admin", {"description": "first"})
    headers = {"Authorization": f"Bearer {api.token}", "If-Match": f'"{created["etag"]}"'}
    transport = httpx.ASGITransport(app=api.site.app, client=("192.0.2.1", 40000))
    async with httpx.AsyncClient(transport=transport, base_url="http://site", headers=headers) as client:
        late = await client.patch("/api/v2/networks/admin", json={"description": "second"})
        gone = await client.delete("/api/v2/networks/admin")
    assert (late.status_code, gone.status_code) == (412, 412)
    assert (await api("GET", "/networks/admin"))["description"] == "first"


async def test_a_node_name_that_could_mean_something_else_is_a_422_and_nobody_hears_of_it(api: Api) -> None:
    for name in ("n1.rack.example\n", "n1\n.example", 'n1".rack.example', "n1;reboot.example", "$(reboot).example"):
        await api("POST", "/nodes", {"name": name}, 422)
    await api("POST", "/nodes", {"name": "n1.rack.example", "macs": ["52:54:00:00:00:01\n"]}, 422)
    hook_calls = "SELECT 1 FROM hook_calls WHERE hook = 'on_node_create' AND view ->> 'name' <> 'admin.rack.example'"
    assert await api.site.rack.rows(hook_calls) == []


async def test_every_route_of_networks_asks_who_you_are(api: Api) -> None:
    routes = [
        (method, path)
        for path, methods in api.site.app.openapi()["paths"].items()
        for method in methods
        if "/networks" in path
    ]
    assert len(routes) >= 13
    for method, path in routes:
        answer: httpx.Response = await api.site.ask(method.upper(), path, {}, "", "192.0.2.1")
        assert answer.status_code == 401, (method, path)
