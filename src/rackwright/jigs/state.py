"""The state jig: applies a role's state tree on the node, over SSH or through the mesh.

Over SSH it uses the script jig, with the same fencing; through the mesh, `reach/mesh_states.py`. The state engine is
sent to the node as one zipapp, which stays there under its digest and is checked before each run. The noderole's
attributes are the tree's variables; the output of its states becomes the wall.
"""

import base64
import json
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Self

from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.errors import RackwrightError
from rackwright.domain.runs import Outcome, Run
from rackwright.jigs.base import Jig
from rackwright.jigs.ports import FindStateTree, JigPorts
from rackwright.jigs.script import ScriptJig
from rackwright.reach.mesh_states import MeshStateRunner, MeshUnusable, StateJob
from rackwright.reach.parcel import NodeFolders, Parcel, pack_files
from rackwright.reach.run_log import Log
from rackwright.reach.ssh_connections import Unreachable
from rackwright.reach.state_events import StateEventReader
from rackwright.states.bundle import Bundle, build_bundle

NO_MESH = "this server knows of no mesh; start it with --mesh-folder, or set state/via to ssh"


class Via(StrEnum):
    """The way to the node, as `state/via` in the input of the run chooses it."""

    AUTO = "auto"
    """Through the mesh where the node is a living member, else over SSH."""
    SSH = "ssh"
    MESH = "mesh"


APPLY = """\
set -eu
umask 077
engine={engine}
cache=${{engine%/*}}
whole() {{ [ -f "$1" ] && [ "$(sha256sum <"$1" | cut -c1-64)" = {digest} ]; }}
if ! whole "$engine"; then
    mkdir -p "$cache"
    cp "$RACKWRIGHT_FOLDER/more/engine.pyz" "$engine.$$"
    whole "$engine.$$" || {{ echo "the state engine did not arrive whole" >&2; exit 1; }}
    mv "$engine.$$" "$engine"
fi
command -v python3 >/dev/null || {{ echo "the state engine needs python3 (3.9 or newer) on this node" >&2; exit 1; }}
python3 "$engine" <"$RACKWRIGHT_FOLDER/more/job.json"
"""


@cache
def engine() -> Bundle:
    """Return the state engine of this installation, which is built once."""
    return build_bundle()


class StateJig(Jig):
    """Applies state trees.

    A connection is made when a run needs it; the script jig closes the connection to a node that was deleted.
    """

    kind = "state"
    runs_files = True
    role_folder = "states"
    role_folder_lacks = "no states: put its init.sls here"

    def __init__(self, tree: FindStateTree, script: ScriptJig, mesh: MeshStateRunner | None = None) -> None:
        self._tree = tree
        self._script = script
        self._mesh = mesh

    @classmethod
    def make(cls, ports: JigPorts) -> Self:
        return cls(ports.state_tree, ScriptJig.make(ports), ports.mesh)

    async def run(self, run: Run, log: Log) -> Outcome:
        try:
            folder = await self._tree(run)
        except RackwrightError as error:
            return Outcome.failure(error.message)
        if folder is None:
            return Outcome.failure(f"Role {run.role} has no state tree: its barclamp needs a folder states/{run.role}.")
        chosen = _options(run).get("via", Via.AUTO.value)
        try:
            via = Via(str(chosen))
        except ValueError:
            return Outcome.failure(f"state/via of role {run.role} is {chosen!r}; it can be {', '.join(Via)}.")
        try:
            if await self._uses_mesh(run, via):
                return await self._apply_by_mesh(run, folder, log)
        except MeshUnusable as reason:
            if via is Via.MESH:
                return Outcome.failure(f"{run.node}: {reason}")
            log(f"Going over SSH, not through the mesh: {reason}\n")
        return await self._apply_by_ssh(run, folder, log)

    async def _uses_mesh(self, run: Run, via: Via) -> bool:
        """Return whether the run goes through the mesh: as `via` says, or else if the node can be reached so.

        Secrets go straight to the node unless `via` says otherwise: though they are sealed, what goes through the mesh
        stays in its datastore for a day.
        """
        if via is Via.SSH:
            return False
        if self._mesh is None:
            if via is Via.MESH:
                raise MeshUnusable(NO_MESH)
            return False
        return via is Via.MESH or (not run.secrets and await self._mesh.can_reach(run))

    async def _apply_by_mesh(self, run: Run, folder: Path, log: Log) -> Outcome:
        assert self._mesh is not None
        job = StateJob(folder, _sls(folder), str(_options(run).get("mode", "ansible")))
        return await self._mesh.run_states(run, job, StateEventReader(log))

    async def _apply_by_ssh(self, run: Run, folder: Path, log: Log) -> Outcome:
        files = {"job.json": json.dumps(job_of(run, folder)).encode()}
        try:
            output = await self._script.ask(run, lambda folders: f"sha256sum <{_engine_path(folders)} 2>/dev/null")
        except (Unreachable, TimeoutError) as error:
            return Outcome.failure(f"{run.node}: {error}")
        if output[:64] != engine().digest:
            files["engine.pyz"] = engine().content

        def pack_parcel(folders: NodeFolders, nonce: str) -> Parcel:
            return pack_files(run, [("apply.sh", _apply_script(folders))], files, folders, nonce)

        events = StateEventReader(log)
        outcome = await self._script.deliver(run, events, pack_parcel)
        events.end()
        return events.conclude(outcome)


def _options(run: Run) -> JsonObject:
    options = run.input.get("state")
    return options if isinstance(options, dict) else {}


def job_of(run: Run, folder: Path) -> JsonObject:
    """Return the job for the engine on the node."""
    files: dict[str, Json] = {
        path.relative_to(folder).as_posix(): _content(path) for path in sorted(folder.rglob("*")) if path.is_file()
    }
    return {
        "files": files,
        "sls": [*sls] if (sls := _sls(folder)) else None,
        "variables": run.input,
        "secrets": [*sorted(run.secrets)],
        "node": {"id": run.node},
        "mode": _options(run).get("mode", "ansible"),
    }


def _sls(folder: Path) -> list[str] | None:
    """Return the names of the SLS files to apply; None: those that the tree's top.sls names."""
    return None if (folder / "top.sls").is_file() else ["init"]


def _content(path: Path) -> Json:
    raw = path.read_bytes()
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode()}


def _apply_script(folders: NodeFolders) -> bytes:
    return APPLY.format(engine=_engine_path(folders), digest=engine().digest).encode()


def _engine_path(folders: NodeFolders) -> str:
    return f"{folders.work}/engine/{engine().name}"
