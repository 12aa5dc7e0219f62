"""Explains why a noderole is waiting: reads the facts for `domain/graph/why.py` and follows the chain of parents."""

from rackwright.domain.errors import NotFound
from rackwright.domain.graph.why import OpenInstall, Parent, Reason, Situation, explain_wait
from rackwright.domain.machines.install import Stage
from rackwright.domain.states import ACTIVE, PROPOSED, NodeRoleState
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import Visibility
from rackwright.store.machines.boot import lagging_providers

MAX_CHAIN = 100
"""The number of reasons in a chain that a person is shown."""

_SITUATION = """
SELECT nr.id, r.name AS role, n.name AS node, d.name AS deployment, nr.state, nr.error, d.held, n.alive, n.available,
       r.jig, coalesce(j.active, false) AS jig_active, nr.run_id, slot_run.id AS slot_run,
       holder.name AS slot_role, s.candidate_id, first.name AS first_role,
       (SELECT count(*) FROM hook_calls h WHERE h.blocks AND (h.node_id = nr.node_id OR h.subject_id IN (
            SELECT e.parent_id FROM node_role_edges e WHERE e.child_id = nr.id))) AS pending_hooks
FROM node_roles nr JOIN roles r ON r.id = nr.role_id JOIN nodes n ON n.id = nr.node_id
JOIN deployments d ON d.id = nr.deployment_id LEFT JOIN jigs j ON j.name = r.jig
LEFT JOIN slots s ON s.slot = CASE WHEN n.system THEN -nr.id ELSE n.id END
LEFT JOIN runs slot_run ON slot_run.slot = s.slot AND slot_run.state IN ('accepted', 'running')
LEFT JOIN node_roles held ON held.id = slot_run.node_role_id LEFT JOIN roles holder ON holder.id = held.role_id
LEFT JOIN node_roles ahead ON ahead.id = s.candidate_id LEFT JOIN roles first ON first.id = ahead.role_id
WHERE nr.id = :id AND {seen}
"""

_PARENTS = """
SELECT p.id, r.name || ' on ' || n.name AS title, p.state, {seen} AS seen
FROM node_role_edges e JOIN node_roles p ON p.id = e.parent_id JOIN roles r ON r.id = p.role_id
JOIN nodes n ON n.id = p.node_id WHERE e.child_id = :id AND p.state <> :active ORDER BY p.cohort, p.id
"""


async def explain_waiting(
    session: Session, node_role_id: int, visible: Visibility, cap: int | None = None
) -> list[Reason]:
    """Return the chain of reasons from this noderole to the one that a person can do something about.

    The chain ends before a noderole that may not be seen.
    """
    chain: list[Reason] = []
    visited: set[int] = set()
    current_id: int | None = node_role_id
    while current_id is not None and current_id not in visited and len(chain) < MAX_CHAIN:
        visited.add(current_id)
        chain.append(explain_wait(await _read_situation(session, current_id, visible, cap)))
        current_id = chain[-1].next_id
    return chain


async def select_waiting(
    session: Session, deployment_id: int | None, node_id: int | None, limit: int, visible: Visibility
) -> list[int]:
    """Return the first noderoles that are committed and not ACTIVE, of this deployment or node, or of all."""
    seen = visible.condition("deployment_id = ANY (:sees)")
    rows = await session.rows(
        "SELECT id FROM node_roles WHERE state <> :active AND state <> :proposed"
        " AND (CAST(:deployment AS bigint) IS NULL OR deployment_id = :deployment)"
        f" AND (CAST(:node AS bigint) IS NULL OR node_id = :node) AND {seen} ORDER BY cohort, id LIMIT :limit",
        active=int(ACTIVE),
        proposed=int(PROPOSED),
        deployment=deployment_id,
        node=node_id,
        limit=limit,
        **visible.values,
    )
    return [row.id for row in rows]


async def _read_situation(session: Session, id: int, visible: Visibility, cap: int | None) -> Situation:
    seen = visible.condition("nr.deployment_id = ANY (:sees)")
    row = await session.row(_SITUATION.format(seen=seen), id=id, **visible.values)
    if row is None:
        raise NotFound("noderole", id)
    seen_parent = visible.condition("p.deployment_id = ANY (:sees)")
    parents = await session.rows(_PARENTS.format(seen=seen_parent), id=id, active=int(ACTIVE), **visible.values)
    running: int = await session.value(
        "SELECT count(*) FROM runs WHERE state IN ('accepted', 'running') AND state = 'running'"
    )
    return Situation(
        id=row.id,
        role=row.role,
        node=row.node,
        deployment=row.deployment,
        state=NodeRoleState(row.state),
        error=row.error,
        held=row.held,
        alive=row.alive,
        available=row.available,
        jig=row.jig,
        jig_active=row.jig_active,
        slot_run=row.slot_run,
        slot_title=row.slot_role or "",
        run_id=row.run_id,
        pending_hooks=row.pending_hooks,
        ahead=row.first_role if row.candidate_id not in (None, id) else "",
        cap_full=cap is not None and running >= cap,
        install=await _read_open_install(session, row.run_id),
        parents=tuple(
            Parent(parent.id, parent.title if parent.seen else None, NodeRoleState(parent.state)) for parent in parents
        ),
    )


async def _read_open_install(session: Session, run_id: int | None) -> OpenInstall | None:
    row = await session.row(
        "SELECT node_id, stage, generation, progress FROM install_attempts WHERE run_id = :id AND ended_at IS NULL",
        id=run_id,
    )
    if row is None:
        return None
    lagging = [] if row.generation is None else await lagging_providers(session, row.node_id, row.generation)
    return OpenInstall(Stage(row.stage), tuple(lagging), str(row.progress.get("stage", "")))
