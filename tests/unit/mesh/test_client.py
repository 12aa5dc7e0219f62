"""The control plane's client: what it loads when it is imported, and how it follows a run past trouble."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rackwright.mesh import client as mesh_client
from rackwright.mesh.agent.control_server import ControlServer
from rackwright.mesh.client import AgentFailed, MeshClient, NoAgent, RunRequest, Targets, new_request
from rackwright.mesh.errors import NoDatastore, Rejected

Answers = AsyncIterator[dict[str, Any]]
HEAVY = {"cryptography", "httpx", "prometheus_client", "yaml"}


class FakeAgent:
    """Answers each request with the next of the given streams, and keeps the requests."""

    def __init__(self, *streams: Callable[[], Answers]) -> None:
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self._streams = list(streams)

    async def answer(self, verb: str, wish: dict[str, Any]) -> Answers:
        self.requests.append((verb, wish))
        return self._streams.pop(0)()


@asynccontextmanager
async def serving(folder: Path, agent: FakeAgent) -> AsyncIterator[MeshClient]:
    server = ControlServer(folder, agent.answer)
    await server.start()
    try:
        yield MeshClient(folder)
    finally:
        await server.stop()


@pytest.fixture
def key(tmp_path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    return tmp_path / "key"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mesh_client, "RETRY_SECONDS", 0.0)


def request() -> RunRequest:
    return new_request("cluster", b"tree", Targets(("s1",)), scope="here", token=3)


def read_package(path: str) -> dict[str, Any]:
    package: dict[str, Any] = json.loads(Path(path).read_text())
    return {**package, "tree": Path(package["tree"]).read_bytes()}


def leftovers(folder: Path) -> list[Path]:
    return list(folder.glob("rackwright-run-*"))


def event(number: int) -> dict[str, Any]:
    return {"event": {"number": number}, "cursor": f"c{number}"}


async def events(client: MeshClient, run_request: RunRequest, key: Path, count: int) -> list[int]:
    numbers: list[int] = []
    async with asyncio.timeout(30), aclosing(client.run(run_request, b"tree", key)) as run_events:
        async for run_event in run_events:
            numbers.append(run_event["number"])
            if len(numbers) == count:
                break
    return numbers


def test_importing_the_client_loads_no_heavy_library() -> None:
    code = "import sys, rackwright.mesh.client; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not HEAVY & set(done.stdout.split())


async def test_a_run_is_followed_from_where_it_was_when_the_agent_or_the_datastore_went_away(
    tmp_path: Path, key: Path
) -> None:
    async def begun() -> Answers:
        yield {"run": "r", "targets": ["s1"]}
        yield event(1)

    async def away() -> Answers:
        yield event(2)
        raise NoDatastore

    async def back() -> Answers:
        yield event(3)

    agent, run_request = FakeAgent(begun, away, back), request()
    async with serving(tmp_path, agent) as client:
        assert await events(client, run_request, key, 3) == [1, 2, 3]
    assert [verb for verb, _ in agent.requests] == ["run", "follow", "follow"]
    assert [wish for _, wish in agent.requests[1:]] == [
        {"run": run_request.id, "cursor": "c1"},
        {"run": run_request.id, "cursor": "c2"},
    ]


async def test_the_package_of_a_run_holds_the_request_and_its_tree_and_is_gone_afterwards(
    tmp_path: Path, key: Path
) -> None:
    packages: list[dict[str, Any]] = []

    async def read() -> Answers:
        packages.append(read_package(agent.requests[0][1]["package"]))
        yield event(1)

    agent, run_request = FakeAgent(read), request()
    async with serving(tmp_path, agent) as client:
        await events(client, run_request, key, 1)
    assert packages[0]["request"] == run_request.dump()
    assert "BEGIN SSH SIGNATURE" in packages[0]["signature"]
    assert packages[0]["tree"] == b"tree"
    assert leftovers(tmp_path) == []


async def test_a_run_that_the_agent_refuses_is_not_asked_for_again(tmp_path: Path, key: Path) -> None:
    async def refuse() -> Answers:
        raise Rejected("no")
        yield {}

    agent = FakeAgent(refuse)
    async with serving(tmp_path, agent) as client:
        with pytest.raises(AgentFailed, match="no"):
            await events(client, request(), key, 1)
    assert len(agent.requests) == 1


async def test_an_agent_that_ends_before_it_began_the_run_is_told(tmp_path: Path, key: Path) -> None:
    async def silent() -> Answers:
        return
        yield {}

    async with serving(tmp_path, FakeAgent(silent)) as client:
        with pytest.raises(NoAgent, match="ended while it began the run"):
            await events(client, request(), key, 1)


async def test_cancelling_names_the_run_with_its_scope_and_token(tmp_path: Path) -> None:
    async def cancelled() -> Answers:
        yield {"cancelled": []}

    agent, run_request = FakeAgent(cancelled), request()
    async with serving(tmp_path, agent) as client:
        await client.cancel(run_request, "enough")
    assert agent.requests == [("cancel", {"run": run_request.id, "why": "enough", "scope": "here", "token": 3})]
