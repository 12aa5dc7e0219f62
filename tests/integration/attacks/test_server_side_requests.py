"""Where machines can have the server connect to: nowhere.

What a machine says of its controller is shown to people, and used once an administrator has set it. Simulated machines
are the exception, in a lab, and on the server's own host; and whatever answers there, it can do no more than fail.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI, Request, Response
from tests.support.servers.install_site import HandMachine, Site, running_site
from tests.support.waiting import PATIENCE

from rackwright.annealer.installs import read_hammer_node
from rackwright.domain.catalogue import JsonObject
from rackwright.domain.networks.call_targets import simulated_address
from rackwright.hammers.base import HammerFailed, HammerNode
from rackwright.hammers.simulated import SimulatedHammer
from rackwright.hammers.ssh import SshHammer
from rackwright.server.composition import running_server
from rackwright.server.first_admin import TOKEN_FILE
from rackwright.server.listener import listening
from rackwright.server.settings import Options
from rackwright.store.machines.nodes import update_node


@pytest.fixture
async def site(started_url: str, tmp_path: Path) -> AsyncIterator[Site]:
    async with running_site(tmp_path, started_url) as running:
        yield running


@asynccontextmanager
async def _listener(answer: bytes = b"{}") -> AsyncIterator[tuple[str, list[str]]]:
    """Somebody's own HTTP server: its address, and what it was asked."""
    app, requested_paths = FastAPI(openapi_url=None), list[str]()

    @app.api_route("/{path:path}", methods=["GET", "POST"])
    async def take(request: Request, path: str) -> Response:
        requested_paths.append(f"{request.method} /{path}")
        return Response(answer, media_type="application/json")

    async with listening(app) as address:
        yield address, requested_paths


@pytest.mark.parametrize("kind", ["simulated", "redfish", "ipmi", "qemu", "made-up"])
async def test_what_a_machine_says_of_its_controller_is_not_connected_to(site: Site, kind: str) -> None:
    async with _listener() as (address, requested_paths):
        machine = HandMachine(site, 1)
        machine.new_boot()
        bmc = {
            "kind": kind,
            "address": address if kind == "simulated" else address.removeprefix("http://"),
            "plain": True,
        }
        assert (await machine.register(inventory={"bmc": bmc})).status_code == 201
        id = await site.rack.node_id(machine.name)
        async with site.server.store.read() as session:
            node = await read_hammer_node(session, id)
        reach = site.server.installs.reach
        assert isinstance(reach.hammer(node), SshHammer)
        assert isinstance(reach.probe(node), SshHammer)
        token = (site.options.home / TOKEN_FILE).read_text().strip()
        answer = await site.ask("GET", f"/api/v2/nodes/{machine.name}", None, token, "192.0.2.250")
        assert answer.json()["discovery"]["bmc"] == bmc, "an administrator sees what the machine says"
    assert requested_paths == []


async def test_a_machine_does_not_move_the_controller_that_people_set(site: Site) -> None:
    machine = await site.discovered(1)
    id = await site.rack.node_id(machine.name)
    credentials: JsonObject = {"kind": "redfish", "username": "ops", "password": site.server.store.vault.seal("hidden")}
    await site.change(lambda session: update_node(session, id, {"hint": {"bmc": credentials}}))
    machine.new_boot()
    await machine.register(inventory={"bmc": {"address": "192.0.2.66", "plain": True}})
    async with site.server.store.read() as session:
        node = await read_hammer_node(session, id)
    assert node.settings["bmc"] == {"kind": "redfish", "username": "ops", "password": "hidden"}
    with pytest.raises(HammerFailed, match="has no BMC address"):
        await site.server.installs.reach.hammer(node).status(node)


async def test_a_lab_has_the_hammer_and_the_jig_of_simulated_machines_and_no_other_server_has(
    site: Site, migrated_url: str, tmp_path: Path
) -> None:
    assert "lab" not in site.server.jigs
    home = tmp_path / "lab"
    home.mkdir()
    async with running_server(Options(home, migrated_url, lab=True, manual=True)) as server:
        assert "lab" in server.jigs
        node = HammerNode(1, "n1.example", {}, {"kind": "simulated", "address": "http://127.0.0.1:9/machines/1"})
        assert isinstance(server.installs.reach.hammer(node), SimulatedHammer)


@pytest.mark.parametrize(
    "address",
    [
        "http://192.0.2.1:80/machines/1",
        "http://169.254.169.254/latest",
        "http://localhost:80/",
        "https://127.0.0.1/",
        "http://user@127.0.0.1/",
        "http://127.0.0.1@192.0.2.1/",
        "file:///etc/passwd",
        "http://[",
        "",
        None,
        7,
        ["http://127.0.0.1"],
    ],
)
def test_a_simulated_machine_is_on_this_host_or_nowhere(address: object) -> None:
    assert simulated_address({"kind": "simulated", "address": address}) is None  # type: ignore[dict-item]


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"no JSON",
        b'{"boot_id": 5, "power": 5, "root_device": ""}',
        b'{"boot_id": null, "power": null}',
        b'{"boot_id": "a\\u0000b", "power": "unheard of", "root_device": ""}',
        b'{"boot_id": "a b", "power": [], "root_device": ""}',
        b'{"boot_id": "' + b"x" * 65 + b'", "power": {}}',
        b'{"boot_id": "b", "power": "ON", "root_device": {"a": 1}}',
        b'{"boot_id": "b", "power": "", "root_device": "\\n"}',
        b'{"boot_id": "b", "power": "on", "more": "' + b"x" * 20_000 + b'"}',
        b"[" * 10_000,
    ],
)
async def test_whatever_a_simulated_machine_answers_it_only_fails_itself(answer: bytes) -> None:
    async with _listener(answer) as (address, _), httpx.AsyncClient(timeout=PATIENCE, trust_env=False) as client:
        node = HammerNode(1, "n1.example", {}, {"kind": "simulated", "address": address})
        hammer = SimulatedHammer(client)
        for ask in (hammer.look, hammer.status):
            with pytest.raises(HammerFailed):
                await ask(node)
