"""A server without annealer on a database of its own, and clients of its API for people of every role."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI
from tests.support.machines.reached_nodes import all_reached
from tests.support.rack import ADMIN, Rack
from tests.support.waiting import PATIENCE

from rackwright.api.app import create_app
from rackwright.api.context import Server
from rackwright.client.access import Access
from rackwright.client.transport import open_async_http
from rackwright.domain.people import UserRole
from rackwright.server.composition import running_server
from rackwright.server.first_admin import TOKEN_FILE
from rackwright.server.settings import Options
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.machines.nodes import get_node
from rackwright.store.people.tokens import NewToken, create_token
from rackwright.store.people.users import get_user

Api = httpx.AsyncClient

NODE = "n1.rack.example"
"""The node of `deploy_role`."""


@dataclass
class Site:
    server: Server
    app: FastAPI
    token: str
    """The administrator's."""

    @property
    def rack(self) -> Rack:
        return Rack(self.server.store)

    def client(self, token: str | None = None, **headers: str) -> Api:
        """A client with this token; none: the administrator's; empty: without."""
        access = Access("http://server", self.token if token is None else token)
        transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
        return open_async_http(access, PATIENCE, headers=headers, transport=transport)

    async def token_of(self, role: UserRole, name: str = "") -> str:
        """A new person's."""

        async def work(session: Session) -> str:
            id: int = await session.value(
                "INSERT INTO users (name, role) VALUES (:name, :role) RETURNING id",
                name=name or role.value,
                role=role.value,
            )
            _, token = await create_token(session, NewToken(id, "test"))
            return token

        return await self.server.store.change(work)

    async def token_named(self, user: str) -> str:
        """One more token of this user."""

        async def work(session: Session) -> str:
            _, token = await create_token(session, NewToken((await get_user(session, user)).id, "test"))
            return token

        return await self.server.store.change(work)


@asynccontextmanager
async def api_site(home: Path, url: str) -> AsyncIterator[Site]:
    """On a database after its first start."""
    async with running_server(Options(home, url, test_barclamp=True, manual=True)) as server:
        async with server.store.read() as session:
            here = (await get_node(session, ADMIN, EVERYTHING)).id
        # With the machines' routes beside people's, as in a lab, so that all there are can be walked.
        server = all_reached(replace(server, claimant=replace(server.claimant, node_id=here), simulates=True))
        yield Site(server, create_app(server), (home / TOKEN_FILE).read_text().strip())


def ok(answer: httpx.Response, status: int = 0) -> Any:
    """What was answered, if it was a success."""
    assert answer.is_success if not status else answer.status_code == status, f"{answer.status_code} {answer.text}"
    return answer.json() if answer.content else None


def refused(answer: httpx.Response, status: int, type_: str) -> dict[str, Any]:
    """What was answered, if it is just this problem."""
    assert answer.status_code == status, f"{answer.status_code} {answer.text}"
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert (problem["type"], problem["status"]) == (f"urn:rackwright:problem:{type_}", status), problem
    assert problem["detail"]
    return problem


async def deploy_role(site: Site, api: Api, role: str = "test-child") -> int:
    """Commit a role on a node in deployment web; return its noderole."""
    ok(await api.post("/nodes", json={"name": NODE, "alive": True}), 201)
    ok(await api.post("/deployments", json={"name": "web"}), 201)
    bound = ok(await api.post("/node_roles", json={"node": NODE, "role": role, "deployment": "web"}), 201)
    ok(await api.post("/deployments/web/commit", json={}))
    return int(bound["id"])


async def anneal_all(api: Api) -> None:
    """Make passes by hand until there is nothing left to run."""
    while ok(await api.post("/anneal/step"))["ran"]:
        pass
