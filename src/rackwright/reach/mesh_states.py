"""States on their way through the mesh: a run of the mesh, signed by this server, for the one node that is meant.

The node verifies the signature for itself; the server's own key must be one that the mesh trusts. The noderole's run
gives the mesh's its token: a newer run ends an older one, also that of a server that died, and is not overtaken by it.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.machines.mesh_members import LIVE
from rackwright.domain.runs import Outcome, Run
from rackwright.mesh.client import (
    BAD_SIGNATURE,
    FINAL,
    Failed,
    MeshClient,
    MeshError,
    RunRequest,
    Targets,
    TaskState,
    new_request,
    pack_tree,
)
from rackwright.reach.state_events import Heard

Membership = Callable[[int], Awaitable[JsonObject | None]]
"""What the mesh says of a node; None: nothing."""

Scope = Callable[[], Awaitable[str]]
"""What tells the runs of this database from those of another."""

STOPPING_SECONDS = 20.0
"""How long the mesh may take to say that a run is ended."""
MAX_REQUEST = 1024 * 1024
"""Bytes of a request that etcd takes for sure; most of it is what the noderole is handed."""
MAX_LINES = 1024 * 1024


class NotThisWay(Exception):
    """The run cannot go through the mesh, and nothing was begun."""


@dataclass(frozen=True)
class Job:
    """What is to be run."""

    folder: Path
    sls: list[str] | None
    mode: str


class MeshWay:
    def __init__(
        self, client: MeshClient, key: Path, membership: Membership, scope: Scope, own_node: int | None = None
    ) -> None:
        """`key`: the private key that signs. `own_node`: the host of this server, which needs no way to it."""
        self._client = client
        self._key = key
        self._membership = membership
        self._scope = scope
        self._own_node = own_node
        self._ending: set[asyncio.Task[None]] = set()

    async def reaches(self, run: Run) -> bool:
        """Whether the node is a living member, and not this very host."""
        return run.node_id != self._own_node and _lives(await self._membership(run.node_id))

    async def carry(self, run: Run, job: Job, heard: Heard) -> Outcome:
        """Run the states there, and hear what comes of them. Raises NotThisWay as long as nothing was begun."""
        mark = await self._membership(run.node_id)
        if mark is None or not _lives(mark):
            state = "no member of the mesh" if mark is None else f"{mark.get('state')} in the mesh"
            raise NotThisWay(f"it is {state}, so nothing was begun. See: rackwright mesh members")
        member = str(mark["member"])
        packed = await _packed(job.folder)
        request = await self._request(run, job, member, packed)
        try:
            return await self._run(run, request, packed, heard)
        except asyncio.CancelledError:
            await self._end(request, f"run {run.id} of {run.role} on {run.node} was ended")
            raise

    async def _request(self, run: Run, job: Job, member: str, packed: bytes) -> RunRequest:
        try:
            cluster = await self._client.cluster()
        except MeshError as problem:
            raise NotThisWay(str(problem)) from problem
        request = new_request(
            cluster,
            packed,
            Targets((member,)),
            part=f"run{run.id}",
            sls=job.sls,
            mode=job.mode,
            variables={name: value for name, value in run.input.items() if name not in run.secrets},
            secrets=sorted(run.secrets),
            scope=f"{await self._scope()}/{run.node_id}",
            token=run.token,
            lines=MAX_LINES,
        )
        if run.secrets:
            request = await self._sealed(request, {name: run.input[name] for name in run.secrets})
        if len(request.dump()) > MAX_REQUEST:
            raise NotThisWay(f"it is handed more than the {MAX_REQUEST >> 10} kB that the mesh takes")
        return request

    async def _sealed(self, request: RunRequest, hidden: JsonObject) -> RunRequest:
        """The request with its secrets, which nobody but the node and the agent of this host can read."""
        try:
            return await self._client.seal(request, hidden)
        except (MeshError, OSError) as problem:
            raise NotThisWay(f"its secrets cannot be sealed: {problem}") from problem

    async def _run(self, run: Run, request: RunRequest, packed: bytes, heard: Heard) -> Outcome:
        try:
            async with aclosing(self._client.run(request, packed, self._key)) as events:
                async for event in events:
                    await heard.room()
                    if event["kind"] != "task":
                        heard.hear({**event, "event": "end" if event["kind"] == "state" else event["kind"]})
                    elif TaskState(event["state"]) in FINAL:
                        return _judge(run, TaskState(event["state"]), str(event["why"]), heard)
        except Failed as problem:
            if problem.code == BAD_SIGNATURE:
                raise NotThisWay(f"{problem}. This server signs with {self._key}") from problem
            return Outcome.failure(f"{run.node}, through the mesh: {problem}")
        except MeshError as problem:
            return Outcome.failure(f"{run.node}, through the mesh: {problem}")
        raise AssertionError("unreachable: a run is followed until it ended")

    async def _end(self, request: RunRequest, why: str) -> None:
        """Seen through even if whoever waits for it is cancelled once more."""
        task = asyncio.create_task(self._cancel(request, why))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        await asyncio.shield(task)

    async def _cancel(self, request: RunRequest, why: str) -> None:
        # If nobody answers, the next run of this node ends it: it has the higher token.
        with contextlib.suppress(MeshError, TimeoutError):
            async with asyncio.timeout(STOPPING_SECONDS):
                await self._client.cancel(request, why)


def _lives(mark: JsonObject | None) -> bool:
    return mark is not None and mark.get("state") in {state.value for state in LIVE}


async def _packed(folder: Path) -> bytes:
    try:
        return await asyncio.to_thread(pack_tree, folder)
    except MeshError as problem:
        raise NotThisWay(str(problem)) from problem


def _judge(run: Run, state: TaskState, why: str, heard: Heard) -> Outcome:
    match state:
        case TaskState.DONE:
            return heard.judge(Outcome.success())
        case TaskState.FAILED:
            return heard.judge(Outcome.failure(f"States failed on {run.node}."))
        case TaskState.REFUSED:
            return heard.judge(Outcome.failure(f"{run.node} refused the run: {why}."))
        case TaskState.LOST:
            return Outcome.failure(f"{run.node} was lost to the mesh: {why}.")
    return Outcome.failure(f"The run was ended on {run.node}: {why}.")
