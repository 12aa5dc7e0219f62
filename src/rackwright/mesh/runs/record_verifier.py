"""Verifies records of runs in the datastore: a record is believed only if the server it is about has signed it.

Every member may write to the datastore. Without this, a member that was taken over could forge another server's
outputs, the end of its task or its passing of a gate. A record without the right signature is left out and reported to
the agent's log; a task with a forged end counts as lost, because the true end is gone.
"""

from collections.abc import Callable
from dataclasses import replace

from rackwright.mesh.bounded_json import read_object
from rackwright.mesh.datastore.etcd_client import Change
from rackwright.mesh.errors import MeshError, Unreadable
from rackwright.mesh.identity.signed_statements import BadStatement, Statements
from rackwright.mesh.runs.event_batches import Cursor, EventLine, event_lines, is_one_line
from rackwright.mesh.runs.run_model import (
    CLUSTER_EVENTS,
    EVENTS,
    SIGNED_BY_TARGET,
    Task,
    TaskState,
    read_task,
    split_run_key,
    task_key,
)

Refuse = Callable[[MeshError], None]


def ignore_refusal(problem: MeshError) -> None:
    """Do nothing with a refused record."""


class RecordVerifier:
    """Reads records of runs and returns what their own server has signed."""

    def __init__(self, statements: Statements, refuse: Refuse = ignore_refusal) -> None:
        """`refuse` is called with the reason for every record that is not believed."""
        self.statements, self._refuse = statements, refuse

    def verify_events(self, change: Change, since: float, after: Cursor | None = None) -> list[EventLine]:
        """Return the verified events in a change below the events' prefix, from a cursor on."""
        key = change.item.key
        if change.deleted or not key.startswith(EVENTS):
            return event_lines(change, after)
        try:
            value = self.verify_content(key, change.item.value, since)
        except MeshError as problem:
            self._refuse(problem)
            return []
        events = event_lines(Change(replace(change.item, value=value), deleted=False), after)
        return [event for event in events if self._is_valid(event)]

    def verify_task(self, key: str, value: bytes, since: float = 0.0) -> Task:
        """Read a task. Its end is believed only if its own target has signed it; otherwise the task counts as lost."""
        run, _, target = split_run_key(key)
        try:
            task = read_task(value)
            if task_key(task.run, task.target) != key:
                raise Unreadable(f"{key[:200]} holds the task of another run or server")
            if task.state in SIGNED_BY_TARGET:
                signer = self.statements.check(key, task.proof, task.signed_content(), since)
                self._require_signer(target, signer, key)
        except MeshError as problem:
            self._refuse(problem)
            why = f"what lies in the datastore as the end of {target}'s task was not written by {target}: {problem}"
            return Task(run, target, TaskState.LOST, why=why)
        return replace(task, proof="")

    def sign_task(self, task: Task) -> Task:
        """Return a task with this server's signature, if its state needs one."""
        if task.state not in SIGNED_BY_TARGET or task.proof:
            return task
        return replace(task, proof=self.statements.prove(task_key(task.run, task.target), task.signed_content()))

    def verify_content(self, key: str, value: bytes, since: float = 0.0) -> bytes:
        """Return the content of a stored value without its proof. Raises BadStatement if its server did not sign it."""
        if key.startswith(CLUSTER_EVENTS):
            signer, content = self.statements.read(key, value, since)
            self._require_signer(str(read_object(content, "an event").get("server")), signer, key)
            return content
        _, kind, path = split_run_key(key)
        if kind == "task":
            return self.verify_task(key, value, since).dump()
        if kind == "state":
            signer, content = self.statements.read(key, value, since)
            self._require_signer(path.partition("/")[0], signer, key)
            return content
        if kind == "gate" and "/done/" in path:
            signer, content = self.statements.read(key, value, since)
            self._require_signer(path.partition("/done/")[2], signer, key)
            return content
        if kind == "gate" and "/slot/" in path:
            return value
        raise Unreadable(f"{key[:200]} is no place where anything of a run lies")

    @staticmethod
    def _require_signer(server: str, signer: str, key: str) -> None:
        if signer != server:
            raise BadStatement(f"{key[:200]} speaks of {server[:64]}, but {signer} has signed it")

    def _is_valid(self, event: EventLine) -> bool:
        """Return whether an event is a single line, and names the server and run of its key if it is of a state."""
        run, kind, path = split_run_key(event.key)
        if kind == "gate":
            return True
        try:
            if not is_one_line(event.line):
                raise Unreadable(f"an event at {event.key[:200]} is not one line")
            if kind == "state":
                content = read_object(event.line, f"an event at {event.key[:200]}")
                if (content.get("run"), content.get("target")) != (run, path.partition("/")[0]):
                    raise BadStatement(f"an event at {event.key[:200]} speaks of another server or run")
        except MeshError as problem:
            self._refuse(problem)
            return False
        return True
