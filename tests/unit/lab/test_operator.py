"""The operator of a lab: patient with a server that is busy or away, and never makes a change twice."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from fastapi import FastAPI, Request, Response
from tests.support.waiting import PATIENCE

from rackwright.client.access import PREFIX, Access
from rackwright.client.awaited import AsyncApiClient
from rackwright.client.errors import ApiProblem
from rackwright.lab.operator import patient
from rackwright.server.listener import listening

Answer = Callable[[int], Response]


class House:
    """A server that answers the n-th request as it is told, and notes what it was asked."""

    def __init__(self, answer: Answer) -> None:
        self.keys: list[str | None] = []
        self.app = FastAPI()

        @self.app.api_route(f"{PREFIX}/thing", methods=["GET", "POST"])
        async def thing(request: Request) -> Response:
            self.keys.append(request.headers.get("Idempotency-Key"))
            return answer(len(self.keys))


@asynccontextmanager
async def _person(address: str, tell: Callable[[str], None] = lambda _: None) -> AsyncIterator[AsyncApiClient]:
    patience = patient(tell, pause=0.01)
    async with AsyncApiClient(Access(address), timeout=PATIENCE, retry=patience) as api:
        yield api


def _ok() -> Response:
    return Response('{"done": true}', media_type="application/json")


async def test_a_change_that_was_put_off_is_asked_for_again_under_the_same_key() -> None:
    house = House(lambda number: Response(status_code=503) if number < 4 else _ok())
    async with listening(house.app) as address, _person(address) as person:
        assert await person.post("/thing", {}) == {"done": True}
    assert len(house.keys) == 4
    assert len(set(house.keys)) == 1
    assert house.keys[0]


async def test_two_changes_have_two_keys() -> None:
    house = House(lambda _: _ok())
    async with listening(house.app) as address, _person(address) as person:
        await person.post("/thing", {})
        await person.post("/thing", {})
    assert len(set(house.keys)) == 2


async def test_a_connection_that_breaks_before_the_answer_is_tried_again() -> None:
    requests = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        requests += 1
        await reader.readuntil(b"\r\n\r\n")
        if requests > 2:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    progress: list[str] = []
    async with server, _person("http://{}:{}".format(*server.sockets[0].getsockname()), progress.append) as person:
        assert await person.get("/thing") == {}
    assert requests == 3
    assert [line.partition(" (")[0] for line in progress] == ["GET /thing got no answer yet"] * 2


async def test_a_refusal_is_an_answer_and_is_told() -> None:
    problem = Response('{"detail": "not like this"}', status_code=422, media_type="application/problem+json")
    house = House(lambda _: problem)
    async with listening(house.app) as address, _person(address) as person:
        with pytest.raises(ApiProblem, match=r"^not like this$") as refused:
            await person.post("/thing", {})
    assert (refused.value.call, refused.value.status) == ("POST /thing", 422)
    assert len(house.keys) == 1
