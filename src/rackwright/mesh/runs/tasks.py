"""A server as the target of runs: sees its tasks, verifies each for itself, and runs it once.

Nothing that comes out of the datastore is believed: the request must carry the signature of an operator this server
trusts, be meant for this cluster, this server and this hour, and never have been run here; the states must be the ones
that were signed. How a task is run is `run_execution.py`.
"""

import asyncio
import contextlib
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackwright.mesh.errors import BadRecords, BadRequest, Compacted, MeshError, NoDatastore, Rejected
from rackwright.mesh.identity import sealing, trust
from rackwright.mesh.identity.sealing import BadSeal
from rackwright.mesh.identity.server_identity import Identity, fingerprint
from rackwright.mesh.identity.trust import BadSignature, SignersFile
from rackwright.mesh.runs import run_model
from rackwright.mesh.runs.engine_pool import IDLE_SECONDS, Engines
from rackwright.mesh.runs.run_execution import Performance
from rackwright.mesh.runs.run_model import CLOCK_SECONDS, FACTS, FINAL, Request, TaskState, pointers
from rackwright.mesh.runs.run_store import Found, Signed
from rackwright.private_files import write_private_file
from rackwright.states.facts import facts

if TYPE_CHECKING:
    from rackwright.mesh.agent.agent import Agent

AGAIN_SECONDS = 1.0
LEASE_SECONDS = 15
"""How long a target may be silent before its task is given up as lost."""


class NotForUs(MeshError):
    """The run is not one that this server may run"""

    code = "run_refused"


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


class TaskRunner:
    def __init__(self, agent: "Agent") -> None:
        self.agent, self.etcd = agent, agent.datastore.etcd
        self.store = agent.runs
        self.signers = SignersFile(agent.folder, agent.identity.ca)
        self.ledger = Ledger(agent.folder / "runs.json")
        self.facts = facts(agent.name)
        self.engines = Engines(agent.folder / "runs.log", agent.folder / "engines")
        self.seal = sealing.own_key(agent.folder)
        self._sealed_as: Identity | None = None
        self._told = ""

    async def run(self) -> None:
        try:
            while True:
                try:
                    await self._follow()
                except (NoDatastore, Rejected, Compacted) as problem:
                    if str(problem) != self._told and self.agent.datastore.endpoints():
                        self._told = str(problem)
                        self.agent.log.info("tasks_wait", why=self._told)
                await asyncio.sleep(AGAIN_SECONDS)
        finally:
            await self.engines.close()

    async def _follow(self) -> None:
        """Tasks one after another, in the order in which they were given."""
        await self._publish_facts()
        self.agent.spawn("engines", self.engines.stock())
        prefix = pointers(self.agent.name)
        page = await self.etcd.page(prefix)
        for item in sorted(page.items, key=lambda item: item.created):
            await self._take(item.key.removeprefix(prefix))
        async for changes in self.etcd.watch(prefix, page.revision + 1):
            if self._sealed_as is not self.agent.identity:
                await self._publish_seal()
            for change in changes:
                if not change.deleted:
                    await self._take(change.item.key.removeprefix(prefix))

    async def _publish_facts(self) -> None:
        await self._publish(f"{FACTS}{self.agent.name}", json.dumps(self.facts, sort_keys=True).encode())
        await self._publish_seal()

    async def _publish_seal(self) -> None:
        """The key that secrets are sealed to, again whenever the certificate that vouches for it is a new one."""
        identity = self.agent.identity
        await self._publish(f"{sealing.SEALS}{self.agent.name}", sealing.record(identity, self.seal.public_key()))
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
            self.agent.parts.report("tasks", problem)
            await self._give_up(run, f"the agent failed at it: {type(problem).__name__}; its log says where")

    async def _give_up(self, run: str, why: str) -> None:
        found = await self.store.task(run, self.agent.name)
        if found is not None and found[0].state not in FINAL:
            state = TaskState.REFUSED if found[0].state is TaskState.PENDING else TaskState.LOST
            await self.store.change(found[1], replace(found[0], state=state, why=why))

    async def _perform(self, run: str) -> None:
        name = self.agent.name
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
            self.agent.refuse(problem.code, run=run[:64], why=str(problem))
            await self.store.change(item, replace(task, state=TaskState.REFUSED, why=str(problem)))
            return
        lease = await self.etcd.grant(LEASE_SECONDS)
        running = replace(task, state=TaskState.RUNNING, session=self.agent.swim.me.session)
        held = await self.store.change(item, running, lease)
        if held is None:
            return
        self.ledger.add(run, request.expires)
        self.agent.log.info("run_started", run=run, operator=who)
        job = self._job(request, files, found.targets)
        ended = await Performance(self.agent, self.store, request, running, held, lease, job).go()
        self.agent.log.info("run_ended", run=run, state=ended.state.value, why=ended.why)
        self.agent.spawn("engines", self._settle(lease))

    async def _settle(self, lease: int) -> None:
        """What is left to do after a run, when nobody waits any more."""
        with contextlib.suppress(NoDatastore, Rejected):  # it ends by itself
            await self.etcd.revoke(lease)
        await self.engines.stock(IDLE_SECONDS)

    # Verifying

    async def _verified(self, run: str, found: Found) -> tuple[Request, dict[str, Any], str]:
        if found.signed is None:
            raise BadRequest(f"there is no run {run}; see: rackwright mesh runs")
        self.take_signers(found.signers)
        request, who = await asyncio.to_thread(self.believe, found.signed)
        if request.id != run:
            raise NotForUs(f"the request is that of run {request.id}")
        if request.id in self.ledger:
            raise NotForUs("it has been run here before, and no run is run twice")
        packed = await self.store.tree(run, found.tree)
        return self.opened(request), run_model.unpack_tree(packed, request.tree), who

    def opened(self, request: Request) -> Request:
        """The request with the secrets in it that were sealed to this server."""
        if not request.sealed:
            return request
        values = sealing.unseal(request.sealed, self.agent.name, self.seal, request.all_but_sealed())
        return replace(request, variables={**request.variables, **values}, sealed={})

    def believe(self, signed: Signed) -> tuple[Request, str]:
        """The request, if it is signed by a trusted operator for this cluster and this server, now."""
        who = trust.verify(signed.text.encode(), signed.signature, self.signers.allowed)
        request = run_model.read_request(signed.text)
        self.check_time_and_place(request)
        labels = dict(self.agent.swim.me.labels)
        if not request.targets.match(self.agent.name, labels, self.facts):
            raise NotForUs(f"{who} did not sign it for {self.agent.name}")
        return request, who

    def check_time_and_place(self, request: Request) -> None:
        now = time.time()
        if request.cluster != fingerprint(self.agent.identity.ca):
            raise NotForUs("it was signed for another cluster")
        if not request.created - CLOCK_SECONDS <= now < request.expires:
            raise NotForUs("it was signed for another time; sign it anew, and see that the clocks agree")

    async def refresh_signers(self) -> None:
        """Take a newer list of trusted keys, if the CA has signed it."""
        item = await self.etcd.get(f"{run_model.TRUST}/signers")
        self.take_signers(item.value if item else b"")

    def take_signers(self, signed: bytes) -> None:
        if not signed or signed == self.signers.signed:
            return
        try:
            fresh = self.signers.take(signed)
        except BadRecords as problem:
            self.agent.refuse(problem.code, source="datastore", why=str(problem))
            return
        if fresh:
            self.agent.log.warning("signers_changed", version=self.signers.current.version)

    def _job(self, request: Request, files: dict[str, Any], targets: list[str]) -> dict[str, Any]:
        return {
            "do": "run",
            "run": request.id,
            "name": self.agent.name,
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
            "signers": str(self.signers.allowed),
            "seen": str(self.agent.folder / "module-versions.json"),
        }
