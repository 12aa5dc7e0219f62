"""What people ask about runs, on the control socket: begin one, watch one, list them, events, trusted keys and modules.

How a run is begun is `run_start.py`.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rackwright.mesh.datastore import cluster_config
from rackwright.mesh.datastore.datastore_settings import DatastoreConfig
from rackwright.mesh.errors import BadRequest, NoAuthority
from rackwright.mesh.identity import trust
from rackwright.mesh.identity.authority import Authority
from rackwright.mesh.identity.revocation import RevocationFile
from rackwright.mesh.identity.sealing import SEALS, certificate_number
from rackwright.mesh.log import Log
from rackwright.mesh.membership.member_view import MemberView, authority_names
from rackwright.mesh.runs import run_model
from rackwright.mesh.runs.repositories import Repositories
from rackwright.mesh.runs.run_end import cancel
from rackwright.mesh.runs.run_execution import module_names
from rackwright.mesh.runs.run_model import EVENTS, MODULES, Targets, read_targets
from rackwright.mesh.runs.run_start import RunRefused, RunStart
from rackwright.mesh.runs.run_store import RunStore, Signed
from rackwright.mesh.runs.run_trust import RunTrust
from rackwright.mesh.runs.run_view import STILL_HERE, answer_line, follow
from rackwright.states import extensions

MAX_MODULE = 1024 * 1024
Answers = AsyncIterator[dict[str, Any] | bytes]


@dataclass(frozen=True)
class RunDeskPorts:
    """What the questions about runs use of their agent."""

    name: str
    config: DatastoreConfig
    store: RunStore
    start: RunStart
    trust: RunTrust
    repositories: Repositories
    authority: Authority | None
    members: MemberView
    revocations: RevocationFile
    log: Log


class RunDesk:
    def __init__(self, ports: RunDeskPorts) -> None:
        self._ports, self.store, self._trusted = ports, ports.store, ports.trust

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
        begun = await self._ports.start.begin(signed, tree)
        yield begun
        async for told in follow(self.store, begun["run"], set(begun["targets"])):
            yield told

    async def _seals(self, targets: Targets) -> dict[str, Any]:
        """The keys to which secrets are sealed: of the living servers that are meant, and of this one, which checks."""
        meant, seals = await asyncio.gather(self._ports.start.targets(targets), self.store.etcd.page(SEALS))
        found = {item.key.removeprefix(SEALS): item.value.decode(errors="replace") for item in seals.items}
        names = sorted({*meant, self._ports.name})
        revoked = self._ports.revocations.current
        missing = [n for n in names if n not in found or revoked.covers(n, certificate_number(found[n]))]
        if missing:
            raise RunRefused(f"{', '.join(missing)} has published no key to seal secrets to; is its agent older?")
        return {"seals": {name: found[name] for name in names}}

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
        etcd, base = self.store.etcd, self._ports.config
        config = (
            await cluster_config.change_settings(etcd, base, wishes)
            if wishes
            else await cluster_config.read_settings(etcd)
        )
        if wishes:
            self._ports.log.warning("config_changed", settings=sorted(wishes))
        return {"config": config, "known": cluster_config.setting_names()}

    async def _repository(self, wish: dict[str, Any]) -> dict[str, Any]:
        repositories = self._ports.repositories
        if wish["action"] == "add":
            order = await repositories.add(Signed(str(wish["order"]), str(wish["signature"])))
            return {"name": order.name, "here": repositories.key.exists()}
        if wish["action"] == "remove":
            await repositories.remove(str(wish["name"]))
        return {"repositories": await repositories.listed()}

    # Trusted keys and modules

    async def _trust(self, wish: dict[str, Any]) -> dict[str, Any]:
        await self._trusted.refresh_signers()
        signers = self._trusted.signers
        if wish.get("action") == "list":
            return {"version": signers.current.version, "keys": signers.current.keys}
        authority = self._ports.authority
        if authority is None:
            held = authority_names(self._ports.members)
            raise NoAuthority(f"the list of trusted keys is signed by the CA; do it on a server that holds it: {held}")
        current, name = signers.current, str(wish["name"])
        fresh = current.with_key(name, str(wish["key"])) if wish["action"] == "add" else current.without(name)
        sealed = trust.sign_signers(fresh, authority.key)
        await self.store.etcd.put(f"{run_model.TRUST}/signers", sealed)
        signers.take(sealed)
        self._ports.log.warning("signers_changed", version=fresh.version, name=wish["name"])
        return {"version": fresh.version, "keys": fresh.keys}

    async def _push_module(self, file: Path) -> dict[str, Any]:
        bundle = extensions.FolderSource(file.parent).fetch(file.stem)
        if bundle is None:
            raise BadRequest(f"there is no module {file}")
        if len(bundle.code) > MAX_MODULE:
            raise BadRequest(f"{file} has more than {MAX_MODULE >> 10} kB, which the datastore does not take")
        await self._trusted.refresh_signers()
        try:
            manifest, who = await asyncio.to_thread(extensions.verify, bundle, file.stem, self._trusted.signers.allowed)
        except extensions.ExtensionRefused as problem:
            raise BadRequest(str(problem)) from problem
        assert bundle.manifest is not None
        await self.store.etcd.put(f"{MODULES}/{file.stem}.py", bundle.code)
        await self.store.etcd.put(f"{MODULES}/{file.stem}.py.manifest", bundle.manifest)
        return {"name": manifest.name, "version": manifest.version, "signer": who}


def _read_package(package: Path) -> tuple[Signed, bytes]:
    """What the command line wrote for us: the signed request, and the packed tree."""
    try:
        content = json.loads(package.read_text())
        return Signed(str(content["request"]), str(content["signature"])), Path(content["tree"]).read_bytes()
    except (OSError, ValueError, KeyError) as problem:
        raise BadRequest(f"the run in {package} cannot be read: {problem}") from problem
