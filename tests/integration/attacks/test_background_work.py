"""Background work that breaks does not end the server: it is started again, and people and monitoring are told."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from tests.support.machines.reached_nodes import all_reached
from tests.support.waiting import PATIENCE, until

from rackwright.annealer.silent_machines import MachineWatch
from rackwright.api.app import create_app
from rackwright.server.composition import running_server
from rackwright.server.first_admin import TOKEN_FILE
from rackwright.server.listener import listening
from rackwright.server.settings import Options


@pytest.fixture
async def address(migrated_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """A server whose watch breaks at every look, as one that a hostile machine found a way to break."""

    async def break_at_once(self: MachineWatch) -> None:
        raise KeyError("boot_id")

    monkeypatch.setattr(MachineWatch, "run", break_at_once)
    options = Options(tmp_path, database_url=migrated_url)
    async with running_server(options) as server, listening(create_app(all_reached(server))) as at:
        yield at


async def test_a_part_that_breaks_again_and_again_leaves_the_server_serving(address: str, tmp_path: Path) -> None:
    token = (tmp_path / TOKEN_FILE).read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=address, headers=headers, timeout=PATIENCE, trust_env=False) as client:

        async def restarted_twice() -> bool:
            text = (await client.get("/metrics")).text
            return 'rackwright_background_restarts_total{part="watch"} 2.0' in text

        await until(restarted_twice, "the watch was started again twice")
        answer = await client.get("/readyz")
        assert (answer.status_code, answer.json()["broken"]) == (200, ["watch"])
        text = (await client.get("/metrics")).text
        assert 'rackwright_background_broken{part="watch"} 1.0' in text
        assert 'rackwright_background_broken{part="annealer"} 0.0' in text
        created = await client.post("/api/v2/nodes", json={"name": "n1.rack.example", "alive": True})
        assert created.status_code == 201
        [noderole, *_] = (await client.get("/api/v2/node_roles?node=n1.rack.example")).json()["items"]

        async def annealed() -> bool:
            return bool((await client.get(f"/api/v2/node_roles/{noderole['id']}")).json()["state"] == "active")

        await until(annealed, "the annealer works on")
