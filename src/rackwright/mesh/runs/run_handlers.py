"""What people ask about runs, on the control socket: begin one, watch one, list them, events, trusted keys and modules.

A run is begun by the server that is asked: it verifies the operator's signature, finds the targets, has the whole run
checked once in a child process, and only then stores it and tells the targets.
"""

import asyncio
import json
from base64 import b64decode
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackwright.mesh.bounded_json import read_object
from rackwright.mesh.datastore import cluster_config
from rackwright.mesh.datastore.etcd_client import Item
from rackwright.mesh.errors import BadRequest, MeshError, NoAuthority, Unreadable
from rackwright.mesh.identity import trust
from rackwright.mesh.identity.sealing import SEALS, certificate_number
from rackwright.mesh.membership.member import LIVE
from rackwright.mesh.runs import run_model
from rackwright.mesh.runs.run_end import cancel, pass_fence
from rackwright.mesh.runs.run_execution import module, module_names
from rackwright.mesh.runs.run_model import EVENTS, FACTS, MODULES, Request, Targets, read_request, read_targets
from rackwright.mesh.runs.run_store import Signed
from rackwright.mesh.runs.run_view import STILL_HERE, answer_line, follow
from rackwright.states import extensions

if TYPE_CHECKING:
    from rackwright.mesh.agent.agent import Agent

CHECK_SECONDS = 600.0
MAX_MODULE = 1024 * 1024
Answers = AsyncIterator[dict[str, Any] | bytes]


class RunRefused(MeshError):
    """The run was refused before anything was touched"""

    code = "run_refused"


class RunDesk:
    def __init__(self, agent: "Agent") -> None:
        self.agent = agent
        self.store = agent.runs

    async def ask(self, verb: str, wish: dict[str, Any]) -> dict[str, Any] | Answers | None:
        """The answer to one of its verbs; None for a verb that is not one."""
        if verb == "run":
            return self._run(Path(wish["package"]))
        if verb == "seals":
            return await self._seals(read_targets(wish["targets"]))
        if verb == "follow":
            return self._follow(str(wish["run"]), str(wish.get("cursor", "")))
        if verb == "cancel":
            return {"cancelled": await self._cancel(wish)}
        if verb == "runs":
            return {"runs": await self.store.runs()}
        if verb == "events":
            return self._events(str(wish.get("cursor", "")), bool(wish.get("follow")))
        if verb == "trust":
            return await self._trust(wish)
        if verb == "module":
            return await self._push_module(Path(wish["file"]))
        if verb == "modules":
            return {"modules": await module_names(self.store)}
        if verb == "config":
            return await self._config(wish.get("settings") or {})
        if verb == "repository":
            return await self._repository(wish)
        return None

    # Runs

    async def _run(self, package: Path) -> Answers:
        signed, tree = await asyncio.to_thread(_read_package, package)
        begun = await self.begin(signed, tree)
        yield begun
        async for told in follow(self.store, begun["run"], set(begun["targets"])):
            yield told

    async def begin(self, signed: Signed, tree: bytes) -> dict[str, Any]:
        """Check a run as its targets will, and together; then store it and tell them."""
        await self.agent.tasks.refresh_signers()
        known, names, who = await asyncio.gather(
            self.store.etcd.page(FACTS),
            module_names(self.store),
            asyncio.to_thread(trust.verify, signed.text.encode(), signed.signature, self.agent.tasks.signers.allowed),
        )
        request = read_request(signed.text)
        self.agent.tasks.check_time_and_place(request)
        files = run_model.unpack_tree(tree, request.tree)
        facts = self._targets(request.targets, self._facts(known.items))
        states = await self._checked(self.agent.tasks.opened(request), files, facts, names)
        fence = await pass_fence(self.store, request)
        await self.store.begin(signed, request, tree, states, self.agent.name, fence)
        self.agent.log.info("run_begun", run=request.id, operator=who, targets=sorted(states))
        return {"run": request.id, "targets": sorted(states), "states": states, "operator": who}

    async def _seals(self, targets: Targets) -> dict[str, Any]:
        """The keys to which secrets are sealed: of the living servers that are meant, and of this one, which checks."""
        facts, seals = await asyncio.gather(self.store.etcd.page(FACTS), self.store.etcd.page(SEALS))
        known = self._facts(facts.items)
        found = {item.key.removeprefix(SEALS): item.value.decode(errors="replace") for item in seals.items}
        names = sorted({*self._targets(targets, known), self.agent.name})
        revoked = self.agent.revocations.current
        missing = [n for n in names if n not in found or revoked.covers(n, certificate_number(found[n]))]
        if missing:
            raise RunRefused(f"{', '.join(missing)} has published no key to seal secrets to; is its agent older?")
        return {"seals": {name: found[name] for name in names}}

    def _facts(self, items: list[Item]) -> dict[str, dict[str, Any]]:
        """What servers say of themselves. It is not signed: each target compares again, with what it knows itself."""
        known = {}
        for item in items:
            try:
                known[item.key.removeprefix(FACTS)] = read_object(item.value, item.key[:200])
            except Unreadable as problem:
                self.agent.refuse(problem.code, source="datastore", why=str(problem))
        return known

    def _targets(self, targets: Targets, known: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """The living servers that are meant, with their facts."""
        alive = {entry.name: entry.record for entry in self.agent.swim.members() if entry.state in LIVE}
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
            "modules": {name: await module(self.store, name) for name in names},
            "modules_from": request.modules,
            "signers": str(self.agent.tasks.signers.allowed),
            "seen": str(self.agent.folder / "module-versions.json"),
        }
        engine = await self.agent.tasks.engines.take()
        # Another one gets ready meanwhile: this server may be a target too.
        self.agent.spawn("engines", self.agent.tasks.engines.stock())
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

    async def _cancel(self, wish: dict[str, Any]) -> list[str]:
        run, scope = str(wish["run"]), str(wish.get("scope", ""))
        if not scope:
            await self.store.about(run)
        return await cancel(self.store, run, str(wish["why"]), scope, int(wish.get("token", 0)))

    async def _follow(self, run: str, cursor: str) -> Answers:
        about = await self.store.about(run)
        yield {"run": run, "targets": about["targets"], "states": about["states"]}
        async for told in follow(self.store, run, set(about["targets"]), cursor):
            yield told

    async def _events(self, cursor: str, following: bool) -> Answers:
        async for news in self.store.read(EVENTS, cursor):
            lines = [answer_line(told) for told in news if not told.deleted and "/gate/" not in told.key]
            if lines:
                yield b"".join(lines)
            if not news:
                if not following:
                    return
                yield STILL_HERE

    # Configuration and repositories

    async def _config(self, wishes: dict[str, str]) -> dict[str, Any]:
        etcd, base = self.store.etcd, self.agent.settings.datastore
        config = await cluster_config.change(etcd, base, wishes) if wishes else await cluster_config.read(etcd)
        if wishes:
            self.agent.log.warning("config_changed", settings=sorted(wishes))
        return {"config": config, "known": cluster_config.known()}

    async def _repository(self, wish: dict[str, Any]) -> dict[str, Any]:
        repositories = self.agent.repositories
        if wish["action"] == "add":
            order = await repositories.add(Signed(str(wish["order"]), str(wish["signature"])))
            return {"name": order.name, "here": repositories.key.exists()}
        if wish["action"] == "remove":
            await repositories.remove(str(wish["name"]))
        return {"repositories": await repositories.listed()}

    # Trusted keys and modules

    async def _trust(self, wish: dict[str, Any]) -> dict[str, Any]:
        tasks = self.agent.tasks
        await tasks.refresh_signers()
        if wish.get("action") == "list":
            return {"version": tasks.signers.current.version, "keys": tasks.signers.current.keys}
        authority = self.agent.authority
        if authority is None:
            held = " or ".join(record.name for record in self.agent.desk.authorities()) or "none that is alive"
            raise NoAuthority(f"the list of trusted keys is signed by the CA; do it on a server that holds it: {held}")
        current, name = tasks.signers.current, str(wish["name"])
        fresh = current.with_key(name, str(wish["key"])) if wish["action"] == "add" else current.without(name)
        sealed = trust.seal(fresh, authority.key)
        await self.store.etcd.put(f"{run_model.TRUST}/signers", sealed)
        tasks.signers.take(sealed)
        self.agent.log.warning("signers_changed", version=fresh.version, name=wish["name"])
        return {"version": fresh.version, "keys": fresh.keys}

    async def _push_module(self, file: Path) -> dict[str, Any]:
        bundle = extensions.FolderSource(file.parent).fetch(file.stem)
        if bundle is None:
            raise BadRequest(f"there is no module {file}")
        if len(bundle.code) > MAX_MODULE:
            raise BadRequest(f"{file} has more than {MAX_MODULE >> 10} kB, which the datastore does not take")
        await self.agent.tasks.refresh_signers()
        try:
            manifest, who = await asyncio.to_thread(
                extensions.verify, bundle, file.stem, self.agent.tasks.signers.allowed
            )
        except extensions.ExtensionRefused as problem:
            raise BadRequest(str(problem)) from problem
        assert bundle.manifest is not None
        await self.store.etcd.put(f"{MODULES}/{file.stem}.py", bundle.code)
        await self.store.etcd.put(f"{MODULES}/{file.stem}.py.manifest", bundle.manifest)
        return {"name": manifest.name, "version": manifest.version, "signer": who}


def mentioned_modules(modules: Sequence[str], files: dict[str, Any], variables: dict[str, Any]) -> list[str]:
    """The modules that the states may use. Too many rather than too few: a template can put names together from
    variables and other files, and what no state names in the end is not loaded.
    """
    texts = [json.dumps(variables, default=str).encode(), *(b64decode(content["base64"]) for content in files.values())]
    return [name for name in modules if any(name.encode() in text for text in texts)]


def _read_package(package: Path) -> tuple[Signed, bytes]:
    """What the command line wrote for us: the signed request, and the packed tree."""
    try:
        content = json.loads(package.read_text())
        return Signed(str(content["request"]), str(content["signature"])), Path(content["tree"]).read_bytes()
    except (OSError, ValueError, KeyError) as problem:
        raise BadRequest(f"the run in {package} cannot be read: {problem}") from problem
