"""A server as the target of runs: sees its tasks, verifies each for itself, and runs it once.

Nothing that comes out of the datastore is believed: the request must carry the signature of an operator this server
trusts, be meant for this cluster, this server and this hour, and never have been run here; the states must be the ones
that were signed. How a task is run is `run_execution.py`.
"""

import asyncio
import contextlib
import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rackwright.mesh.errors import BadRecords, BadRequest, Compacted, NoDatastore, Rejected
from rackwright.mesh.identity import sealing
from rackwright.mesh.identity.sealing import BadSeal
from rackwright.mesh.identity.server_identity import Identity, OwnIdentity
from rackwright.mesh.identity.trust import BadSignature
from rackwright.mesh.log import Log
from rackwright.mesh.membership.member_view import MemberView
from rackwright.mesh.refusals import Refusals
from rackwright.mesh.runs import run_model
from rackwright.mesh.runs.engine_pool import IDLE_SECONDS, Engines
from rackwright.mesh.runs.run_execution import Performance
from rackwright.mesh.runs.run_model import FACTS, FINAL, Request, TaskState, pointers
from rackwright.mesh.runs.run_store import Found, RunStore, Signed
from rackwright.mesh.runs.run_trust import NotForUs, RunTrust
from rackwright.mesh.supervision import Spawner
from rackwright.private_files import write_private_file
from rackwright.states.facts import collect_facts

AGAIN_SECONDS = 1.0
LEASE_SECONDS = 15
"""How long a target may be silent before its task is given up as lost."""


class Ledger:
    """The runs this server has begun, until they could not be valid any more: a replayed task is not run again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}

    def __contains__(self, run: str) -> bool:
        return run in self._held

    def add(self, run: str, expires: int) -> None:
        now = int(time.time())
        self._held = {held: until for held, until in self._held.items() if until > now} | {run: expires}
        write_private_file(self.path, json.dumps(self._held).encode())


@dataclass(frozen=True)
class TaskPorts:
    """What running tasks uses of its agent."""

    name: str
    folder: Path
    store: RunStore
    trust: RunTrust
    engines: Engines
    identity: OwnIdentity
    members: MemberView
    refusals: Refusals
    spawner: Spawner
    log: Log


class TaskRunner:
    def __init__(self, ports: TaskPorts) -> None:
        self._ports, self._name, self._log, self._trust = ports, ports.name, ports.log, ports.trust
        self.store, self.etcd, self.engines = ports.store, ports.store.etcd, ports.engines
        self.ledger = Ledger(ports.folder / "runs.json")
        self.facts = collect_facts(ports.name)
        self._sealed_as: Identity | None = None
        self._told = ""

    async def run(self) -> None:
        try:
            while True:
                try:
                    await self._follow()
                except (NoDatastore, Rejected, Compacted) as problem:
                    if str(problem) != self._told and self.etcd.endpoints():
                        self._told = str(problem)
                        self._log.info("tasks_wait", why=self._told)
                await asyncio.sleep(AGAIN_SECONDS)
        finally:
            await self.engines.close()

    async def _follow(self) -> None:
        """Tasks one after another, in the order in which they were given."""
        await self._publish_facts()
        self._ports.spawner.once("engines", self.engines.stock())
        prefix = pointers(self._name)
        page = await self.etcd.page(prefix)
        for item in sorted(page.items, key=lambda item: item.created):
            await self._take(item.key.removeprefix(prefix))
        async for changes in self.etcd.watch(prefix, page.revision + 1):
            if self._sealed_as is not self._ports.identity.current:
                await self._publish_seal()
            for change in changes:
                if not change.deleted:
                    await self._take(change.item.key.removeprefix(prefix))

    async def _publish_facts(self) -> None:
        await self._publish(f"{FACTS}{self._name}", json.dumps(self.facts, sort_keys=True).encode())
        await self._publish_seal()

    async def _publish_seal(self) -> None:
        """The key that secrets are sealed to, again whenever the certificate that vouches for it is a new one."""
        identity = self._ports.identity.current
        await self._publish(f"{sealing.SEALS}{self._name}", sealing.record(identity, self._trust.seal.public_key()))
        self._sealed_as = identity

    async def _publish(self, key: str, value: bytes) -> None:
        held = await self.etcd.get(key)
        if held is None or held.value != value:
            await self.etcd.put(key, value)

    async def _take(self, run: str) -> None:
        """Run a task. One that fails in a way that nobody thought of is given up, and the next one is looked at."""
        try:
            await self._perform(run)
        except (NoDatastore, Rejected, Compacted):
            raise
        except Exception as problem:  # noqa: BLE001 - told, counted, and told to who began the run
            self._ports.spawner.report("tasks", problem)
            await self._give_up(run, f"the agent failed at it: {type(problem).__name__}; its log says where")

    async def _give_up(self, run: str, why: str) -> None:
        found = await self.store.task(run, self._name)
        if found is not None and found[0].state not in FINAL:
            state = TaskState.REFUSED if found[0].state is TaskState.PENDING else TaskState.LOST
            await self.store.change(found[1], replace(found[0], state=state, why=why))

    async def _perform(self, run: str) -> None:
        name = self._name
        found = await self.store.found(run, name)
        if found is None or found.task.state in FINAL:
            await self.etcd.delete(f"{pointers(name)}{run}")
            return
        task, item = found.task, found.item
        if task.state is TaskState.RUNNING:
            await self.store.lose(task, item, "the agent was started again while it ran; it is not run twice")
            return
        try:
            request, files, who = await self._verified(run, found)
        except (BadSignature, BadSeal, BadRequest, NotForUs, BadRecords) as problem:
            self._ports.refusals.refuse(problem.code, run=run[:64], why=str(problem))
            await self.store.change(item, replace(task, state=TaskState.REFUSED, why=str(problem)))
            return
        lease = await self.etcd.grant(LEASE_SECONDS)
        running = replace(task, state=TaskState.RUNNING, session=self._ports.members.me.session)
        held = await self.store.change(item, running, lease)
        if held is None:
            return
        self.ledger.add(run, request.expires)
        self._log.info("run_started", run=run, operator=who)
        job = self._job(request, files, found.targets)
        performance = Performance(name, self.engines, self._log, self.store, request, running, held, lease, job)
        ended = await performance.go()
        self._log.info("run_ended", run=run, state=ended.state.value, why=ended.why)
        self._ports.spawner.once("engines", self._settle(lease))

    async def _settle(self, lease: int) -> None:
        """What is left to do after a run, when nobody waits any more."""
        with contextlib.suppress(NoDatastore, Rejected):  # it ends by itself
            await self.etcd.revoke(lease)
        await self.engines.stock(IDLE_SECONDS)

    # Verifying

    async def _verified(self, run: str, found: Found) -> tuple[Request, dict[str, Any], str]:
        if found.signed is None:
            raise BadRequest(f"there is no run {run}; see: rackwright mesh runs")
        self._trust.take_signers(found.signers)
        request, who = await asyncio.to_thread(self.believe, found.signed)
        if request.id != run:
            raise NotForUs(f"the request is that of run {request.id}")
        if request.id in self.ledger:
            raise NotForUs("it has been run here before, and no run is run twice")
        packed = await self.store.tree(run, found.tree)
        return self._trust.opened(request), run_model.unpack_tree(packed, request.tree), who

    def believe(self, signed: Signed) -> tuple[Request, str]:
        """The request, if it is signed by a trusted operator for this cluster and this server, now."""
        who = self._trust.verify_now(signed)
        request = run_model.read_request(signed.text)
        self._trust.check_time_and_place(request)
        labels = dict(self._ports.members.me.labels)
        if not request.targets.match(self._name, labels, self.facts):
            raise NotForUs(f"{who} did not sign it for {self._name}")
        return request, who

    def _job(self, request: Request, files: dict[str, Any], targets: list[str]) -> dict[str, Any]:
        return {
            "do": "run",
            "run": request.id,
            "name": self._name,
            "targets": targets,
            "files": files,
            "sls": request.sls,
            "mode": request.mode,
            "test": request.test,
            "parallel": request.parallel,
            "variables": request.variables,
            "secrets": request.secrets,
            "modules_from": request.modules,
            "lines": request.lines,
            "signers": str(self._trust.signers.allowed),
            "seen": str(self._ports.folder / "module-versions.json"),
        }
