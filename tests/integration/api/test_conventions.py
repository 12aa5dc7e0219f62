"""What holds for every resource: pages, filters, fields, ETags, patches, idempotency keys, and what bad input gets."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from tests.support.servers.api_server import Api, Site, ok, refused

from rackwright.api.app import create_machine_app
from rackwright.domain.people import UserRole

NODE = "n1.rack.example"


async def _create_nodes(api: Api, count: int) -> list[str]:
    names = [f"m{number}.rack.example" for number in range(count)]
    for name in names:
        ok(await api.post("/nodes", json={"name": name, "alive": name < "m3"}), 201)
    return names


async def _read_pages(api: Api, path: str) -> list[Any]:
    items: list[Any] = []
    cursor = ""
    while True:
        page = ok(await api.get(f"{path}{cursor}"))
        assert page.keys() == {"items", "next"}
        items += page["items"]
        if page["next"] is None:
            return items
        cursor = f"&cursor={page['next']}"


# --- lists


@pytest.mark.parametrize("sort", ["name", "-name", "id", "-id", "alive", "-alive", "state", "deployment", "bootenv"])
async def test_pages_show_everything_once_in_the_order_asked_for(api: Api, sort: str) -> None:
    await _create_nodes(api, 5)
    everything = ok(await api.get(f"/nodes?sort={sort}&limit=1000"))["items"]
    paged = await _read_pages(api, f"/nodes?sort={sort}&limit=2")
    assert paged == everything
    assert len({node["id"] for node in everything}) == len(everything) >= 7
    key = sort.removeprefix("-")
    if key not in ("state", "deployment", "bootenv"):
        values = [(node[key], node["id"]) for node in everything]
        assert values == sorted(values, reverse=sort.startswith("-"))


async def test_what_comes_and_goes_while_paging_neither_repeats_nor_hides_others(api: Api) -> None:
    names = await _create_nodes(api, 6)
    first = ok(await api.get("/nodes?sort=name&limit=3&name=m*"))
    ok(await api.delete(f"/nodes/{names[0]}"), 204)
    ok(await api.post("/nodes", json={"name": "m00.rack.example"}), 201)
    second = ok(await api.get(f"/nodes?sort=name&limit=10&name=m*&cursor={first['next']}"))
    assert [node["name"] for node in second["items"]] == names[3:]


async def test_filters_narrow_a_list(api: Api) -> None:
    names = await _create_nodes(api, 5)
    ok(await api.post("/deployments", json={"name": "web"}), 201)
    ok(await api.post(f"/nodes/{names[4]}/move", json={"deployment": "web"}))

    async def names_of(query: str) -> list[str]:
        return [node["name"].partition(".")[0] for node in ok(await api.get(f"/nodes?{query}"))["items"]]

    assert await names_of("alive=true&name=m*") == ["m0", "m1", "m2"]
    assert await names_of(f"name={names[1]}&name={names[2]}") == ["m1", "m2"]
    assert await names_of("deployment=web&system=false") == ["m4"]
    web = ok(await api.get("/deployments/web"))["id"]
    assert await names_of(f"deployment={web}&system=false") == ["m4"]
    assert await names_of("state=todo&name=m*&alive=true") == ["m0", "m1", "m2"]
    assert await names_of("state=error") == []
    assert await names_of("name=m_.*") == [], "only the star stands for anything"


async def test_a_filter_that_does_not_exist_is_refused_not_ignored(api: Api) -> None:
    problem = refused(await api.get("/nodes?staet=error"), 422, "invalid")
    assert "staet" in problem["detail"]
    assert "state" in problem["detail"]


@pytest.mark.parametrize("query", ["state=broken", "limit=0", "limit=1001", "sort=hint", "alive=maybe", "id=1e99"])
async def test_a_wrong_parameter_is_refused_by_name(api: Api, query: str) -> None:
    problem = refused(await api.get(f"/nodes?{query}"), 422, "invalid")
    assert query.partition("=")[0] in problem["errors"][0]["parameter"]


@pytest.mark.parametrize("cursor", ["x", "", "bnVsbA", "WyJuYW1lIiwxLDJd", "WyItbmFtZSIsImEiLDFd", "W1tbW1tbXV1dXV1d"])
async def test_a_cursor_that_was_not_given_out_is_refused(api: Api, cursor: str) -> None:
    assert "cursor" in refused(await api.get(f"/nodes?cursor={cursor}"), 422, "invalid")["detail"]


async def test_fields_choose_properties(api: Api) -> None:
    await _create_nodes(api, 1)
    listed = ok(await api.get("/nodes?fields=name,state"))
    assert all(node.keys() == {"name", "state"} for node in listed["items"])
    assert ok(await api.get("/nodes/m0.rack.example?fields=id")).keys() == {"id"}
    assert "colour" in refused(await api.get("/nodes?fields=colour"), 422, "invalid")["detail"]


# --- tags


async def _node_with_etag(api: Api) -> tuple[dict[str, Any], str]:
    ok(await api.post("/nodes", json={"name": NODE}), 201)
    answer = await api.get(f"/nodes/{NODE}")
    return ok(answer), answer.headers["etag"]


async def test_of_two_clients_that_saw_the_same_one_wins_and_the_other_is_told(site: Site, api: Api) -> None:
    _, seen = await _node_with_etag(api)
    async with site.client() as other:
        answers = await asyncio.gather(
            *(
                client.patch(f"/nodes/{NODE}", json={"description": words}, headers={"If-Match": seen})
                for client, words in ((api, "mine"), (other, "theirs"))
            )
        )
    assert sorted(answer.status_code for answer in answers) == [200, 412]
    won = next(answer for answer in answers if answer.status_code == 200)
    lost = next(answer for answer in answers if answer.status_code == 412)
    refused(lost, 412, "stale")
    now = await api.get(f"/nodes/{NODE}")
    assert ok(now)["description"] == won.json()["description"]
    assert now.headers["etag"] == won.headers["etag"] != seen
    words = "mine and theirs"
    ok(await api.patch(f"/nodes/{NODE}", json={"description": words}, headers={"If-Match": won.headers["etag"]}))
    assert ok(await api.get(f"/nodes/{NODE}"))["description"] == words


async def test_many_clients_that_read_and_write_with_if_match_lose_nothing(site: Site, api: Api) -> None:
    await _node_with_etag(api)

    async def add(number: int) -> None:
        async with site.client() as client:
            while True:
                response = await client.get(f"/nodes/{NODE}")
                quirks = [*ok(response)["quirks"], f"q{number}"]
                headers = {"If-Match": response.headers["etag"]}
                answer = await client.patch(f"/nodes/{NODE}", json={"quirks": quirks}, headers=headers)
                if answer.status_code == 200:
                    return
                assert answer.status_code == 412

    await asyncio.gather(*(add(number) for number in range(8)))
    assert set(ok(await api.get(f"/nodes/{NODE}"))["quirks"]) == {f"q{number}" for number in range(8)}


async def test_the_tag_is_in_the_body_too_and_not_moved_by_what_machines_do(api: Api) -> None:
    node, seen = await _node_with_etag(api)
    assert seen == f'"{node["etag"]}"'
    assert ok(await api.get(f"/nodes?name={NODE}"))["items"][0]["etag"] == node["etag"]
    ok(await api.patch(f"/nodes/{NODE}", json={"alive": True}))
    await api.post("/anneal/step")
    changed = ok(await api.get(f"/nodes/{NODE}"))
    assert changed["alive"] is True
    assert changed["etag"] == node["etag"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("DELETE", f"/nodes/{NODE}", None),
        ("POST", f"/nodes/{NODE}/accept", None),
        ("POST", f"/nodes/{NODE}/move", {"deployment": "web"}),
        ("PATCH", "/deployments/web", {"description": "x"}),
        ("DELETE", "/deployments/web", None),
        ("POST", "/deployments/web/commit", {}),
        ("POST", "/deployments/web/discard", None),
    ],
)
async def test_a_change_of_what_somebody_else_changed_is_a_412_that_did_nothing(
    api: Api, method: str, path: str, body: Any
) -> None:
    await _node_with_etag(api)
    ok(await api.post("/deployments", json={"name": "web"}), 201)
    before = [ok(await api.get(path)) for path in (f"/nodes/{NODE}", "/deployments/web")]
    answer = await api.request(method, path, json=body, headers={"If-Match": '"0123"'})
    refused(answer, 412, "stale")
    assert [ok(await api.get(path)) for path in (f"/nodes/{NODE}", "/deployments/web")] == before


# --- patches


async def test_a_merge_patch_replaces_what_it_names_and_takes_away_what_is_null(api: Api) -> None:
    await _node_with_etag(api)
    path, headers = f"/nodes/{NODE}", {"Content-Type": "application/merge-patch+json"}
    first = {"hint": {"a": {"b": 1, "c": 2}}, "uuid": "00000000-0000-0000-0000-000000000001"}
    ok(await api.patch(path, content=json.dumps(first), headers=headers))
    second = {"hint": {"a": {"b": None, "d": [3]}}, "uuid": None}
    node = ok(await api.patch(path, content=json.dumps(second), headers=headers))
    assert node["hint"] == {"a": {"c": 2, "d": [3]}}
    assert node["uuid"] is None


async def _json_patch(api: Api, path: str, *operations: Any) -> Any:
    headers = {"Content-Type": "application/json-patch+json"}
    return await api.patch(path, content=json.dumps(operations), headers=headers)


async def test_a_json_patch_is_done_in_order_whole_or_not_at_all(api: Api) -> None:
    await _node_with_etag(api)
    path = f"/nodes/{NODE}"
    add = {"op": "add", "path": "/hint/list", "value": [1, 2]}
    node = ok(await _json_patch(api, path, add, {"op": "remove", "path": "/hint/list/0"}))
    assert node["hint"] == {"list": [2]}
    failing = {"op": "test", "path": "/hint/list/0", "value": 7}
    refused(await _json_patch(api, path, {"op": "remove", "path": "/hint/list"}, failing), 409, "patch-test-failed")
    assert ok(await api.get(path))["hint"] == {"list": [2]}


@pytest.mark.parametrize(
    ("operations", "pointer"),
    [
        ([{"op": "replace", "path": "/name", "value": "x"}], "/name"),
        ([{"op": "replace", "path": "/id", "value": 7}], "/0"),
        ([{"op": "add", "path": "/colour", "value": "x"}], "/colour"),
        ([{"op": "replace", "path": "/description", "value": 7}], "/description"),
        ([{"op": "add", "path": "/macs/-", "value": "zz"}], "/macs/0"),
        ([{"op": "remove", "path": "/hint/nothing"}], "/0"),
        ([{"op": "burn", "path": "/hint"}], "/0"),
        ([{"op": "add", "path": "/hint/x"}], "/0"),
        ([{"path": "/hint"}], "/0"),
        (["add"], "/0"),
        ([{"op": "move", "from": "/hint", "path": "/hint/x"}], "/0"),
    ],
)
async def test_a_json_patch_that_cannot_be_done_is_refused_with_its_place(
    api: Api, operations: Any, pointer: str
) -> None:
    node, _ = await _node_with_etag(api)
    problem = refused(await _json_patch(api, f"/nodes/{NODE}", *operations), 422, "invalid")
    assert problem["pointer"] == pointer
    assert ok(await api.get(f"/nodes/{NODE}")) == node


async def test_copies_of_copies_do_not_fill_the_memory(api: Api) -> None:
    await _node_with_etag(api)
    doubling = [{"op": "copy", "from": "/hint", "path": f"/hint/x{number}"} for number in range(60)]
    problem = refused(await _json_patch(api, f"/nodes/{NODE}", *doubling), 422, "invalid")
    assert "deep" in problem["detail"] or "larger" in problem["detail"]


# --- keys


async def test_a_request_sent_twice_with_one_key_is_done_once(site: Site, api: Api) -> None:
    body, headers = {"name": NODE}, {"Idempotency-Key": "one"}
    first = await api.post("/nodes", json=body, headers=headers)
    repeated = await api.post("/nodes", json=body, headers=headers)
    assert ok(first, 201) == ok(repeated, 201)
    assert repeated.headers["idempotency-replayed"] == "true"
    assert repeated.headers["etag"] == first.headers["etag"]
    assert repeated.headers["location"] == first.headers["location"]
    refused(await api.post("/nodes", json=body), 409, "already-exists")
    problem = refused(
        await api.post("/nodes", json={"name": "n2.rack.example"}, headers=headers), 422, "idempotency-key-reused"
    )
    assert "another request" in problem["detail"]
    assert (await api.get("/nodes/n2.rack.example")).status_code == 404


async def test_requests_at_once_with_one_key_are_done_once(api: Api) -> None:
    headers = {"Idempotency-Key": "one"}
    answers = await asyncio.gather(*(api.post("/deployments", json={"name": "web"}, headers=headers) for _ in range(5)))
    assert [answer.status_code for answer in answers] == [201] * 5
    assert len({answer.text for answer in answers}) == 1


async def test_a_key_belongs_to_who_used_it_and_what_failed_may_be_tried_again(site: Site, api: Api) -> None:
    headers = {"Idempotency-Key": "one"}
    body = {"name": NODE, "deployment": "web"}
    refused(await api.post("/nodes", json=body, headers=headers), 404, "not-found")
    ok(await api.post("/deployments", json={"name": "web"}), 201)
    ok(await api.post("/nodes", json=body, headers=headers), 201)
    async with site.client(await site.token_of(UserRole.OPERATOR)) as other:
        refused(await other.post("/nodes", json=body, headers=headers), 409, "already-exists")


async def test_a_key_is_forgotten_after_a_day(site: Site, api: Api) -> None:
    headers = {"Idempotency-Key": "one"}
    ok(await api.post("/nodes", json={"name": NODE}, headers=headers), 201)
    await site.rack.do(lambda session: session.run("UPDATE kept_answers SET at = now() - interval '25 hours'"))
    refused(await api.post("/nodes", json={"name": NODE}, headers=headers), 409, "already-exists")


# --- bodies


async def test_a_body_of_another_type_is_a_415_that_names_the_right_one(api: Api) -> None:
    answer = await api.post("/nodes", content="name=x", headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert "application/json" in refused(answer, 415, "unsupported-media-type")["detail"]
    refused(await api.post("/nodes", content='{"name": "n1.rack.example"}'), 415, "unsupported-media-type")
    answer = await api.post("/nodes", content="[]", headers={"Content-Type": "application/json-patch+json"})
    refused(answer, 415, "unsupported-media-type")


async def test_a_body_over_a_mebibyte_is_a_413_also_if_it_does_not_say_its_size(api: Api) -> None:
    large = json.dumps({"name": NODE, "description": "x" * (1 << 20)}).encode()
    headers = {"Content-Type": "application/json"}
    refused(await api.post("/nodes", content=large, headers=headers), 413, "too-large")

    async def parts() -> Any:
        for start in range(0, len(large), 65536):
            yield large[start : start + 65536]

    refused(await api.post("/nodes", content=parts(), headers=headers), 413, "too-large")


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"nul",
        b"\xff\xfe",
        b'{"name": NaN}',
        b'{"name": "n1.rack.example", "description": "\\u0000"}',
        b'{"name": "n1.rack.example", "description": "\\ud800"}',
        b'{"name": "n1.rack.example", "hint": {"a": "\\udfff"}}',
        b'{"name": "n1.rack.example", "hint": {"a": 1e400}}',
        b'{"name": "n1.rack.example", "hint": ' + b'{"a":' * 30 + b"1" + b"}" * 31,
        b"[" * 100_000,
        b'{"name": ' + b"9" * 5000 + b"}",
        b"[]",
        b"null",
        b'"text"',
    ],
    ids=lambda content: content[:40].decode("latin-1"),
)
async def test_a_body_that_cannot_be_kept_is_a_422_and_never_a_500(api: Api, content: bytes) -> None:
    answer = await api.post("/nodes", content=content, headers={"Content-Type": "application/json"})
    refused(answer, 422, "invalid")
    assert (await api.get(f"/nodes/{NODE}")).status_code == 404


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/name"),
        ({"name": "nodots"}, "/name"),
        ({"name": NODE, "macs": ["52:54:00:12:34:56", "zz"]}, "/macs/1"),
        ({"name": NODE, "uuid": "zz"}, "/uuid"),
        ({"name": NODE, "colour": "red"}, "/colour"),
        ({"name": NODE, "a/b~c": 1}, "/a~1b~0c"),
        ({"name": NODE, "alive": "perhaps"}, "/alive"),
    ],
)
async def test_what_is_wrong_in_a_body_is_pointed_to(api: Api, body: Any, pointer: str) -> None:
    problem = refused(await api.post("/nodes", json=body), 422, "invalid")
    assert problem["pointer"] == pointer
    assert problem["errors"][0]["pointer"] == pointer
    assert problem["errors"][0]["detail"]


@pytest.mark.parametrize("path", ["/nodes/%00", "/nodes/99999999999999999999999", "/deployments/%ff", "/nodes/a%2Fb"])
async def test_a_strange_address_is_a_refusal_and_never_a_500(api: Api, path: str) -> None:
    answer = await api.get(path)
    assert answer.status_code in (404, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"


# --- the framework's own refusals


async def test_no_such_route_and_no_such_method_are_problems_too(api: Api) -> None:
    refused(await api.get("/nothing/here"), 404, "not-found")
    answer = await api.put("/nodes", json={})
    refused(answer, 405, "method-not-allowed")
    assert "GET" in answer.headers["allow"]


async def test_a_fault_of_the_server_tells_the_client_nothing_of_its_inside(site: Site, api: Api) -> None:
    @site.app.get("/api/v2/broken")
    async def broken() -> None:
        raise ZeroDivisionError("secret place")

    answer = await api.get("/broken")
    problem = refused(answer, 500, "internal")
    assert "secret" not in json.dumps(problem)


# --- compression


async def test_a_long_json_answer_is_compressed_for_whoever_asks(api: Api) -> None:
    plain = await api.get("/roles", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert int(plain.headers["content-length"]) == len(plain.content) > 4096
    shrunk = await api.get("/roles", headers={"Accept-Encoding": "br;q=1.0, gzip;q=0.5"})
    assert (shrunk.headers["content-encoding"], shrunk.headers["vary"]) == ("gzip", "Accept-Encoding")
    assert int(shrunk.headers["content-length"]) < len(plain.content) / 4
    assert shrunk.content == plain.content  # the client has undone it


async def test_what_is_short_or_no_json_is_not_compressed(api: Api) -> None:
    for path in ("/anneal/cap", "/docs"):
        answer = await api.get(path)
        assert answer.request.headers["accept-encoding"].startswith("gzip")
        assert "content-encoding" not in answer.headers, path
    assert (await api.get("/openapi.json")).headers["content-encoding"] == "gzip"


async def test_a_compressed_object_is_edited_by_the_same_tag(api: Api) -> None:
    hint = {"notes": "x" * 2000}
    ok(await api.post("/nodes", json={"name": NODE, "hint": hint}), 201)
    seen = await api.get(f"/nodes/{NODE}")
    assert seen.headers["content-encoding"] == "gzip"
    plain = await api.get(f"/nodes/{NODE}", headers={"Accept-Encoding": "identity"})
    assert plain.headers["etag"] == seen.headers["etag"]
    change = {"description": "x"}
    ok(await api.patch(f"/nodes/{NODE}", json=change, headers={"If-Match": seen.headers["etag"]}))


async def test_the_short_path_of_the_seeds_answers_as_the_long_one_does(api: Api, site: Site) -> None:
    short = "http://server/v2"
    key = {"Idempotency-Key": "once"}
    created = await api.post(f"{short}/nodes", json={"name": NODE}, headers=key)
    repeated = await api.post("/nodes", json={"name": NODE}, headers=key)
    assert (created.status_code, created.json()) == (repeated.status_code, repeated.json())
    assert created.headers["location"].startswith("/api/v2/nodes/")
    assert ok(await api.get(f"{short}/nodes/{NODE}")) == ok(await api.get(f"/nodes/{NODE}"))
    assert (await api.get(f"{short}/nodes/a%2Fb")).status_code == (await api.get("/nodes/a%2Fb")).status_code
    async with site.client("") as stranger, site.client(await site.token_of(UserRole.VIEWER)) as viewer:
        refused(await stranger.get(f"{short}/nodes"), 401, "unauthenticated")
        refused(await viewer.post(f"{short}/nodes", json={"name": "n2.rack.example"}), 403, "forbidden")
    refused(await api.get(f"{short}/nosuch"), 404, "not-found")
    described = ok(await api.get("/openapi.json"))["paths"]
    assert [path for path in described if path.startswith("/v2")] == []


async def test_the_short_path_leads_to_nothing_where_machines_are_served(site: Site) -> None:
    machines = create_machine_app(site.server)
    transport = httpx.ASGITransport(app=machines)
    async with httpx.AsyncClient(transport=transport, base_url="http://machines") as machine:
        for path in ("/v2/nodes", "/v2/machine/challenge", "/api/v2/nodes"):
            assert (await machine.get(path, headers={"Authorization": f"Bearer {site.token}"})).status_code == 404
