"""The state jig: applies a role's state tree on the node. It travels as the script jig does, with the same fencing.

The engine goes to the node as one zipapp, kept there by its digest, which is checked before each run. The noderole's
attributes are the tree's variables; what its states put out becomes the wall.
"""

import base64
import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.runs import Answer, Outcome, Run
from rackwright.jigs.base import JigNode, Log
from rackwright.jigs.parcel import Parcel, Places, pack_files
from rackwright.jigs.script import ScriptJig
from rackwright.jigs.ssh import Unreachable
from rackwright.states.bundle import Bundle, build

Tree = Callable[[str], Path | None]
"""Where the state tree of a role lies; None if it has none."""

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
    return build()


class StateJig:
    def __init__(self, tree: Tree, script: ScriptJig) -> None:
        self._tree = tree
        self._script = script

    async def node_create(self, node: JigNode) -> None:
        """A node is reached when something is to run on it."""

    async def node_update(self, node: JigNode) -> None:
        """The next run asks how the node is reached."""

    async def node_delete(self, node: JigNode) -> None:
        """The script jig closes the connection."""

    async def run(self, run: Run, log: Log) -> Outcome:
        folder = self._tree(run.role)
        if folder is None:
            return Outcome.failure(f"Role {run.role} has no state tree: its barclamp needs a folder states/{run.role}.")
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
        outcome = await self._script.deliver(run, heard.line, packed)
        return heard.judge(outcome)


def job_of(run: Run, folder: Path) -> JsonObject:
    """What the engine on the node is told."""
    wanted = run.input.get("state")
    options = wanted if isinstance(wanted, dict) else {}
    files: dict[str, Json] = {
        path.relative_to(folder).as_posix(): _content(path) for path in sorted(folder.rglob("*")) if path.is_file()
    }
    return {
        "files": files,
        "sls": None if "top.sls" in files else ["init"],
        "variables": run.input,
        "secrets": [*sorted(run.secrets)],
        "node": {"id": run.node},
        "mode": options.get("mode", "ansible"),
    }


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


class Heard:
    """What the engine says, line by line: for people in the log, and for the wall."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._outputs: JsonObject = {}
        self._failed: list[str] = []
        self._refused: list[str] = []

    def line(self, text: str) -> None:
        try:
            said = json.loads(text)
        except ValueError:
            said = None
        if not isinstance(said, dict) or "event" not in said:
            self._log(text)
            return
        self._event(said)

    def _event(self, said: Mapping[str, Json]) -> None:
        if said["event"] == "end":
            state = said.get("state")
            assert isinstance(state, dict)
            self._outputs[str(state["id"])] = said.get("outputs") or {}
            self._log(f"{state['outcome']}: {state['id']} ({state['function']}) {state['comment']}")
            if state["outcome"] in ("failed", "blocked"):
                self._failed.append(f"{state['id']}: {state['comment']}")
        elif said["event"] == "refused":
            errors = said.get("errors")
            self._refused = [str(error) for error in errors] if isinstance(errors, list) else []
        elif said["event"] == "log":
            self._log(str(said.get("line", "")))

    def judge(self, outcome: Outcome) -> Outcome:
        if self._refused:
            return Outcome.failure("Refused before anything was touched: " + "; ".join(self._refused))
        if outcome.answer is Answer.FAILED and self._failed:
            return Outcome.failure("States failed: " + "; ".join(self._failed))
        if outcome.answer is Answer.SUCCEEDED:
            return Outcome.success({"states": self._outputs})
        return outcome
