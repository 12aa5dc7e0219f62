"""Clients that are slow on purpose, at both listeners: they are given up, and nobody else notices.

- Half a head, half a body, an unfinished TLS handshake and an answer that is not taken each end after a time.
- A listener has a limit of connections, and so has a source. Whoever is let in then takes the place of the one who has
  kept the server waiting for longest, so half requests keep nobody out.
- Without file descriptors the server goes on, at rest, and says so once a minute.
- What is slow and goes on does not end: a body that trickles in, a stream of events, a download.
"""

import asyncio
import contextlib
import itertools
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
import pytest
from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse
from tests.support.servers.public_server import front
from tests.support.slow_clients import HALF_A_BODY, HALF_A_HEAD, connected, is_closed, send
from tests.support.waiting import PATIENCE, until, wait_until

from rackwright.api.http.connections import ConnectionLimits
from rackwright.server.listener import listening
from rackwright.server.settings import Options
from rackwright.server.tls import choose_certificate

SHORT = 0.5
LARGE = 20 * 1024 * 1024
"""Bytes: more than the kernel keeps for a connection."""
LONG = "100000"
"""Seconds: longer than any test."""


def assert_answers(listener: str) -> None:
    assert httpx.get(f"{listener}/healthz", timeout=PATIENCE, trust_env=False).status_code == 200


def test_half_a_request_is_given_up_after_a_time(tmp_path: Path, started_url: str) -> None:
    with front(tmp_path, started_url, request_timeout=str(SHORT)) as site:
        for listener, sent in itertools.product(site.listeners, (b"", HALF_A_HEAD, HALF_A_BODY)):
            with connected(listener, 3, sent) as clients:
                for client in clients:
                    wait_until(lambda client=client: is_closed(client), f"{listener} gives up")  # type: ignore[misc]
            assert_answers(listener)


def test_a_head_that_never_ends_is_given_up_by_its_size(tmp_path: Path, started_url: str) -> None:
    with front(tmp_path, started_url, request_timeout=LONG) as site:
        for listener in site.listeners:
            with connected(listener, 1, HALF_A_HEAD) as [client]:
                for _ in range(1024):
                    send(client, b"x" * 1024)
                wait_until(lambda client=client: is_closed(client), f"{listener} gives up")  # type: ignore[misc]


def test_half_requests_at_few_descriptors_keep_nobody_out_and_fill_no_log(tmp_path: Path, started_url: str) -> None:
    with front(tmp_path, started_url, descriptors=256, request_timeout=LONG) as site:
        for listener in site.listeners:
            with contextlib.ExitStack() as attack:
                for address in ("127.0.0.1", "127.0.0.2", "127.0.0.3"):
                    attack.enter_context(connected(listener, 300, HALF_A_HEAD, address))
                for other in site.listeners:
                    assert_answers(other)
                assert psutil.Process(site.server.pid).num_fds() < 250
        assert len(site.server.said()) < 20_000


def test_whoever_fills_a_listener_with_requests_in_progress_does_not_make_it_spin(
    tmp_path: Path, started_url: str
) -> None:
    """All descriptors taken by other things than connections: accepting rests, and goes on once there are some."""
    with front(tmp_path, started_url, descriptors=256, connections="100000", request_timeout=LONG) as site:
        process = psutil.Process(site.server.pid)
        with connected(site.people, 600, HALF_A_HEAD):
            wait_until(lambda: "could not be accepted" in site.server.said(), "it says that descriptors are out")
            before = sum(process.cpu_times()[:2])
            assert_answers(site.people)
            assert sum(process.cpu_times()[:2]) - before < 30
        assert_answers(site.machines)
        assert site.server.said().count("could not be accepted") <= 2
        assert len(site.server.said()) < 20_000


def test_a_source_has_a_share_of_the_connections_and_others_have_the_rest(tmp_path: Path, started_url: str) -> None:
    with front(tmp_path, started_url, request_timeout=LONG, connections="40", connections_per_source="5") as site:
        for listener in site.listeners:
            with connected(listener, 1, HALF_A_HEAD, "127.0.0.3") as [quiet], connected(listener, 30, HALF_A_HEAD):
                assert_answers(listener)
                assert not is_closed(quiet), "another source pays for it"


# In this process, with an application of the test's own


def small_application() -> FastAPI:
    app = FastAPI()

    @app.post("/echo")
    async def echo(request: Request) -> int:
        return len(await request.body())

    @app.get("/large")
    async def large() -> Response:
        return Response(b"x" * LARGE)

    @app.get("/ticks")
    async def ticks() -> Response:
        async def tick() -> AsyncIterator[bytes]:
            for _ in range(3):
                yield b"tick\n"
                await passed(3 * SHORT)

        return StreamingResponse(tick())

    return app


async def passed(seconds: float) -> None:
    """The time is over, by the clock of the event loop."""
    end = asyncio.get_running_loop().time() + seconds
    await until(lambda: asyncio.get_running_loop().time() > end, "a clock goes on")


@asynccontextmanager
async def raw(address: str, sent: bytes) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection that has said this, and reads no more than it must."""
    url = urlsplit(address)
    reader, writer = await asyncio.open_connection(url.hostname, url.port, limit=1024)
    writer.write(sent)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


@asynccontextmanager
async def asking(address: str, path: str) -> AsyncIterator[asyncio.StreamReader]:
    """What is answered, to be read as fast or slowly as the test likes."""
    async with raw(address, f"GET {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode()) as (reader, _):
        async with asyncio.timeout(PATIENCE):
            yield reader


async def test_unfinished_handshakes_are_counted_and_given_up(tmp_path: Path) -> None:
    certificate = choose_certificate(Options(tmp_path, tls=True), "rack.example")
    assert certificate is not None
    trusted = ssl.create_default_context(cafile=str(certificate.certificate))
    limits = ConnectionLimits(connections=5, request_seconds=SHORT)
    async with listening(FastAPI(), tls=certificate.context(), limits=limits) as address, AsyncExitStack() as attack:
        half = [await attack.enter_async_context(raw(address, b"\x16\x03\x01")) for _ in range(20)]
        async with httpx.AsyncClient(verify=trusted, trust_env=False, timeout=PATIENCE) as person:
            answer = await person.get(address.replace("127.0.0.1", "localhost"))
        assert answer.status_code == 404
        async with asyncio.timeout(PATIENCE):
            for reader, _ in half:
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b"", "the handshake is given up"


async def test_a_body_that_goes_on_coming_may_take_its_time() -> None:
    limits = ConnectionLimits(request_seconds=SHORT)
    async with listening(small_application(), limits=limits) as address:
        head = b"POST /echo HTTP/1.1\r\nHost: here\r\nConnection: close\r\nContent-Length: 400000\r\n\r\n"
        async with raw(address, head + b"x" * 300_000) as (reader, writer), asyncio.timeout(PATIENCE):
            await passed(5 * SHORT)
            writer.write(b"x" * 100_000)
            assert (await reader.read()).endswith(b"400000")


async def test_a_connection_that_was_used_may_be_idle_but_not_begin_and_stop() -> None:
    """Clients keep connections for their next request; half of one is no reason to keep it."""
    limits = ConnectionLimits(request_seconds=SHORT)
    request = b"POST /echo HTTP/1.1\r\nHost: here\r\nContent-Length: 3\r\n\r\nabc"
    async with listening(small_application(), limits=limits) as address, raw(address, request) as (reader, writer):
        async with asyncio.timeout(PATIENCE):
            for _ in range(2):
                assert b"200 OK" in await reader.readuntil(b"\r\n\r\n3")
                await passed(3 * SHORT)
                writer.write(request)
            await reader.readuntil(b"\r\n\r\n3")
            writer.write(HALF_A_HEAD)
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b"", "half a head is given up"


async def test_a_stream_of_events_goes_on_for_as_long_as_it_has_to() -> None:
    limits = ConnectionLimits(request_seconds=SHORT, stall_seconds=SHORT)
    person = httpx.AsyncClient(trust_env=False, timeout=PATIENCE)
    async with listening(small_application(), limits=limits) as address, person:
        assert (await person.get(f"{address}/ticks")).text == "tick\n" * 3


async def test_an_answer_that_is_taken_late_arrives_whole() -> None:
    limits = ConnectionLimits(request_seconds=SHORT)
    async with listening(small_application(), limits=limits) as address, asking(address, "/large") as reader:
        assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
        await passed(5 * SHORT)
        assert await reader.readexactly(LARGE) == b"x" * LARGE


@pytest.mark.parametrize("path", ["/large", "/endless"])
async def test_an_answer_that_nobody_takes_is_given_up(path: str) -> None:
    app = small_application()
    given_up = asyncio.Event()

    @app.get("/endless")
    async def endless() -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            try:
                while True:
                    yield b"x" * 65536
                    await asyncio.sleep(0)  # what is sent to nobody takes no time
            finally:
                given_up.set()

        return StreamingResponse(pieces())

    limits = ConnectionLimits(request_seconds=SHORT, stall_seconds=SHORT)
    async with listening(app, limits=limits) as address, asking(address, path) as reader:
        await reader.readuntil(b"\r\n\r\n")
        if path == "/endless":
            await given_up.wait()
        await passed(10 * SHORT)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await reader.readexactly(LARGE)


async def test_who_is_being_answered_keeps_its_place_and_the_one_too_many_is_turned_away() -> None:
    limits = ConnectionLimits(connections=3, per_source=3)
    async with listening(small_application(), limits=limits) as address, AsyncExitStack() as stack:
        request = b"GET /ticks HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n"
        readers = []
        for _ in range(3):
            reader, _writer = await stack.enter_async_context(raw(address, request))
            await reader.readuntil(b"tick\n")
            readers.append(reader)
        async with raw(address, request) as (refused, _), asyncio.timeout(PATIENCE):
            with contextlib.suppress(ConnectionError):
                assert await refused.read() == b""
            for reader in readers:
                assert (await reader.read()).count(b"tick") == 2, "the rest of its stream"
