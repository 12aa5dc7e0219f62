"""One task being run: the engine in a child process, its events on their way to the datastore, its questions answered.

Everything is written under the condition that the task is still this server's. Once it is not, because the others have
given this server up, the engine is killed and nothing more is said.
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
from rackwright.mesh.runs.engine_pool import Engine, Engines
from rackwright.mesh.runs.run_model import CLOCK_SECONDS, MODULES, Request, Task, TaskState, gate_prefix, state_key
from rackwright.mesh.runs.run_store import RunStore
from rackwright.mesh.runs.run_view import RunView
from rackwright.states.module import StateError

FLUSH_SECONDS = 0.1
KEEP_SECONDS = 3.0
_STATE = b'{"kind": "state"'
ENDED = {0: TaskState.DONE, 1: TaskState.FAILED, 2: TaskState.REFUSED}


class Performance:
    def __init__(
        self,
        name: str,
        engines: Engines,
        log: Log,
        store: RunStore,
        request: Request,
        task: Task,
        held: Item,
        lease: int,
        job: dict[str, Any],
    ) -> None:
        self._name, self._engines, self._log, self.store = name, engines, log, store
        self.request, self.task, self.held = request, task, held
        self.lease, self.job = lease, job
        self.view = RunView(store, request.id, request.created - CLOCK_SECONDS)
        self.summary: dict[str, int] = {}
        self.seconds = 0.0
        self.why = ""
        self._lines: list[bytes] = []
        """Events that are not published yet"""
        self._news = asyncio.Event()
        self._number = 0
        self._flushing = asyncio.Lock()
        self._slots: dict[str, str] = {}
        self._asked: set[asyncio.Task[None]] = set()
        self._engine: Engine | None = None

    async def go(self) -> Task:
        """Run it to its end, and leave word of it."""
        engine = await self._engines.take()
        self._engine = engine
        work = [asyncio.create_task(part) for part in (self._listen(engine), self._keep_lease(), self._flush_on())]
        try:
            await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            for part in work:
                if part.done():
                    part.result()
            return await self._finish(self._ended(await engine.end()))
        except Fenced as problem:
            await engine.stop()
            return replace(self.task, state=TaskState.LOST, why=str(problem))
        finally:
            for part in (*work, *self._asked):
                part.cancel()
            await asyncio.gather(*work, *self._asked, return_exceptions=True)
            await engine.kill()
            await self.view.close()

    def _ended(self, code: int) -> Task:
        state = ENDED.get(code)
        if state is None:
            return replace(self.task, state=TaskState.LOST, why=f"the engine ended with status {code}")
        return replace(self.task, state=state, why=self.why, summary=self.summary, seconds=self.seconds)

    async def _finish(self, ended: Task) -> Task:
        """Tell what is left to tell together with the end. Raises Fenced if the task was given up meanwhile."""
        async with self._flushing:
            keyed = self._keyed()
            ended = self.store.belief.signed(ended)
            if len(keyed) > 1:
                await self._publish(keyed[:-1])
            while True:
                try:
                    if await self.store.change(self.held, ended, events=keyed[-1:]) is None:
                        raise Fenced
                    return ended
                except NoDatastore as problem:
                    self._log.warning("end_waits", run=self.request.id, why=str(problem))

    # The engine

    async def _listen(self, engine: Engine) -> None:
        await engine.say(self.job)
        async for lines in engine.lines():
            for line in lines:
                self._hear(line)

    async def _say(self, message: dict[str, Any]) -> None:
        assert self._engine is not None
        await self._engine.say(message)

    def _hear(self, line: bytes) -> None:
        """What it tells is passed on unread, but for what concerns us."""
        if not line.startswith(_STATE):
            try:
                event = read_object(line, "what the engine said")
            except Unreadable:
                # A module that prints; what people read of its states is told in events.
                self._log.warning("engine_said", run=self.request.id, line=line[:200].decode(errors="replace"))
                return
            if event.get("kind") == "ask":
                answering = asyncio.create_task(self._answer(event["ask"], event["what"], event["about"]))
                self._asked.add(answering)
                answering.add_done_callback(self._asked.discard)
                return
            if event.get("kind") == "report":
                self.summary, self.seconds = event["summary"], event["seconds"]
            elif event.get("kind") == "refused":
                self.why = "; ".join(event["errors"])
        self._lines.append(line)
        self._news.set()

    # Events

    async def _flush_on(self) -> None:
        while True:
            await self._news.wait()
            await self._flush()
            await asyncio.sleep(FLUSH_SECONDS)

    async def _flush(self) -> None:
        """Publish what there is. One at a time: whoever comes second waits until the first has published."""
        async with self._flushing:
            await self._publish(self._keyed())

    def _keyed(self) -> list[tuple[str, bytes]]:
        """What has been told since the last time, in as few values as it fits into."""
        lines, self._lines = self._lines, []
        self._news.clear()
        found = []
        for batch in event_batches.batches(lines):
            self._number += 1
            found.append((state_key(self.request.id, self._name, self._number), event_batches.pack(batch)))
        return found

    async def _publish(self, keyed: list[tuple[str, bytes]]) -> None:
        while keyed:
            try:
                await self.store.publish(self.held, keyed)
                return
            except NoDatastore as problem:
                # Without a datastore the run goes on, and tells what it did when there is one again.
                self._log.warning("events_wait", run=self.request.id, why=str(problem))

    async def _keep_lease(self) -> None:
        while True:
            await asyncio.sleep(KEEP_SECONDS)
            try:
                if not await self.store.etcd.keep_alive(self.lease):
                    raise Fenced("the lease ran out: this server was away for too long")
                found = await self.store.etcd.get(self.held.key)
                if found is None or found.modified != self.held.modified:
                    raise Fenced("the task was ended by others")
            except NoDatastore:
                continue

    # Questions of the engine

    async def _answer(self, number: int, what: str, asked: dict[str, Any]) -> None:
        answers: dict[str, Callable[..., Awaitable[Any]]] = {
            "enter": self._enter,
            "leave": self._leave,
            "ready": self._ready,
            "output": self._output,
            "modules": self._modules,
            "module": self._module,
        }
        try:
            value = await answers[what](**asked)
        except (MeshError, StateError) as problem:
            await self._say({"answer": number, "error": str(problem)})
        else:
            await self._say({"answer": number, "value": value})

    async def _enter(self, gate: str, limit: int) -> bool:
        """Whether one of the places at this gate is ours. The lease gives it back if this server dies."""
        view = await self.view.ready()
        name = self._name.encode()
        for key in view.free_slots(gate, limit):
            conditions = [unchanged(key, 0), unchanged(self.held.key, self.held.modified)]
            done = await self.store.etcd.transact(conditions, [put_op(key, name, self.lease)])
            if done.succeeded:
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
            # Over whatever lies there: it is not ours, and would hold all the others up.
            await self.store.etcd.put(key, self.store.belief.statements.sign(key, me.encode()))
            view.passed.setdefault(gate, set()).add(me)
        return view.all_passed(gate, me)

    async def _ready(self, node: str, reference: str) -> bool:
        return (await self.view.ready()).output_is_ready(node, reference)

    async def _output(self, node: str, reference: str) -> Any:
        return (await self.view.ready()).output(node, reference)

    async def _modules(self) -> list[str]:
        return await module_names(self.store)

    async def _module(self, name: str) -> dict[str, Any] | None:
        return await module(self.store, name)


async def module_names(store: RunStore) -> list[str]:
    page = await store.etcd.page(f"{MODULES}/", keys_only=True)
    names = [item.key.removeprefix(f"{MODULES}/") for item in page.items]
    return sorted(name.removesuffix(".py") for name in names if name.endswith(".py"))


async def module(store: RunStore, name: str) -> dict[str, Any] | None:
    """A module as the datastore has it, to be verified by whoever uses it."""
    code = await store.etcd.get(f"{MODULES}/{name}.py")
    manifest = await store.etcd.get(f"{MODULES}/{name}.py.manifest")
    if code is None:
        return None
    return {
        "code": b64encode(code.value).decode(),
        "manifest": b64encode(manifest.value).decode() if manifest else "",
        "origin": f"datastore:{MODULES}/{name}.py",
    }
