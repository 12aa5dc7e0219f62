"""The state jig: applies a role's state tree on the node. It travels as the script jig does, with the same fencing, or
through the mesh (`reach/mesh_states.py`).

The engine goes to the node as one zipapp, kept there by its digest, which is checked before each run. The noderole's
attributes are the tree's variables; what its states put out becomes the wall.
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
from rackwright.jigs.base import Jig, Log
from rackwright.jigs.ports import JigPorts, Tree
from rackwright.jigs.script import ScriptJig
from rackwright.reach.mesh_states import Job, MeshWay, NotThisWay
from rackwright.reach.parcel import Parcel, Places, pack_files
from rackwright.reach.ssh_connections import Unreachable
from rackwright.reach.state_events import Heard
from rackwright.states.bundle import Bundle, build_bundle

NO_MESH = "this server knows of no mesh; start it with --mesh-folder, or set state/via to ssh"


class Via(StrEnum):
    """`state/via` among what the noderole is handed."""

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
    """Of this installation; built once."""
    return build_bundle()


class StateJig(Jig):
    """A node is reached when something is to run on it; the script jig closes the connection to one that is gone."""

    kind = "state"
    runs_files = True
    role_folder = "states"
    role_folder_lacks = "no states: put its init.sls here"

    def __init__(self, tree: Tree, script: ScriptJig, mesh: MeshWay | None = None) -> None:
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
        named = _options(run).get("via", Via.AUTO.value)
        try:
            via = Via(str(named))
        except ValueError:
            return Outcome.failure(f"state/via of role {run.role} is {named!r}; it can be {', '.join(Via)}.")
        try:
            if await self._through_mesh(run, via):
                return await self._by_mesh(run, folder, log)
        except NotThisWay as reason:
            if via is Via.MESH:
                return Outcome.failure(f"{run.node}: {reason}")
            log(f"Going over SSH, not through the mesh: {reason}\n")
        return await self._by_ssh(run, folder, log)

    async def _through_mesh(self, run: Run, via: Via) -> bool:
        """What the role says; else, whether it can. Secrets go straight to the node unless somebody says otherwise:
        sealed as they are, what goes through the mesh lies in its datastore for a day.
        """
        if via is Via.SSH:
            return False
        if self._mesh is None:
            if via is Via.MESH:
                raise NotThisWay(NO_MESH)
            return False
        return via is Via.MESH or (not run.secrets and await self._mesh.reaches(run))

    async def _by_mesh(self, run: Run, folder: Path, log: Log) -> Outcome:
        assert self._mesh is not None
        job = Job(folder, _sls(folder), str(_options(run).get("mode", "ansible")))
        return await self._mesh.carry(run, job, Heard(log))

    async def _by_ssh(self, run: Run, folder: Path, log: Log) -> Outcome:
        files = {"job.json": json.dumps(job_of(run, folder)).encode()}
        try:
            kept = await self._script.ask(run, lambda places: f"sha256sum <{_engine_path(places)} 2>/dev/null")
        except (Unreachable, TimeoutError) as error:
            return Outcome.failure(f"{run.node}: {error}")
        if kept[:64] != engine().digest:
            files["engine.pyz"] = engine().content

        def packed(places: Places, nonce: str) -> Parcel:
            return pack_files(run, [("apply.sh", _script(places))], files, places, nonce)

        heard = Heard(log)
        outcome = await self._script.deliver(run, heard, packed)
        heard.end()
        return heard.judge(outcome)


def _options(run: Run) -> JsonObject:
    wanted = run.input.get("state")
    return wanted if isinstance(wanted, dict) else {}


def job_of(run: Run, folder: Path) -> JsonObject:
    """What the engine on the node is told."""
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
    """Which SLS of a tree are meant; None: what its top.sls says."""
    return None if (folder / "top.sls").is_file() else ["init"]


def _content(path: Path) -> Json:
    raw = path.read_bytes()
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode()}


def _script(places: Places) -> bytes:
    return APPLY.format(engine=_engine_path(places), digest=engine().digest).encode()


def _engine_path(places: Places) -> str:
    return f"{places.work}/engine/{engine().name}"
