"""The addresses of a node, and what is free on a network."""

from tests.support.servers.api_server import Api, ok, refused

NODE, OTHER = "n1.rack.example", "n2.rack.example"


async def _network(api: Api) -> None:
    for node in (NODE, OTHER):
        ok(await api.post("/nodes", json={"name": node}), 201)
    ranges = [
        {"name": "host", "first": "10.77.0.10", "last": "10.77.0.19"},
        {"name": "host6", "first": "fd77::10", "last": "fd77::ffff:ffff:ffff:ffff"},
    ]
    body = {"name": "san", "v4_subnet": "10.77.0.0/24", "v6_subnet": "fd77::/64", "ranges": ranges}
    ok(await api.post("/networks", json=body), 201)


async def test_a_nodes_addresses_are_listed_over_all_networks(api: Api) -> None:
    await _network(api)
    ok(await api.post("/networks", json={"name": "lan", "v4_subnet": "10.78.0.0/24"}), 201)
    ok(await api.post("/networks/san/allocations", json={"node": NODE}), 201)
    ok(await api.post("/networks/lan/allocations", json={"node": NODE, "address": "10.78.0.5"}), 201)
    ok(await api.post("/networks/lan/allocations", json={"node": OTHER, "address": "10.78.0.6"}), 201)
    allocations = ok(await api.get(f"/nodes/{NODE}/allocations"))["items"]
    assert [(allocation["network"], allocation["address"], allocation["range"]) for allocation in allocations] == [
        ("lan", "10.78.0.5", None),
        ("san", "10.77.0.10", "host"),
        ("san", "fd77::10", "host6"),
    ]
    refused(await api.get("/nodes/n9.rack.example/allocations"), 404, "not-found")


async def test_the_usage_of_a_network_says_what_is_taken_and_where_the_gaps_are(api: Api) -> None:
    await _network(api)
    ok(await api.post("/networks/san/allocations", json={"node": NODE, "address": "10.77.0.12"}), 201)
    ok(await api.post("/networks/san/allocations", json={"node": OTHER, "address": "10.77.0.19"}), 201)
    host, host6 = ok(await api.get("/networks/san/usage"))
    assert (host["name"], host["taken"], host["free"], host["more_gaps"]) == ("host", 2, 8, 0)
    assert host["gaps"] == [
        {"first": "10.77.0.10", "last": "10.77.0.11", "size": 2},
        {"first": "10.77.0.13", "last": "10.77.0.18", "size": 6},
    ]
    assert (host6["taken"], host6["free"]) == (0, 2**64 - 16)
    assert [(gap["first"], gap["last"]) for gap in host6["gaps"]] == [("fd77::10", "fd77::ffff:ffff:ffff:ffff")]


async def test_an_address_that_another_node_has_by_now_is_not_taken_back(api: Api) -> None:
    await _network(api)
    path = "/networks/san/allocations/10.77.0.12"
    body = {"node": NODE, "address": "10.77.0.12"}
    (seen,) = ok(await api.post("/networks/san/allocations", json=body), 201)["items"]
    ok(await api.delete(path), 204)
    ok(await api.post("/networks/san/allocations", json={**body, "node": OTHER}), 201)
    refused(await api.delete(path, headers={"If-Match": f'"{seen["etag"]}"'}), 412, "stale")
    assert [allocation["address"] for allocation in ok(await api.get(f"/nodes/{OTHER}/allocations"))["items"]] == [
        "10.77.0.12"
    ]
