"""Webhooks against a real receiver: signed, in order, tried again, given up; and what is never called."""

import asyncio
import contextlib
import hashlib
import hmac
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse
from tests.support.clock import pass_time
from tests.support.servers.people_of_all_kinds import House, house, ok, refused
from tests.support.waiting import PATIENCE, until

from rackwright.api import webhook_sender
from rackwright.api.webhook_sender import WebhookSender
from rackwright.server.listener import listening
from rackwright.server.tls import ensure_self_signed
from rackwright.server.webhook_deliveries import WebhookDeliveries
from rackwright.store.db.session import Session
from rackwright.store.events import webhooks as stored
from rackwright.store.events.outbox import emit

FLOOD = 256 * 1024 * 1024
LOOPBACK = [ip_network("127.0.0.0/8")]


@dataclass
class Receiver:
    """Somebody's server."""

    address: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    answer: Callable[[], Response] = lambda: Response(status_code=204)

    def app(self) -> FastAPI:
        app = FastAPI()

        @app.post("/hook")
        async def hook(request: Request) -> Response:
            self.bodies.append(await request.body())
            self.events.append(json.loads(self.bodies[-1])["event"])
            self.headers.append(dict(request.headers))
            return self.answer()

        return app

    @property
    def url(self) -> str:
        return f"{self.address}/hook"

    @property
    def subjects(self) -> list[int]:
        return [event["subject_id"] for event in self.events]


@pytest.fixture(autouse=True)
def patient_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A receiver that a busy machine holds up is called once, and by one server."""
    monkeypatch.setattr(webhook_sender, "CALL_SECONDS", PATIENCE)
    monkeypatch.setattr(stored, "LEASE_SECONDS", 2 * PATIENCE)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    running = Receiver()
    async with listening(running.app()) as running.address:
        yield running


@pytest.fixture
async def home(migrated_url: str, tmp_path: Path) -> AsyncIterator[House]:
    async with house(tmp_path, migrated_url, webhook_allow=LOOPBACK) as opened:
        yield opened


@contextlib.asynccontextmanager
async def delivering(home: House, worker: str = "w1") -> AsyncIterator[WebhookDeliveries]:
    service = WebhookDeliveries(home.store, worker, WebhookSender(LOOPBACK), tick=0.1)
    task = asyncio.create_task(service.run())
    try:
        yield service
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def happen(home: House, *numbers: int) -> None:
    async def work(session: Session) -> None:
        for number in numbers:
            await emit(session, "test.happened", number)

    await home.store.change(work)


async def hook(home: House, receiver: Receiver, **fields: Any) -> dict[str, Any]:
    body = {"name": "chat", "url": receiver.url, "kinds": ["test.*"]} | fields
    created: dict[str, Any] = await ok(home.admin.post("/webhooks", json=body))
    return created


async def state(home: House) -> dict[str, Any]:
    webhook: dict[str, Any] = await ok(home.admin.get("/webhooks/chat"))
    return webhook


async def test_events_arrive_signed_once_and_in_order(home: House, receiver: Receiver) -> None:
    await happen(home, 1)  # before the hook was there
    created = await hook(home, receiver)
    async with delivering(home):
        await happen(home, *range(10, 20))
        for number in range(20, 25):
            await happen(home, number)
        await until(lambda: len(receiver.events) >= 15, "all are delivered")
    assert receiver.subjects == list(range(10, 25))
    for headers, body in zip(receiver.headers, receiver.bodies, strict=True):
        timestamp, _, signature = headers["rackwright-signature"].removeprefix("t=").partition(",v1=")
        expected = hmac.new(created["secret"].encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
        assert signature == expected
    assert len({headers["rackwright-delivery"] for headers in receiver.headers}) == 15


async def test_the_secret_is_shown_once_and_stored_sealed(home: House, receiver: Receiver) -> None:
    created = await hook(home, receiver)
    assert created["secret"] not in str(await ok(home.admin.get("/webhooks")))
    async with home.store.read() as session:
        assert created["secret"] not in str(await session.value("SELECT w::text FROM webhooks w"))


async def test_a_failure_holds_back_what_follows_is_shown_and_tried_again(
    home: House, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "back_off", lambda failures: 0.0)
    answers = iter([500, 503, 204])
    receiver.answer = lambda: Response(status_code=next(answers, 204))
    await hook(home, receiver)
    async with delivering(home):
        await happen(home, 1, 2)
        await until(lambda: 2 in receiver.subjects, "it goes on")
        await until(lambda: _delivered(home, 4), "it is on record")
    assert receiver.subjects == [1, 1, 1, 2]
    listed = (await ok(home.admin.get("/webhooks/chat/deliveries")))["items"]
    assert [(delivery["attempt"], delivery["status"]) for delivery in reversed(listed)] == [
        (1, 500),
        (2, 503),
        (3, 204),
        (1, 204),
    ]
    assert "It answered 500" in listed[-1]["error"]


async def _delivered(home: House, count: int) -> bool:
    return len((await ok(home.admin.get("/webhooks/chat/deliveries")))["items"]) == count


async def test_after_many_failures_it_is_given_up_until_somebody_resumes_it(
    home: House, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "back_off", lambda failures: 0.0)
    monkeypatch.setattr(stored, "MAX_FAILURES", 3)
    receiver.answer = lambda: Response(status_code=500)
    await hook(home, receiver)

    async def stopped() -> bool:
        return bool((await state(home))["state"] == "stopped")

    async with delivering(home):
        await happen(home, 1)
        await until(stopped, "it is given up")
        assert receiver.subjects == [1, 1, 1]
        assert "It answered 500" in (await state(home))["error"]
        assert [event["data"]["name"] for event in await home.events("webhook.stopped")] == ["chat"]
        receiver.answer = lambda: Response(status_code=204)
        await happen(home, 2)
        await ok(home.admin.post("/webhooks/chat/resume"))
        await until(lambda: 2 in receiver.subjects, "it goes on where it stopped")
    assert receiver.subjects == [1, 1, 1, 1, 2]


def test_the_waits_grow_and_end_at_an_hour() -> None:
    waits = [stored.back_off(failures) for failures in range(1, stored.MAX_FAILURES + 1)]
    assert waits[:4] == [1, 2, 4, 8]
    assert waits == sorted(waits)
    assert waits[-1] == 3600


async def test_two_servers_do_not_deliver_twice(home: House, receiver: Receiver) -> None:
    await hook(home, receiver)
    async with delivering(home, "w1"), delivering(home, "w2"):
        for number in range(30):
            await happen(home, number)
        await until(lambda: len(receiver.events) >= 30, "all are delivered")
    assert receiver.subjects == list(range(30))


async def test_another_server_goes_on_where_a_dead_one_stopped(home: House, receiver: Receiver) -> None:
    await hook(home, receiver)
    await happen(home, 1)
    await home.store.change(lambda session: stored.claim_due_webhooks(session, "dead", []))
    async with home.store.read() as session:
        assert not await stored.has_due_webhooks(session, "w2")
    await home.store.change(lambda session: session.run("UPDATE webhooks SET lease_until = now() - interval '1 s'"))
    async with delivering(home, "w2"):
        await until(lambda: receiver.subjects == [1], "it is taken over")


async def test_a_redirect_is_not_followed(home: House, receiver: Receiver) -> None:
    receiver.answer = lambda: Response(status_code=307, headers={"Location": receiver.url})
    await hook(home, receiver)
    tried = await ok(home.admin.post("/webhooks/chat/test"))
    assert tried["status"] == 307
    assert "redirects are not followed" in tried["error"]
    assert len(receiver.events) == 1


async def test_an_answer_that_does_not_end_costs_a_bounded_time(home: House) -> None:
    """Headers that come a byte at a time, for ever."""
    trickled = 0

    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal trickled
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"H")
                await writer.drain()
                trickled += 1
                await asyncio.sleep(0.01)

    server = await asyncio.start_server(trickle, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
        target = Receiver(address=url.removesuffix("/hook"))
        await hook(home, target)
        async with home.store.read() as session:
            record = await stored.get_webhook(session, "chat")
        await happen(home, 1)
        async with home.store.read() as session:
            [event], _ = await stored.next_events(session, record, record.cursor, 10)
        sender = WebhookSender(LOOPBACK, seconds=3600)
        calling = asyncio.create_task(sender.deliver("chat", url, "secret", event, 1))
        await until(lambda: trickled >= 10, "the answer trickles in")
        pass_time(3600)
        delivery = await calling
    assert "did not answer" in delivery.error or "could not be called" in delivery.error


async def test_a_huge_answer_is_cut_off(home: House, receiver: Receiver) -> None:
    sent = 0

    async def flood() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < FLOOD:
            sent += 65536
            yield b"x" * 65536
            await asyncio.sleep(0)

    receiver.answer = lambda: StreamingResponse(flood())
    await hook(home, receiver)
    tried = await ok(home.admin.post("/webhooks/chat/test"))
    assert (tried["status"], tried["error"]) == (200, "")
    assert sent < FLOOD


async def test_private_targets_are_refused_when_made_and_when_called(migrated_url: str, tmp_path: Path) -> None:
    async with house(tmp_path, migrated_url) as home:
        for url in ("http://127.0.0.1/x", "http://[::ffff:127.0.0.1]/", "http://169.254.169.254/latest/meta-data/"):
            why = refused(await home.admin.post("/webhooks", json={"name": "x", "url": url}), 422)
            assert "webhook_allow" in why
        await ok(home.admin.post("/webhooks", json={"name": "chat", "url": "http://localhost:1/hook"}))
        tried = await ok(home.admin.post("/webhooks/chat/test"))
        assert "webhook_allow" in tried["error"]
        assert tried["status"] is None


async def test_a_name_is_resolved_once_and_exactly_that_address_is_called(
    home: House, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS that answers well the first time and badly the second: there is no second time."""
    port = int(receiver.address.rpartition(":")[2])
    names: list[str] = []

    async def resolve(host: str, port: int, **_: Any) -> list[Any]:
        names.append(host)
        address = "127.0.0.1" if len(names) == 1 else "127.0.0.2"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    await hook(home, receiver, url=f"http://rebind.example:{port}/hook")
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    delivery = await ok(home.admin.post("/webhooks/chat/test"))
    assert delivery["error"] == ""
    assert [name for name in names if name == "rebind.example"] == ["rebind.example"]
    assert receiver.headers[0]["host"] == f"rebind.example:{port}"


async def test_one_bad_address_among_a_names_addresses_is_enough(
    home: House, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def resolve(host: str, port: int, **_: Any) -> list[Any]:
        return [(2, 1, 6, "", (address, port)) for address in ("127.0.0.1", "10.0.0.1")]

    await hook(home, receiver, url="http://mixed.example/hook")
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    assert "10.0.0.1" in (await ok(home.admin.post("/webhooks/chat/test")))["error"]
    assert receiver.events == []


async def test_over_tls_the_certificate_must_be_that_of_the_name(
    home: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Receiver()
    certificate = ensure_self_signed(tmp_path / "receiver", ["receiver.example"])
    trusted = ssl.create_default_context(cafile=str(certificate.certificate))
    monkeypatch.setattr(webhook_sender, "tls_context", lambda: trusted)

    async def resolve(host: str, port: int, **_: Any) -> list[Any]:
        return [(2, 1, 6, "", ("127.0.0.1", port))]

    async with listening(target.app(), tls=certificate.context()) as address:
        port = address.rpartition(":")[2]
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
        await hook(home, target, url=f"https://receiver.example:{port}/hook")
        assert (await ok(home.admin.post("/webhooks/chat/test")))["error"] == ""
        await hook(home, target, name="other", url=f"https://other.example:{port}/hook")
        assert "could not be called" in (await ok(home.admin.post("/webhooks/other/test")))["error"]
    assert len(target.events) == 1


async def test_webhooks_are_for_administrators(home: House, receiver: Receiver) -> None:
    await hook(home, receiver)
    operator = await home.someone("grace", "operator")
    for method, path in (("GET", ""), ("POST", ""), ("GET", "/chat"), ("DELETE", "/chat"), ("POST", "/chat/test")):
        refused(await operator.request(method, f"/webhooks{path}", json={"name": "x", "url": receiver.url}), 403)
    await ok(home.admin.delete("/webhooks/chat"))
    refused(await home.admin.get("/webhooks/chat"), 404)
