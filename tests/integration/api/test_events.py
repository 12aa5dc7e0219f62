"""Events over the API: pages, long polls and streams, by what the caller may see, without gaps or doubles."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.people import EventStream, House, house, ok, refused

from rackwright.api.app import PREFIX
from rackwright.api.serve import TOKEN_FILE, listening
from rackwright.store.events import Cursor, EventFilter, emit, forget_events, read_events
from rackwright.store.session import Session

PATIENCE = 60


@pytest.fixture
async def home(migrated_url: str, tmp_path: Path) -> AsyncIterator[House]:
    async with house(tmp_path, migrated_url) as opened:
        yield opened


async def happen(home: House, *numbers: int, kind: str = "test.happened", **place: int) -> None:
    async def work(session: Session) -> None:
        for number in numbers:
            await emit(session, kind, number, **place)  # type: ignore[arg-type]

    await home.store.change(work, actor="tester")


@contextlib.asynccontextmanager
async def streaming(address: str, token: str, last_id: str = "", **query: Any) -> AsyncIterator[EventStream]:
    headers = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
    if last_id:
        headers["Last-Event-ID"] = last_id
    async with (
        asyncio.timeout(PATIENCE),
        httpx.AsyncClient(base_url=f"{address}{PREFIX}", headers=headers, timeout=PATIENCE, trust_env=False) as client,
        client.stream("GET", "/events", params=query) as answer,
    ):
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield EventStream(answer)


def token_of(home: House) -> str:
    return (home.home / TOKEN_FILE).read_text().strip()


# --- pages


async def test_pages_lead_through_all_events_once(home: House) -> None:
    await happen(home, *range(25))
    seen, since = [], ""
    while True:
        page = await ok(home.admin.get("/events", params={"kind": "test.*", "limit": 7, "since": since}))
        if not page["items"]:
            break
        seen += [event["subject_id"] for event in page["items"]]
        since = page["next"]
    assert seen == list(range(25))


async def test_a_long_poll_answers_when_something_happens(home: House) -> None:
    now = (await ok(home.admin.get("/events?since=now")))["next"]
    asked = {"since": now, "wait": 60, "kind": "test.*"}
    poll = asyncio.create_task(ok(home.admin.get("/events", params=asked, timeout=PATIENCE)))
    while home.app.state.feed._subscribers == 0:  # noqa: ASYNC110 - it sets no event
        await asyncio.sleep(0.01)
    await happen(home, 1, kind="other.happened")
    await happen(home, 2)
    async with asyncio.timeout(PATIENCE):
        assert [event["subject_id"] for event in (await poll)["items"]] == [2]


async def test_a_poll_that_hears_nothing_moves_on_past_what_is_not_for_it(home: House) -> None:
    now = (await ok(home.admin.get("/events?since=now")))["next"]
    await happen(home, 1)
    page = await ok(home.admin.get("/events", params={"since": now, "kind": "node.created", "wait": 0.2}))
    assert page["items"] == []
    assert Cursor.parse(page["next"]) > Cursor.parse(now)


@pytest.mark.parametrize("since", ["x", "1", "1-", "-1", "1-x", "99999999999999999999-1", "²-1"])
async def test_a_cursor_that_is_none_is_a_422(home: House, since: str) -> None:
    assert "cursor" in refused(await home.admin.get("/events", params={"since": since}), 422)


async def test_a_cursor_older_than_what_is_kept_is_a_410_that_says_what_to_do(home: House) -> None:
    old = (await ok(home.admin.get("/events?limit=1")))["next"]
    await happen(home, *range(30))

    async def forget(session: Session) -> int:
        return await forget_events(session, 0, batch=20)

    assert await home.store.change(forget) == 20
    why = refused(await home.admin.get("/events", params={"since": old}), 410, "cursor-gone")
    oldest = why.partition("since=now`, or with `since=")[2].partition("`")[0]
    left = await ok(home.admin.get("/events", params={"limit": 1000}))
    assert left == await ok(home.admin.get("/events", params={"since": oldest, "limit": 1000}))
    while await home.store.change(forget):
        pass
    assert (await ok(home.admin.get("/events")))["items"] == []


async def test_what_is_young_is_kept(home: House) -> None:
    async with home.store.read() as session:
        count = await session.value("SELECT count(*) FROM events")
    assert await home.store.change(lambda session: forget_events(session, 3600)) == 0
    async with home.store.read() as session:
        assert await session.value("SELECT count(*) FROM events") == count > 0


# --- who sees what


async def test_only_administrators_see_what_people_do_with_their_access(home: House) -> None:
    grace = await home.someone("grace", "operator")
    kinds = {event["kind"] for event in (await ok(grace.get("/events?limit=1000")))["items"]}
    assert kinds
    assert not [kind for kind in kinds if kind.startswith(("user.", "token.", "session.", "login."))]
    everything = {event["kind"] for event in (await ok(home.admin.get("/events?limit=1000")))["items"]}
    assert {"user.created", "token.created"} <= everything


async def test_who_may_see_a_subtree_hears_of_that_alone(home: House) -> None:
    for name, parent in (("web", None), ("shop", "web"), ("mail", None)):
        await ok(home.admin.post("/deployments", json={"name": name, "parent": parent}))
    grace = await home.someone("grace", "none", web="viewer")
    heard = (await ok(grace.get("/events?limit=1000")))["items"]
    assert [event["data"]["name"] for event in heard if event["kind"] == "deployment.created"] == ["web", "shop"]
    ids = {one["id"] for one in (await ok(home.admin.get("/deployments")))["items"] if one["name"] in ("web", "shop")}
    assert {event["deployment_id"] for event in heard} <= ids
    refused(await grace.get("/events?deployment=mail"), 404)
    scoped = home.client(await home.token("admin", scope="read", deployment="shop"))
    heard = (await ok(scoped.get("/events?limit=1000")))["items"]
    assert [event["data"]["name"] for event in heard if event["kind"] == "deployment.created"] == ["shop"]


async def test_a_filter_says_the_same_in_the_database_and_in_memory(home: House) -> None:
    dice = random.Random(7)
    await ok(home.admin.post("/deployments", json={"name": "web"}))
    await ok(home.admin.post("/nodes", json={"name": "n1.rack.example", "deployment": None}))
    async with home.store.read() as session:
        everything = await read_events(session, Cursor(), 10_000)
        kinds = sorted({event.kind for event in everything})
        places = sorted({event.place_id for event in everything if event.place_id is not None})
        assert len(everything) > 20
        for _ in range(200):
            wanted = EventFilter(
                tuple(dice.sample([*kinds, "node.*", "user.*", "n.*", "%.*"], dice.randint(0, 3))),
                dice.choice([None, None, 1, 2]),
                dice.choice([None, None, 1, 2]),
                dice.choice([None, *places]),
                dice.choice([None, frozenset(dice.sample(places, dice.randint(0, len(places))))]),
                dice.choice([True, False]),
            )
            found = await read_events(session, Cursor(), 10_000, wanted)
            assert found == [event for event in everything if wanted.matches(event)], wanted


# --- streams


async def test_a_stream_tells_what_happens_and_goes_on_from_the_last_id(home: House) -> None:
    async with listening(home.app) as address:
        async with streaming(address, token_of(home), since="now", kind="test.*") as stream:
            for number in range(3):
                await happen(home, number)
                assert (await stream.next() or {})["subject_id"] == number
            last = stream.last_id
        await happen(home, 3, 4)
        async with streaming(address, token_of(home), last, kind="test.*", since="0-0") as stream:
            assert [(await stream.next() or {})["subject_id"] for _ in range(2)] == [3, 4]


@pytest.mark.parametrize("way", ["revoked", "disabled", "logged out", "password"])
async def test_a_stream_ends_when_its_token_or_session_does(home: House, way: str) -> None:
    await home.user("grace")
    browser = await home.browser("grace")
    token = await home.token("grace")
    async with listening(home.app) as address:
        headers = {"Accept": "text/event-stream"}
        if way == "revoked" or way == "disabled":
            headers["Authorization"] = f"Bearer {token}"
        else:
            headers["Cookie"] = f"rackwright_session={browser.cookies['rackwright_session']}"
        async with (
            asyncio.timeout(PATIENCE),
            httpx.AsyncClient(base_url=f"{address}{PREFIX}", timeout=PATIENCE, trust_env=False) as client,
            client.stream("GET", "/events?since=now&kind=test.*", headers=headers) as answer,
        ):
            stream = EventStream(answer)
            await happen(home, 1)
            assert await stream.next()
            match way:
                case "revoked":
                    own = (await ok(home.client(token).get("/me")))["token_id"]
                    await ok(home.admin.delete(f"/tokens/{own}"))
                case "disabled":
                    await ok(home.admin.patch("/users/grace", json={"disabled": True}))
                case "logged out":
                    await ok(browser.delete("/sessions/current"))
                case "password":
                    await ok(home.admin.put("/users/grace/password", json={"password": "quite another one"}))
            await happen(home, 2)
            rest = []
            while (event := await stream.next()) is not None:
                rest.append(event["subject_id"])
            assert rest == []


async def test_a_stream_does_not_keep_the_server_from_stopping(home: House) -> None:
    async with contextlib.AsyncExitStack() as clients:
        async with listening(home.app) as address:
            stream = await clients.enter_async_context(streaming(address, token_of(home), since="now"))
            await happen(home, 1)
            assert await stream.next()
        assert await stream.next() is None


async def test_the_reader_rests_when_nobody_listens(home: House) -> None:
    async with listening(home.app) as address:
        async with streaming(address, token_of(home), since="now") as stream:
            await happen(home, 1)
            assert await stream.next()
        feed = home.app.state.feed
        async with asyncio.timeout(PATIENCE):
            while feed._reader is not None:  # noqa: ASYNC110 - it sets no event
                await asyncio.sleep(0.01)
        assert home.store.watchers == set()


# --- nothing lost, nothing twice


WRITERS = 4
EACH = 2500


async def test_ten_thousand_events_reach_everybody_once_through_reconnects_and_a_restart(
    migrated_url: str, tmp_path: Path
) -> None:
    """Writers whose transactions overlap and commit out of order; readers that hang up at random; a server that is
    replaced in the middle by another process's worth of state."""
    dice = random.Random(1)
    readers: dict[str, list[int]] = {"stream": [], "poll": [], "slow stream": []}
    cursors = dict.fromkeys(readers, "")

    async def write(home: House, numbers: list[int]) -> None:
        while numbers:
            batch = [numbers.pop() for _ in range(min(len(numbers), dice.randint(1, 40)))]

            async def work(session: Session, batch: list[int] = batch) -> None:
                rows = "INSERT INTO events (kind, subject_id) SELECT 'test.happened', unnest(CAST(:batch AS bigint[]))"
                await session.run(rows, batch=batch)
                if dice.random() < 0.3:
                    await asyncio.sleep(dice.random() * 0.02)  # so that one that began later commits first

            await home.store.change(work)

    async def read(address: str, token: str, name: str, stop: asyncio.Event) -> None:
        """Until stopped; a connection lasts for a few events only."""
        while not stop.is_set():
            with contextlib.suppress(httpx.TransportError):
                if name == "poll":
                    await poll(address, token, name)
                    continue
                async with streaming(address, token, cursors[name], kind="test.*", since="0-0") as stream:
                    for _ in range(dice.randint(1, 800)):
                        event = await stream.next()
                        if event is None or stop.is_set():
                            break
                        readers[name].append(event["subject_id"])
                        cursors[name] = stream.last_id
                        if name == "slow stream" and dice.random() < 0.05:
                            await asyncio.sleep(0.01)

    async def poll(address: str, token: str, name: str) -> None:
        async with httpx.AsyncClient(base_url=f"{address}{PREFIX}", timeout=PATIENCE, trust_env=False) as client:
            query: dict[str, str | int] = {
                "since": cursors[name] or "0-0",
                "kind": "test.*",
                "wait": 1,
                "limit": dice.randint(1, 500),
            }
            answer = await client.get("/events", params=query, headers={"Authorization": f"Bearer {token}"})
            assert answer.status_code == 200
            page = answer.json()
            readers[name] += [event["subject_id"] for event in page["items"]]
            cursors[name] = page["next"]

    total = WRITERS * EACH
    async with asyncio.timeout(300):
        for half in range(2):
            numbers = [list(range(total)[half * WRITERS + one :: 2 * WRITERS]) for one in range(WRITERS)]
            async with house(tmp_path, migrated_url) as home, listening(home.app) as address:
                stop = asyncio.Event()
                token = token_of(home)
                async with asyncio.TaskGroup() as group:
                    for name in readers:
                        group.create_task(read(address, token, name, stop))
                    async with asyncio.TaskGroup() as writers:
                        for mine in numbers:
                            writers.create_task(write(home, mine))
                    # The first server ends while its readers are still behind.
                    while half and min(sum(number < total for number in seen) for seen in readers.values()) < total:  # noqa: ASYNC110
                        await asyncio.sleep(0.1)
                    stop.set()
                    await happen(home, *range(total, total + 3))  # so that nobody waits for what never comes
    for name, seen in readers.items():
        wanted = [number for number in seen if number < total]
        assert len(wanted) == len(set(wanted)), f"{name}: some came twice"
        assert set(wanted) == set(range(total)), f"{name}: some are missing"
    shown = [[number for number in seen if number < total] for seen in readers.values()]
    assert shown[0] == shown[1] == shown[2], "all see one order"
