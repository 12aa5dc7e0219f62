"""Running states on a node through the mesh: as a run of the mesh for that node alone, signed by this server.

The node verifies the signature for itself; the server's own key must be one that the mesh trusts. The run of the mesh
gets the token of the noderole's run: a newer run ends an older one, also that of a server that died, and is not
overtaken by it.
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
    AgentFailed,
    MeshClient,
    MeshError,
    RunRequest,
    Targets,
    TaskState,
    new_request,
    pack_tree,
)
from rackwright.reach.state_events import StateEventReader

ReadMembership = Callable[[int], Awaitable[JsonObject | None]]
"""Returns the membership of a node in the mesh, by the node's id; None: the mesh does not know it."""

ReadScope = Callable[[], Awaitable[str]]
"""Returns what tells the runs of this database from those of another."""

STOPPING_SECONDS = 20.0
"""How long the mesh may take to confirm that a run is ended."""
MAX_REQUEST = 1024 * 1024
"""Bytes of a request that etcd takes for sure; most of it is what the noderole is handed."""
MAX_LINES = 1024 * 1024


class MeshUnusable(Exception):
    """The run cannot go through the mesh, and nothing was begun."""


@dataclass(frozen=True)
class StateJob:
    """The states that are to be run: their folder, which of its files, and in which mode."""

    folder: Path
    sls: list[str] | None
    mode: str


class MeshStateRunner:
    """Runs states of noderoles on nodes that are members of the mesh."""

    def __init__(
        self,
        client: MeshClient,
        key: Path,
        read_membership: ReadMembership,
        read_scope: ReadScope,
        own_node: int | None = None,
    ) -> None:
        """`key`: the private key that signs.

        `own_node`: the host of this server, which is not reached through the mesh.
        """
        self._client = client
        self._key = key
        self._read_membership = read_membership
        self._read_scope = read_scope
        self._own_node = own_node
        self._ending: set[asyncio.Task[None]] = set()

    async def can_reach(self, run: Run) -> bool:
        """Whether the node of the run is a living member, and not this very host."""
        return run.node_id != self._own_node and _is_live(await self._read_membership(run.node_id))

    async def run_states(self, run: Run, job: StateJob, reader: StateEventReader) -> Outcome:
        """Run the states on the node, and return the outcome. Raises MeshUnusable as long as nothing was begun."""
        membership = await self._read_membership(run.node_id)
        if membership is None or not _is_live(membership):
            state = "no member of the mesh" if membership is None else f"{membership.get('state')} in the mesh"
            raise MeshUnusable(f"it is {state}, so nothing was begun. See: rackwright mesh members")
        member = str(membership["member"])
        packed = await _pack_folder(job.folder)
        request = await self._make_request(run, job, member, packed)
        try:
            return await self._follow(run, request, packed, reader)
        except asyncio.CancelledError:
            await self._end(request, f"run {run.id} of {run.role} on {run.node} was ended")
            raise

    async def _make_request(self, run: Run, job: StateJob, member: str, packed: bytes) -> RunRequest:
        try:
            cluster = await self._client.cluster()
        except MeshError as problem:
            raise MeshUnusable(str(problem)) from problem
        request = new_request(
            cluster,
            packed,
            Targets((member,)),
            part=f"run{run.id}",
            sls=job.sls,
            mode=job.mode,
            variables={name: value for name, value in run.input.items() if name not in run.secrets},
            secrets=sorted(run.secrets),
            scope=f"{await self._read_scope()}/{run.node_id}",
            token=run.token,
            lines=MAX_LINES,
        )
        if run.secrets:
            request = await self._add_secrets(request, {name: run.input[name] for name in run.secrets})
        if len(request.dump()) > MAX_REQUEST:
            raise MeshUnusable(f"it is handed more than the {MAX_REQUEST >> 10} kB that the mesh takes")
        return request

    async def _add_secrets(self, request: RunRequest, hidden: JsonObject) -> RunRequest:
        """Return the request with its secrets, sealed so that only the node and the agent of this host can read
        them."""
        try:
            return await self._client.seal(request, hidden)
        except (MeshError, OSError) as problem:
            raise MeshUnusable(f"its secrets cannot be sealed: {problem}") from problem

    async def _follow(self, run: Run, request: RunRequest, packed: bytes, reader: StateEventReader) -> Outcome:
        try:
            async with aclosing(self._client.run(request, packed, self._key)) as events:
                async for event in events:
                    await reader.room()
                    if event["kind"] != "task":
                        reader.read_event({**event, "event": "end" if event["kind"] == "state" else event["kind"]})
                    elif TaskState(event["state"]) in FINAL:
                        return _outcome_of(run, TaskState(event["state"]), str(event["why"]), reader)
        except AgentFailed as problem:
            if problem.code == BAD_SIGNATURE:
                raise MeshUnusable(f"{problem}. This server signs with {self._key}") from problem
            return Outcome.failure(f"{run.node}, through the mesh: {problem}")
        except MeshError as problem:
            return Outcome.failure(f"{run.node}, through the mesh: {problem}")
        raise AssertionError("unreachable: a run is followed until it ended")

    async def _end(self, request: RunRequest, why: str) -> None:
        """End the run in the mesh, even if the caller, which waits for that, is cancelled once more."""
        task = asyncio.create_task(self._cancel(request, why))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        await asyncio.shield(task)

    async def _cancel(self, request: RunRequest, why: str) -> None:
        # If nobody answers, the next run of this node ends it: it has the higher token.
        with contextlib.suppress(MeshError, TimeoutError):
            async with asyncio.timeout(STOPPING_SECONDS):
                await self._client.cancel(request, why)


def _is_live(membership: JsonObject | None) -> bool:
    return membership is not None and membership.get("state") in {state.value for state in LIVE}


async def _pack_folder(folder: Path) -> bytes:
    try:
        return await asyncio.to_thread(pack_tree, folder)
    except MeshError as problem:
        raise MeshUnusable(str(problem)) from problem


def _outcome_of(run: Run, state: TaskState, why: str, reader: StateEventReader) -> Outcome:
    match state:
        case TaskState.DONE:
            return reader.conclude(Outcome.success())
        case TaskState.FAILED:
            return reader.conclude(Outcome.failure(f"States failed on {run.node}."))
        case TaskState.REFUSED:
            return reader.conclude(Outcome.failure(f"{run.node} refused the run: {why}."))
        case TaskState.LOST:
            return Outcome.failure(f"{run.node} was lost to the mesh: {why}.")
    return Outcome.failure(f"The run was ended on {run.node}: {why}.")
