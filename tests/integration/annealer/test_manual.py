"""A server through its API: without annealer by hand, and with it by itself; refusals as people see them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from tests.support.clock import pass_time
from tests.support.machines.reached_nodes import all_reached
from tests.support.rack import Rack
from tests.support.servers.hooked_barclamps import Hooked
from tests.support.waiting import PATIENCE, until

from rackwright.annealer.hooks import HookPace
from rackwright.api.app import create_app
from rackwright.client.access import access_of_home
from rackwright.client.transport import open_async_http
from rackwright.server.composition import running_server
from rackwright.server.settings import Options

CODE = """
class Parent(RoleHooks):
    role = "hooked-parent"
    def on_active(self, noderole):
        note("on_active", noderole)
        if NOTES.with_name("break").exists():
            raise RuntimeError("broken on purpose")
    def on_commit(self, noderole):
        if NOTES.with_name("refuse").exists():
            return Refuse("ask me tomorrow")
"""

ROLES = """
- {name: hooked-parent, jig: noop}
- {name: hooked-child, jig: noop, requires: [hooked-parent]}
"""


@asynccontextmanager
async def _api(url: str, home: Path, *, manual: bool) -> AsyncIterator[tuple[httpx.AsyncClient, Hooked]]:
    async with running_server(Options(home, url, manual=manual)) as composed:
        server = all_reached(composed)
        hooked = Hooked(Rack(server.store), home, HookPace())
        await hooked.load(ROLES, CODE)
        transport = httpx.ASGITransport(app=create_app(server))
        async with open_async_http(access_of_home("http://test", home), PATIENCE, transport=transport) as api:
            yield api, hooked


async def _call(api: httpx.AsyncClient, method: str, path: str, body: Any = None, status: int = 200) -> Any:
    answer = await api.request(method, path, json=body)
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


async def _intend(api: httpx.AsyncClient) -> None:
    await _call(api, "POST", "/nodes", {"name": "n1.rack.example", "alive": True}, 201)
    await _call(api, "POST", "/deployments", {"name": "web"}, 201)
    bind = {"node": "n1.rack.example", "role": "hooked-child", "deployment": "web"}
    await _call(api, "POST", "/node_roles", bind, 201)


async def test_by_hand_a_pass_says_what_it_did_and_what_waits_for_what(migrated_url: str, tmp_path: Path) -> None:
    async with _api(migrated_url, tmp_path, manual=True) as (api, hooked):
        await _intend(api)
        hooked.notes.with_name("refuse").touch()
        problem = await _call(api, "POST", "/deployments/web/commit", {}, 409)
        assert problem["type"] == "urn:rackwright:problem:refused-by-hook"
        assert "ask me tomorrow" in problem["detail"]
        assert (await _call(api, "GET", "/deployments/web"))["noderoles"] == {"proposed": 2}
        hooked.notes.with_name("refuse").unlink()
        hooked.notes.with_name("break").touch()
        await _call(api, "POST", "/deployments/web/commit", {})
        done: dict[str, Any] = {}
        for _ in range(10):
            if hooked.noted():
                break
            done = await _call(api, "POST", "/anneal/step")
        assert "hooked-parent" in [one["role"] for one in done["ran"]]
        assert next(one["error"] for one in done["hooks"] if one["hook"] == "on_active").startswith("RuntimeError")
        assert done["hooks_waiting"] == 1
        [child] = [one for one in done["waiting"] if one["title"].startswith("hooked-child")]
        assert child["cause"] == "hooks"
        [failing] = (await _call(api, "GET", "/hook_calls"))["items"]
        assert (failing["handler"], failing["state"]) == ("hooked-parent", "waiting")
        hooked.notes.with_name("break").unlink()
        await _call(api, "POST", f"/hook_calls/{failing['id']}/retry", status=204)
        ran: list[str] = []
        while done["waiting"] and len(ran) < 20:
            done = await _call(api, "POST", "/anneal/step")
            ran += [one["role"] for one in done["ran"]]
        assert "hooked-child" in ran
        assert (await _call(api, "GET", "/hook_calls"))["items"] == []


async def test_a_server_anneals_and_calls_hooks_by_itself(migrated_url: str, tmp_path: Path) -> None:
    async with _api(migrated_url, tmp_path, manual=False) as (api, hooked):
        await _intend(api)
        await _call(api, "POST", "/deployments/web/commit", {})

        async def all_active() -> bool:
            return set((await _call(api, "GET", "/anneal"))["noderoles"]) == {"active"}

        await until(all_active, "all noderoles are active")
        assert hooked.noted_names() == ["on_active"]


async def test_the_event_loop_goes_on_while_hooks_spin(hooked: Hooked) -> None:
    """How late it is then is measured by `bench/hooks.py`."""
    await hooked.load(
        "- {name: spinning, jig: noop}",
        """
        class Spinning(RoleHooks):
            role = "spinning"
            def on_node_create(self, node):
                note("spinning", node)
                while True:
                    if node.name < "s2":
                        print("spinning", "x" * 1000)
        """,
    )
    for number in range(4):
        await hooked.rack.node(f"s{number}")
    hooked.dispatcher.pace = HookPace(at_once=100, tries=1)
    delivering = asyncio.create_task(hooked.deliver())
    await until(lambda: len(hooked.noted()) == 4, "four hooks spin")
    for _ in range(50):
        await asyncio.sleep(0.005)
        await hooked.rack.node_id("s1")
    assert not delivering.done()
    pass_time(PATIENCE)
    failed = await delivering
    assert len(failed) == 4
    assert all(f"not finished within {PATIENCE:g} s" in error for error in failed)
