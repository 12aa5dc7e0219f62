"""A machine that runs already, with a real sshd: from being added to ACTIVE, silence and return, and a new host key."""

from pathlib import Path
from typing import Any

import asyncssh
import httpx
from tests.support.machines.ssh_node import ssh_node

from rackwright.annealer.silent_machines import MachineWatch
from rackwright.api.app import create_app
from rackwright.api.context import Server
from rackwright.client.access import access_of_home
from rackwright.client.transport import open_async_http
from rackwright.domain.machines.install import LOCAL
from rackwright.server.composition import running_server
from rackwright.server.settings import Options

NODE = "db1.rack.example"
HEARTBEAT = 10.0


class Person:
    """An administrator at the API of a server without annealer, who can wait for as long as it takes."""

    def __init__(self, server: Server, api: httpx.AsyncClient) -> None:
        self.server = server
        self.api = api
        self.watch = MachineWatch(server.store, server.installs.reach, HEARTBEAT)

    async def call(self, method: str, path: str, body: Any = None, status: int = 0) -> Any:
        answer = await self.api.request(method, path, json=body)
        assert answer.status_code == status if status else answer.is_success, answer.text
        return answer.json() if answer.content else None

    async def node(self, name: str = NODE) -> Any:
        return await self.call("GET", f"/nodes/{name}")

    async def access(self) -> tuple[str, str]:
        """The state of ssh-access after a pass, and its error."""
        await self.call("POST", "/anneal/step")
        [found] = (await self.call("GET", f"/node_roles?node={NODE}&role=ssh-access"))["items"]
        return found["state"], found["error"]

    async def wait(self, seconds: int, name: str = NODE) -> bool:
        """Let time pass, and the server look; whether the node is alive then."""
        store = self.server.store
        await store.change(
            lambda session: session.run(
                "UPDATE nodes SET seen_at = seen_at - :seconds * interval '1 second' WHERE name = :node",
                seconds=seconds,
                node=name,
            )
        )
        for alive in (True, False):
            await self.watch.ask(alive=alive)
        await self.watch.find_silent()
        return bool((await self.node(name))["alive"])


async def test_an_added_machine_is_reached_watched_and_pinned_anew(migrated_url: str, tmp_path: Path) -> None:
    async with running_server(Options(tmp_path, migrated_url, manual=True)) as server:
        transport = httpx.ASGITransport(app=create_app(server))
        key = asyncssh.read_private_key(tmp_path / "ssh" / "id_ed25519")
        async with open_async_http(access_of_home("http://test", tmp_path), 60, transport=transport) as api:
            with ssh_node(tmp_path / "node", key, port=2222, own_home=True) as machine:
                person = Person(server, api)
                [shown] = (await person.call("GET", "/server_keys"))["items"]
                assert shown["key"].split()[1] == key.export_public_key().decode().split()[1]
                await person.call(
                    "POST", "/nodes", {"name": NODE, "address": machine.address, "ssh_port": 2222}, status=201
                )

                # Nobody has said that this is its key: nothing is sent, and the way out is named.
                fingerprint = asyncssh.import_public_key(machine.host_key).get_fingerprint()
                looked = await person.call("POST", f"/nodes/{NODE}/reach")
                assert (looked["reached"], looked["offered_host_key"]) == (False, fingerprint)
                assert f"rackwright node host-key {NODE} --pin {fingerprint}" in looked["reason"]
                state, error = await person.access()
                assert (state, (await person.node())["alive"]) == ("error", True)
                assert f"--pin {fingerprint}" in error

                # Pinned by its fingerprint, and by no other.
                other = asyncssh.generate_private_key("ssh-ed25519").get_fingerprint()
                await person.call("PUT", f"/nodes/{NODE}/host_key", {"fingerprint": other}, status=409)
                machine.authorize(asyncssh.generate_private_key("ssh-ed25519"))
                await person.call("PUT", f"/nodes/{NODE}/host_key", {"fingerprint": fingerprint})
                state, error = await person.access()
                assert (state, "rackwright key show" in error) == ("error", True)

                # Once the machine lets the server in, a look is enough for the work to go on.
                machine.authorize(key)
                assert (await person.call("POST", f"/nodes/{NODE}/reach"))["reached"]
                assert (await person.access())[0] == "active"
                found = await person.node()
                assert (found["host_key"], found["observed_bootenv"]) == (fingerprint, LOCAL)

                # Down, and up again.
                assert await person.wait(60), "it was asked and answered"
                machine.shut_down()
                assert await person.wait(60), "it may miss two"
                assert not await person.wait(60)
                machine.boot()
                assert await person.wait(60)

                # Another key: set aside until somebody pins it.
                machine.shut_down()
                machine.new_host_key()
                machine.boot()
                changed = asyncssh.import_public_key(machine.host_key).get_fingerprint()
                assert f"--pin {changed}" in (await person.call("POST", f"/nodes/{NODE}/reach"))["reason"]
                assert not (await person.node())["available"]
                await person.call("PUT", f"/nodes/{NODE}/host_key", {"fingerprint": changed})
                assert (await person.node())["available"]
                assert (await person.call("POST", f"/nodes/{NODE}/reach"))["reached"]
                pinned = (await person.call("GET", "/events?kind=node.host_key_pinned"))["items"]
                assert sorted(event["data"]["fingerprint"] for event in pinned) == sorted([fingerprint, changed])
                assert {event["actor"] for event in pinned} == {"admin"}

                # One that somebody said is up, and that never answers, is not taken for up for ever.
                silent = {"name": "gone.rack.example", "address": "127.0.0.1", "ssh_port": 1, "alive": True}
                await person.call("POST", "/nodes", silent, status=201)
                await person.watch.find_silent()
                assert not await person.wait(120, "gone.rack.example")
