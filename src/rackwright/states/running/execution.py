"""Executes a plan: takes the vertices of its graph in the order of the mode, decides by requisites, and calls states.

`ansible` takes one vertex after another; `justdoit` and `genius` start every vertex that waits for nothing. What is
done for a vertex is the same in all modes.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, Generator, List, Optional, Protocol, Tuple

from ..combine import State
from ..module import Command, Context, StateError
from ..plan import Plan
from .call import POLL_SECONDS, BlockingCall, Request, Sleep, StateCaller
from .decision import Decision, Ending, decide
from .loop import EventLoop
from .record import Mask, Record, Report, StateOutcome
from .schedule import Schedule

MODES = ("ansible", "justdoit", "genius")
PROCESS_LIMIT = 256
"""How many states may run at once unless `--parallel` says otherwise: a safety limit, not a setting to tune."""

Event = Callable[[str, State, Any], None]
"""Called with `start`, `log` (with the line) and `end` (with the record) of each state."""


class Gate(Protocol):
    """What makes a state wait for other servers. A method is called until it returns True; it may raise StateError."""

    def enter(self, state: State) -> bool:
        """Return whether the state may run now."""

    def leave(self, state: State) -> bool:
        """Return whether the states after this one may run now."""


def _ignore_event(kind: str, state: State, detail: Any) -> None:
    """Do nothing with an event."""


class _Task:
    """The steps of one unit, and what to call when they have ended."""

    __slots__ = ("finished", "steps")

    def __init__(self, steps: Generator[Request, Any, None], finished: Callable[[], None]) -> None:
        self.steps = steps
        self.finished = finished


class PlanExecution:
    """One execution of a plan. Call `execute` once."""

    def __init__(
        self,
        plan: Plan,
        mode: str = "ansible",
        test: bool = False,
        parallel: int = 0,
        event: Event = _ignore_event,
        mask: Optional[Mask] = None,
        gate: Optional[Gate] = None,
    ) -> None:
        self._plan = plan
        self._graph = plan.graph
        self._test = test
        self._parallel_limit = parallel or PROCESS_LIMIT
        self._event = event
        self._gate = gate
        self._sequential = mode == "ansible"
        self.report = Report(mode, test, mask or Mask())
        self.report.mask.add(plan.secrets)
        self.schedule = Schedule(plan, mode)
        self._records: List[Optional[Record]] = [None] * len(plan.states)
        self._endings: List[Optional[Ending]] = [None] * len(plan.graph)
        self._looks: Dict[int, Record] = {}
        self._caller = StateCaller(plan, self._records, self._context, self.report.mask)
        self._loop = EventLoop()
        self._lock = threading.RLock()
        self._shared_facts: Dict[str, Any] = {}
        self._clock_offset = time.time() - time.monotonic()
        self._sequence = 0
        self._running = 0
        self._stopped = False
        self._single_task = self._sequential

    def execute(self) -> Report:
        """Run all states and listeners, and return the report."""
        started = time.monotonic()
        try:
            with self._loop.interruptible():
                if self._sequential:
                    self._execute_in_sequence()
                else:
                    self._execute_concurrently()
                self._execute_listeners()
        finally:
            self._loop.close()
        self.report.records.sort(key=lambda record: record.sequence)
        self.report.not_run = [state for state in self._plan.states if self._records[state.index] is None]
        self.report.seconds = time.monotonic() - started
        return self.report

    # Modes

    def _execute_in_sequence(self) -> None:
        """Run the vertices in sequence.

        A state that says `parallel` is started and not waited for until another state needs it.
        """
        unfinished = [True] * len(self._graph)
        delayed: List[int] = []

        def is_ready(vertex: int) -> bool:
            return not any(unfinished[source] for source in self._graph.incoming(vertex))

        def start(vertex: int) -> None:
            def finished() -> None:
                unfinished[vertex] = False

            self._start(self._execute_vertex(vertex), finished)

        for vertex in self._plan.sequence:
            delayed = self._start_ready(delayed, is_ready, start)
            if self._stopped:
                break
            if self._plan.states[self._graph.owner[vertex]].options.get("parallel"):
                if is_ready(vertex):
                    start(vertex)
                else:
                    delayed.append(vertex)
                continue
            while not is_ready(vertex):
                self._loop.step()
                delayed = self._start_ready(delayed, is_ready, start)
            start(vertex)
            while unfinished[vertex]:
                self._loop.step()
        while self._running or (delayed and not self._stopped):
            delayed = self._start_ready(delayed, is_ready, start)
            if self._running:
                self._loop.step()

    def _start_ready(
        self, delayed: List[int], is_ready: Callable[[int], bool], start: Callable[[int], None]
    ) -> List[int]:
        still_delayed = []
        for vertex in delayed:
            if not self._stopped and self._running < self._parallel_limit and is_ready(vertex):
                start(vertex)
            else:
                still_delayed.append(vertex)
        return still_delayed

    def _execute_concurrently(self) -> None:
        """Start every unit that waits for nothing; the end of a unit frees those that waited for it."""
        schedule = self.schedule
        waiting = schedule.waiting_counts()
        ready: Deque[int] = deque(unit for unit in range(len(schedule.units)) if not waiting[unit])

        def start(unit: int) -> None:
            def finished() -> None:
                for following in schedule.successors(unit):
                    waiting[following] -= 1
                    if not waiting[following]:
                        ready.append(following)

            vertices = schedule.units[unit]
            if len(vertices) == 1 and vertices[0] not in schedule.batched:
                self._start(self._execute_vertex(vertices[0]), finished)
            else:
                from .batches import run_unit

                self._start(run_unit(self, vertices), finished)

        while (ready and not self._stopped) or self._running:
            while ready and not self._stopped and self._running < self._parallel_limit:
                start(ready.popleft())
            if self._running:
                self._loop.step()

    # Tasks

    def _start(self, steps: Generator[Request, Any, None], finished: Callable[[], None]) -> None:
        self._running += 1
        self._advance(_Task(steps, finished), None, None)

    def _advance(self, task: _Task, value: Any, error: Optional[BaseException]) -> None:
        """Continue a task until it ends or has to wait."""
        while True:
            try:
                request = task.steps.send(value) if error is None else task.steps.throw(error)
            except StopIteration:
                self._running -= 1
                task.finished()
                return
            value, error = None, None
            if isinstance(request, Command):
                self._loop.spawn(request, lambda finished: self._advance(task, finished, None))
                return
            if isinstance(request, Sleep):
                self._loop.call_later(request.seconds, lambda: self._advance(task, None, None))
                return
            if not self._needs_thread(request):
                try:
                    value = request.call()
                except Exception as raised:  # noqa: BLE001 - handed to the state that asked for the call
                    error = raised
                continue
            self._loop.call_in_thread(request.call, lambda result, raised: self._advance(task, result, raised))
            return

    def _needs_thread(self, request: BlockingCall) -> bool:
        """Return whether a blocking call gets a thread: only if another task can go on meanwhile."""
        return not (self._single_task and self._running == 1)

    # Vertices

    def _execute_vertex(self, vertex: int) -> Generator[Request, Any, None]:
        state = self._plan.states[self._graph.owner[vertex]]
        if self._graph.is_look(vertex):
            yield from self._execute_look(vertex, state)
            return
        if self._records[state.index] is not None:
            return
        decision = self.decide(vertex)
        sequence, started = self.begin(state)
        if decision is Decision.RUN or decision is Decision.REACT:
            record = yield from self._call_through_gate(vertex, state, decision)
            self.finish(vertex, state, record, sequence, started)
        else:
            self.finish(vertex, state, self.record_of_held_back(vertex, state, decision), sequence, started, ran=False)

    def _call_through_gate(self, vertex: int, state: State, decision: Decision) -> Generator[Request, Any, Record]:
        """Call a state and return its record.

        A state with `sync` or `serialize` is called when the gate lets it in, and ends when the gate lets it out.
        """
        gate = self._gate if state.options.get("sync") or state.options.get("serialize") else None
        if gate is not None:
            try:
                while not (yield BlockingCall(lambda: gate.enter(state))):
                    yield Sleep(POLL_SECONDS)
            except StateError as error:
                return Record(state, StateOutcome.FAILED, False, str(error))
        record = yield from self._caller.call(state, self._test)
        record = yield from self.react_if_watching(vertex, state, decision, record)
        if gate is not None:
            try:
                while not (yield BlockingCall(lambda: gate.leave(state))):
                    yield Sleep(POLL_SECONDS)
            except StateError as error:
                return Record(state, StateOutcome.FAILED, False, f"{record.comment}; {error}")
        return record

    def react_if_watching(
        self, vertex: int, state: State, decision: Decision, record: Record
    ) -> Generator[Request, Any, Record]:
        """Return the record of the reaction to a watched change; `record` itself if the state changed something."""
        if decision is Decision.REACT and not record.changes and not record.skipped_by_condition:
            return (yield from self._caller.react(state, self._test, self._changed_targets(vertex)))
        return record

    def _execute_look(self, vertex: int, state: State) -> Generator[Request, Any, None]:
        """Check, as a dry run, whether a state would change.

        If its own requisites keep the state from running, its record is already made here.
        """
        decision = self.decide(vertex)
        if decision is Decision.RUN or decision is Decision.REACT:
            record = yield from self._caller.call(state, True, retried=False)
            self._looks[state.index] = record
            self._endings[vertex] = record.ending()
            return
        sequence, started = self.begin(state)
        record = self.record_of_held_back(vertex, state, decision)
        self.finish(state.index, state, record, sequence, started, ran=False)
        self._endings[vertex] = self._endings[state.index]

    def decide(self, vertex: int) -> Decision:
        """Return whether a vertex may run, by how the vertices that it waits for ended."""
        sources = self._graph.incoming(vertex)
        if not sources:
            return Decision.RUN
        targets: Dict[str, List[Ending]] = {}
        for source, kinds in sources.items():
            ending = self._endings[source]
            if ending is not None:
                for kind in kinds:
                    targets.setdefault(kind, []).append(ending)
        return decide(targets)

    def record_of_held_back(self, vertex: int, state: State, decision: Decision) -> Record:
        """Return the record of a state that its requisites keep from running."""
        if decision is not Decision.BLOCKED:
            return Record(state, StateOutcome.SKIPPED, True, decision.value)
        look = self._looks.get(state.index)
        if look is not None:
            # What it would have changed is known, but a state that had to run before it failed.
            record = Record(state, StateOutcome.BLOCKED, look.result, look.comment)
            record.outputs = look.outputs
            return record
        failed = []
        for source in self._graph.incoming(vertex):
            ending = self._endings[source]
            if ending is not None and ending.result is False:
                target = self._plan.states[self._graph.owner[source]]
                failed.append(f"{target.sls}.{target.id}")
        return Record(state, StateOutcome.BLOCKED, False, f"{decision.value}: {', '.join(dict.fromkeys(failed))}")

    def _changed_targets(self, vertex: int) -> Tuple[str, ...]:
        changed = []
        for source, kinds in self._graph.incoming(vertex).items():
            ending = self._endings[source]
            if "watch" in kinds and ending is not None and ending.changed:
                target = self._plan.states[self._graph.owner[source]]
                changed.append(f"{target.module}: {target.id}")
        return tuple(changed)

    def begin(self, state: State) -> Tuple[int, float]:
        self._sequence += 1
        self._event("start", state, None)
        return self._sequence, time.monotonic()

    def finish(
        self, vertex: int, state: State, record: Record, sequence: int, started: float, ran: bool = True
    ) -> None:
        record.sequence = sequence
        record.start = self._clock_offset + started
        record.end = self._clock_offset + time.monotonic()
        self._records[state.index] = record
        self._endings[vertex] = record.ending(ran)
        self._add(state, record)

    def _add(self, state: State, record: Record) -> None:
        self.report.records.append(record)
        self._event("end", state, record)
        if record.result is False and not self._test and state.options.get("failhard"):
            self._stopped = True

    # What other modules of the engine use of an execution

    @property
    def plan(self) -> Plan:
        return self._plan

    @property
    def caller(self) -> StateCaller:
        return self._caller

    @property
    def test(self) -> bool:
        return self._test

    def _context(self, state: State, dry: bool, changed: Tuple[str, ...]) -> Context:
        plan = self._plan
        event = self._event

        def log(line: str) -> None:
            event("log", state, line)

        return Context(dry, plan.tree.root, plan.variables, self._shared_facts, self._lock, log, changed, plan.node)

    def context(self, state: State) -> Context:
        return self._context(state, self._test, ())

    # Listeners

    def _execute_listeners(self) -> None:
        """Let each listener react once at the end, however many of its targets have changed."""
        due_watchers: List[int] = []
        for listener in self._plan.listeners:
            record = self._records[listener.target]
            if record is not None and record.changes and listener.watcher not in due_watchers:
                due_watchers.append(listener.watcher)
        self._stopped = False
        self._single_task = True
        reactions: Dict[Tuple[Any, ...], Record] = {}
        for watcher in due_watchers:
            if self._stopped:
                break
            self._start(self._execute_listener(self._plan.states[watcher], reactions), lambda: None)
            while self._running:
                self._loop.step()

    def _execute_listener(
        self, state: State, reactions: Dict[Tuple[Any, ...], Record]
    ) -> Generator[Request, Any, None]:
        sequence, started = self.begin(state)
        is_shared = self.report.mode == "genius" and state.module == "service"
        resources = self._plan.resources.get(state.index, ()) if is_shared else ()
        earlier = reactions.get((state.module, *resources)) if resources else None
        if earlier is None:
            record = yield from self._caller.react(state, self._test, ())
            reactions[(state.module, *resources)] = record
        else:
            record = copy_record(state, earlier)
        record.id = f"listener_{state.id}"
        record.function = f"{state.module}.mod_watch"
        record.sequence = sequence
        record.start, record.end = self._clock_offset + started, self._clock_offset + time.monotonic()
        self._add(state, record)


def copy_record(state: State, original: Record) -> Record:
    """Return the record of a state for which another state has just done the same."""
    record = Record(state, original.outcome, original.result, f"{original.comment} (once, together with {original.id})")
    record.changes, record.outputs = original.changes, original.outputs
    return record


def change_to_home_directory() -> None:
    """Change to the home directory of the user: commands without a directory of their own start there, as in Salt."""
    with contextlib.suppress(OSError):
        os.chdir(os.path.expanduser("~"))
