"""One run as it goes on, kept up to date from its events: what targets ask about each other, and what people watch."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from rackwright.mesh.bounded_json import read_object
from rackwright.mesh.errors import MeshError, Unreadable
from rackwright.mesh.runs.event_batches import Told
from rackwright.mesh.runs.run_model import FINAL, Task, gate_prefix, read_task, run_events
from rackwright.mesh.runs.run_store import RunStore
from rackwright.states.module import StateError
from rackwright.states.outputs import pick_output


class RunView:
    def __init__(self, store: RunStore, run: str, since: float) -> None:
        """`since`: when the run began; what was signed earlier is not of this run."""
        self.store, self.run, self.since = store, run, since
        self.tasks: dict[str, Task] = {}
        self.ended: dict[str, dict[str, dict[str, Any]]] = {}
        """target -> state ID -> its last end event"""
        self.passed: dict[str, set[str]] = {}
        """gate -> the targets that have that state behind them"""
        self.slots: dict[str, set[str]] = {}
        self.known = asyncio.Event()
        self._following: asyncio.Task[None] | None = None

    async def ready(self) -> "RunView":
        """Follow the run from now on, and wait until what has happened is known."""
        if self._following is None:
            self._following = asyncio.create_task(self._follow())
        await self.known.wait()
        return self

    async def close(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    async def _follow(self) -> None:
        cursor = ""
        while True:
            with contextlib.suppress(MeshError):
                async for news in self.store.read(run_events(self.run), cursor, self.since):
                    for told in news:
                        cursor = told.cursor
                        # What its own server has signed may still be nonsense; that is not worth the whole view.
                        with contextlib.suppress(Unreadable):
                            self._take(told.key, told.line, told.deleted)
                    if not news:
                        self.known.set()
            await asyncio.sleep(0.5)

    def _take(self, key: str, value: bytes, deleted: bool) -> None:
        kind, _, rest = key.removeprefix(run_events(self.run)).partition("/")
        if kind == "gate":
            self._gate(rest, value, deleted)
        elif deleted:
            return
        elif kind == "task":
            task = read_task(value)
            self.tasks[task.target] = task
        elif kind == "state":
            self._state(rest.partition("/")[0], read_object(value, "an event"))

    def _gate(self, rest: str, value: bytes, deleted: bool) -> None:
        gate, _, place = rest.partition("/")
        if place.startswith("slot/"):
            held = self.slots.setdefault(gate, set())
            (held.discard if deleted else held.add)(place)
        elif not deleted and place.startswith("done/"):
            self.passed.setdefault(gate, set()).add(place.removeprefix("done/"))

    def _state(self, target: str, event: dict[str, Any]) -> None:
        if event.get("kind") != "state":
            return
        state, gate = event.get("state"), event.get("gate")
        if not isinstance(state, dict) or not isinstance(event.get("outputs"), dict):
            raise Unreadable(f"a state of {target} cannot be read")
        if not isinstance(state.get("id"), str) or not isinstance(state.get("changes"), dict):
            raise Unreadable(f"a state of {target} cannot be read")
        self.ended.setdefault(target, {})[state["id"]] = event
        if isinstance(gate, str):
            # Also one that was skipped or blocked: nobody needs to wait for it any more.
            self.passed.setdefault(gate, set()).add(target)

    # What targets ask

    def all_passed(self, gate: str, me: str) -> bool:
        """Whether every other target has this state behind it, or will never come to it."""
        passed = self.passed.get(gate, set())
        return all(task.state in FINAL or target in passed for target, task in self.tasks.items() if target != me)

    def free_slots(self, gate: str, limit: int) -> list[str]:
        held = self.slots.get(gate, set())
        keys = [f"slot/{number:04d}" for number in range(limit)]
        return [f"{gate_prefix(self.run, gate)}{key}" for key in keys if key not in held]

    def output_is_ready(self, node: str, reference: str) -> bool:
        task = self.tasks.get(node)
        return self._find(node, reference) is not None or task is None or task.state in FINAL

    def output(self, node: str, reference: str) -> Any:
        found = self._find(node, reference)
        if found is None:
            task = self.tasks.get(node)
            raise StateError(f"{node} did not come to {reference}: it is {task.state.value if task else 'no target'}")
        event, path = found
        state = event["state"]
        if state.get("result") is False:
            raise StateError(f"{state['id']!r} failed on {node}, so it has no output to use")
        fields = {**state["changes"], **event["outputs"], **state}
        return pick_output(fields, path, f"{state.get('function')} {state['id']!r} of {node}")

    def _find(self, node: str, reference: str) -> tuple[dict[str, Any], tuple[str, ...]] | None:
        ended = self.ended.get(node, {})
        cut = reference.rfind(".")
        while cut > 0:
            if reference[:cut] in ended:
                return ended[reference[:cut]], tuple(reference[cut + 1 :].split("."))
            cut = reference.rfind(".", 0, cut)
        return None


async def follow(store: RunStore, run: str, targets: set[str], cursor: str = "") -> AsyncIterator[bytes]:
    """Every event of a run with its cursor, as lines for who asked, until all its targets have ended; a sign of life in
    between.
    """
    ended: set[str] = set()
    async for news in store.read(run_events(run), cursor):
        lines = []
        for told in news:
            kind = told.key.removeprefix(run_events(run)).partition("/")[0]
            if told.deleted or kind not in ("task", "state"):
                continue
            cursor = told.cursor
            lines.append(answer_line(told))
            if kind == "task" and (task := read_task(told.line)).state in FINAL:
                ended.add(task.target)
        if lines:
            yield b"".join(lines)
        if ended >= targets:
            return
        if not news:
            yield STILL_HERE


STILL_HERE = b'{"ok": true, "event": {"kind": "still_here"}}\n'


def answer_line(told: Told) -> bytes:
    """An event with its cursor, as the control socket hands it on."""
    return b'{"ok": true, "cursor": %s, "event": %s}\n' % (json.dumps(told.cursor).encode(), told.line)
