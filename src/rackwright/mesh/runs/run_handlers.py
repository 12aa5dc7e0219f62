"""Handlers of the control socket's requests about runs: begin, follow, list, cancel, events, trusted keys, modules.

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
from rackwright.mesh.runs.repositories import RepositoryWatcher
from rackwright.mesh.runs.run_end import cancel_run
from rackwright.mesh.runs.run_execution import module_names
from rackwright.mesh.runs.run_model import EVENTS, MODULES, Targets, read_targets
from rackwright.mesh.runs.run_start import RunStart, RunStartRefused
from rackwright.mesh.runs.run_store import RunStore, SignedText
from rackwright.mesh.runs.run_trust import RunTrust
from rackwright.mesh.runs.run_view import STILL_HERE, follow_run, response_line
from rackwright.states import extensions

MAX_MODULE = 1024 * 1024
Answers = AsyncIterator[dict[str, Any] | bytes]


@dataclass(frozen=True)
class RunHandlerPorts:
    """What the handlers use of their agent."""

    name: str
    config: DatastoreConfig
    store: RunStore
    start: RunStart
    trust: RunTrust
    repositories: RepositoryWatcher
    authority: Authority | None
    members: MemberView
    revocations: RevocationFile
    log: Log


class RunHandlers:
    """The handlers of an agent for requests about runs, by verb."""

    def __init__(self, ports: RunHandlerPorts) -> None:
        self._ports, self.store, self._trust = ports, ports.store, ports.trust

    async def handle(self, verb: str, request: dict[str, Any]) -> dict[str, Any] | Answers | None:
        """Return the answer to a request; None for a verb that has no handler here."""
        if verb == "run":
            return self._run(Path(request["package"]))
        if verb == "seals":
            return await self._seals(read_targets(request["targets"]))
        if verb == "follow":
            return self._follow(str(request["run"]), str(request.get("cursor", "")))
        if verb == "cancel":
            return {"cancelled": await self._cancel(request)}
        if verb == "runs":
            return {"runs": await self.store.list_runs()}
        if verb == "events":
            return self._events(str(request.get("cursor", "")), bool(request.get("follow")))
        if verb == "trust":
            return await self._change_signers(request)
        if verb == "module":
            return await self._push_module(Path(request["file"]))
        if verb == "modules":
            return {"modules": await module_names(self.store)}
        if verb == "config":
            return await self._config(request.get("settings") or {})
        if verb == "repository":
            return await self._repository(request)
        return None

    # Runs

    async def _run(self, package: Path) -> Answers:
        signed, tree = await asyncio.to_thread(_read_package, package)
        begun = await self._ports.start.begin(signed, tree)
        yield begun
        async for lines in follow_run(self.store, begun["run"], set(begun["targets"])):
            yield lines

    async def _seals(self, targets: Targets) -> dict[str, Any]:
        """Return the keys to which secrets are sealed: of the targets, and of this server, which checks the run."""
        selected, stored = await asyncio.gather(self._ports.start.select_targets(targets), self.store.etcd.page(SEALS))
        seals = {item.key.removeprefix(SEALS): item.value.decode(errors="replace") for item in stored.items}
        names = sorted({*selected, self._ports.name})
        revoked = self._ports.revocations.current
        missing = [n for n in names if n not in seals or revoked.covers(n, certificate_number(seals[n]))]
        if missing:
            raise RunStartRefused(f"{', '.join(missing)} has published no key to seal secrets to; is its agent older?")
        return {"seals": {name: seals[name] for name in names}}

    async def _cancel(self, request: dict[str, Any]) -> list[str]:
        run, scope = str(request["run"]), str(request.get("scope", ""))
        if not scope:
            await self.store.read_about(run)
        return await cancel_run(self.store, run, str(request["why"]), scope, int(request.get("token", 0)))

    async def _follow(self, run: str, cursor: str) -> Answers:
        about = await self.store.read_about(run)
        yield {"run": run, "targets": about["targets"], "states": about["states"]}
        async for lines in follow_run(self.store, run, set(about["targets"]), cursor):
            yield lines

    async def _events(self, cursor: str, following: bool) -> Answers:
        async for batch in self.store.read(EVENTS, cursor):
            lines = [response_line(event) for event in batch if not event.deleted and "/gate/" not in event.key]
            if lines:
                yield b"".join(lines)
            if not batch:
                if not following:
                    return
                yield STILL_HERE

    # Configuration and repositories

    async def _config(self, changes: dict[str, str]) -> dict[str, Any]:
        etcd, base = self.store.etcd, self._ports.config
        config = (
            await cluster_config.change_settings(etcd, base, changes)
            if changes
            else await cluster_config.read_settings(etcd)
        )
        if changes:
            self._ports.log.warning("config_changed", settings=sorted(changes))
        return {"config": config, "known": cluster_config.setting_names()}

    async def _repository(self, request: dict[str, Any]) -> dict[str, Any]:
        repositories = self._ports.repositories
        if request["action"] == "add":
            order = await repositories.add(SignedText(str(request["order"]), str(request["signature"])))
            return {"name": order.name, "here": repositories.key.exists()}
        if request["action"] == "remove":
            await repositories.remove(str(request["name"]))
        return {"repositories": await repositories.list_orders()}

    # Trusted keys and modules

    async def _change_signers(self, request: dict[str, Any]) -> dict[str, Any]:
        await self._trust.refresh_signers()
        signers = self._trust.signers
        if request.get("action") == "list":
            return {"version": signers.current.version, "keys": signers.current.keys}
        authority = self._ports.authority
        if authority is None:
            holders = authority_names(self._ports.members)
            raise NoAuthority(
                f"the list of trusted keys is signed by the CA; do it on a server that holds it: {holders}"
            )
        current, name = signers.current, str(request["name"])
        changed = current.with_key(name, str(request["key"])) if request["action"] == "add" else current.without(name)
        sealed = trust.sign_signers(changed, authority.key)
        await self.store.etcd.put(f"{run_model.TRUST}/signers", sealed)
        signers.take(sealed)
        self._ports.log.warning("signers_changed", version=changed.version, name=request["name"])
        return {"version": changed.version, "keys": changed.keys}

    async def _push_module(self, file: Path) -> dict[str, Any]:
        bundle = extensions.FolderSource(file.parent).fetch(file.stem)
        if bundle is None:
            raise BadRequest(f"there is no module {file}")
        if len(bundle.code) > MAX_MODULE:
            raise BadRequest(f"{file} has more than {MAX_MODULE >> 10} kB, which the datastore does not take")
        await self._trust.refresh_signers()
        try:
            manifest, signer = await asyncio.to_thread(
                extensions.verify, bundle, file.stem, self._trust.signers.allowed
            )
        except extensions.ExtensionRefused as problem:
            raise BadRequest(str(problem)) from problem
        assert bundle.manifest is not None
        await self.store.etcd.put(f"{MODULES}/{file.stem}.py", bundle.code)
        await self.store.etcd.put(f"{MODULES}/{file.stem}.py.manifest", bundle.manifest)
        return {"name": manifest.name, "version": manifest.version, "signer": signer}


def _read_package(package: Path) -> tuple[SignedText, bytes]:
    """Read the package that the command line wrote: the signed request, and the packed tree."""
    try:
        content = json.loads(package.read_text())
        return SignedText(str(content["request"]), str(content["signature"])), Path(content["tree"]).read_bytes()
    except (OSError, ValueError, KeyError) as problem:
        raise BadRequest(f"the run in {package} cannot be read: {problem}") from problem
