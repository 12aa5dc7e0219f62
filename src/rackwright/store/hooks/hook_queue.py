"""The queue of hook calls: claim calls in order, and end each as done, to be tried again, or given up.

One server at a time has a call, under a lease; a call that another server took over meanwhile is not ended twice. For
one subject a handler is called in the order of the changes.
"""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.errors import Conflict, NotFound, Rule
from rackwright.store.db.listing import Column, Filter, Listing
from rackwright.store.db.session import GraphSession, Session
from rackwright.store.events.outbox import emit
from rackwright.store.hooks.hook_calls import CHAIN, HOOK_CHANNEL, queue_jig_active
from rackwright.store.hooks.hook_views import forget_last_state

log = logging.getLogger(__name__)

MAX_ERROR = 4000


@dataclass(frozen=True)
class HookCall:
    """A call that a server has claimed."""

    id: int
    kind: str
    """'role', or 'jig' for a jig's node method."""
    handler: str
    """The role's name, or the jig's."""
    hook: str
    subject: str
    subject_id: int
    node_id: int | None
    blocks: bool
    view: JsonObject
    """What was stored with the call; `read_shown_view` returns all that the handler is shown."""
    attempt: int

    @property
    def title(self) -> str:
        return f"{self.hook} of {self.kind} {self.handler}"

    @property
    def chain(self) -> Mapping[str, int]:
        """How often each role was called in the chain of hooks that this call is the last of."""
        stored = self.view.get(CHAIN)
        before = {role: int(str(count)) for role, count in stored.items()} if isinstance(stored, dict) else {}
        return {**before, self.handler: before.get(self.handler, 0) + 1} if self.kind == "role" else before


@dataclass(frozen=True)
class FailingHookCall:
    """A call that failed and is tried again, or was given up; for people."""

    id: int
    kind: str
    handler: str
    hook: str
    subject: str
    subject_id: int
    name: str
    state: str
    attempts: int
    error: str
    queued_at: datetime
    not_before: datetime | None


_CLAIM = """
WITH due AS (
    SELECT h.id FROM hook_calls h
    WHERE h.state <> 'failed'
      AND (h.state = 'waiting' AND coalesce(h.not_before <= now(), true)
           OR h.state = 'running' AND h.lease_until < now())
      AND NOT EXISTS (
          SELECT FROM hook_calls earlier
          WHERE earlier.subject_id = h.subject_id AND earlier.subject = h.subject AND earlier.handler = h.handler
            AND earlier.kind = h.kind AND earlier.id < h.id AND earlier.state <> 'failed')
    ORDER BY h.id LIMIT :limit FOR UPDATE OF h SKIP LOCKED
)
UPDATE hook_calls h SET state = 'running', worker = :worker, attempts = h.attempts + 1,
    lease_until = now() + :lease * interval '1 second'
FROM due WHERE h.id = due.id
RETURNING h.id, h.kind, h.handler, h.hook, h.subject, h.subject_id, h.node_id, h.blocks, h.view, h.attempts AS attempt
"""


async def claim_calls(session: Session, worker: str, lease: float, limit: int) -> list[HookCall]:
    """Claim up to `limit` calls whose turn it is."""
    rows = await session.rows(_CLAIM, worker=worker, lease=lease, limit=limit)
    return sorted((HookCall(**row._mapping) for row in rows), key=lambda call: call.id)


async def end_call(session: Session, call: HookCall, worker: str) -> bool:
    """Delete a call that was made, and the same calls that were given up before. False: another server has it by now.

    For a call that blocks, the caller holds the cap lock: so no pass works out what can start while the call ends.
    """
    ended = await session.row(
        "DELETE FROM hook_calls WHERE id = :id AND state = 'running' AND worker = :worker AND attempts = :attempt"
        " RETURNING view_id",
        id=call.id,
        worker=worker,
        attempt=call.attempt,
    )
    if ended is None:
        return False
    await session.run(
        "DELETE FROM hook_calls WHERE subject_id = :subject_id AND subject = :subject AND handler = :handler"
        " AND kind = :kind AND hook = :hook AND state = 'failed'",
        subject_id=call.subject_id,
        subject=call.subject,
        handler=call.handler,
        kind=call.kind,
        hook=call.hook,
    )
    if ended.view_id is not None:
        await forget_last_state(session, ended.view_id)
    await _unblock(session, [call])
    return True


async def fail_call(session: Session, call: HookCall, worker: str, error: str, *, tries: int, back_off: float) -> bool:
    """Note that a call failed: it is tried again, ever later, and given up after `tries`. Return whether it was."""
    given_up = call.attempt >= tries
    failed = await session.run(
        """
        UPDATE hook_calls SET error = :error, worker = NULL, lease_until = NULL, blocks = blocks AND NOT :given_up,
            state = CASE WHEN :given_up THEN 'failed' ELSE 'waiting' END,
            not_before = CASE WHEN NOT :given_up THEN now() + :delay * interval '1 second' END
        WHERE id = :id AND state = 'running' AND worker = :worker AND attempts = :attempt
        """,
        id=call.id,
        worker=worker,
        attempt=call.attempt,
        error=error.replace("\0", "\ufffd")[:MAX_ERROR],
        given_up=given_up,
        delay=back_off * 2 ** min(call.attempt - 1, 10),
    )
    if failed and given_up:
        await emit(
            session,
            "hook.failed",
            call.subject_id,
            node_id=call.node_id,
            data={"handler": call.handler, "hook": call.hook, "error": error[:500]},
        )
        await _unblock(session, [call])
    return bool(failed) and given_up


async def emit_oscillating(session: Session) -> None:
    """Emit and log, for calls that this transaction gave up before they were made, what `fail_call` does for others."""
    for node_id, role, hook, error in session.hooks.oscillating:
        data: JsonObject = {"handler": role, "hook": hook, "error": error}
        await emit(session, "hook.failed", node_id, node_id=node_id, data=data)
        log.error("%s of role %s is given up: %s", hook, role, error)
    session.hooks.oscillating.clear()


async def hand_back_calls(session: Session, ids: Collection[int], worker: str) -> None:
    """Give back calls that a stopping server did not make; they do not count as attempts."""
    await session.run(
        "UPDATE hook_calls SET state = 'waiting', attempts = attempts - 1, worker = NULL, lease_until = NULL"
        " WHERE id = ANY (:ids) AND state = 'running' AND worker = :worker",
        ids=list(ids),
        worker=worker,
    )
    await session.run(f"NOTIFY {HOOK_CHANNEL}")


async def _unblock(session: Session, calls: Collection[HookCall]) -> None:
    """Touch the nodes of these calls, and of their noderoles' children: something else may start there now."""
    blocking = [call for call in calls if call.blocks]
    if blocking:
        children = await session.rows(
            "SELECT DISTINCT c.node_id FROM node_role_edges e JOIN node_roles c ON c.id = e.child_id"
            " WHERE e.parent_id = ANY (:ids)",
            ids=[call.subject_id for call in blocking],
        )
        session.touch(row.node_id for row in children)
        session.touch(call.node_id for call in blocking if call.node_id is not None)


async def seconds_until_due(session: Session) -> float | None:
    """Return the seconds until a call is due that waits for its next try, or whose server may have died; None: there
    is none."""
    seconds = await session.value(
        "SELECT extract(epoch FROM min(coalesce(lease_until, not_before)) - now()) FROM hook_calls"
        " WHERE state <> 'failed' AND (lease_until IS NOT NULL OR not_before IS NOT NULL)"
    )
    return None if seconds is None else max(0.0, float(seconds))


# --- lists for people, retries and jigs


_SELECT_CALLS = """
SELECT id, kind, handler, hook, subject, subject_id,
       coalesce(view ->> 'name', (view ->> 'role') || ' on ' || (view -> 'node' ->> 'name'), '') AS name,
       state, attempts, error, queued_at, not_before
FROM hook_calls
"""


HOOK_CALLS = Listing(
    "hook_calls",
    {
        "id": Column("id", Filter.NUMBER, sort="bigint"),
        "kind": Column("kind", Filter.CHOICE, choices={kind: kind for kind in ("role", "jig")}),
        "handler": Column("handler", says="The role or jig that is called"),
        "hook": Column("hook"),
        "state": Column("state", Filter.CHOICE, choices={state: state for state in ("waiting", "running", "failed")}),
        "node_id": Column("node_id", Filter.NUMBER),
        "queued_at": Column("queued_at", Filter.TIME, sort="timestamptz"),
    },
    default="-id",
    id="id",
    seen="node_id IN (SELECT n.id FROM nodes n WHERE n.deployment_id = ANY (:sees))",
)

FAILED_SQL = "error <> ''"


async def select_calls(session: Session, where: str, **values: object) -> list[FailingHookCall]:
    return [FailingHookCall(**row._mapping) for row in await session.rows(f"{_SELECT_CALLS} {where}", **values)]


async def count_waiting_calls(session: Session) -> int:
    """Return how many calls are still to be made."""
    count: int = await session.value("SELECT count(*) FROM hook_calls WHERE state <> 'failed'")
    return count


async def retry_call(session: Session, id: int) -> None:
    """Queue a call again that failed or was given up."""
    row = await session.row("SELECT state FROM hook_calls WHERE id = :id FOR UPDATE", id=id)
    if row is None:
        raise NotFound("hook call", id)
    if row.state == "running":
        raise Conflict(Rule.BUSY, f"Hook call {id} is being made just now.")
    await session.run(
        "UPDATE hook_calls SET state = 'waiting', attempts = 0, not_before = NULL, view = view - :chain WHERE id = :id",
        id=id,
        chain=CHAIN,  # a person wants the call now, whatever chain led to it
    )
    await session.run(f"NOTIFY {HOOK_CHANNEL}")


async def delete_orphaned_calls(session: GraphSession) -> None:
    """Delete calls of hooks that no role or jig implements any more after an import."""
    rows = await session.rows(
        """
        DELETE FROM hook_calls h WHERE kind = 'role'
          AND NOT EXISTS (SELECT FROM roles r WHERE r.name = h.handler AND h.hook = ANY (r.hooks))
        RETURNING h.id, h.kind, h.handler, h.hook, h.subject, h.subject_id, h.node_id, h.blocks, h.view,
                  h.attempts AS attempt
        """
    )
    await _unblock(session, [HookCall(**row._mapping) for row in rows])
    await session.run(
        "DELETE FROM hook_calls h WHERE kind = 'jig'"
        " AND NOT EXISTS (SELECT FROM jigs j WHERE j.name = h.handler AND j.active)"
    )


async def set_jig_active(session: GraphSession, name: str, active: bool) -> bool:
    """Turn a jig on or off, and return whether that changed it. A jig that becomes active is told of all nodes."""
    jig = await session.row("SELECT active FROM jigs WHERE name = :name FOR UPDATE", name=name)
    if jig is None:
        raise NotFound("jig", name)
    if jig.active == active:
        return False
    await session.run("UPDATE jigs SET active = :active WHERE name = :name", name=name, active=active)
    await session.run("UPDATE graph SET catalogue_version = catalogue_version + 1")
    session.changed_catalogue()
    if active:
        await queue_jig_active(session, name)
    else:
        await session.run("DELETE FROM hook_calls WHERE kind = 'jig' AND handler = :name", name=name)
    await _touch_nodes_of_jig(session, name)
    await emit(session, "jig.activated" if active else "jig.deactivated", data={"name": name})
    return True


async def _touch_nodes_of_jig(session: Session, jig: str) -> None:
    rows = await session.rows(
        "SELECT DISTINCT nr.node_id FROM node_roles nr JOIN roles r ON r.id = nr.role_id WHERE r.jig = :jig", jig=jig
    )
    session.touch(row.node_id for row in rows)
