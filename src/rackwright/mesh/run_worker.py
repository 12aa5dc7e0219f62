"""The engine on a target of a mesh run: a child process of the agent, that speaks with it in lines of JSON.

The first line on standard input is the job, as `states/node.py` has it, with `targets` and `signers` besides. What
happens goes to standard output, an event a line; where it needs to know something of other servers it asks the agent
(`ask`) and waits for the answer. It believes nothing that is not signed: that is checked before, in `tasks.py`, and for
modules here.
"""

import contextlib
import json
import os
import sys
import tempfile
import threading
from base64 import b64decode
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rackwright.mesh.run_model import gate_name
from rackwright.states.catalogue import Catalogue
from rackwright.states.combine import State
from rackwright.states.extensions import FOLDER, Bundle, ExtensionRefused, FolderSource, Loader, Memory
from rackwright.states.facts import facts
from rackwright.states.module import StateError
from rackwright.states.node import FAILED, OK, REFUSED, unpack_files
from rackwright.states.plan import Plan, plan, secret_texts
from rackwright.states.record import Mask, Record
from rackwright.states.refusal import Refused, refuse
from rackwright.states.run import Run, go_home
from rackwright.states.tree import Tree

MAX_VALUE = 64 * 1024


class Agent:
    """The other end: events go there, questions are answered there."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: dict[int, dict[str, Any]] = {}
        self._arrived = threading.Condition()
        self._count = 0
        self._gone = False

    def listen(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            answer = json.loads(line)
            with self._arrived:
                self._answers[answer["answer"]] = answer
                self._arrived.notify_all()
        with self._arrived:
            self._gone = True
            self._arrived.notify_all()

    def say(self, event: str, **more: Any) -> None:
        line = json.dumps({"event": event, **more}, default=str) + "\n"
        with self._lock:
            sys.stdout.write(line)
            sys.stdout.flush()

    def ask(self, what: str, **more: Any) -> Any:
        with self._arrived:
            self._count += 1
            number = self._count
        self.say("ask", ask=number, what=what, **more)
        with self._arrived:
            self._arrived.wait_for(lambda: number in self._answers or self._gone)
            if number not in self._answers:
                raise StateError("the agent has gone, so nothing can be known of the other servers")
            answer = self._answers.pop(number)
        if answer.get("error"):
            raise StateError(answer["error"])
        return answer.get("value")


class OtherServers:
    """Outputs of other targets: `${node:NAME/ID.key}`."""

    def __init__(self, agent: Agent | None, targets: Sequence[str]) -> None:
        self.agent, self.targets = agent, targets
        self.asked: list[tuple[str, str]] = []

    def problem(self, node: str, reference: str) -> str | None:
        self.asked.append((node, reference))
        if node not in self.targets:
            return f"{node!r} is no target of this run; its targets are {', '.join(self.targets)}"
        return None

    def ready(self, node: str, reference: str) -> bool:
        return self.agent is not None and bool(self.agent.ask("ready", node=node, reference=reference))

    def fetch(self, node: str, reference: str) -> Any:
        if self.agent is None:
            raise StateError("nothing is run while a run is checked")
        return self.agent.ask("output", node=node, reference=reference)


class OtherPace:
    """`sync` and `serialize`: goes by the pace of the other targets."""

    def __init__(self, agent: Agent, states: Sequence[State]) -> None:
        self.agent = agent
        self._gates: dict[int, str] = {}
        twins: Counter[tuple[str, str]] = Counter()
        for state in states:
            if state.options.get("sync") or state.options.get("serialize"):
                self._gates[state.index] = gate_name(state.full, state.id, twins[state.full, state.id])
            twins[state.full, state.id] += 1

    def gate(self, state: int) -> str | None:
        return self._gates.get(state)

    def enter(self, state: State) -> bool:
        limit = state.options.get("serialize")
        return not limit or bool(self.agent.ask("enter", gate=self._gates[state.index], limit=limit))

    def leave(self, state: State) -> bool:
        sync, serialize = bool(state.options.get("sync")), bool(state.options.get("serialize"))
        return bool(self.agent.ask("leave", gate=self._gates[state.index], sync=sync, serialize=serialize))


class AgentSource:
    """Modules of the cluster's datastore, handed on by the agent; the signature decides, not the way they came."""

    def __init__(self, agent: Agent, texts: str) -> None:
        self.agent, self.texts = agent, texts

    def names(self) -> Sequence[str]:
        return [name for name in self.agent.ask("modules") if f"{name}." in self.texts]

    def fetch(self, name: str) -> Bundle | None:
        found = self.agent.ask("module", name=name)
        if found is None:
            return None
        manifest = b64decode(found["manifest"]) if found["manifest"] else None
        return Bundle(b64decode(found["code"]), manifest, str(found["origin"]))


def main() -> int:
    _as_if_from_a_shell()
    agent = Agent()
    mask = Mask()
    job = json.loads(sys.stdin.readline())
    agent.listen()
    with tempfile.TemporaryDirectory(prefix="rackwright-run-") as folder:
        try:
            mask.add(text for name in job["secrets"] for text in secret_texts(job["variables"].get(name)))
            unpack_files(Path(folder), job["files"])
            return _run(Path(folder), job, mask, agent)
        except Refused as refused:
            agent.say("refused", errors=[mask.text(str(problem)) for problem in refused.problems])
            return REFUSED


def _as_if_from_a_shell() -> None:
    """The agent hides its files and is spared when memory is short; neither is for what the states start."""
    os.umask(0o022)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("0")


def make_plan(folder: Path, job: dict[str, Any], catalogue: Catalogue, remote: OtherServers, node: Any) -> Plan:
    return plan(Tree(folder), job["sls"], job["variables"], node, catalogue, remote)


def _run(folder: Path, job: dict[str, Any], mask: Mask, agent: Agent) -> int:
    node = {**facts(job["name"]), **job.get("node", {})}
    remote = OtherServers(agent, job["targets"])
    made = make_plan(folder, job, _catalogue(folder, job, agent), remote, node)
    mask.add(made.secrets)
    pace = OtherPace(agent, made.states)

    def hear(kind: str, state: State, detail: Any) -> None:
        if kind == "end":
            record: Record = detail
            shown = _bounded(record.as_json(mask))
            outputs = _bounded(mask.value(record.outputs))
            agent.say("end", state=shown, outputs=outputs, gate=pace.gate(record.state))
        elif kind == "start":
            agent.say("start", id=mask.text(state.id), name=mask.text(state.name), function=state.full)

    go_home()
    run = Run(made, job["mode"], bool(job["test"]), int(job["parallel"]), hear, mask, pace)
    agent.say("planned", states=len(made.states))
    report = run.go()
    agent.say("report", summary=report.summary(), seconds=round(report.seconds, 6), failed=report.failed)
    return FAILED if report.failed else OK


def _catalogue(folder: Path, job: dict[str, Any], agent: Agent) -> Catalogue:
    texts = "\n".join(path.read_text(errors="replace") for path in folder.rglob("*.sls"))
    sources = (FolderSource(folder / FOLDER), AgentSource(agent, texts))
    try:
        return Catalogue(Loader(sources, Path(job["signers"]), Memory(Path(job["seen"]))).functions())
    except (ExtensionRefused, StateError) as refused:
        raise refuse(str(refused)) from refused


def _bounded(value: dict[str, Any]) -> dict[str, Any]:
    """What fits into an event: long texts lose their middle, for both ends are what people look at."""
    if len(json.dumps(value, default=str)) <= MAX_VALUE:
        return value
    return {key: _cut(part) for key, part in value.items()}


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > MAX_VALUE // 8:
        half = MAX_VALUE // 16
        return f"{value[:half]}\n... {len(value) - 2 * half} characters left out ...\n{value[-half:]}"
    if isinstance(value, dict):
        return {key: _cut(part) for key, part in list(value.items())[:64]}
    if isinstance(value, list):
        return [_cut(part) for part in value[:64]]
    return value


if __name__ == "__main__":
    sys.exit(main())
