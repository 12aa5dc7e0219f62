"""A view of a run, built from its events: what targets ask about each other, and the lines that people follow."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from rackwright.mesh.bounded_json import read_object
from rackwright.mesh.errors import MeshError, Unreadable
from rackwright.mesh.runs.event_batches import EventLine
from rackwright.mesh.runs.run_model import FINAL, Task, gate_prefix, read_task, run_events
from rackwright.mesh.runs.run_store import RunStore
from rackwright.states.module import StateError
from rackwright.states.outputs import pick_output


class RunView:
    """The tasks, ended states, gates and slots of a run, kept up to date from its events."""

    def __init__(self, store: RunStore, run: str, since: float) -> None:
        """`since`: when the run began; events that were signed earlier are not of this run."""
        self.store, self.run, self.since = store, run, since
        self.tasks: dict[str, Task] = {}
        self.ended: dict[str, dict[str, dict[str, Any]]] = {}
        """target -> state ID -> the last event that reports its end"""
        self.passed: dict[str, set[str]] = {}
        """gate -> the targets that have passed it"""
        self.slots: dict[str, set[str]] = {}
        self._caught_up = asyncio.Event()
        self._following: asyncio.Task[None] | None = None

    async def ready(self) -> "RunView":
        """Follow the run from now on, and wait until its events up to now are read."""
        if self._following is None:
            self._following = asyncio.create_task(self._follow())
        await self._caught_up.wait()
        return self

    async def close(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    async def _follow(self) -> None:
        cursor = ""
        while True:
            with contextlib.suppress(MeshError):
                async for batch in self.store.read(run_events(self.run), cursor, self.since):
                    for event in batch:
                        cursor = event.cursor
                        # What the target has signed may still be nonsense; the view goes on without that event.
                        with contextlib.suppress(Unreadable):
                            self._apply(event.key, event.line, event.deleted)
                    if not batch:
                        self._caught_up.set()
            await asyncio.sleep(0.5)

    def _apply(self, key: str, value: bytes, deleted: bool) -> None:
        kind, _, path = key.removeprefix(run_events(self.run)).partition("/")
        if kind == "gate":
            self._apply_gate(path, value, deleted)
        elif deleted:
            return
        elif kind == "task":
            task = read_task(value)
            self.tasks[task.target] = task
        elif kind == "state":
            self._apply_state(path.partition("/")[0], read_object(value, "an event"))

    def _apply_gate(self, path: str, value: bytes, deleted: bool) -> None:
        gate, _, entry = path.partition("/")
        if entry.startswith("slot/"):
            taken = self.slots.setdefault(gate, set())
            (taken.discard if deleted else taken.add)(entry)
        elif not deleted and entry.startswith("done/"):
            self.passed.setdefault(gate, set()).add(entry.removeprefix("done/"))

    def _apply_state(self, target: str, event: dict[str, Any]) -> None:
        if event.get("kind") != "state":
            return
        state, gate = event.get("state"), event.get("gate")
        if not isinstance(state, dict) or not isinstance(event.get("outputs"), dict):
            raise Unreadable(f"a state of {target} cannot be read")
        if not isinstance(state.get("id"), str) or not isinstance(state.get("changes"), dict):
            raise Unreadable(f"a state of {target} cannot be read")
        self.ended.setdefault(target, {})[state["id"]] = event
        if isinstance(gate, str):
            # Also a state that was skipped or blocked: no target needs to wait for it any more.
            self.passed.setdefault(gate, set()).add(target)

    # What targets ask

    def all_passed(self, gate: str, own_name: str) -> bool:
        """Return whether every other target has passed this gate, or will never come to it."""
        passed = self.passed.get(gate, set())
        return all(task.state in FINAL or target in passed for target, task in self.tasks.items() if target != own_name)

    def free_slots(self, gate: str, limit: int) -> list[str]:
        taken = self.slots.get(gate, set())
        keys = [f"slot/{number:04d}" for number in range(limit)]
        return [f"{gate_prefix(self.run, gate)}{key}" for key in keys if key not in taken]

    def output_is_ready(self, node: str, reference: str) -> bool:
        task = self.tasks.get(node)
        return self._find_ended(node, reference) is not None or task is None or task.state in FINAL

    def output(self, node: str, reference: str) -> Any:
        ended = self._find_ended(node, reference)
        if ended is None:
            task = self.tasks.get(node)
            raise StateError(f"{node} did not come to {reference}: it is {task.state.value if task else 'no target'}")
        event, path = ended
        state = event["state"]
        if state.get("result") is False:
            raise StateError(f"{state['id']!r} failed on {node}, so it has no output to use")
        fields = {**state["changes"], **event["outputs"], **state}
        return pick_output(fields, path, f"{state.get('function')} {state['id']!r} of {node}")

    def _find_ended(self, node: str, reference: str) -> tuple[dict[str, Any], tuple[str, ...]] | None:
        ended = self.ended.get(node, {})
        cut = reference.rfind(".")
        while cut > 0:
            if reference[:cut] in ended:
                return ended[reference[:cut]], tuple(reference[cut + 1 :].split("."))
            cut = reference.rfind(".", 0, cut)
        return None


async def follow_run(store: RunStore, run: str, targets: set[str], cursor: str = "") -> AsyncIterator[bytes]:
    """Yield the events of a run with their cursors, as lines for the control socket, until all its targets have ended.

    `STILL_HERE` is yielded now and then in between.
    """
    ended: set[str] = set()
    async for batch in store.read(run_events(run), cursor):
        lines = []
        for event in batch:
            kind = event.key.removeprefix(run_events(run)).partition("/")[0]
            if event.deleted or kind not in ("task", "state"):
                continue
            cursor = event.cursor
            lines.append(response_line(event))
            if kind == "task" and (task := read_task(event.line)).state in FINAL:
                ended.add(task.target)
        if lines:
            yield b"".join(lines)
        if ended >= targets:
            return
        if not batch:
            yield STILL_HERE


STILL_HERE = b'{"ok": true, "event": {"kind": "still_here"}}\n'


def response_line(event: EventLine) -> bytes:
    """Return an event with its cursor as a line for the control socket."""
    return b'{"ok": true, "cursor": %s, "event": %s}\n' % (json.dumps(event.cursor).encode(), event.line)
