"""Calls of hooks, written in the transaction of the change that they are about; who makes them is in `hook_queue.py`.

Most hooks are told afterwards: their calls become rows here, which are small (`hook_views.py` has what is shown). Those
that may refuse are asked before: the transaction is given their verdicts (`store/db/hook_context.py`), and one that
lacks a verdict it needs is rolled back by who gave them. Nothing here is done, and next to nothing looked at, while no
role implements a hook.
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
    MOST_BEFORE,
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
"""In what is stored of a call: how often each role was called in the chain of hooks that led to it."""

MOST_RECALLS = 5
"""How often a role's hook is called again because of what it and others changed when they were called. As with runs."""


# --- noderoles


async def queue_moves(session: Session, moved: Sequence[tuple[int, int]]) -> None:
    """Tell the roles of these noderoles of the states they came to, each in its order."""
    if not moved:
        return
    hooked = (await session.catalogue()).catalogue.hooked
    hooks = {int(state): hook for state, hook in STATE_HOOKS.items() if hooked(hook)}
    told = [(id, state, hooks[state]) for id, state in moved if state in hooks]
    if not told:
        return
    rows = await session.rows(
        f"""
        INSERT INTO hook_calls (kind, handler, hook, subject, subject_id, node_id, blocks, view)
        SELECT 'role', r.name, told.hook, 'noderole', nr.id, nr.node_id, true,
               {NODEROLE_BRIEF} || jsonb_build_object('state', told.state)
        FROM unnest(CAST(:ids AS bigint[]), CAST(:states AS int[]), CAST(:hooks AS text[]))
            WITH ORDINALITY AS told (id, state, hook, place)
        JOIN node_roles nr ON nr.id = told.id
        JOIN roles r ON r.id = nr.role_id AND told.hook = ANY (r.hooks) JOIN nodes n ON n.id = nr.node_id
        ORDER BY told.place RETURNING node_id
        """,
        ids=[id for id, _, _ in told],
        states=[state for _, state, _ in told],
        hooks=[hook for _, _, hook in told],
    )
    if rows:
        session.touch(row.node_id for row in rows)
        await session.run(f"NOTIFY {HOOK_CHANNEL}")


# --- nodes


async def queue_node_created(session: Session, id: int) -> None:
    await _queue_nodes(session, "create", {id: {}})


async def queue_node_updated(session: Session, before: Mapping[int, JsonObject]) -> None:
    """For each node the old values of what changed, which it has been. Updates that still wait become one with this."""
    if not before or not _handlers(await session.catalogue(), "update"):
        return
    objects = [id for id, old in before.items() if any(isinstance(value, dict) for value in old.values())]
    rows = await session.rows("SELECT id, discovery, hint FROM nodes WHERE id = ANY (:ids)", ids=objects)
    now: dict[int, JsonObject] = {row.id: {"discovery": row.discovery, "hint": row.hint} for row in rows}
    await _queue_nodes(session, "update", {id: brief_before(old, now.get(id, {})) for id, old in before.items()})


async def queue_node_deleted(session: Session, id: int) -> None:
    """Needs the row still to be there, locked: the hooks get the whole last state."""
    await _queue_nodes(session, "delete", {id: {}}, view_id=await keep_last_state(session, id))


def _handlers(stored: StoredCatalogue, what: str) -> list[tuple[str, str, str]]:
    """(kind, handler, hook) of all that want to know: every role that implements it, and every active jig."""
    roles = stored.catalogue.hooked(f"on_node_{what}")
    jigs = sorted(jig.name for jig in stored.catalogue.jigs.values() if jig.active)
    return [*(("role", role, f"on_node_{what}") for role in roles), *(("jig", jig, f"node_{what}") for jig in jigs)]


def _joined(name: str) -> str:
    """SQL for the old values below `name` of two updates that become one: of each key the older."""
    newer, older = f"(fresh.before -> '{name}')", f"(h.view #> '{{before,{name}}}')"
    return (
        f"CASE WHEN jsonb_typeof({newer}) = 'object' AND jsonb_typeof({older}) = 'object'"
        f" THEN jsonb_build_object('{name}', {newer} || {older}) ELSE '{{}}' END"
    )


_QUEUE_NODES = f"""
WITH fresh AS (
    SELECT n.id, n.name, given.before
    FROM unnest(CAST(:ids AS bigint[]), CAST(:before AS jsonb[])) AS given (id, before)
    JOIN nodes n ON n.id = given.id AND NOT n.system
), handlers AS (
    SELECT * FROM unnest(CAST(:kinds AS text[]), CAST(:handlers AS text[]), CAST(:hooks AS text[]),
                         CAST(:errors AS text[]))
        WITH ORDINALITY AS handlers (kind, handler, hook, error, place)
), waiting AS (
    SELECT h.id, h.kind, h.handler, h.subject_id,
           fresh.before || coalesce(h.view -> 'before', '{{}}') || {_joined("discovery")} || {_joined("hint")} AS before
    FROM hook_calls h JOIN fresh ON h.subject_id = fresh.id
    WHERE :coalesce AND h.subject = 'node' AND h.state = 'waiting' AND h.hook = ANY (:hooks)
    FOR UPDATE OF h
), joined AS (
    UPDATE hook_calls h SET view = h.view || jsonb_build_object('before', waiting.before) FROM waiting
    WHERE h.id = waiting.id AND h.view -> 'before' IS DISTINCT FROM waiting.before
      AND octet_length(waiting.before::text) <= {MOST_BEFORE}
)
INSERT INTO hook_calls (kind, handler, hook, subject, subject_id, node_id, view, view_id, state, error)
SELECT kind, handler, hook, 'node', fresh.id, fresh.id,
       jsonb_build_object('name', fresh.name, 'before', fresh.before) || CAST(:chain AS jsonb),
       CAST(:view_id AS bigint), CASE WHEN error = '' THEN 'waiting' ELSE 'failed' END, error
FROM fresh CROSS JOIN handlers
WHERE NOT EXISTS (SELECT FROM waiting w
                  WHERE w.kind = handlers.kind AND w.handler = handlers.handler AND w.subject_id = fresh.id)
ORDER BY fresh.id, place
RETURNING handler, hook, subject_id, error
"""


async def _queue_nodes(
    session: Session,
    what: str,
    before: Mapping[int, JsonObject],
    handlers: Sequence[tuple[str, str, str]] | None = None,
    view_id: int | None = None,
) -> None:
    if handlers is None:
        handlers = _handlers(await session.catalogue(), what)
    if not before or not handlers:
        return
    errors = [_oscillates(session.hooks.chain, kind, handler, hook) for kind, handler, hook in handlers]
    made = await session.rows(
        _QUEUE_NODES,
        ids=list(before),
        before=[Jsonb(old) for old in before.values()],
        kinds=[kind for kind, _, _ in handlers],
        handlers=[handler for _, handler, _ in handlers],
        hooks=[hook for _, _, hook in handlers],
        errors=errors,
        chain=Jsonb({CHAIN: dict(session.hooks.chain)} if session.hooks.chain else {}),
        coalesce=what == "update",
        view_id=view_id,
    )
    if made:
        await session.run(f"NOTIFY {HOOK_CHANNEL}")
    session.hooks.oscillating += [(row.subject_id, row.handler, row.hook, row.error) for row in made if row.error]


def _oscillates(chain: Mapping[str, int], kind: str, handler: str, hook: str) -> str:
    """Why a call is not made: its role was called too often because of what it and others changed. Empty: it is."""
    if kind != "role" or chain.get(handler, 0) <= MOST_RECALLS:
        return ""
    others = [repr(role) for role in sorted(chain) if role != handler]
    causes = f"it and the hooks of {', '.join(others)} changed" if others else "it changed"
    return (
        f"oscillates: {hook} was called {MOST_RECALLS} times again because of what {causes} before, and the node still"
        " changes. It is not called any more until something else changes the node. Let it return nothing when the node"
        " is as it should be, then retry."
    )


async def queue_jig_active(session: Session, jig: str) -> None:
    """A jig that becomes active is told of every node there is."""
    nodes = await session.rows("SELECT id FROM nodes WHERE NOT system ORDER BY id")
    await _queue_nodes(session, "create", {row.id: {} for row in nodes}, [("jig", jig, "node_create")])


# --- networks


async def queue_network(session: Session, what: str, subject_id: int, view: JsonObject) -> None:
    """Tell every role that wants to know: `what` is network_create, allocation_delete and so on."""
    hook = f"on_{what}"
    subject, node_id = what.partition("_")[0], view.get("node_id")
    await _tell(
        session,
        [
            PendingCall(role, hook, subject, subject_id, node_id if isinstance(node_id, int) else None, view)
            for role in (await session.catalogue()).catalogue.hooked(hook)
        ],
    )


# --- what may be refused


async def ask_noderoles(session: Session, hook: str, ids: Collection[int], *, new: bool = False) -> None:
    """Ask `on_node_bind` or `on_commit` of the roles of these noderoles. `new`: they are not there before this."""
    if not ids or not (await session.catalogue()).catalogue.hooked(hook):
        return
    rows = await session.rows(
        f"SELECT r.name AS role, nr.id, nr.node_id, {NODEROLE_VIEW} AS view FROM {NODEROLES}"
        " WHERE nr.id = ANY (:ids) AND :hook = ANY (r.hooks) ORDER BY nr.cohort, n.name, r.name",
        ids=list(ids),
        hook=hook,
    )
    calls = [PendingCall(row.role, hook, "noderole", row.id, row.node_id, row.view) for row in rows]
    if new and session.hooks.verdicts is not None:
        # It gets another id each time that it is tried, and has none if the hook refuses.
        calls = [PendingCall(c.role, hook, "noderole", c.subject_id, c.node_id, {**c.view, "id": 0}) for c in calls]
    await _ask(session, calls)


async def ask_deployment_roles(session: Session, hook: str, ids: Collection[int]) -> None:
    """Ask `on_deployment_create` or `on_deployment_delete` of the roles of these deployment-roles."""
    if not ids or not (await session.catalogue()).catalogue.hooked(hook):
        return
    rows = await session.rows(
        f"SELECT r.name AS role, d.id, {DEPLOYMENT_VIEW} AS view FROM deployment_roles dr"
        " JOIN roles r ON r.id = dr.role_id JOIN deployments d ON d.id = dr.deployment_id"
        " WHERE dr.id = ANY (:ids) AND :hook = ANY (r.hooks) ORDER BY r.name",
        ids=list(ids),
        hook=hook,
    )
    await _ask(session, [PendingCall(row.role, hook, "deployment", row.id, None, row.view) for row in rows])


async def _ask(session: Session, calls: Sequence[PendingCall]) -> None:
    """Do as the verdicts say. Where nobody can be refused (discovery, first start), hooks are told afterwards."""
    verdicts = session.hooks.verdicts
    if verdicts is None:
        await _tell(session, calls)
        return
    for call in calls:
        effects = verdicts.effects_by_key.get(call.key)
        if effects is None:
            verdicts.missing.append(call)
        elif effects:
            await verdicts.apply(session, call, effects)


async def _tell(session: Session, calls: Sequence[PendingCall]) -> None:
    if calls:
        await session.run(
            """
            INSERT INTO hook_calls (kind, handler, hook, subject, subject_id, node_id, view)
            SELECT 'role', handler, hook, subject, subject_id, node_id, view
            FROM unnest(CAST(:handlers AS text[]), CAST(:hooks AS text[]), CAST(:subjects AS text[]),
                        CAST(:subject_ids AS bigint[]), CAST(:node_ids AS bigint[]), CAST(:views AS jsonb[]))
                WITH ORDINALITY AS given (handler, hook, subject, subject_id, node_id, view, place) ORDER BY place
            """,
            handlers=[call.role for call in calls],
            hooks=[call.hook for call in calls],
            subjects=[call.subject for call in calls],
            subject_ids=[call.subject_id for call in calls],
            node_ids=[call.node_id for call in calls],
            # Of a noderole the rest is read when the call is made; deployments and networks are people's, and small.
            views=[Jsonb(brief_noderole(call.view) if call.subject == "noderole" else call.view) for call in calls],
        )
        await session.run(f"NOTIFY {HOOK_CHANNEL}")
