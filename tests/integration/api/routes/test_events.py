"""Events over the API: pages, long polls and streams, by what the caller may see, without gaps or doubles."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.servers.people_of_all_kinds import EventStream, House, house, ok, refused
from tests.support.servers.server_processes import ManualServer
from tests.support.waiting import PATIENCE, until

from rackwright.api.event_feed import EventFeed
from rackwright.client.access import Access
from rackwright.client.transport import open_async_http
from rackwright.server.first_admin import TOKEN_FILE
from rackwright.server.listener import listening
from rackwright.store.db.database import open_database
from rackwright.store.db.session import Session
from rackwright.store.events.outbox import Cursor, EventFilter, emit, forget_events, newest_cursor, read_events
from rackwright.store.store import Store


@pytest.fixture
async def home(migrated_url: str, tmp_path: Path) -> AsyncIterator[House]:
    async with house(tmp_path, migrated_url) as opened:
        yield opened


async def happen(home: House, *numbers: int, kind: str = "test.happened", **ids: int) -> None:
    async def work(session: Session) -> None:
        for number in numbers:
            await emit(session, kind, number, **ids)  # type: ignore[arg-type]

    await home.store.change(work, actor="tester")


@contextlib.asynccontextmanager
async def streaming(address: str, token: str, last_id: str = "", **query: Any) -> AsyncIterator[EventStream]:
    headers = {"Accept": "text/event-stream"}
    if last_id:
        headers["Last-Event-ID"] = last_id
    async with (
        asyncio.timeout(PATIENCE),
        open_async_http(Access(address, token), PATIENCE, headers=headers) as client,
        client.stream("GET", "/events", params=query) as answer,
    ):
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert "content-encoding" not in answer.headers  # what is compressed is held back
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
    query = {"since": now, "wait": 60, "kind": "test.*"}
    poll = asyncio.create_task(ok(home.admin.get("/events", params=query, timeout=PATIENCE)))
    await until(lambda: home.app.state.feed._subscribers > 0, "the poll waits")
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
    events = (await ok(grace.get("/events?limit=1000")))["items"]
    assert [event["data"]["name"] for event in events if event["kind"] == "deployment.created"] == ["web", "shop"]
    ids = {
        deployment["id"]
        for deployment in (await ok(home.admin.get("/deployments")))["items"]
        if deployment["name"] in ("web", "shop")
    }
    assert {event["deployment_id"] for event in events} <= ids
    refused(await grace.get("/events?deployment=mail"), 404)
    scoped = home.client(await home.token("admin", scope="read", deployment="shop"))
    events = (await ok(scoped.get("/events?limit=1000")))["items"]
    assert [event["data"]["name"] for event in events if event["kind"] == "deployment.created"] == ["shop"]


async def test_a_filter_says_the_same_in_the_database_and_in_memory(home: House) -> None:
    dice = random.Random(7)
    await ok(home.admin.post("/deployments", json={"name": "web"}))
    await ok(home.admin.post("/nodes", json={"name": "n1.rack.example", "deployment": None}))
    async with home.store.read() as session:
        everything = await read_events(session, Cursor(), 10_000)
        kinds = sorted({event.kind for event in everything})
        deployment_ids = sorted(
            {event.effective_deployment_id for event in everything if event.effective_deployment_id is not None}
        )
        assert len(everything) > 20
        for _ in range(200):
            event_filter = EventFilter(
                tuple(dice.sample([*kinds, "node.*", "user.*", "n.*", "%.*"], dice.randint(0, 3))),
                dice.choice([None, None, 1, 2]),
                dice.choice([None, None, 1, 2]),
                dice.choice([None, *deployment_ids]),
                dice.choice([None, frozenset(dice.sample(deployment_ids, dice.randint(0, len(deployment_ids))))]),
                dice.choice([True, False]),
            )
            selected = await read_events(session, Cursor(), 10_000, event_filter)
            assert selected == [event for event in everything if event_filter.matches(event)], event_filter


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


@pytest.mark.parametrize("ending", ["revoked", "disabled", "logged out", "password"])
async def test_a_stream_ends_when_its_token_or_session_does(home: House, ending: str) -> None:
    await home.user("grace")
    browser = await home.browser("grace")
    token = await home.token("grace")
    async with listening(home.app) as address:
        headers = {"Accept": "text/event-stream"}
        if ending == "revoked" or ending == "disabled":
            headers["Authorization"] = f"Bearer {token}"
        else:
            headers["Cookie"] = f"rackwright_session={browser.cookies['rackwright_session']}"
        async with (
            asyncio.timeout(PATIENCE),
            open_async_http(Access(address), PATIENCE) as client,
            client.stream("GET", "/events?since=now&kind=test.*", headers=headers) as answer,
        ):
            stream = EventStream(answer)
            await happen(home, 1)
            assert await stream.next()
            match ending:
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
            later_events = []
            while (event := await stream.next()) is not None:
                later_events.append(event["subject_id"])
            assert later_events == []


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
        await until(lambda: feed._reader is None, "the reader rests")
        assert home.store.watchers == set()


async def test_a_reader_that_is_let_go_ends_its_question_and_leaves_the_next_one_alone(
    home: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every question of the reader waits until it may be answered; the last subscriber leaves meanwhile."""
    asking, answered, broken_off = asyncio.Event(), asyncio.Event(), []

    async def slow(session: Session) -> Cursor:
        asking.set()
        try:
            await answered.wait()
        except asyncio.CancelledError:
            broken_off.append(session)
            raise
        return await newest_cursor(session)

    monkeypatch.setattr("rackwright.api.event_feed.newest_cursor", slow)
    feed = EventFeed(home.store)

    async def watch() -> None:
        async with feed.subscribed():
            await asking.wait()

    async with asyncio.timeout(PATIENCE):
        leaving = asyncio.create_task(watch())
        await asking.wait()
        await until(lambda: feed._reader is None, "the reader rests")
        leaving.cancel()  # as a stream is when its client hangs up
        with contextlib.suppress(asyncio.CancelledError):
            await leaving
        asking.clear()
        async with feed.subscribed():
            await asking.wait()  # another reader began, while the first has its question under way
            assert len(feed._ending_readers) == 1
            answered.set()
            await feed.wait_for_events(Cursor(), PATIENCE)
            assert feed._since == feed._tail > Cursor()
        await feed.wait_idle()
    assert broken_off == []
    assert feed._ending_readers == set()


# --- nothing lost, nothing twice


WRITERS = 4
TOTAL = 10_000
LAST = TOTAL
"""The number of the event that comes after all others."""


class Reader:
    """Follows the events of a server, or of the one that takes its place, on connections that last for a while only."""

    def __init__(self, name: str, token: str, location: dict[str, str], dice: random.Random) -> None:
        self.name, self._token, self._location, self._dice = name, token, location, dice
        self.seen: list[int] = []
        self._cursor = ""

    async def run(self) -> None:
        """Until it has seen the last."""
        while LAST not in self.seen[-1:]:
            try:
                await (self._poll() if self.name == "poll" else self._stream())
            except httpx.TransportError:  # the server is not there just now
                await asyncio.sleep(0.05)

    async def _stream(self) -> None:
        async with streaming(
            self._location["address"], self._token, self._cursor, kind="test.*", since="0-0"
        ) as stream:
            for _ in range(self._dice.randint(1, 1500)):
                event = await stream.next()
                if event is None:
                    return
                self.seen.append(event["subject_id"])
                self._cursor = stream.last_id
                if event["subject_id"] == LAST:
                    return
                if self.name == "slow stream" and self._dice.random() < 0.05:
                    await asyncio.sleep(0.01)

    async def _poll(self) -> None:
        query: dict[str, str | int] = {
            "since": self._cursor or "0-0",
            "kind": "test.*",
            "wait": 1,
            "limit": self._dice.randint(1, 500),
        }
        async with open_async_http(Access(self._location["address"], self._token), PATIENCE) as client:
            answer = await client.get("/events", params=query)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        self.seen += [event["subject_id"] for event in page["items"]]
        self._cursor = page["next"]


async def _write(store: Store, numbers: list[int], dice: random.Random) -> None:
    while numbers:
        batch = [numbers.pop() for _ in range(min(len(numbers), dice.randint(1, 40)))]

        async def work(session: Session, batch: list[int] = batch) -> None:
            rows = "INSERT INTO events (kind, subject_id) SELECT 'test.happened', unnest(CAST(:batch AS bigint[]))"
            await session.run(rows, batch=batch)
            if dice.random() < 0.3:
                await asyncio.sleep(dice.random() * 0.02)  # so that one that began later commits first

        await store.change(work)


async def test_ten_thousand_events_reach_everybody_once_through_reconnects_and_a_killed_server(
    migrated_url: str, tmp_path: Path
) -> None:
    """Writers whose transactions overlap and commit out of order; readers that hang up at random; a server process that
    is killed in the middle, and another that takes its place while the writing goes on."""
    dice = random.Random(1)
    location: dict[str, str] = {}
    async with asyncio.timeout(10 * PATIENCE), contextlib.AsyncExitStack() as stack:

        async def serve() -> ManualServer:
            server = ManualServer(tmp_path, migrated_url)
            stack.callback(server.kill)
            await until(lambda: server.address is not None, "the server listens")
            location["address"] = server.address or ""
            return server

        async def write(numbers: range) -> None:
            async with asyncio.TaskGroup() as writers:
                for writer in range(WRITERS):
                    writers.create_task(_write(store, list(numbers[writer::WRITERS]), dice))

        first = await serve()
        database = await stack.enter_async_context(await open_database(migrated_url, tmp_path))
        store = Store(database)
        token = (tmp_path / TOKEN_FILE).read_text().strip()
        readers = [Reader(name, token, location, dice) for name in ("stream", "poll", "slow stream")]
        async with asyncio.TaskGroup() as group:
            for reader in readers:
                group.create_task(reader.run())
            writing = group.create_task(write(range(TOTAL // 2)))
            await until(lambda: all(reader.seen for reader in readers), "every reader has seen something")
            first.kill()
            await writing
            writing = group.create_task(write(range(TOTAL // 2, TOTAL)))
            await serve()
            await writing
            await _write(store, [LAST], dice)
    for reader in readers:
        assert len(reader.seen) == len(set(reader.seen)), f"{reader.name}: some came twice"
        assert set(reader.seen) == set(range(TOTAL + 1)), f"{reader.name}: some are missing"
    assert readers[0].seen == readers[1].seen == readers[2].seen, "all see one order"
