"""The engine's work for a run on a target: plans and runs the states, and exchanges lines of JSON with its agent.

The job is as `states/node.py` has it, with `run`, `targets` and `signers` in addition. Events go to standard output,
one a line, exactly as they will be stored in the datastore; to learn something of other servers the engine asks the
agent (`ask`) and waits for the answer. Only what is signed is believed: `tasks.py` has verified the job before, and
modules are verified here. The process itself is `engine_process.py`.
"""

import json
import sys
import threading
import time
from base64 import b64decode
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rackwright.mesh.runs.run_model import gate_name
from rackwright.states.catalogue import Catalogue
from rackwright.states.combine import State
from rackwright.states.extensions import (
    FOLDER,
    ExtensionRefused,
    FetchedModule,
    FolderSource,
    Loader,
    Source,
    UrlSource,
    VersionHistory,
)
from rackwright.states.facts import collect_facts
from rackwright.states.module import StateError
from rackwright.states.node import FAILED, OK, REFUSED, unpack_files
from rackwright.states.plan import Plan, build_plan, collect_secret_texts
from rackwright.states.reading.tree import Tree
from rackwright.states.refusal import RunRefused, refuse
from rackwright.states.running.execution import PlanExecution, change_to_home_directory
from rackwright.states.running.record import Mask, Record

MAX_VALUE = 64 * 1024
START_SECONDS = 0.05
"""For a state that has ended by then no start event is sent: the start matters only while the state runs."""


class AgentConnection:
    """The connection to the agent: sends it events, and questions that it answers."""

    def __init__(self, run: str, target: str) -> None:
        self.run, self.target = run, target
        self._lock = threading.Lock()
        self._answers: dict[int, dict[str, Any]] = {}
        self._arrived = threading.Condition()
        self._count = 0
        self._closed = False
        self._started: dict[int, str] = {}
        """Of each running state the line of its start event, until that is sent"""
        self._has_started = threading.Event()

    def listen(self) -> None:
        for work in (self._listen, self._send_started):
            threading.Thread(target=work, daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            answer = json.loads(line)
            with self._arrived:
                self._answers[answer["answer"]] = answer
                self._arrived.notify_all()
        with self._arrived:
            self._closed = True
            self._arrived.notify_all()

    def _send_started(self) -> None:
        while True:
            self._has_started.wait()
            self._has_started.clear()
            before = list(self._started)
            time.sleep(START_SECONDS)
            for state in before:
                with self._lock:
                    self._write(self._started.pop(state, ""))

    def send(self, kind: str, **fields: Any) -> None:
        with self._lock:
            self._write(self._line(kind, fields))

    def started(self, index: int, **fields: Any) -> None:
        self._started[index] = self._line("start", fields)
        self._has_started.set()

    def ended(self, index: int, **fields: Any) -> None:
        line = self._line("state", fields)
        if len(line) > MAX_VALUE:
            line = self._line("state", {key: _bounded(part) for key, part in fields.items()})
        with self._lock:
            self._started.pop(index, None)
            self._write(line)

    def _line(self, kind: str, fields: dict[str, Any]) -> str:
        return json.dumps({"kind": kind, "target": self.target, "run": self.run, **fields}, default=str) + "\n"

    @staticmethod
    def _write(line: str) -> None:
        """Write a line and flush it at once, so that no event is lost when the engine is killed."""
        sys.stdout.write(line)
        sys.stdout.flush()

    def ask(self, what: str, **fields: Any) -> Any:
        with self._arrived:
            self._count += 1
            number = self._count
        self.send("ask", ask=number, what=what, about=fields)
        with self._arrived:
            self._arrived.wait_for(lambda: number in self._answers or self._closed)
            if number not in self._answers:
                raise StateError("the agent has gone, so nothing can be known of the other servers")
            answer = self._answers.pop(number)
        if answer.get("error"):
            raise StateError(answer["error"])
        return answer.get("value")


class RemoteOutputs:
    """The outputs of other targets, which states use as `${node:NAME/ID.key}`.

    `references` are those that the plan of this target has. Without an agent, as in a check, no output can be read.
    """

    def __init__(self, agent: AgentConnection | None, targets: Sequence[str]) -> None:
        self.agent, self.targets = agent, targets
        self.references: list[tuple[str, str]] = []

    def problem(self, node: str, reference: str) -> str | None:
        self.references.append((node, reference))
        if node not in self.targets:
            return f"{node!r} is no target of this run; its targets are {', '.join(self.targets)}"
        return None

    def ready(self, node: str, reference: str) -> bool:
        return self.agent is not None and bool(self.agent.ask("ready", node=node, reference=reference))

    def fetch(self, node: str, reference: str) -> Any:
        if self.agent is None:
            raise StateError("nothing is run while a run is checked")
        return self.agent.ask("output", node=node, reference=reference)


class GatePace:
    """The gates of states with `sync` or `serialize`, at which this target waits for the other targets."""

    def __init__(self, agent: AgentConnection, states: Sequence[State]) -> None:
        self.agent = agent
        self._gates: dict[int, str] = {}
        twins: Counter[tuple[str, str]] = Counter()
        for state in states:
            if state.options.get("sync") or state.options.get("serialize"):
                self._gates[state.index] = gate_name(
                    state.qualified_function, state.id, twins[state.qualified_function, state.id]
                )
            twins[state.qualified_function, state.id] += 1

    def gate(self, state: int) -> str | None:
        return self._gates.get(state)

    def enter(self, state: State) -> bool:
        limit = state.options.get("serialize")
        return not limit or bool(self.agent.ask("enter", gate=self._gates[state.index], limit=limit))

    def leave(self, state: State) -> bool:
        sync, serialize = bool(state.options.get("sync")), bool(state.options.get("serialize"))
        return bool(self.agent.ask("leave", gate=self._gates[state.index], sync=sync, serialize=serialize))


class PrintedLines:
    """What states print while they run, sent as events up to the limit of the request: all events are stored."""

    def __init__(self, agent: AgentConnection, limit: int) -> None:
        self.agent, self._remaining = agent, limit

    def send(self, id: str, line: str) -> None:
        if self._remaining <= 0:
            return
        self._remaining -= len(line) + 1
        self.agent.send("log", id=id, line=line if self._remaining > 0 else "... what comes after this is left out")


class AgentModuleSource:
    """Modules of the cluster's datastore, passed on by the agent. Their signature counts, not who passes them on."""

    def __init__(self, agent: AgentConnection) -> None:
        self.agent = agent

    def names(self) -> Sequence[str]:
        """Return no names: a module is fetched by name when a state uses it."""
        return []

    def fetch(self, name: str) -> FetchedModule | None:
        module = self.agent.ask("module", name=name)
        if module is None:
            return None
        manifest = b64decode(module["manifest"]) if module["manifest"] else None
        return FetchedModule(b64decode(module["code"]), manifest, str(module["origin"]))


def run_job(job: dict[str, Any], folder: Path) -> int:
    agent = AgentConnection(job["run"], job["name"])
    mask = Mask()
    agent.listen()
    try:
        mask.add(text for name in job["secrets"] for text in collect_secret_texts(job["variables"].get(name)))
        unpack_files(folder, job["files"])
        return _run(folder, job, mask, agent)
    except RunRefused as refused:
        agent.send("refused", errors=[mask.text(str(problem)) for problem in refused.problems])
        return REFUSED


def make_plan(folder: Path, job: dict[str, Any], catalogue: Catalogue, remote: RemoteOutputs, node: Any) -> Plan:
    return build_plan(Tree(folder), job["sls"], job["variables"], node, catalogue, remote)


def _run(folder: Path, job: dict[str, Any], mask: Mask, agent: AgentConnection) -> int:
    node = {**collect_facts(job["name"]), **job.get("node", {})}
    remote = RemoteOutputs(agent, job["targets"])
    target_plan = make_plan(folder, job, _catalogue(folder, job, agent), remote, node)
    mask.add(target_plan.secrets)
    pace = GatePace(agent, target_plan.states)
    printed = PrintedLines(agent, int(job.get("lines", 0)))

    def on_event(kind: str, state: State, detail: Any) -> None:
        if kind == "end":
            record: Record = detail
            outputs = mask.value(record.outputs)
            agent.ended(state.index, state=record.as_json(mask), outputs=outputs, gate=pace.gate(record.state))
        elif kind == "start":
            agent.started(
                state.index, id=mask.text(state.id), name=mask.text(state.name), function=state.qualified_function
            )
        elif kind == "log":
            printed.send(mask.text(state.id), mask.text(str(detail)))

    change_to_home_directory()
    run = PlanExecution(target_plan, job["mode"], bool(job["test"]), int(job["parallel"]), on_event, mask, pace)
    agent.send("planned", states=len(target_plan.states))
    report = run.execute()
    agent.send("report", summary=report.summary(), seconds=round(report.seconds, 6), failed=report.failed)
    return FAILED if report.failed else OK


def _catalogue(folder: Path, job: dict[str, Any], agent: AgentConnection) -> Catalogue:
    try:
        return build_catalogue(folder, job, AgentModuleSource(agent))
    except (ExtensionRefused, StateError) as refused:
        raise refuse(str(refused)) from refused


def build_catalogue(folder: Path, job: dict[str, Any], datastore: Source) -> Catalogue:
    """Return the catalogue of the tree's own modules and those its states use: of the datastore, then of web folders.

    The module of a state is looked up only after the state is rendered and read: its text alone says too little.
    """
    web = [UrlSource(base) for base in job.get("modules_from", ())]
    sources: tuple[Source, ...] = (FolderSource(folder / FOLDER), datastore, *web)
    loader = Loader(sources, Path(job["signers"]), VersionHistory(Path(job["seen"])))
    return Catalogue(loader.functions(), loader.fetch)


def _bounded(value: Any) -> Any:
    """Shorten a value so that it fits into an event: long texts lose their middle, because people look at both ends."""
    if not isinstance(value, dict) or len(json.dumps(value, default=str)) <= MAX_VALUE:
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
