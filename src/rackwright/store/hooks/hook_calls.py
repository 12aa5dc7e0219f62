"""Queue calls of hooks in the transaction of the change that they are about. `hook_queue.py` has how they are made.

Most hooks are told of a change afterwards: their calls become rows, which are small (`hook_views.py` reads what hooks
are shown). Hooks that may refuse a change are asked before it: the transaction is given their verdicts
(`store/db/hook_context.py`), and its caller rolls it back if a verdict is missing. While no role implements a hook,
nothing is done here, and next to nothing is read.
"""

from collections.abc import Collection, Mapping, Sequence

from psycopg.types.json import Jsonb

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.hooks import STATE_HOOKS
from rackwright.store.catalogue.stored_catalogue import StoredCatalogue
from rackwright.store.db.hook_context import PendingCall
from rackwright.store.db.session import Session
from rackwright.store.hooks.hook_views import (
    DEPLOYMENT_VIEW,
    MAX_OLD_VALUES_BYTES,
    NODEROLE_BRIEF,
    NODEROLE_VIEW,
    NODEROLES,
    brief_before,
    brief_noderole,
    keep_last_state,
)

HOOK_CHANNEL = "rackwright_hooks"
"""Notified when there is a hook to call."""

CHAIN = "chain"
"""The key, in the stored view of a call, of how often each role was called in the chain of hooks that led to it."""

MAX_RECALLS = 5
"""How often a role's hook is called again because of what it and other hooks changed. The same limit as for runs."""


# --- noderoles


async def queue_state_hooks(session: Session, state_changes: Sequence[tuple[int, int]]) -> None:
    """Queue the calls that tell the roles of these noderoles of the states they came to, in order.

    `state_changes`: (noderole id, new state).
    """
    if not state_changes:
        return
    hooked = (await session.catalogue()).catalogue.roles_with_hook
    hooks = {int(state): hook for state, hook in STATE_HOOKS.items() if hooked(hook)}
    hooked_changes = [(id, state, hooks[state]) for id, state in state_changes if state in hooks]
    if not hooked_changes:
        return
    rows = await session.rows(
        f"""
        INSERT INTO hook_calls (kind, handler, hook, subject, subject_id, node_id, blocks, view)
        SELECT 'role', r.name, change.hook, 'noderole', nr.id, nr.node_id, true,
               {NODEROLE_BRIEF} || jsonb_build_object('state', change.state)
        FROM unnest(CAST(:ids AS bigint[]), CAST(:states AS int[]), CAST(:hooks AS text[]))
            WITH ORDINALITY AS change (id, state, hook, position)
        JOIN node_roles nr ON nr.id = change.id
        JOIN roles r ON r.id = nr.role_id AND change.hook = ANY (r.hooks) JOIN nodes n ON n.id = nr.node_id
        ORDER BY change.position RETURNING node_id
        """,
        ids=[id for id, _, _ in hooked_changes],
        states=[state for _, state, _ in hooked_changes],
        hooks=[hook for _, _, hook in hooked_changes],
    )
    if rows:
        session.touch(row.node_id for row in rows)
        await session.run(f"NOTIFY {HOOK_CHANNEL}")


# --- nodes


async def queue_node_created(session: Session, id: int) -> None:
    await _queue_nodes(session, "create", {id: {}})


async def queue_node_updated(session: Session, before: Mapping[int, JsonObject]) -> None:
    """Queue calls for nodes that were updated: `before` has the old values of what changed, by node id.

    Calls for earlier updates of a node that still wait become one with this.
    """
    if not before or not _node_handlers(await session.catalogue(), "update"):
        return
    objects = [id for id, old in before.items() if any(isinstance(value, dict) for value in old.values())]
    rows = await session.rows("SELECT id, discovery, hint FROM nodes WHERE id = ANY (:ids)", ids=objects)
    now: dict[int, JsonObject] = {row.id: {"discovery": row.discovery, "hint": row.hint} for row in rows}
    await _queue_nodes(session, "update", {id: brief_before(old, now.get(id, {})) for id, old in before.items()})


async def queue_node_deleted(session: Session, id: int) -> None:
    """Queue calls for a node that is about to be deleted. Its row is still there, locked: hooks get its last state."""
    await _queue_nodes(session, "delete", {id: {}}, view_id=await keep_last_state(session, id))


def _node_handlers(stored: StoredCatalogue, change: str) -> list[tuple[str, str, str]]:
    """Return (kind, handler, hook) of all that are told: every role that implements the hook, and every active jig."""
    roles = stored.catalogue.roles_with_hook(f"on_node_{change}")
    jigs = sorted(jig.name for jig in stored.catalogue.jigs.values() if jig.active)
    return [*(("role", role, f"on_node_{change}") for role in roles), *(("jig", jig, f"node_{change}") for jig in jigs)]


def _joined_sql(name: str) -> str:
    """Return the SQL for the old values below `name` of two updates that become one: of each key the older."""
    newer, older = f"(fresh.before -> '{name}')", f"(h.view #> '{{before,{name}}}')"
    return (
        f"CASE WHEN jsonb_typeof({newer}) = 'object' AND jsonb_typeof({older}) = 'object'"
        f" THEN jsonb_build_object('{name}', {newer} || {older}) ELSE '{{}}' END"
    )


_QUEUE_NODES = f"""
WITH fresh AS (
    SELECT n.id, n.name, changed.before
    FROM unnest(CAST(:ids AS bigint[]), CAST(:before AS jsonb[])) AS changed (id, before)
    JOIN nodes n ON n.id = changed.id AND NOT n.system
), handlers AS (
    SELECT * FROM unnest(CAST(:kinds AS text[]), CAST(:handlers AS text[]), CAST(:hooks AS text[]),
                         CAST(:errors AS text[]))
        WITH ORDINALITY AS handlers (kind, handler, hook, error, position)
), waiting AS (
    SELECT h.id, h.kind, h.handler, h.subject_id,
           fresh.before || coalesce(h.view -> 'before', '{{}}')
               || {_joined_sql("discovery")} || {_joined_sql("hint")} AS before
    FROM hook_calls h JOIN fresh ON h.subject_id = fresh.id
    WHERE :coalesce AND h.subject = 'node' AND h.state = 'waiting' AND h.hook = ANY (:hooks)
    FOR UPDATE OF h
), joined AS (
    UPDATE hook_calls h SET view = h.view || jsonb_build_object('before', waiting.before) FROM waiting
    WHERE h.id = waiting.id AND h.view -> 'before' IS DISTINCT FROM waiting.before
      AND octet_length(waiting.before::text) <= {MAX_OLD_VALUES_BYTES}
)
INSERT INTO hook_calls (kind, handler, hook, subject, subject_id, node_id, view, view_id, state, error)
SELECT kind, handler, hook, 'node', fresh.id, fresh.id,
       jsonb_build_object('name', fresh.name, 'before', fresh.before) || CAST(:chain AS jsonb),
       CAST(:view_id AS bigint), CASE WHEN error = '' THEN 'waiting' ELSE 'failed' END, error
FROM fresh CROSS JOIN handlers
WHERE NOT EXISTS (SELECT FROM waiting w
                  WHERE w.kind = handlers.kind AND w.handler = handlers.handler AND w.subject_id = fresh.id)
ORDER BY fresh.id, position
RETURNING handler, hook, subject_id, error
"""


async def _queue_nodes(
    session: Session,
    change: str,
    before: Mapping[int, JsonObject],
    handlers: Sequence[tuple[str, str, str]] | None = None,
    view_id: int | None = None,
) -> None:
    if handlers is None:
        handlers = _node_handlers(await session.catalogue(), change)
    if not before or not handlers:
        return
    errors = [_oscillation_error(session.hooks.chain, kind, handler, hook) for kind, handler, hook in handlers]
    rows = await session.rows(
        _QUEUE_NODES,
        ids=list(before),
        before=[Jsonb(old) for old in before.values()],
        kinds=[kind for kind, _, _ in handlers],
        handlers=[handler for _, handler, _ in handlers],
        hooks=[hook for _, _, hook in handlers],
        errors=errors,
        chain=Jsonb({CHAIN: dict(session.hooks.chain)} if session.hooks.chain else {}),
        coalesce=change == "update",
        view_id=view_id,
    )
    if rows:
        await session.run(f"NOTIFY {HOOK_CHANNEL}")
    session.hooks.oscillating += [(row.subject_id, row.handler, row.hook, row.error) for row in rows if row.error]


def _oscillation_error(chain: Mapping[str, int], kind: str, handler: str, hook: str) -> str:
    """Return why a call is not made: its role was called too often because of what it and others changed. Empty: the
    call is made."""
    if kind != "role" or chain.get(handler, 0) <= MAX_RECALLS:
        return ""
    others = [repr(role) for role in sorted(chain) if role != handler]
    causes = f"it and the hooks of {', '.join(others)} changed" if others else "it changed"
    return (
        f"oscillates: {hook} was called {MAX_RECALLS} times again because of what {causes} before, and the node still"
        " changes. It is not called any more until something else changes the node. Let it return nothing when the node"
        " is as it should be, then retry."
    )


async def queue_jig_active(session: Session, jig: str) -> None:
    """Queue the calls that tell a jig, which becomes active, of every node there is."""
    nodes = await session.rows("SELECT id FROM nodes WHERE NOT system ORDER BY id")
    await _queue_nodes(session, "create", {row.id: {} for row in nodes}, [("jig", jig, "node_create")])


# --- networks


async def queue_network(session: Session, change: str, subject_id: int, view: JsonObject) -> None:
    """Queue a call for every role that has the hook: `change` is network_create, allocation_delete and so on."""
    hook = f"on_{change}"
    subject, node_id = change.partition("_")[0], view.get("node_id")
    await _queue_calls(
        session,
        [
            PendingCall(role, hook, subject, subject_id, node_id if isinstance(node_id, int) else None, view)
            for role in (await session.catalogue()).catalogue.roles_with_hook(hook)
        ],
    )


# --- changes that hooks may refuse


async def ask_noderoles(session: Session, hook: str, ids: Collection[int], *, new: bool = False) -> None:
    """Ask the roles of these noderoles by `on_node_bind` or `on_commit`. `new`: this transaction creates them."""
    if not ids or not (await session.catalogue()).catalogue.roles_with_hook(hook):
        return
    rows = await session.rows(
        f"SELECT r.name AS role, nr.id, nr.node_id, {NODEROLE_VIEW} AS view FROM {NODEROLES}"
        " WHERE nr.id = ANY (:ids) AND :hook = ANY (r.hooks) ORDER BY nr.cohort, n.name, r.name",
        ids=list(ids),
        hook=hook,
    )
    calls = [PendingCall(row.role, hook, "noderole", row.id, row.node_id, row.view) for row in rows]
    if new and session.hooks.verdicts is not None:
        # A new noderole gets another id each time the change is tried, and has none if the hook refuses.
        calls = [PendingCall(c.role, hook, "noderole", c.subject_id, c.node_id, {**c.view, "id": 0}) for c in calls]
    await _ask_or_queue(session, calls)


async def ask_deployment_roles(session: Session, hook: str, ids: Collection[int]) -> None:
    """Ask the roles of these deployment-roles by `on_deployment_create` or `on_deployment_delete`."""
    if not ids or not (await session.catalogue()).catalogue.roles_with_hook(hook):
        return
    rows = await session.rows(
        f"SELECT r.name AS role, d.id, {DEPLOYMENT_VIEW} AS view FROM deployment_roles dr"
        " JOIN roles r ON r.id = dr.role_id JOIN deployments d ON d.id = dr.deployment_id"
        " WHERE dr.id = ANY (:ids) AND :hook = ANY (r.hooks) ORDER BY r.name",
        ids=list(ids),
        hook=hook,
    )
    await _ask_or_queue(session, [PendingCall(row.role, hook, "deployment", row.id, None, row.view) for row in rows])


async def _ask_or_queue(session: Session, calls: Sequence[PendingCall]) -> None:
    """Do what the verdicts on these calls say. Where nothing can be refused (discovery, first start), queue the calls:
    the hooks are told afterwards."""
    verdicts = session.hooks.verdicts
    if verdicts is None:
        await _queue_calls(session, calls)
        return
    for call in calls:
        effects = verdicts.effects_by_key.get(call.key)
        if effects is None:
            verdicts.missing.append(call)
        elif effects:
            await verdicts.apply(session, call, effects)


async def _queue_calls(session: Session, calls: Sequence[PendingCall]) -> None:
    if calls:
        await session.run(
            """
            INSERT INTO hook_calls (kind, handler, hook, subject, subject_id, node_id, view)
            SELECT 'role', handler, hook, subject, subject_id, node_id, view
            FROM unnest(CAST(:handlers AS text[]), CAST(:hooks AS text[]), CAST(:subjects AS text[]),
                        CAST(:subject_ids AS bigint[]), CAST(:node_ids AS bigint[]), CAST(:views AS jsonb[]))
                WITH ORDINALITY AS call (handler, hook, subject, subject_id, node_id, view, position)
                ORDER BY position
            """,
            handlers=[call.role for call in calls],
            hooks=[call.hook for call in calls],
            subjects=[call.subject for call in calls],
            subject_ids=[call.subject_id for call in calls],
            node_ids=[call.node_id for call in calls],
            # The rest of a noderole's view is read when the call is made; people write deployments and networks: small.
            views=[Jsonb(brief_noderole(call.view) if call.subject == "noderole" else call.view) for call in calls],
        )
        await session.run(f"NOTIFY {HOOK_CHANNEL}")
