"""Beginning a run: the server that is asked verifies the operator's signature, finds the targets, has the whole run
checked once in a child process, and only then stores it and tells the targets.
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
from rackwright.mesh.runs.engine_pool import Engines
from rackwright.mesh.runs.run_end import pass_fence
from rackwright.mesh.runs.run_execution import module, module_names
from rackwright.mesh.runs.run_model import FACTS, Request, Targets, read_request
from rackwright.mesh.runs.run_store import RunStore, Signed
from rackwright.mesh.runs.run_trust import RunTrust
from rackwright.mesh.supervision import Spawner

CHECK_SECONDS = 600.0


class RunRefused(MeshError):
    """The run was refused before anything was touched"""

    code = "run_refused"


@dataclass(frozen=True)
class RunStartPorts:
    """What beginning a run uses of its agent."""

    name: str
    folder: Path
    store: RunStore
    trust: RunTrust
    engines: Engines
    members: MemberView
    refusals: Refusals
    spawner: Spawner
    log: Log


class RunStart:
    def __init__(self, ports: RunStartPorts) -> None:
        self._ports, self._store, self._trust = ports, ports.store, ports.trust

    async def begin(self, signed: Signed, tree: bytes) -> dict[str, Any]:
        """Check a run as its targets will, and together; then store it and tell them."""
        await self._trust.refresh_signers()
        known, names, who = await asyncio.gather(
            self._store.etcd.page(FACTS),
            module_names(self._store),
            self._trust.verify(signed),
        )
        request = read_request(signed.text)
        self._trust.check_time_and_place(request)
        files = run_model.unpack_tree(tree, request.tree)
        facts = self._targets(request.targets, self._facts(known.items))
        states = await self._checked(self._trust.opened(request), files, facts, names)
        fence = await pass_fence(self._store, request)
        await self._store.begin(signed, request, tree, states, self._ports.name, fence)
        self._ports.log.info("run_begun", run=request.id, operator=who, targets=sorted(states))
        return {"run": request.id, "targets": sorted(states), "states": states, "operator": who}

    async def targets(self, targets: Targets) -> list[str]:
        """Return the names of the living servers that are meant."""
        facts = await self._store.etcd.page(FACTS)
        return sorted(self._targets(targets, self._facts(facts.items)))

    def _facts(self, items: list[Item]) -> dict[str, dict[str, Any]]:
        """What servers say of themselves. It is not signed: each target compares again, with what it knows itself."""
        known = {}
        for item in items:
            try:
                known[item.key.removeprefix(FACTS)] = read_object(item.value, item.key[:200])
            except Unreadable as problem:
                self._ports.refusals.refuse_record(problem)
        return known

    def _targets(self, targets: Targets, known: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """The living servers that are meant, with their facts."""
        alive = {record.name: record for record in live_records(self._ports.members)}
        found = {
            name: known.get(name, {"id": name})
            for name, record in alive.items()
            if targets.match(name, dict(record.labels), known.get(name, {}))
        }
        missing = [name for name in targets.names if not set(name) & set("*?[") and name not in alive]
        if missing:
            raise RunRefused(f"{', '.join(missing)} is not alive in this cluster; see: rackwright mesh members")
        if not found:
            raise RunRefused("no living server is meant by that; see: rackwright mesh members")
        return found

    async def _checked(
        self, request: Request, files: dict[str, Any], facts: dict[str, Any], modules: list[str]
    ) -> dict[str, int]:
        names = mentioned_modules(modules, files, request.variables)
        job = {
            "do": "check",
            "files": files,
            "facts": facts,
            "sls": request.sls,
            "variables": request.variables,
            "mode": request.mode,
            "modules": {name: await module(self._store, name) for name in names},
            "modules_from": request.modules,
            "signers": str(self._trust.signers.allowed),
            "seen": str(self._ports.folder / "module-versions.json"),
        }
        engine = await self._ports.engines.take()
        # Another one gets ready meanwhile: this server may be a target too.
        self._ports.spawner.once("engines", self._ports.engines.stock())
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                await engine.say(job)
                said = [line async for lines in engine.lines() for line in lines]
                status = await engine.end()
        finally:
            await engine.kill()
        if status or not said:
            raise RunRefused(f"the run could not be checked: the engine ended with {status}, see {engine.log}")
        told = json.loads(said[-1])
        if "errors" in told:
            raise RunRefused("\n".join(told["errors"]))
        return dict(told["states"])


def mentioned_modules(modules: Sequence[str], files: dict[str, Any], variables: dict[str, Any]) -> list[str]:
    """The modules that the states may use. Too many rather than too few: a template can put names together from
    variables and other files, and what no state names in the end is not loaded.
    """
    texts = [json.dumps(variables, default=str).encode(), *(b64decode(content["base64"]) for content in files.values())]
    return [name for name in modules if any(name.encode() in text for text in texts)]
