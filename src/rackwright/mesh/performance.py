"""One task being run: the engine in a child process, its events on their way to the datastore, its questions answered.

Everything is written under the condition that the task is still this server's. Once it is not, because the others have
given this server up, the engine is killed and nothing more is said.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from base64 import b64encode
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rackwright.mesh.errors import Fenced, MeshError, NoDatastore, Rejected
from rackwright.mesh.etcd import Item, delete_op, put_op, unchanged
from rackwright.mesh.run_model import MODULES, Request, Task, TaskState, gate_prefix, state_key
from rackwright.mesh.run_store import RunStore
from rackwright.mesh.run_view import RunView
from rackwright.states.module import StateError

if TYPE_CHECKING:
    from rackwright.mesh.agent import Agent

FLUSH_SECONDS = 0.1
KEEP_SECONDS = 3.0
MAX_LINE = 8 * 1024 * 1024
ENDED = {0: TaskState.DONE, 1: TaskState.FAILED, 2: TaskState.REFUSED}


class Performance:
    def __init__(
        self,
        agent: "Agent",
        store: RunStore,
        request: Request,
        task: Task,
        held: Item,
        lease: int,
        job: dict[str, Any],
    ) -> None:
        self.agent, self.store, self.request, self.task, self.held = agent, store, request, task, held
        self.lease, self.job = lease, job
        self.view = RunView(store, request.id)
        self.summary: dict[str, int] = {}
        self.seconds = 0.0
        self.why = ""
        self._events: list[dict[str, Any]] = []
        self._number = 0
        self._flushing = asyncio.Lock()
        self._slots: dict[str, str] = {}
        self._asked: set[asyncio.Task[None]] = set()
        self._process: asyncio.subprocess.Process | None = None

    async def go(self) -> Task:
        """Run it to its end, and leave word of it."""
        about = await self.store.about(self.request.id)
        self.job["targets"] = about["targets"]
        work = [asyncio.create_task(part) for part in (self._engine(), self._keep_lease(), self._flush_on())]
        try:
            await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            for part in work:
                if part.done():
                    part.result()
            await self._flush()
            ended = self._ended()
            if await self.store.change(self.held, ended) is None:
                raise Fenced
            return ended
        except Fenced as problem:
            return replace(self.task, state=TaskState.LOST, why=str(problem))
        finally:
            self._kill()
            for part in (*work, *self._asked):
                part.cancel()
            await asyncio.gather(*work, *self._asked, return_exceptions=True)
            await self.view.close()
            with contextlib.suppress(NoDatastore, Rejected):
                await self.store.etcd.revoke(self.lease)

    def _ended(self) -> Task:
        code = self._process.returncode if self._process else None
        state = ENDED.get(-1 if code is None else code)
        if state is None:
            return replace(self.task, state=TaskState.LOST, why=f"the engine ended with status {code}")
        return replace(self.task, state=state, why=self.why, summary=self.summary, seconds=self.seconds)

    # The engine

    async def _engine(self) -> None:
        command = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "rackwright.mesh.run_worker"]
        with (self.agent.folder / "runs.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                limit=MAX_LINE,
            )
        assert self._process.stdout is not None
        await self._say(self.job)
        async for line in self._process.stdout:
            self._hear(json.loads(line))
        await self._process.wait()

    async def _say(self, message: dict[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            await self._process.stdin.drain()

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _hear(self, event: dict[str, Any]) -> None:
        kind = event.pop("event")
        if kind == "ask":
            answering = asyncio.create_task(self._answer(event))
            self._asked.add(answering)
            answering.add_done_callback(self._asked.discard)
            return
        if kind == "report":
            self.summary, self.seconds = event["summary"], event["seconds"]
        elif kind == "refused":
            self.why = "; ".join(event["errors"])
        named = "state" if kind == "end" else kind
        self._events.append({"kind": named, "target": self.agent.name, "run": self.request.id, **event})

    # Events

    async def _flush_on(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await self._flush()

    async def _flush(self) -> None:
        """Publish what there is. One at a time: whoever comes second waits until the first has published."""
        async with self._flushing:
            events, self._events = self._events, []
            ended = {(one["state"]["id"], one["state"]["name"]) for one in events if one["kind"] == "state"}
            # That it started is news only while it runs.
            kept = [one for one in events if one["kind"] != "start" or (one["id"], one["name"]) not in ended]
            await self._publish([self._keyed(event) for event in kept])

    def _keyed(self, event: dict[str, Any]) -> tuple[str, bytes]:
        self._number += 1
        return state_key(self.request.id, self.agent.name, self._number), json.dumps(event).encode()

    async def _publish(self, keyed: list[tuple[str, bytes]]) -> None:
        while keyed:
            try:
                await self.store.publish(self.held, keyed)
                return
            except NoDatastore as problem:
                # Without a datastore the run goes on, and tells what it did when there is one again.
                self.agent.log.warning("events_wait", run=self.request.id, why=str(problem))

    async def _keep_lease(self) -> None:
        while True:
            await asyncio.sleep(KEEP_SECONDS)
            try:
                if not await self.store.etcd.keep(self.lease):
                    raise Fenced("the lease ran out: this server was away for too long")
            except NoDatastore:
                continue

    # Questions of the engine

    async def _answer(self, asked: dict[str, Any]) -> None:
        number, what = asked.pop("ask"), asked.pop("what")
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
        name = self.agent.name.encode()
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
        me = self.agent.name
        if me not in view.passed.get(gate, set()):
            key = f"{gate_prefix(self.request.id, gate)}done/{me}"
            await self.store.etcd.transact([unchanged(key, 0)], [put_op(key, me.encode())])
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
