"""A site to install machines on: a server without annealer on a real database, machines whose every message is sent by
hand through the machine interface, and a BMC that does nothing but remember."""

import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.support.machines.reached_nodes import all_reached
from tests.support.machines.signed_registration import registration, signed
from tests.support.rack import ADMIN, Rack

from rackwright.annealer.installs import InstallAdvancer, Reach
from rackwright.annealer.power_saving import PowerSaver
from rackwright.annealer.step import StepReport, step
from rackwright.api.app import create_app, create_machine_app
from rackwright.api.context import Server
from rackwright.domain.graph.why import Reason
from rackwright.domain.machines.install import Stage
from rackwright.hammers.base import (
    BootDevice,
    BootedSystem,
    ControllerUnreachable,
    Hammer,
    HammerFailed,
    HammerNode,
    Power,
)
from rackwright.server.composition import running_server
from rackwright.server.settings import Options
from rackwright.store.db.session import GraphSession, Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph.why import explain_waiting
from rackwright.store.machines.nodes import get_node
from rackwright.store.machines.registration import accept_machine

T = TypeVar("T")

INSTALL = "provisioner-os-install"
INSTALLED = "crowbar-installed-node"
DISCOVERED = "crowbar-managed-node"
DATABASE = "provisioner-dhcp-database"
OS = "debian-12"
MACHINES_PATHS = ("/boot", "/files/", "/chunks/", "/api/v2/machine/", "/api/v2/nodes/register", "/api/v2/install/")


@dataclass
class Bmc(Hammer):
    """Hammer and probe of all machines: it remembers what it was asked, by node."""

    asked: list[tuple[str, str]] = field(default_factory=list)
    power: dict[str, Power] = field(default_factory=dict)
    boots: dict[str, str] = field(default_factory=dict)
    """What a probe finds the node to run."""
    broken: bool = False
    out_of_reach: bool = False
    """Whether nothing answers the server, as on a network that it is not on."""
    asks_politely: bool = False
    """Whether it can have a system shut down by itself."""
    on_reset: Callable[[], Awaitable[None]] | None = None
    """What happens in the middle of a reset."""

    async def status(self, node: HammerNode) -> Power:
        return self.power.get(node.name, Power.ON)

    async def on(self, node: HammerNode) -> None:
        self._ask(node, "on")
        self.power[node.name] = Power.ON

    async def off(self, node: HammerNode) -> None:
        self._ask(node, "off")
        self.power[node.name] = Power.OFF

    async def shut_down(self, node: HammerNode) -> bool:
        if self.asks_politely:
            self._ask(node, "shut down")
        return self.asks_politely

    async def reset(self, node: HammerNode) -> None:
        if self.on_reset is not None:
            await self.on_reset()
        self._ask(node, "reset")

    async def boot_device(self, node: HammerNode, device: BootDevice) -> None:
        self._ask(node, f"boot {device}")

    async def look(self, node: HammerNode) -> BootedSystem:
        self._ask(node, "look")
        return BootedSystem(self.boots.get(node.name, ""))

    def _ask(self, node: HammerNode, what: str) -> None:
        if self.broken:
            raise HammerFailed("it does not answer")
        if self.out_of_reach:
            raise ControllerUnreachable("no route to it")
        self.asked.append((node.name, what))

    def times(self, what: str) -> int:
        return sum(asked == what for _, asked in self.asked)


class HandMachine:
    """A machine that says only what it is told to say, from one address."""

    def __init__(self, site: "Site", number: int, key: Ed25519PrivateKey | None = None) -> None:
        self.site = site
        self.address = f"192.0.2.{number}"
        self.mac = f"52:54:00:00:00:{number:02x}"
        self.uuid = str(uuid.UUID(int=number))
        self.short = f"d{self.mac.replace(':', '')}"
        self.name = f"{self.short}.discovered.internal"
        self.key = key or Ed25519PrivateKey.generate()
        self.token = ""
        self.boots = 0

    def new_boot(self) -> str:
        self.boots += 1
        return self.boot_id

    @property
    def boot_id(self) -> str:
        return f"{self.short}-boot-{self.boots}"

    async def ask(self, method: str, path: str, body: Any = None, token: str = "", source: str = "") -> httpx.Response:
        return await self.site.ask(method, path, body, token, source or self.address)

    async def challenge(self) -> str:
        """What it is to sign with its next registration."""
        answer = await self.ask("GET", "/api/v2/machine/challenge")
        return str(answer.json()["challenge"])

    async def register(self, bootenv: str = "sledgehammer", source: str = "", **other: Any) -> httpx.Response:
        """What sledgehammer does first."""
        fields = {
            "macs": [self.mac],
            "uuid": self.uuid,
            "boot_id": self.boot_id,
            "bootenv": bootenv,
            "inventory": {"serial": f"HAND{self.mac}", "disks": [{"name": "virtio-HAND", "bytes": 8 << 30}]},
        } | other
        given = await self.ask("GET", "/api/v2/machine/challenge", source=source)
        if not given.is_success:
            return given
        body = registration(self.key, fields.pop("challenge", given.json()["challenge"]), **fields)
        return await self.send(body, signed(self.key, body), source)

    async def send(self, body: bytes, headers: dict[str, str], source: str = "") -> httpx.Response:
        """Send a registration just as it is."""
        async with self.site.machine_client(source or self.address) as client:
            answer = await client.post("/api/v2/nodes/register", content=body, headers=headers)
        if answer.status_code == 201:
            self.token = answer.json()["token"]
        return answer

    async def heartbeat(self, bootenv: str = "sledgehammer", boot_id: str = "") -> httpx.Response:
        body = {"boot_id": boot_id or self.boot_id, "bootenv": bootenv}
        return await self.ask("POST", "/api/v2/machine/heartbeat", body, self.token)

    async def what_to_boot(self) -> str:
        text = (await self.ask("GET", f"/boot/{self.mac}")).text
        return next(line for line in text.splitlines() if line.startswith("# bootenv ")).removeprefix("# bootenv ")

    async def fetch_secret(self, source: str = "") -> httpx.Response:
        return await self.ask("GET", f"/boot/{self.mac}/secret", source=source)

    async def config(self, secret: str, source: str = "") -> httpx.Response:
        return await self.ask("GET", "/api/v2/install/config", token=secret, source=source)

    async def progress(self, secret: str, stage: str = "unpack", source: str = "") -> httpx.Response:
        body = {"stage": stage, "percent": 50}
        return await self.ask("POST", "/api/v2/install/progress", body, secret, source)

    async def result(self, secret: str, ok: bool = True, error: str = "", source: str = "") -> httpx.Response:
        return await self.ask("POST", "/api/v2/install/result", {"ok": ok, "error": error}, secret, source)


class Site:
    """The server, the BMC, and words for what happens."""

    def __init__(self, home: Path, url: str) -> None:
        self.options = Options(home, database_url=url, test_barclamp=True, manual=True)
        self.bmc = Bmc()
        self._stack = contextlib.AsyncExitStack()
        self.secrets: dict[str, str] = {}

    async def start(self) -> None:
        server = await self._stack.enter_async_context(running_server(self.options))
        async with server.store.read() as session:
            here = (await get_node(session, ADMIN, EVERYTHING)).id
        self.server: Server = all_reached(replace(server, claimant=replace(server.claimant, node_id=here)))
        self.app = create_app(self.server)
        self.machine_app = create_machine_app(self.server)
        self.rack = Rack(self.server.store)
        reach = Reach(hammer=lambda _: self.bmc, probe=lambda _: self.bmc)
        self.installs = InstallAdvancer(self.server.store, reach)
        self.powersave = PowerSaver(self.server.store, reach)

    async def stop(self) -> None:
        await self._stack.aclose()

    async def restart(self) -> None:
        """Another server process, as far as the database can tell: nothing of the old one is left."""
        await self.stop()
        await self.start()

    def machine_client(self, source: str) -> httpx.AsyncClient:
        """Somebody on the network that machines boot from."""
        transport = httpx.ASGITransport(app=self.machine_app, client=(source, 40000))
        return httpx.AsyncClient(transport=transport, base_url="http://site")

    def people_client(self, source: str = "192.0.2.250") -> httpx.AsyncClient:
        """Somebody who reaches the address that is for people."""
        transport = httpx.ASGITransport(app=self.app, client=(source, 40000))
        return httpx.AsyncClient(transport=transport, base_url="http://site")

    async def ask(self, method: str, path: str, body: Any, token: str, source: str) -> httpx.Response:
        """Ask where the path belongs: machines and people have an address each."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        is_machines = path.startswith(MACHINES_PATHS)
        async with self.machine_client(source) if is_machines else self.people_client(source) as client:
            return await client.request(method, path, json=body, headers=headers)

    async def change(self, work: Callable[[Session], Awaitable[T]]) -> T:
        return await self.server.store.change(work, actor="tester")

    async def change_graph(self, work: Callable[[GraphSession], Awaitable[T]]) -> T:
        return await self.server.store.change_graph(work, actor="tester")

    # --- work

    async def step(self, cap: int = 10) -> StepReport:
        """One pass: hooks, what can run, hooks."""
        server = self.server
        return await step(server.store, server.jigs, server.claimant, cap, "tester", hooks=server.hooks)

    async def anneal(self, cap: int = 10) -> list[tuple[str, str]]:
        """Passes until nothing is left to do; (short node name, role) of what ran."""
        ran: list[tuple[str, str]] = []
        while True:
            report = await self.step(cap)
            ran += [(one.run.node.partition(".")[0], one.run.role) for one in report.ran]
            if not report.ran and not report.unchanged and not report.hooks:
                return ran

    async def look(self) -> list[str]:
        """One look at the installs, with what is to be done for them done; what that was."""
        actions = await self.installs.advance()
        for action in actions:
            await self.installs.act(action)
        return [action.act.value for action in actions]

    # --- machines

    async def discovered(self, number: int) -> HandMachine:
        """A machine that registered and was accepted, its discovery roles ACTIVE."""
        machine = HandMachine(self, number)
        machine.new_boot()
        assert (await machine.register()).status_code == 201
        await self.change(lambda session: accept_machine(session, machine.name))
        await self.anneal()
        return machine

    async def deployed(self, *numbers: int) -> list[HandMachine]:
        """Machines on which an install was committed, and nothing has begun."""
        machines = [await self.discovered(number) for number in numbers]
        await self.rack.deployment("web")
        await self.rack.deploy("web", *((machine.name, INSTALLED) for machine in machines))
        return machines

    async def reach_stage(self, machine: HandMachine, stage: Stage) -> None:
        """Take the install of one machine on until it is at `stage`; its secret is then in `secrets`."""
        ways: dict[Stage, Callable[[], Awaitable[object]]] = {
            Stage.WAITING: self.step,
            Stage.PUBLISHING: self.installs.advance,
            Stage.REBOOTING: lambda: self._published(machine),
            Stage.INSTALLING: lambda: self._fetched(machine),
            Stage.BOOTING: lambda: machine.result(self.secrets[machine.name]),
            Stage.PROBING: lambda: self._booted(machine),
            Stage.DONE: self.look,
        }
        for next_stage, way in ways.items():
            before = await self.stage(machine)
            if before is None or list(Stage).index(before) < list(Stage).index(next_stage):
                await way()
                assert await self.stage(machine) is next_stage, f"after {before}"
            if next_stage is stage:
                return

    async def _published(self, machine: HandMachine) -> None:
        await self.anneal()
        await self.look()
        await self.look()
        assert (machine.name, "reset") in self.bmc.asked

    async def _fetched(self, machine: HandMachine) -> None:
        machine.new_boot()
        answer = await machine.fetch_secret()
        assert answer.status_code == 200, answer.text
        self.secrets[machine.name] = answer.text

    async def _booted(self, machine: HandMachine) -> None:
        self.bmc.boots[machine.name] = machine.new_boot()
        assert (await machine.heartbeat("local")).status_code == 204

    # --- questions

    async def stage(self, machine: HandMachine) -> Stage | None:
        """Of the last install of a machine."""
        rows = await self.rack.rows(
            "SELECT a.stage FROM install_attempts a JOIN nodes n ON n.id = a.node_id WHERE n.name = :name"
            " ORDER BY a.id DESC LIMIT 1",
            name=machine.name,
        )
        return Stage(str(rows[0][0])) if rows else None

    async def why(self, machine: HandMachine, role: str = INSTALL) -> Reason:
        noderole = await self.rack.at(machine.short, role)
        async with self.server.store.read() as session:
            return (await explain_waiting(session, noderole.id, EVERYTHING))[0]

    async def error(self, machine: HandMachine) -> str:
        return (await self.rack.at(machine.short, INSTALL)).error

    async def alive(self, machine: HandMachine) -> bool:
        [(alive,)] = await self.rack.rows("SELECT alive FROM nodes WHERE name = :name", name=machine.name)
        return bool(alive)

    async def events(self, kind: str) -> int:
        return len(await self.rack.rows("SELECT 1 FROM events WHERE kind = :kind", kind=kind))


@contextlib.asynccontextmanager
async def running_site(home: Path, url: str) -> AsyncIterator[Site]:
    site = Site(home, url)
    await site.start()
    try:
        yield site
    finally:
        await site.stop()
