"""The execution of a task: starts its engine in a child process, publishes its events and answers its questions.

Everything is written under the condition that the task is still this server's. Once it is not, because the others have
declared this server lost, the engine is killed and nothing more is published.
"""

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from rackwright.mesh.bounded_json import read_object
from rackwright.mesh.datastore.etcd_client import Item, delete_op, put_op, unchanged
from rackwright.mesh.errors import Fenced, MeshError, NoDatastore, Unreadable
from rackwright.mesh.log import Log
from rackwright.mesh.runs import event_batches
from rackwright.mesh.runs.engine_pool import Engine, EnginePool
from rackwright.mesh.runs.run_model import CLOCK_SECONDS, MODULES, RunRequest, Task, TaskState, gate_prefix, state_key
from rackwright.mesh.runs.run_store import RunStore
from rackwright.mesh.runs.run_view import RunView
from rackwright.states.module import StateError

FLUSH_SECONDS = 0.1
KEEP_SECONDS = 3.0
_STATE = b'{"kind": "state"'
ENDED = {0: TaskState.DONE, 1: TaskState.FAILED, 2: TaskState.REFUSED}


class RunExecution:
    """A task while it runs. `claimed` is the stored task as this server claimed it, `lease` the lease of the claim."""

    def __init__(
        self,
        name: str,
        engines: EnginePool,
        log: Log,
        store: RunStore,
        request: RunRequest,
        task: Task,
        claimed: Item,
        lease: int,
        job: dict[str, Any],
    ) -> None:
        self._name, self._engines, self._log, self.store = name, engines, log, store
        self.request, self.task, self.claimed = request, task, claimed
        self.lease, self.job = lease, job
        self.view = RunView(store, request.id, request.created - CLOCK_SECONDS)
        self.summary: dict[str, int] = {}
        self.seconds = 0.0
        self.why = ""
        self._lines: list[bytes] = []
        """Event lines that are not published yet"""
        self._has_lines = asyncio.Event()
        self._number = 0
        self._flushing = asyncio.Lock()
        self._slots: dict[str, str] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._engine: Engine | None = None

    async def run(self) -> Task:
        """Run the task to its end, and store its final state."""
        engine = await self._engines.take()
        self._engine = engine
        work = [
            asyncio.create_task(part) for part in (self._listen(engine), self._keep_lease(), self._flush_periodically())
        ]
        try:
            await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            for part in work:
                if part.done():
                    part.result()
            return await self._finish(self._final_task(await engine.wait()))
        except Fenced as problem:
            await engine.stop()
            return replace(self.task, state=TaskState.LOST, why=str(problem))
        finally:
            for part in (*work, *self._answering):
                part.cancel()
            await asyncio.gather(*work, *self._answering, return_exceptions=True)
            await engine.kill()
            await self.view.close()

    def _final_task(self, code: int) -> Task:
        state = ENDED.get(code)
        if state is None:
            return replace(self.task, state=TaskState.LOST, why=f"the engine ended with status {code}")
        return replace(self.task, state=state, why=self.why, summary=self.summary, seconds=self.seconds)

    async def _finish(self, ended: Task) -> Task:
        """Publish the last events together with the final state. Raises Fenced if others ended the task meanwhile."""
        async with self._flushing:
            events = self._next_events()
            ended = self.store.verifier.sign_task(ended)
            if len(events) > 1:
                await self._publish(events[:-1])
            while True:
                try:
                    if await self.store.change_task(self.claimed, ended, events=events[-1:]) is None:
                        raise Fenced
                    return ended
                except NoDatastore as problem:
                    self._log.warning("end_waits", run=self.request.id, why=str(problem))

    # The engine

    async def _listen(self, engine: Engine) -> None:
        await engine.send(self.job)
        async for lines in engine.lines():
            for line in lines:
                self._take_line(line)

    async def _send(self, message: dict[str, Any]) -> None:
        assert self._engine is not None
        await self._engine.send(message)

    def _take_line(self, line: bytes) -> None:
        """Take a line of the engine: answer a question, note the report, and pass the events on unparsed."""
        if not line.startswith(_STATE):
            try:
                event = read_object(line, "what the engine said")
            except Unreadable:
                # A module that prints; what people read of its states is in the events.
                self._log.warning("engine_said", run=self.request.id, line=line[:200].decode(errors="replace"))
                return
            if event.get("kind") == "ask":
                answering = asyncio.create_task(self._answer(event["ask"], event["what"], event["about"]))
                self._answering.add(answering)
                answering.add_done_callback(self._answering.discard)
                return
            if event.get("kind") == "report":
                self.summary, self.seconds = event["summary"], event["seconds"]
            elif event.get("kind") == "refused":
                self.why = "; ".join(event["errors"])
        self._lines.append(line)
        self._has_lines.set()

    # Events

    async def _flush_periodically(self) -> None:
        while True:
            await self._has_lines.wait()
            await self._flush()
            await asyncio.sleep(FLUSH_SECONDS)

    async def _flush(self) -> None:
        """Publish the waiting events. Only one flush runs at a time: a second waits until the first has published."""
        async with self._flushing:
            await self._publish(self._next_events())

    def _next_events(self) -> list[tuple[str, bytes]]:
        """Return the keys and values for the lines since the last flush, packed into as few values as possible."""
        lines, self._lines = self._lines, []
        self._has_lines.clear()
        events = []
        for batch in event_batches.batches(lines):
            self._number += 1
            events.append((state_key(self.request.id, self._name, self._number), event_batches.pack(batch)))
        return events

    async def _publish(self, events: list[tuple[str, bytes]]) -> None:
        while events:
            try:
                await self.store.publish_events(self.claimed, events)
                return
            except NoDatastore as problem:
                # Without a datastore the run goes on; its events are published when the datastore is back.
                self._log.warning("events_wait", run=self.request.id, why=str(problem))

    async def _keep_lease(self) -> None:
        while True:
            await asyncio.sleep(KEEP_SECONDS)
            try:
                if not await self.store.etcd.keep_alive(self.lease):
                    raise Fenced("the lease ran out: this server was away for too long")
                stored = await self.store.etcd.get(self.claimed.key)
                if stored is None or stored.modified != self.claimed.modified:
                    raise Fenced("the task was ended by others")
            except NoDatastore:
                continue

    # Questions of the engine

    async def _answer(self, number: int, what: str, arguments: dict[str, Any]) -> None:
        answers: dict[str, Callable[..., Awaitable[Any]]] = {
            "enter": self._enter,
            "leave": self._leave,
            "ready": self._ready,
            "output": self._output,
            "modules": self._modules,
            "module": self._module,
        }
        try:
            value = await answers[what](**arguments)
        except (MeshError, StateError) as problem:
            await self._send({"answer": number, "error": str(problem)})
        else:
            await self._send({"answer": number, "value": value})

    async def _enter(self, gate: str, limit: int) -> bool:
        """Try to take a slot of a gate; return whether this server has one. The lease frees it if this server dies."""
        view = await self.view.ready()
        name = self._name.encode()
        for key in view.free_slots(gate, limit):
            conditions = [unchanged(key, 0), unchanged(self.claimed.key, self.claimed.modified)]
            result = await self.store.etcd.transact(conditions, [put_op(key, name, self.lease)])
            if result.succeeded:
                self._slots[gate] = key
                return True
        return False

    async def _leave(self, gate: str, sync: bool, serialize: bool) -> bool:
        if serialize and gate in self._slots:
            await self.store.etcd.transact([], [delete_op(self._slots.pop(gate))])
        if not sync:
            return True
        view = await self.view.ready()
        me = self._name
        if me not in view.passed.get(gate, set()):
            key = f"{gate_prefix(self.request.id, gate)}done/{me}"
            # Overwrite what is stored there: it is not this server's, and would make all the other targets wait.
            await self.store.etcd.put(key, self.store.verifier.statements.sign(key, me.encode()))
            view.passed.setdefault(gate, set()).add(me)
        return view.all_passed(gate, me)

    async def _ready(self, node: str, reference: str) -> bool:
        return (await self.view.ready()).output_is_ready(node, reference)

    async def _output(self, node: str, reference: str) -> Any:
        return (await self.view.ready()).output(node, reference)

    async def _modules(self) -> list[str]:
        return await module_names(self.store)

    async def _module(self, name: str) -> dict[str, Any] | None:
        return await read_module(self.store, name)


async def module_names(store: RunStore) -> list[str]:
    page = await store.etcd.page(f"{MODULES}/", keys_only=True)
    names = [item.key.removeprefix(f"{MODULES}/") for item in page.items]
    return sorted(name.removesuffix(".py") for name in names if name.endswith(".py"))


async def read_module(store: RunStore, name: str) -> dict[str, Any] | None:
    """Read a module from the datastore. Its signature is not verified here; the engine that loads it does that."""
    code = await store.etcd.get(f"{MODULES}/{name}.py")
    manifest = await store.etcd.get(f"{MODULES}/{name}.py.manifest")
    if code is None:
        return None
    return {
        "code": b64encode(code.value).decode(),
        "manifest": b64encode(manifest.value).decode() if manifest else "",
        "origin": f"datastore:{MODULES}/{name}.py",
    }
