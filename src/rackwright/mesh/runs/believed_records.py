"""Which records of a run in the datastore are believed: those that the server they speak of has signed.

Every member may write there. Without this, one that was taken over could let another's outputs, the end of its task or
its place at a gate be what it likes. What is not signed as it must be is left out and told to the agent's log; a task's
forged end counts as lost, because the true one is gone.
"""

from collections.abc import Callable
from dataclasses import replace

from rackwright.mesh.bounded_json import read_object
from rackwright.mesh.datastore.etcd_client import Change
from rackwright.mesh.errors import MeshError, Unreadable
from rackwright.mesh.identity.signed_statements import BadStatement, Statements
from rackwright.mesh.runs.event_batches import Cursor, Told, is_one_line, told
from rackwright.mesh.runs.run_model import (
    CLAIMED,
    CLUSTER_EVENTS,
    EVENTS,
    Task,
    TaskState,
    place_in_run,
    read_task,
    task_key,
)

Refuse = Callable[[MeshError], None]


def not_told(problem: MeshError) -> None:
    """Nobody wants to know."""


class RunBelief:
    def __init__(self, statements: Statements, refuse: Refuse = not_told) -> None:
        """`refuse` hears of everything that is not believed."""
        self.statements, self._refuse = statements, refuse

    def told(self, change: Change, since: float, after: Cursor | None = None) -> list[Told]:
        """What a change below the events tells, as far as it is believed, from a cursor on."""
        key = change.item.key
        if change.deleted or not key.startswith(EVENTS):
            return told(change, after)
        try:
            value = self.content(key, change.item.value, since)
        except MeshError as problem:
            self._refuse(problem)
            return []
        events = told(Change(replace(change.item, value=value), deleted=False), after)
        return [event for event in events if self._fits(event)]

    def task(self, key: str, value: bytes, since: float = 0.0) -> Task:
        """A task, in whose end only its own target is believed."""
        run, _, target = place_in_run(key)
        try:
            task = read_task(value)
            if task_key(task.run, task.target) != key:
                raise Unreadable(f"{key[:200]} holds the task of another run or server")
            if task.state in CLAIMED:
                self._said_by(target, self.statements.check(key, task.proof, task.claim(), since), key)
        except MeshError as problem:
            self._refuse(problem)
            why = f"what lies in the datastore as the end of {target}'s task was not written by {target}: {problem}"
            return Task(run, target, TaskState.LOST, why=why)
        return replace(task, proof="")

    def signed(self, task: Task) -> Task:
        """A task as this server's own word."""
        if task.state not in CLAIMED or task.proof:
            return task
        return replace(task, proof=self.statements.prove(task_key(task.run, task.target), task.claim()))

    def content(self, key: str, value: bytes, since: float = 0.0) -> bytes:
        """What lies at a key, without its proof. Raises BadStatement for what its server did not sign."""
        if key.startswith(CLUSTER_EVENTS):
            signer, content = self.statements.read(key, value, since)
            self._said_by(str(read_object(content, "an event").get("server")), signer, key)
            return content
        _, kind, place = place_in_run(key)
        if kind == "task":
            return self.task(key, value, since).dump()
        if kind == "state":
            signer, content = self.statements.read(key, value, since)
            self._said_by(place.partition("/")[0], signer, key)
            return content
        if kind == "gate" and "/done/" in place:
            signer, content = self.statements.read(key, value, since)
            self._said_by(place.partition("/done/")[2], signer, key)
            return content
        if kind == "gate" and "/slot/" in place:
            return value
        raise Unreadable(f"{key[:200]} is no place where anything of a run lies")

    @staticmethod
    def _said_by(wanted: str, signer: str, key: str) -> None:
        if signer != wanted:
            raise BadStatement(f"{key[:200]} speaks of {wanted[:64]}, but {signer} has signed it")

    def _fits(self, event: Told) -> bool:
        """Whether an event is one line of JSON, and one of a state speaks of the server and run that it lies under."""
        run, kind, place = place_in_run(event.key)
        if kind == "gate":
            return True
        try:
            if not is_one_line(event.line):
                raise Unreadable(f"an event at {event.key[:200]} is not one line")
            if kind == "state":
                content = read_object(event.line, f"an event at {event.key[:200]}")
                if (content.get("run"), content.get("target")) != (run, place.partition("/")[0]):
                    raise BadStatement(f"an event at {event.key[:200]} speaks of another server or run")
        except MeshError as problem:
            self._refuse(problem)
            return False
        return True
