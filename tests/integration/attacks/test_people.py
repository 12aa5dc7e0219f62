"""People who may do something, and try to do more: keep what was taken from them, learn of other tenants, or make what
everybody reads too large to be read.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from tests.support.servers.people_of_all_kinds import House, house, ok, refused
from tests.support.waiting import PATIENCE

from rackwright.api import event_feed
from rackwright.api.http.time_limits import SameFaultOncePerMinute
from rackwright.api.routes import runs
from rackwright.store.db.session import Session
from rackwright.store.graph.deployments import MAX_DEPTH

MINE = "n1.red.example"


@pytest.fixture
async def home(migrated_url: str, tmp_path: Path) -> AsyncIterator[House]:
    """Two tenants, red and blue; red has a node."""
    async with house(tmp_path / "server", migrated_url) as opened:
        for tenant in ("red", "blue"):
            await ok(opened.admin.post("/deployments", json={"name": tenant}))
        await ok(opened.admin.post("/nodes", json={"name": MINE, "deployment": "red", "alive": True}))
        yield opened


@pytest.fixture
async def red(home: House) -> httpx.AsyncClient:
    """The operator of red."""
    return await home.someone("red-operator", "none", red="operator")


# --- access that was taken back


async def start_run(home: House) -> int:
    """A run on red's node that goes on."""

    binding = {"node": MINE, "role": "test-child", "deployment": "red"}
    noderole = (await ok(home.admin.post("/node_roles", json=binding)))["id"]

    async def work(session: Session) -> int:
        id: int = await session.value(
            "INSERT INTO runs (node_role_id, node_id, slot, jig, state, deadline)"
            " SELECT id, node_id, node_id, 'script', 'running', 3600 FROM node_roles WHERE id = :id RETURNING id",
            id=noderole,
        )
        return id

    number: int = await home.store.change(work)
    return number


@pytest.mark.parametrize("taken_away", ["token", "grant"])
async def test_who_may_no_longer_see_a_run_no_longer_reads_its_log(
    home: House, red: httpx.AsyncClient, taken_away: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "RECHECK_SECONDS", 0.5)
    run = await start_run(home)
    reading = asyncio.create_task(red.get(f"/runs/{run}/log/tail", timeout=PATIENCE))
    await asyncio.wait({reading}, timeout=1)
    assert not reading.done()
    if taken_away == "token":
        await ok(red.delete(f"/tokens/{(await ok(red.get('/me')))['token_id']}"))
    else:
        await ok(home.admin.delete("/users/red-operator/grants/red"))
    async with asyncio.timeout(PATIENCE):
        assert "event: end" not in (await reading).text


async def test_a_request_sent_twice_is_answered_twice_until_its_sender_may_less(
    home: House, red: httpx.AsyncClient
) -> None:
    body = {"name": "n2.red.example", "deployment": "red"}
    key = {"Idempotency-Key": "once"}
    first = await red.post("/nodes", json=body, headers=key)
    repeated = await red.post("/nodes", json=body, headers=key)
    assert (first.status_code, repeated.status_code, repeated.json()) == (201, 201, first.json())
    await ok(home.admin.post("/deployments", json={"name": "red-below", "parent": "red"}))
    narrow = home.client(await home.token("red-operator", deployment="red-below"))
    refused(await narrow.post("/nodes", json=body, headers=key), 403, "forbidden")
    await ok(home.admin.put("/users/red-operator/grants/blue", json={"role": "operator"}))
    await ok(home.admin.delete("/users/red-operator/grants/red"))
    refused(await red.post("/nodes", json=body, headers=key), 403, "forbidden")


async def test_answers_that_stay_open_are_counted_whatever_they_wait_for(
    home: House, red: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_feed, "MOST_STREAMS", 1)
    run = await start_run(home)
    waiting = asyncio.create_task(red.get("/events", params={"since": "now", "wait": 60}, timeout=PATIENCE))
    await asyncio.wait({waiting}, timeout=1)
    assert not waiting.done()
    refused(await red.get("/events", params={"since": "now", "wait": 60}), 429)
    refused(await red.get(f"/runs/{run}/log/tail"), 429)
    refused(await red.get("/events", headers={"Accept": "text/event-stream"}), 429)
    await ok(red.get("/events"))
    waiting.cancel()


async def test_a_token_makes_none_that_holds_for_longer_than_itself(home: House, red: httpx.AsyncClient) -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    short = home.client(await home.token("red-operator", scope="write", expires_at=soon.isoformat()))
    body = {"name": "more", "scope": "write"}
    refused(await short.post("/tokens", json=body), 422, "invalid")
    later = (soon + timedelta(seconds=1)).isoformat()
    refused(await short.post("/tokens", json={**body, "expires_at": later}), 422, "invalid")
    await ok(short.post("/tokens", json={**body, "expires_at": soon.isoformat()}))
    await ok(red.post("/tokens", json=body))


# --- what other tenants have


async def test_a_token_for_a_deployment_does_not_tell_which_ones_there_are(home: House, red: httpx.AsyncClient) -> None:
    blue = (await ok(home.admin.get("/deployments/blue")))["id"]
    for deployment in ("blue", str(blue), "system"):
        refused(await red.post("/tokens", json={"name": "x", "deployment": deployment}), 404, "not-found")
    await ok(red.post("/tokens", json={"name": "x", "deployment": "red"}))


async def test_who_gives_roles_in_one_deployment_is_told_of_no_others(home: House) -> None:
    chief = await home.someone("red-chief", "none", red="admin")
    await home.user("grace", "none", blue="operator")
    user = await ok(chief.put("/users/grace/grants/red", json={"role": "viewer"}))
    assert user["grants"] == {"red": "viewer"}
    assert (await ok(chief.delete("/users/grace/grants/red")))["grants"] == {}
    assert (await ok(home.admin.get("/users/grace")))["grants"] == {"blue": "operator"}


# --- what everybody reads


async def test_deployments_below_each_other_do_not_make_the_tree_unreadable(
    home: House, red: httpx.AsyncClient
) -> None:
    parent = "red"
    for number in range(MAX_DEPTH - 2):  # system and red are two
        parent = (await ok(red.post("/deployments", json={"name": f"red-{number}", "parent": parent})))["name"]
    refused(await red.post("/deployments", json={"name": "too-deep", "parent": parent}), 422, "invalid")
    await ok(home.admin.get("/deployments/system/tree"))


async def test_wishes_for_a_node_do_not_add_up_without_end(red: httpx.AsyncClient) -> None:
    for number in range(3):
        await ok(red.patch(f"/nodes/{MINE}", json={"hint": {f"more-{number}": "x" * 20_000}}))
    refused(await red.patch(f"/nodes/{MINE}", json={"hint": {"more-3": "x" * 20_000}}), 422, "invalid")
    refused(
        await red.post("/nodes", json={"name": "n2.red.example", "deployment": "red", "hint": {"x": "x" * 70_000}}), 422
    )
    await ok(red.patch(f"/nodes/{MINE}", json={"hint": {"more-0": None}}))


async def test_what_is_wanted_of_a_role_does_not_add_up_without_end(red: httpx.AsyncClient) -> None:
    role = await ok(red.post("/deployment_roles", json={"deployment": "red", "role": "test-child"}))
    path = f"/deployment_roles/{role['id']}"
    for number in range(2):
        await ok(red.patch(path, json={"data": {f"more-{number}": "x" * 100_000}}))
    refused(await red.patch(path, json={"data": {"more-2": "x" * 100_000}}), 422, "invalid")


# --- what is on record


async def test_what_was_refused_is_on_record_whatever_was_asked(home: House, red: httpx.AsyncClient) -> None:
    refused(await red.get("/users/admin%00"), 403, "forbidden")
    [event] = await home.events("permission.refused")
    assert (event["actor"], event["data"]["path"]) == ("red-operator", "/api/v2/users/admin\N{SYMBOL FOR NULL}")


# --- the log


@pytest.mark.parametrize("origin", ["http://[", "null", "", "http://evil.example", "http://house.example.evil.example"])
async def test_an_origin_that_is_none_of_ours_is_refused_however_it_is_written(home: House, origin: str) -> None:
    stranger = home.client(Origin=origin)
    refused(await stranger.post("/sessions", json={"name": "admin", "password": "wrong"}), 403, "cross-site")


def test_a_request_that_breaks_something_fills_no_log_when_it_is_repeated() -> None:
    quiet = SameFaultOncePerMinute()

    def broken(text: str) -> logging.LogRecord:
        try:
            int(text)
        except ValueError as error:
            return logging.LogRecord("x", logging.ERROR, "", 0, "broke", None, (ValueError, error, error.__traceback__))
        raise AssertionError

    first, second, later = broken("a"), broken("b"), broken("c")
    first.created, second.created, later.created = 1000.0, 1001.0, 1061.0
    assert [quiet.filter(record) for record in (first, second, later)] == [True, False, True]
    assert quiet.filter(logging.LogRecord("x", logging.ERROR, "", 0, "something else", None, None))
