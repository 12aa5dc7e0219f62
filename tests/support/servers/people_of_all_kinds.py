"""A server without annealer as people of all kinds see it: by token, by browser, over a real connection."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI
from tests.support.waiting import PATIENCE

from rackwright.api.app import create_app
from rackwright.client.access import Access
from rackwright.client.events import EventReader
from rackwright.client.transport import open_async_http
from rackwright.server.composition import running_server
from rackwright.server.first_admin import PASSWORD_FILE, TOKEN_FILE
from rackwright.server.settings import Options

HOST = "house.example"
PASSWORD = "correct horse battery"


@dataclass
class House:
    """The server, and ways in."""

    app: FastAPI
    home: Path

    @property
    def store(self) -> Any:
        return self.app.state.server.store

    def client(self, token: str | None = None, source: str = "192.0.2.1", **headers: str) -> httpx.AsyncClient:
        """Somebody at this address; cookies are kept, as in a browser."""
        transport = httpx.ASGITransport(app=self.app, client=(source, 40000))
        return open_async_http(Access(f"http://{HOST}", token or ""), PATIENCE, headers=headers, transport=transport)

    @property
    def admin(self) -> httpx.AsyncClient:
        return self.client((self.home / TOKEN_FILE).read_text().strip())

    @property
    def admin_password(self) -> str:
        return (self.home / PASSWORD_FILE).read_text().strip()

    async def user(self, name: str, role: str = "viewer", **grants: str) -> None:
        await ok(self.admin.post("/users", json={"name": name, "role": role, "password": PASSWORD}))
        for deployment, granted in grants.items():
            await ok(self.admin.put(f"/users/{name}/grants/{deployment}", json={"role": granted}))

    async def token(self, user: str, **fields: object) -> str:
        body = {"name": "for a test", "scope": "admin", "user": user} | fields
        return str((await ok(self.admin.post("/tokens", json=body)))["token"])

    async def someone(self, name: str, role: str = "viewer", **grants: str) -> httpx.AsyncClient:
        """A new user, by token."""
        await self.user(name, role, **grants)
        return self.client(await self.token(name))

    async def browser(self, name: str, password: str = PASSWORD, source: str = "192.0.2.1") -> httpx.AsyncClient:
        """A user who logged in; what proves where its requests come from is sent along."""
        client = self.client(source=source)
        answer = await ok(client.post("/sessions", json={"name": name, "password": password}))
        client.headers["X-CSRF-Token"] = answer["csrf"]
        return client

    async def events(self, *kinds: str) -> list[dict[str, Any]]:
        answer = await ok(self.admin.get("/events", params={"kind": kinds, "limit": 1000}))
        items: list[dict[str, Any]] = answer["items"]
        return items


async def ok(call: Any) -> Any:
    """What a call that must work answers."""
    answer: httpx.Response = await call
    assert answer.is_success, f"{answer.request.method} {answer.request.url}: {answer.status_code} {answer.text}"
    return answer.json() if answer.content else None


def refused(answer: httpx.Response, status: int, type: str = "") -> str:
    """Why; it must be a problem of this status and type."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: Mapping[str, str] = answer.json()
    assert not type or problem["type"] == f"urn:rackwright:problem:{type}"
    return problem["detail"]


@contextlib.asynccontextmanager
async def house(home: Path, url: str, **options: Any) -> AsyncIterator[House]:
    async with running_server(Options(home, url, test_barclamp=True, manual=True, **options)) as server:
        yield House(create_app(server), home)


class EventStream:
    """What a browser's EventSource does: reads events, and remembers the last id."""

    def __init__(self, answer: httpx.Response) -> None:
        self._lines = answer.aiter_lines()
        self._reader = EventReader()
        self.last_id = ""

    async def next(self) -> dict[str, Any] | None:
        """The next event; None: the stream has ended."""
        async for line in self._lines:
            if (event := self._reader.read_line(line)) is not None:
                self.last_id = event.id
                content: dict[str, Any] = event.data
                return content
        return None
