"""A run on one of its targets: the engine, that speaks with its agent in lines of JSON.

The job is as `states/node.py` has it, with `run`, `targets` and `signers` besides. What happens goes to standard
output, an event a line, just as it will lie in the datastore; where it needs to know something of other servers it asks
the agent (`ask`) and waits for the answer. It believes nothing that is not signed: that is checked before, in
`tasks.py`, and for modules here. The process itself is `engine_process.py`.
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
"""A state that has ended by then is not told to have started: that is news only while it runs."""


class Agent:
    """The other end: events go there, questions are answered there."""

    def __init__(self, run: str, target: str) -> None:
        self.run, self.target = run, target
        self._lock = threading.Lock()
        self._answers: dict[int, dict[str, Any]] = {}
        self._arrived = threading.Condition()
        self._count = 0
        self._gone = False
        self._started: dict[int, str] = {}
        """Of states that run: the line that says so, until it is told."""
        self._some_started = threading.Event()

    def listen(self) -> None:
        for work in (self._listen, self._tell_started):
            threading.Thread(target=work, daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            answer = json.loads(line)
            with self._arrived:
                self._answers[answer["answer"]] = answer
                self._arrived.notify_all()
        with self._arrived:
            self._gone = True
            self._arrived.notify_all()

    def _tell_started(self) -> None:
        while True:
            self._some_started.wait()
            self._some_started.clear()
            before = list(self._started)
            time.sleep(START_SECONDS)
            for state in before:
                with self._lock:
                    self._write(self._started.pop(state, ""))

    def say(self, kind: str, **more: Any) -> None:
        with self._lock:
            self._write(self._line(kind, more))

    def started(self, index: int, **more: Any) -> None:
        self._started[index] = self._line("start", more)
        self._some_started.set()

    def ended(self, index: int, **more: Any) -> None:
        line = self._line("state", more)
        if len(line) > MAX_VALUE:
            line = self._line("state", {key: _bounded(part) for key, part in more.items()})
        with self._lock:
            self._started.pop(index, None)
            self._write(line)

    def _line(self, kind: str, more: dict[str, Any]) -> str:
        return json.dumps({"kind": kind, "target": self.target, "run": self.run, **more}, default=str) + "\n"

    @staticmethod
    def _write(line: str) -> None:
        """Out of our hands at once: what a killed engine has said is not lost."""
        sys.stdout.write(line)
        sys.stdout.flush()

    def ask(self, what: str, **more: Any) -> Any:
        with self._arrived:
            self._count += 1
            number = self._count
        self.say("ask", ask=number, what=what, about=more)
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


class Lines:
    """What states print while they run, as far as whoever began the run wants to hear it: all of it is stored."""

    def __init__(self, agent: Agent, room: int) -> None:
        self.agent, self._room = agent, room

    def say(self, id: str, line: str) -> None:
        if self._room <= 0:
            return
        self._room -= len(line) + 1
        self.agent.say("log", id=id, line=line if self._room > 0 else "... what comes after this is left out")


class AgentSource:
    """Modules of the cluster's datastore, handed on by the agent; the signature decides, not the way they came."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    def names(self) -> Sequence[str]:
        """None of them by itself: each is asked for by name, when a state wants it."""
        return []

    def fetch(self, name: str) -> FetchedModule | None:
        found = self.agent.ask("module", name=name)
        if found is None:
            return None
        manifest = b64decode(found["manifest"]) if found["manifest"] else None
        return FetchedModule(b64decode(found["code"]), manifest, str(found["origin"]))


def work(job: dict[str, Any], folder: Path) -> int:
    agent = Agent(job["run"], job["name"])
    mask = Mask()
    agent.listen()
    try:
        mask.add(text for name in job["secrets"] for text in collect_secret_texts(job["variables"].get(name)))
        unpack_files(folder, job["files"])
        return _run(folder, job, mask, agent)
    except RunRefused as refused:
        agent.say("refused", errors=[mask.text(str(problem)) for problem in refused.problems])
        return REFUSED


def make_plan(folder: Path, job: dict[str, Any], catalogue: Catalogue, remote: OtherServers, node: Any) -> Plan:
    return build_plan(Tree(folder), job["sls"], job["variables"], node, catalogue, remote)


def _run(folder: Path, job: dict[str, Any], mask: Mask, agent: Agent) -> int:
    node = {**collect_facts(job["name"]), **job.get("node", {})}
    remote = OtherServers(agent, job["targets"])
    made = make_plan(folder, job, _catalogue(folder, job, agent), remote, node)
    mask.add(made.secrets)
    pace = OtherPace(agent, made.states)
    lines = Lines(agent, int(job.get("lines", 0)))

    def hear(kind: str, state: State, detail: Any) -> None:
        if kind == "end":
            record: Record = detail
            outputs = mask.value(record.outputs)
            agent.ended(state.index, state=record.as_json(mask), outputs=outputs, gate=pace.gate(record.state))
        elif kind == "start":
            agent.started(
                state.index, id=mask.text(state.id), name=mask.text(state.name), function=state.qualified_function
            )
        elif kind == "log":
            lines.say(mask.text(state.id), mask.text(str(detail)))

    change_to_home_directory()
    run = PlanExecution(made, job["mode"], bool(job["test"]), int(job["parallel"]), hear, mask, pace)
    agent.say("planned", states=len(made.states))
    report = run.execute()
    agent.say("report", summary=report.summary(), seconds=round(report.seconds, 6), failed=report.failed)
    return FAILED if report.failed else OK


def _catalogue(folder: Path, job: dict[str, Any], agent: Agent) -> Catalogue:
    try:
        return catalogue_of(folder, job, AgentSource(agent))
    except (ExtensionRefused, StateError) as refused:
        raise refuse(str(refused)) from refused


def catalogue_of(folder: Path, job: dict[str, Any], datastore: Source) -> Catalogue:
    """The tree's own modules, and those that its states turn out to name: of the datastore, then of web folders.

    A state is asked for its module only once it is rendered and read: what its text looks like says too little.
    """
    web = [UrlSource(base) for base in job.get("modules_from", ())]
    sources: tuple[Source, ...] = (FolderSource(folder / FOLDER), datastore, *web)
    loader = Loader(sources, Path(job["signers"]), VersionHistory(Path(job["seen"])))
    return Catalogue(loader.functions(), loader.fetch)


def _bounded(value: Any) -> Any:
    """What fits into an event: long texts lose their middle, for both ends are what people look at."""
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
