"""Runs the tasks of this server: watches for them, verifies each, and runs it once.

Nothing that comes out of the datastore is believed: the request must have the signature of an operator whom this server
trusts, be for this cluster, this server and the present time, and never have been run here; the states must be those
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
from rackwright.mesh.runs.engine_pool import IDLE_SECONDS, EnginePool
from rackwright.mesh.runs.run_execution import RunExecution
from rackwright.mesh.runs.run_model import FACTS, FINAL, RunRequest, TaskState, task_pointer_prefix
from rackwright.mesh.runs.run_store import RunStore, SignedText, StoredTask
from rackwright.mesh.runs.run_trust import RunNotPermitted, RunTrust
from rackwright.mesh.supervision import Spawner
from rackwright.private_files import write_private_file
from rackwright.states.facts import collect_facts

AGAIN_SECONDS = 1.0
LEASE_SECONDS = 15
"""How long a target may be silent before its task counts as lost."""


class Ledger:
    """The runs that this server has begun, until their requests have expired: a replayed task is not run again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._expiries: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}

    def __contains__(self, run: str) -> bool:
        return run in self._expiries

    def add(self, run: str, expires: int) -> None:
        now = int(time.time())
        self._expiries = {known: until for known, until in self._expiries.items() if until > now} | {run: expires}
        write_private_file(self.path, json.dumps(self._expiries).encode())


@dataclass(frozen=True)
class TaskPorts:
    """What the task runner uses of its agent."""

    name: str
    folder: Path
    store: RunStore
    trust: RunTrust
    engines: EnginePool
    identity: OwnIdentity
    members: MemberView
    refusals: Refusals
    spawner: Spawner
    log: Log


class TaskRunner:
    """The part of an agent that runs the tasks of its server, one after another."""

    def __init__(self, ports: TaskPorts) -> None:
        self._ports, self._name, self._log, self._trust = ports, ports.name, ports.log, ports.trust
        self.store, self.etcd, self.engines = ports.store, ports.store.etcd, ports.engines
        self.ledger = Ledger(ports.folder / "runs.json")
        self.facts = collect_facts(ports.name)
        self._published_identity: Identity | None = None
        self._last_problem = ""

    async def run(self) -> None:
        try:
            while True:
                try:
                    await self._follow()
                except (NoDatastore, Rejected, Compacted) as problem:
                    if str(problem) != self._last_problem and self.etcd.endpoints():
                        self._last_problem = str(problem)
                        self._log.info("tasks_wait", why=self._last_problem)
                await asyncio.sleep(AGAIN_SECONDS)
        finally:
            await self.engines.close()

    async def _follow(self) -> None:
        """Run the tasks of this server one after another, in the order in which they were stored."""
        await self._publish_facts()
        self._ports.spawner.once("engines", self.engines.stock())
        prefix = task_pointer_prefix(self._name)
        page = await self.etcd.page(prefix)
        for item in sorted(page.items, key=lambda item: item.created):
            await self._handle_task(item.key.removeprefix(prefix))
        async for changes in self.etcd.watch(prefix, page.revision + 1):
            if self._published_identity is not self._ports.identity.current:
                await self._publish_seal()
            for change in changes:
                if not change.deleted:
                    await self._handle_task(change.item.key.removeprefix(prefix))

    async def _publish_facts(self) -> None:
        await self._publish(f"{FACTS}{self._name}", json.dumps(self.facts, sort_keys=True).encode())
        await self._publish_seal()

    async def _publish_seal(self) -> None:
        """Publish the key that secrets are sealed to; again whenever the certificate that signs it was renewed."""
        identity = self._ports.identity.current
        await self._publish(
            f"{sealing.SEALS}{self._name}", sealing.make_seal_record(identity, self._trust.seal_key.public_key())
        )
        self._published_identity = identity

    async def _publish(self, key: str, value: bytes) -> None:
        stored = await self.etcd.get(key)
        if stored is None or stored.value != value:
            await self.etcd.put(key, value)

    async def _handle_task(self, run: str) -> None:
        """Run a task. A task that fails in an unforeseen way is given up, and the next task is run."""
        try:
            await self._run_task(run)
        except (NoDatastore, Rejected, Compacted):
            raise
        except Exception as problem:  # noqa: BLE001 - logged, counted, and reported as the task's end
            self._ports.spawner.report("tasks", problem)
            await self._give_up(run, f"the agent failed at it: {type(problem).__name__}; its log says where")

    async def _give_up(self, run: str, why: str) -> None:
        stored = await self.store.read_task(run, self._name)
        if stored is not None and stored[0].state not in FINAL:
            state = TaskState.REFUSED if stored[0].state is TaskState.PENDING else TaskState.LOST
            await self.store.change_task(stored[1], replace(stored[0], state=state, why=why))

    async def _run_task(self, run: str) -> None:
        name = self._name
        stored = await self.store.read_stored_task(run, name)
        if stored is None or stored.task.state in FINAL:
            await self.etcd.delete(f"{task_pointer_prefix(name)}{run}")
            return
        task, item = stored.task, stored.item
        if task.state is TaskState.RUNNING:
            await self.store.mark_lost(task, item, "the agent was started again while it ran; it is not run twice")
            return
        try:
            request, files, operator = await self._verify_task(run, stored)
        except (BadSignature, BadSeal, BadRequest, RunNotPermitted, BadRecords) as problem:
            self._ports.refusals.refuse(problem.code, run=run[:64], why=str(problem))
            await self.store.change_task(item, replace(task, state=TaskState.REFUSED, why=str(problem)))
            return
        lease = await self.etcd.grant(LEASE_SECONDS)
        running = replace(task, state=TaskState.RUNNING, session=self._ports.members.me.session)
        claimed = await self.store.change_task(item, running, lease)
        if claimed is None:
            return
        self.ledger.add(run, request.expires)
        self._log.info("run_started", run=run, operator=operator)
        job = self._job(request, files, stored.targets)
        execution = RunExecution(name, self.engines, self._log, self.store, request, running, claimed, lease, job)
        ended = await execution.run()
        self._log.info("run_ended", run=run, state=ended.state.value, why=ended.why)
        self._ports.spawner.once("engines", self._clean_up(lease))

    async def _clean_up(self, lease: int) -> None:
        """Revoke the lease and start a spare engine, after the end of the run is reported."""
        with contextlib.suppress(NoDatastore, Rejected):  # the lease expires by itself
            await self.etcd.revoke(lease)
        await self.engines.stock(IDLE_SECONDS)

    # Verifying

    async def _verify_task(self, run: str, stored: StoredTask) -> tuple[RunRequest, dict[str, Any], str]:
        if stored.signed is None:
            raise BadRequest(f"there is no run {run}; see: rackwright mesh runs")
        self._trust.take_signers(stored.signers)
        request, operator = await asyncio.to_thread(self.verify_request, stored.signed)
        if request.id != run:
            raise RunNotPermitted(f"the request is that of run {request.id}")
        if request.id in self.ledger:
            raise RunNotPermitted("it has been run here before, and no run is run twice")
        packed = await self.store.read_tree(run, stored.tree)
        return self._trust.unseal_secrets(request), run_model.unpack_tree(packed, request.tree), operator

    def verify_request(self, signed: SignedText) -> tuple[RunRequest, str]:
        """Return a request and its operator, if a trusted operator signed it for this cluster, this server and now."""
        operator = self._trust.verify_blocking(signed)
        request = run_model.read_request(signed.text)
        self._trust.check_cluster_and_time(request)
        labels = dict(self._ports.members.me.labels)
        if not request.targets.match(self._name, labels, self.facts):
            raise RunNotPermitted(f"{operator} did not sign it for {self._name}")
        return request, operator

    def _job(self, request: RunRequest, files: dict[str, Any], targets: list[str]) -> dict[str, Any]:
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
