"""Begins a run: verifies the operator's signature, selects the targets, checks all of the run, then stores it.

Done by the server that takes the request. The check is made once, in a child process; the targets get their tasks only
after it.
"""

import asyncio
import json
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rackwright.mesh.bounded_json import read_object
from rackwright.mesh.datastore.etcd_client import Item
from rackwright.mesh.errors import MeshError, Unreadable
from rackwright.mesh.log import Log
from rackwright.mesh.membership.member_view import MemberView, live_records
from rackwright.mesh.refusals import Refusals
from rackwright.mesh.runs import run_model
from rackwright.mesh.runs.engine_pool import EnginePool
from rackwright.mesh.runs.run_end import pass_fence
from rackwright.mesh.runs.run_execution import module_names, read_module
from rackwright.mesh.runs.run_model import FACTS, RunRequest, Targets, read_request
from rackwright.mesh.runs.run_store import RunStore, SignedText
from rackwright.mesh.runs.run_trust import RunTrust
from rackwright.mesh.supervision import Spawner

CHECK_SECONDS = 600.0


class RunStartRefused(MeshError):
    """The run was refused before anything was touched"""

    code = "run_refused"


@dataclass(frozen=True)
class RunStartPorts:
    """What beginning a run uses of its agent."""

    name: str
    folder: Path
    store: RunStore
    trust: RunTrust
    engines: EnginePool
    members: MemberView
    refusals: Refusals
    spawner: Spawner
    log: Log


class RunStart:
    """The part of an agent that begins runs."""

    def __init__(self, ports: RunStartPorts) -> None:
        self._ports, self._store, self._trust = ports, ports.store, ports.trust

    async def begin(self, signed: SignedText, tree: bytes) -> dict[str, Any]:
        """Check a run as its targets will, and all targets together; then store it with their tasks."""
        await self._trust.refresh_signers()
        stored_facts, names, operator = await asyncio.gather(
            self._store.etcd.page(FACTS),
            module_names(self._store),
            self._trust.verify(signed),
        )
        request = read_request(signed.text)
        self._trust.check_cluster_and_time(request)
        files = run_model.unpack_tree(tree, request.tree)
        facts = self._select_targets(request.targets, self._read_facts(stored_facts.items))
        states = await self._check(self._trust.unseal_secrets(request), files, facts, names)
        fence = await pass_fence(self._store, request)
        await self._store.begin(signed, request, tree, states, self._ports.name, fence)
        self._ports.log.info("run_begun", run=request.id, operator=operator, targets=sorted(states))
        return {"run": request.id, "targets": sorted(states), "states": states, "operator": operator}

    async def select_targets(self, targets: Targets) -> list[str]:
        """Return the names of the living servers that match."""
        facts = await self._store.etcd.page(FACTS)
        return sorted(self._select_targets(targets, self._read_facts(facts.items)))

    def _read_facts(self, items: list[Item]) -> dict[str, dict[str, Any]]:
        """Return the facts that servers stored. They are not signed: each target matches its own facts again."""
        facts = {}
        for item in items:
            try:
                facts[item.key.removeprefix(FACTS)] = read_object(item.value, item.key[:200])
            except Unreadable as problem:
                self._ports.refusals.refuse_record(problem)
        return facts

    def _select_targets(self, targets: Targets, facts: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Return the living servers that match, with their facts."""
        alive = {record.name: record for record in live_records(self._ports.members)}
        selected = {
            name: facts.get(name, {"id": name})
            for name, record in alive.items()
            if targets.match(name, dict(record.labels), facts.get(name, {}))
        }
        missing = [name for name in targets.names if not set(name) & set("*?[") and name not in alive]
        if missing:
            raise RunStartRefused(f"{', '.join(missing)} is not alive in this cluster; see: rackwright mesh members")
        if not selected:
            raise RunStartRefused("no living server is meant by that; see: rackwright mesh members")
        return selected

    async def _check(
        self, request: RunRequest, files: dict[str, Any], facts: dict[str, Any], modules: list[str]
    ) -> dict[str, int]:
        """Check a run in an engine; return how many states each target has. Raises RunStartRefused for problems."""
        names = mentioned_modules(modules, files, request.variables)
        job = {
            "do": "check",
            "files": files,
            "facts": facts,
            "sls": request.sls,
            "variables": request.variables,
            "mode": request.mode,
            "modules": {name: await read_module(self._store, name) for name in names},
            "modules_from": request.modules,
            "signers": str(self._trust.signers.allowed),
            "seen": str(self._ports.folder / "module-versions.json"),
        }
        engine = await self._ports.engines.take()
        # A spare engine starts meanwhile: this server may be a target too.
        self._ports.spawner.once("engines", self._ports.engines.stock())
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                await engine.send(job)
                output = [line async for lines in engine.lines() for line in lines]
                status = await engine.wait()
        finally:
            await engine.kill()
        if status or not output:
            raise RunStartRefused(f"the run could not be checked: the engine ended with {status}, see {engine.log}")
        answer = json.loads(output[-1])
        if "errors" in answer:
            raise RunStartRefused("\n".join(answer["errors"]))
        return dict(answer["states"])


def mentioned_modules(modules: Sequence[str], files: dict[str, Any], variables: dict[str, Any]) -> list[str]:
    """Return the modules that the states may use, rather too many than too few.

    A template can build names from variables and other files, and a module that no state uses in the end is not loaded.
    """
    texts = [json.dumps(variables, default=str).encode(), *(b64decode(content["base64"]) for content in files.values())]
    return [name for name in modules if any(name.encode() in text for text in texts)]
