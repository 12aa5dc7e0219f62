"""A machine's controller that was taken over: it gets neither the server's threads nor its memory, nor does it send the
server anywhere else.

The server asks controllers by Redfish, on its own initiative and with a password. Here a controller answers a byte now
and then, without end, too deep, for a crowd of systems, or with the addresses of others.
"""

import asyncio
import json
import resource
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from requests import Request
from tests.support.waiting import PATIENCE

from rackwright.domain.catalogue import JsonObject
from rackwright.hammers import controller_http, redfish
from rackwright.hammers.base import HammerFailed, HammerNode, Power
from rackwright.hammers.controller_http import ControllerAdapter, ControllerRefused
from rackwright.hammers.redfish import RedfishHammer

ROOT = "/redfish/v1"
SYSTEM = f"{ROOT}/Systems/1"
RequestHeads = list[str]
Answer = Callable[[str, asyncio.StreamWriter], Awaitable[None]]

DESCRIBED: dict[str, JsonObject] = {
    ROOT: {"RedfishVersion": "1.6.0", "Id": "root", "Name": "root", "Systems": {"@odata.id": f"{ROOT}/Systems"}},
    f"{ROOT}/Systems": {"Name": "all", "Members@odata.count": 1, "Members": [{"@odata.id": SYSTEM}]},
    SYSTEM: {
        "Id": "1",
        "Name": "system",
        "PowerState": "Off",
        "Actions": {
            "#ComputerSystem.Reset": {"target": f"{SYSTEM}/Actions/Reset", "ResetType@Redfish.AllowableValues": ["On"]}
        },
    },
}


@asynccontextmanager
async def controller(answer: Answer) -> AsyncIterator[tuple[str, RequestHeads]]:
    """Something that listens where a controller should: its address, and what it was asked."""
    heads: RequestHeads = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            heads.append(head)
            await answer(head.split()[1], writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the server hung up, as it should
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1") as server:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}", heads


def node_at(address: str, number: int = 1) -> HammerNode:
    bmc: JsonObject = {"address": address, "username": "ops", "password": "hidden", "plain": True}
    return HammerNode(number, f"n{number}.example", {"bmc": bmc})


async def send(writer: asyncio.StreamWriter, status: str, body: bytes, *headers: str) -> None:
    head = [f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(body)}", *headers]
    writer.write("\r\n".join([*head, "Connection: close", "", ""]).encode() + body)
    await writer.drain()


def describing(**other: object) -> Answer:
    """A controller of one system that is off; `other` is what it says in place of that."""

    async def answer(path: str, writer: asyncio.StreamWriter) -> None:
        known = other.get(path.rstrip("/").rpartition("/")[2]) or DESCRIBED.get(path.rstrip("/"))
        await send(writer, "200 OK" if known else "404 Not Found", json.dumps(known or {}).encode())

    return answer


async def test_a_controller_that_behaves_is_asked() -> None:
    async with controller(describing()) as (address, heads):
        assert await RedfishHammer().status(node_at(address)) is Power.OFF
    assert "authorization: basic" in heads[-1].lower()


# --- time


async def drip_head(path: str, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nX: ")
    await _drip(writer)


async def drip_body(path: str, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    await _drip(writer)


async def drip_chunks(path: str, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    await _drip(writer)


async def _drip(writer: asyncio.StreamWriter) -> None:
    while not writer.is_closing():
        writer.write(b"1")
        await writer.drain()
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("answer", [drip_head, drip_body, drip_chunks])
async def test_a_controller_that_answers_a_byte_now_and_then_keeps_no_thread(
    answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redfish, "DEADLINE", 1.0)
    hammer = RedfishHammer()
    async with controller(answer) as (address, _):
        looks = [hammer.status(node_at(address, number)) for number in range(40)]
        assert all(isinstance(ended, HammerFailed) for ended in await asyncio.gather(*looks, return_exceptions=True))
        async with asyncio.timeout(PATIENCE):
            await asyncio.to_thread(int)  # what passwords are checked in, and large answers packed
            await asyncio.to_thread(hammer._threads.shutdown)


async def test_one_controller_that_is_slow_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redfish, "THREADS", 2)
    hammer = RedfishHammer()
    async with controller(drip_body) as (slow, _), controller(describing()) as (sound, _):
        waiting = [asyncio.create_task(hammer.status(node_at(slow, number))) for number in range(8)]
        await asyncio.sleep(0)
        async with asyncio.timeout(PATIENCE):
            assert await hammer.status(node_at(sound)) is Power.OFF
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_controller_of_very_many_systems_is_not_asked_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redfish, "DEADLINE", 1.0)
    crowd = {"Name": "all", "Members": [{"@odata.id": f"{ROOT}/Systems/{number}"} for number in range(20_000)]}
    hammer = RedfishHammer()
    async with controller(describing(Systems=crowd)) as (address, heads):
        with pytest.raises(HammerFailed):
            await hammer.status(node_at(address))
        await asyncio.to_thread(hammer._threads.shutdown)
        assert len(heads) < 5000


def test_a_thread_does_not_wait_for_an_event_loop_that_has_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_http, "GRACE", 0.1)
    loop = asyncio.new_event_loop()
    adapter = ControllerAdapter("http://127.0.0.1:9", loop, loop.time())
    with pytest.raises(ControllerRefused, match="the server ends"):
        adapter.send(Request("GET", "http://127.0.0.1:9/redfish/v1").prepare())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


# --- size


async def test_an_answer_without_end_is_not_taken() -> None:
    async def endless(path: str, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while not writer.is_closing():
            writer.write(bytes(2**20))
            await writer.drain()

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with controller(endless) as (address, _):
        with pytest.raises(HammerFailed, match="more than 1048576 bytes"):
            await RedfishHammer().status(node_at(address))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024


@pytest.mark.parametrize("body", [b"[" * 100_000, b"", b"\xff", b"[]", b"null", b"7", b'{"Systems": {"@odata.id": 5}}'])
async def test_an_answer_that_is_no_redfish_is_a_failure_of_that_controller(body: bytes) -> None:
    async with controller(lambda path, writer: send(writer, "200 OK", body)) as (address, _):
        with pytest.raises(HammerFailed):
            await RedfishHammer().status(node_at(address))


async def test_a_long_complaint_is_told_in_short() -> None:
    body = json.dumps({"error": {"message": "x" * 500_000}}).encode()
    async with controller(lambda path, writer: send(writer, "400 Bad Request", body)) as (address, _):
        with pytest.raises(HammerFailed) as failed:
            await RedfishHammer().status(node_at(address))
    assert len(str(failed.value)) < 1000


# --- elsewhere


async def test_the_server_is_sent_nowhere_else_by_a_redirect() -> None:
    async with controller(describing()) as (other, heads):

        async def redirect(path: str, writer: asyncio.StreamWriter) -> None:
            await send(writer, "307 Temporary Redirect", b"", f"Location: http://{other}{path}")

        async with controller(redirect) as (address, _):
            with pytest.raises(HammerFailed, match="elsewhere"):
                await RedfishHammer().status(node_at(address))
    assert heads == []


async def test_the_server_is_sent_nowhere_else_by_a_link_or_an_action() -> None:
    async with controller(describing()) as (other, heads):
        member = {"Name": "all", "Members": [{"@odata.id": f"http://{other}{SYSTEM}"}]}
        async with controller(describing(Systems=member)) as (address, _):
            with pytest.raises(HammerFailed, match="elsewhere"):
                await RedfishHammer().status(node_at(address))
        target = {"#ComputerSystem.Reset": {"target": f"http://{other}/reset"}}
        async with controller(describing(**{"1": {**DESCRIBED[SYSTEM], "Actions": target}})) as (address, _):
            with pytest.raises(HammerFailed, match="elsewhere"):
                await RedfishHammer().on(node_at(address))
    assert heads == []


async def test_a_redirect_within_the_controller_is_followed() -> None:
    async def add_slash(path: str, writer: asyncio.StreamWriter) -> None:
        if path.endswith("/"):
            await describing()(path, writer)
        else:
            await send(writer, "301 Moved Permanently", b"", f"Location: {path}/")

    async with controller(add_slash) as (address, _):
        assert await RedfishHammer().status(node_at(address)) is Power.OFF
