"""The run: takes the nodes of a plan in the order of its mode, judges each by its requisites, and calls it.

`ansible` takes one after another; `justdoit` and `genius` start whatever waits for nothing. What a node does is the
same in all of them.
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
"""How many states may be on their way at once where no `--parallel` says otherwise: a guard, not a tuning knob."""

Event = Callable[[str, State, Any], None]
"""Hears `start`, `log` (with the line) and `end` (with the record) of each state."""


class Gate(Protocol):
    """What holds a state back for the sake of other servers. Asked again until it says yes; may raise StateError."""

    def enter(self, state: State) -> bool:
        """Whether the state may run now."""

    def leave(self, state: State) -> bool:
        """Whether what comes after the state may run now."""


def _ignore_event(kind: str, state: State, detail: Any) -> None:
    """Nobody listens."""


class _Task:
    __slots__ = ("finished", "steps")

    def __init__(self, steps: Generator[Request, Any, None], finished: Callable[[], None]) -> None:
        self.steps = steps
        self.finished = finished


class PlanExecution:
    """One run of a plan. Call `go` once."""

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
        self._limit = parallel or PROCESS_LIMIT
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
        self._once: Dict[str, Any] = {}
        self._clock = time.time() - time.monotonic()
        self._sequence = 0
        self._running = 0
        self._stopped = False
        self._alone = self._sequential

    def go(self) -> Report:
        """Run everything, and say what came of it."""
        started = time.monotonic()
        try:
            with self._loop.interruptible():
                if self._sequential:
                    self._one_after_another()
                else:
                    self._all_at_once()
                self._listeners()
        finally:
            self._loop.close()
        self.report.records.sort(key=lambda record: record.sequence)
        self.report.not_run = [state for state in self._plan.states if self._records[state.index] is None]
        self.report.seconds = time.monotonic() - started
        return self.report

    # Modes

    def _one_after_another(self) -> None:
        """In sequence; a state that says `parallel` is started and left to itself until something needs it."""
        unfinished = [True] * len(self._graph)
        waiting: List[int] = []

        def ready(node: int) -> bool:
            return not any(unfinished[source] for source in self._graph.into(node))

        def start(node: int) -> None:
            def finished() -> None:
                unfinished[node] = False

            self._start(self._node(node), finished)

        for node in self._plan.sequence:
            waiting = self._start_ready(waiting, ready, start)
            if self._stopped:
                break
            if self._plan.states[self._graph.owner[node]].options.get("parallel"):
                if ready(node):
                    start(node)
                else:
                    waiting.append(node)
                continue
            while not ready(node):
                self._loop.step()
                waiting = self._start_ready(waiting, ready, start)
            start(node)
            while unfinished[node]:
                self._loop.step()
        while self._running or (waiting and not self._stopped):
            waiting = self._start_ready(waiting, ready, start)
            if self._running:
                self._loop.step()

    def _start_ready(self, waiting: List[int], ready: Callable[[int], bool], start: Callable[[int], None]) -> List[int]:
        still = []
        for node in waiting:
            if not self._stopped and self._running < self._limit and ready(node):
                start(node)
            else:
                still.append(node)
        return still

    def _all_at_once(self) -> None:
        """Whatever waits for nothing is started; what finishes sets others free."""
        schedule = self.schedule
        waiting = schedule.waiting()
        ready: Deque[int] = deque(unit for unit in range(len(schedule.units)) if not waiting[unit])

        def start(unit: int) -> None:
            def finished() -> None:
                for following in schedule.after(unit):
                    waiting[following] -= 1
                    if not waiting[following]:
                        ready.append(following)

            nodes = schedule.units[unit]
            if len(nodes) == 1 and nodes[0] not in schedule.batched:
                self._start(self._node(nodes[0]), finished)
            else:
                from .batches import run_unit

                self._start(run_unit(self, nodes), finished)

        while (ready and not self._stopped) or self._running:
            while ready and not self._stopped and self._running < self._limit:
                start(ready.popleft())
            if self._running:
                self._loop.step()

    # Tasks

    def _start(self, steps: Generator[Request, Any, None], finished: Callable[[], None]) -> None:
        self._running += 1
        self._advance(_Task(steps, finished), None, None)

    def _advance(self, task: _Task, value: Any, error: Optional[BaseException]) -> None:
        """Carry a task on until it ends or has to wait."""
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
                self._loop.later(request.seconds, lambda: self._advance(task, None, None))
                return
            if not self._blocks(request):
                try:
                    value = request.call()
                except Exception as raised:  # noqa: BLE001 - handed to the state that asked for the call
                    error = raised
                continue
            self._loop.in_thread(request.call, lambda result, raised: self._advance(task, result, raised))
            return

    def _blocks(self, request: BlockingCall) -> bool:
        """A thread is worth its price only if something else can go on meanwhile."""
        return not (self._alone and self._running == 1)

    # Nodes

    def _node(self, node: int) -> Generator[Request, Any, None]:
        state = self._plan.states[self._graph.owner[node]]
        if self._graph.is_look(node):
            yield from self._look(node, state)
            return
        if self._records[state.index] is not None:
            return
        verdict = self.judge(node)
        sequence, started = self.begin(state)
        if verdict is Decision.RUN or verdict is Decision.REACT:
            record = yield from self._through_the_gate(node, state, verdict)
            self.finish(node, state, record, sequence, started)
        else:
            self.finish(node, state, self.kept_back(node, state, verdict), sequence, started, ran=False)

    def _through_the_gate(self, node: int, state: State, verdict: Decision) -> Generator[Request, Any, Record]:
        """Call it; if it goes by other servers' pace, when they let it, and go on when they have it too."""
        gate = self._gate if state.options.get("sync") or state.options.get("serialize") else None
        if gate is not None:
            try:
                while not (yield BlockingCall(lambda: gate.enter(state))):
                    yield Sleep(POLL_SECONDS)
            except StateError as error:
                return Record(state, StateOutcome.FAILED, False, str(error))
        record = yield from self._caller.call(state, self._test)
        record = yield from self.reacted(node, state, verdict, record)
        if gate is not None:
            try:
                while not (yield BlockingCall(lambda: gate.leave(state))):
                    yield Sleep(POLL_SECONDS)
            except StateError as error:
                return Record(state, StateOutcome.FAILED, False, f"{record.comment}; {error}")
        return record

    def reacted(self, node: int, state: State, verdict: Decision, record: Record) -> Generator[Request, Any, Record]:
        """The record after `watch` had its say: it reacts where the state itself changed nothing."""
        if verdict is Decision.REACT and not record.changes and not record.unanswered:
            return (yield from self._caller.react(state, self._test, self._changed(node)))
        return record

    def _look(self, node: int, state: State) -> Generator[Request, Any, None]:
        """Would it change? If its own requisites keep it from running, that is settled here already."""
        verdict = self.judge(node)
        if verdict is Decision.RUN or verdict is Decision.REACT:
            record = yield from self._caller.call(state, True, retried=False)
            self._looks[state.index] = record
            self._endings[node] = record.ending()
            return
        sequence, started = self.begin(state)
        record = self.kept_back(node, state, verdict)
        self.finish(state.index, state, record, sequence, started, ran=False)
        self._endings[node] = self._endings[state.index]

    def judge(self, node: int) -> Decision:
        sources = self._graph.into(node)
        if not sources:
            return Decision.RUN
        targets: Dict[str, List[Ending]] = {}
        for source, kinds in sources.items():
            ending = self._endings[source]
            if ending is not None:
                for kind in kinds:
                    targets.setdefault(kind, []).append(ending)
        return decide(targets)

    def kept_back(self, node: int, state: State, verdict: Decision) -> Record:
        """The record of a state that its requisites keep from running."""
        if verdict is not Decision.BLOCKED:
            return Record(state, StateOutcome.SKIPPED, True, verdict.value)
        look = self._looks.get(state.index)
        if look is not None:
            # What it would have changed is known, but whoever had to go before it failed.
            record = Record(state, StateOutcome.BLOCKED, look.result, look.comment)
            record.outputs = look.outputs
            return record
        failed = []
        for source in self._graph.into(node):
            ending = self._endings[source]
            if ending is not None and ending.result is False:
                target = self._plan.states[self._graph.owner[source]]
                failed.append(f"{target.sls}.{target.id}")
        return Record(state, StateOutcome.BLOCKED, False, f"{verdict.value}: {', '.join(dict.fromkeys(failed))}")

    def _changed(self, node: int) -> Tuple[str, ...]:
        changed = []
        for source, kinds in self._graph.into(node).items():
            ending = self._endings[source]
            if "watch" in kinds and ending is not None and ending.changed:
                target = self._plan.states[self._graph.owner[source]]
                changed.append(f"{target.module}: {target.id}")
        return tuple(changed)

    def begin(self, state: State) -> Tuple[int, float]:
        self._sequence += 1
        self._event("start", state, None)
        return self._sequence, time.monotonic()

    def finish(self, node: int, state: State, record: Record, sequence: int, started: float, ran: bool = True) -> None:
        record.sequence = sequence
        record.start = self._clock + started
        record.end = self._clock + time.monotonic()
        self._records[state.index] = record
        self._endings[node] = record.ending(ran)
        self._add(state, record)

    def _add(self, state: State, record: Record) -> None:
        self.report.records.append(record)
        self._event("end", state, record)
        if record.result is False and not self._test and state.options.get("failhard"):
            self._stopped = True

    # What the rest of the engine may use of a run

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

        return Context(dry, plan.tree.root, plan.variables, self._once, self._lock, log, changed, plan.node)

    def context(self, state: State) -> Context:
        return self._context(state, self._test, ())

    # Listeners

    def _listeners(self) -> None:
        """At the end, each listener reacts once, however many of those it listens to have changed."""
        due: List[int] = []
        for listener in self._plan.listeners:
            record = self._records[listener.target]
            if record is not None and record.changes and listener.watcher not in due:
                due.append(listener.watcher)
        self._stopped = False
        self._alone = True
        answered: Dict[Tuple[Any, ...], Record] = {}
        for watcher in due:
            if self._stopped:
                break
            self._start(self._listener(self._plan.states[watcher], answered), lambda: None)
            while self._running:
                self._loop.step()

    def _listener(self, state: State, answered: Dict[Tuple[Any, ...], Record]) -> Generator[Request, Any, None]:
        sequence, started = self.begin(state)
        joins = self.report.mode == "genius" and state.module == "service"
        resources = self._plan.resources.get(state.index, ()) if joins else ()
        known = answered.get((state.module, *resources)) if resources else None
        if known is None:
            record = yield from self._caller.react(state, self._test, ())
            answered[(state.module, *resources)] = record
        else:
            record = copy_record(state, known)
        record.id = f"listener_{state.id}"
        record.function = f"{state.module}.mod_watch"
        record.sequence = sequence
        record.start, record.end = self._clock + started, self._clock + time.monotonic()
        self._add(state, record)


def copy_record(state: State, known: Record) -> Record:
    """The record of a state for which another has just done the same."""
    record = Record(state, known.outcome, known.result, f"{known.comment} (once, together with {known.id})")
    record.changes, record.outputs = known.changes, known.outputs
    return record


def change_to_home_directory() -> None:
    """Commands without a directory of their own start in the home of the user, as people expect of Salt."""
    with contextlib.suppress(OSError):
        os.chdir(os.path.expanduser("~"))
