"""Committing a proposal: the plan, and doing just what the plan says, in one transaction.

The plan is worked out by the same code before, for the person to see, and within the commit. If the two differ, or a
rule no longer holds, the commit is a conflict and nothing has changed.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from rackwright.domain.catalogue import Flag
from rackwright.domain.errors import Conflict, Rule
from rackwright.domain.graph.binding import BindPlan
from rackwright.domain.graph.noderole_graph import Graph, NodeRole
from rackwright.domain.graph.snapshots import CommitPlan, Proposal, plan_commit
from rackwright.domain.graph.upgrades import Relinked, plan_upgrade
from rackwright.domain.states import PROPOSED, Trigger
from rackwright.store.catalogue.stored_catalogue import StoredCatalogue
from rackwright.store.db.session import GraphSession, Session
from rackwright.store.events.outbox import emit
from rackwright.store.graph.binding import adopt, mark_worked_out, push_cohorts, rebind_proposed, require_proposal
from rackwright.store.graph.deployments import DeploymentRecord
from rackwright.store.graph.noderoles import remove
from rackwright.store.graph.snapshots import drop_unused_roles, release
from rackwright.store.graph.subgraph import bump_graph, graph_version, load_nodes, load_with_descendants
from rackwright.store.graph.transitions import dirty, move, regroup, takers
from rackwright.store.graph.upgrades import apply_to, load_for_upgrade, outdated_in, relink, takers_of
from rackwright.store.hooks.hook_calls import ask_noderoles, queue_node_updated


async def plan(session: GraphSession, deployment: DeploymentRecord) -> CommitPlan:
    """What a commit would do now. Bindings are worked out again, and written, where the graph moved on."""
    snapshot_id = await require_proposal(session, deployment)
    stored = await session.catalogue()
    deferred = await _work_out_again(session, stored, deployment, snapshot_id)
    planned, _ = await _plan(session, stored, deployment, snapshot_id, deferred.relinked)
    return planned


async def commit(
    session: GraphSession, deployment: DeploymentRecord, digest: str | None = None, comment: str = ""
) -> CommitPlan:
    """Make the proposal head. `digest` is that of the plan the person saw."""
    snapshot_id = await require_proposal(session, deployment)
    stored = await session.catalogue()
    deferred = await _work_out_again(session, stored, deployment, snapshot_id)
    planned, proposal = await _plan(session, stored, deployment, snapshot_id, deferred.relinked)
    if digest is not None and digest != planned.digest:
        raise Conflict(
            Rule.PLAN_CHANGED,
            f"What committing deployment {deployment.name!r} would do has changed since you saw its plan. "
            "Look at the plan again.",
        )
    await _apply(session, stored, deployment, snapshot_id, proposal, planned, deferred)
    await _become_head(session, deployment, snapshot_id, comment)
    return planned


# --- working bindings out again


@dataclass(frozen=True)
class Deferred:
    """What only a commit may do, since it concerns noderoles that are committed already."""

    edges: Sequence[tuple[int, int]] = ()
    """From new members of clusters to what stands on those."""
    recohorted: Mapping[int, int] = field(default_factory=dict)
    relinked: Sequence[Relinked] = ()


async def _work_out_again(
    session: GraphSession, stored: StoredCatalogue, deployment: DeploymentRecord, snapshot_id: int
) -> Deferred:
    """Bind the proposal anew, in the order it was bound, if the graph it was bound in is no longer the one there is;
    and if a barclamp changed, what is committed as well."""
    proposed = await session.rows(
        "SELECT id, node_id, role_id FROM node_roles WHERE deployment_id = :id AND state = :proposed ORDER BY id",
        id=deployment.id,
        proposed=int(PROPOSED),
    )
    roles = {stored.role_names[row.role_id] for row in proposed}
    clustered = any(stored.catalogue.role(role).has(Flag.CLUSTER) for role in roles)
    version = await graph_version(session)
    last = await session.row(
        "SELECT s.worked_out_at, d.upgrade_due FROM snapshots s JOIN deployments d ON d.id = s.deployment_id"
        " WHERE s.id = :id",
        id=snapshot_id,
    )
    assert last is not None
    outdated = await outdated_in(session, stored, deployment, snapshot_id) if last.upgrade_due else {}
    if not outdated and (not proposed or (last.worked_out_at == version and not clustered)):
        return Deferred()
    known = {(row.node_id, stored.role_names[row.role_id]): row.id for row in proposed}
    graph = await load_for_upgrade(session, stored, deployment.id, known, outdated)
    without = _without(graph, set(known.values()))
    upgraded = plan_upgrade(without, stored.catalogue, deployment.id, list(known), outdated, known=known)
    worked_out, relinked = upgraded.bind_plan, list(upgraded.relinked)
    if not _same(graph, worked_out, set(known.values())):
        planned = worked_out.created
        worked_out = await rebind_proposed(session, deployment, snapshot_id, worked_out, without)
        ids = {before.id: now.id for before, now in zip(planned, worked_out.created, strict=True)}
        relinked = [one.with_ids(ids) for one in relinked]
    await mark_worked_out(session, snapshot_id)
    new = {noderole.id for noderole in worked_out.created}
    edges = [(parent, child) for parent, child in worked_out.edges if child not in new]
    return Deferred(edges, worked_out.recohorted, relinked)


def _without(graph: Graph, ids: set[int]) -> Graph:
    return Graph(
        nodes=graph.nodes.values(),
        deployments=graph.deployments.values(),
        noderoles=[noderole for id, noderole in graph.noderoles.items() if id not in ids],
        edges=[
            (parent, child)
            for child in graph.noderoles
            for parent in graph.parents(child)
            if parent not in ids and child not in ids
        ],
    )


def _same(graph: Graph, worked_out: BindPlan, known: set[int]) -> bool:
    """Whether binding anew gave just the noderoles and edges that are there."""
    if {noderole.id for noderole in worked_out.created} != known:
        return False
    before = {(parent, child) for child in known for parent in graph.parents(child)}
    after = {(parent, child) for parent, child in worked_out.edges if child in known}
    return before == after and all(graph.noderoles[one.id].cohort == one.cohort for one in worked_out.created)


# --- the plan


async def _plan(
    session: Session,
    stored: StoredCatalogue,
    deployment: DeploymentRecord,
    snapshot_id: int,
    relinked: Sequence[Relinked],
) -> tuple[CommitPlan, Proposal]:
    created = await _created(session, stored, deployment)
    dropped = await _ids(session, _DROPPED, deployment, snapshot_id)
    changed = await _ids(session, _CHANGED, deployment, snapshot_id)
    changed_roles = await session.rows(_CHANGED_ROLES, deployment=deployment.id, snapshot=snapshot_id)
    role_ids = [row.role_id for row in changed_roles]
    affected = {*changed, *await _of_roles(session, deployment.id, role_ids)}
    clusters = await _touched_members(session, stored, deployment, created, dropped)
    taking = await takers(session, affected)
    involved = {*dropped, *affected, *clusters, *(id for ids in taking.values() for id in ids)}
    involved |= {one.id for one in relinked}
    graph = await load_with_descendants(session, stored, involved) if involved else Graph()
    await load_nodes(session, graph, {noderole.node_id for noderole in created})
    for noderole in created:
        if noderole.id not in graph.noderoles:
            graph.add(noderole)
    apply_to(graph, relinked)
    for id, below in takers_of(graph, relinked).items():
        taking[id] = [*taking.get(id, ()), *below]
    revision = await session.value("SELECT revision FROM snapshots WHERE id = :id", id=snapshot_id)
    proposal = Proposal(
        deployment_id=deployment.id,
        revision=revision,
        created=tuple(created),
        dropped=frozenset(dropped),
        changed=frozenset(changed),
        changed_roles=frozenset(stored.role_names[id] for id in role_ids),
        dropped_roles=await _dropped_roles(session, deployment, snapshot_id),
        takers=taking,
        relinked={one.id: one for one in relinked},
    )
    return plan_commit(stored.catalogue, graph, proposal), proposal


_DROPPED = """
SELECT nr.id FROM node_roles nr WHERE nr.deployment_id = :deployment AND nr.state <> :proposed AND NOT nr.doomed
  AND NOT EXISTS (SELECT FROM snapshot_bindings b WHERE b.snapshot_id = :snapshot
                  AND b.node_id = nr.node_id AND b.role_id = nr.role_id)
"""

_CHANGED = """
SELECT nr.id FROM node_roles nr JOIN snapshot_bindings b
  ON b.snapshot_id = :snapshot AND b.node_id = nr.node_id AND b.role_id = nr.role_id
WHERE nr.deployment_id = :deployment AND nr.state <> :proposed AND b.data <> nr.user_data
"""

_CHANGED_ROLES = """
SELECT sr.role_id FROM snapshot_roles sr JOIN deployment_roles dr
  ON dr.deployment_id = :deployment AND dr.role_id = sr.role_id
WHERE sr.snapshot_id = :snapshot AND sr.data <> dr.data
"""


_DROPPED_ROLES = """
SELECT r.name FROM deployment_roles dr JOIN roles r ON r.id = dr.role_id
WHERE dr.deployment_id = :deployment
  AND NOT EXISTS (SELECT FROM snapshot_roles sr WHERE sr.snapshot_id = :snapshot AND sr.role_id = dr.role_id)
"""


async def _dropped_roles(session: Session, deployment: DeploymentRecord, snapshot_id: int) -> frozenset[str]:
    """The deployment-roles that go with this commit, as `drop_unused_roles` will find them."""
    found = await session.rows(_DROPPED_ROLES, deployment=deployment.id, snapshot=snapshot_id)
    return frozenset(row.name for row in found)


async def _ids(session: Session, query: str, deployment: DeploymentRecord, snapshot_id: int) -> set[int]:
    found = await session.rows(query, deployment=deployment.id, snapshot=snapshot_id, proposed=int(PROPOSED))
    return {row.id for row in found}


async def _created(session: Session, stored: StoredCatalogue, deployment: DeploymentRecord) -> list[NodeRole]:
    found = await session.rows(
        "SELECT id, node_id, role_id, cohort FROM node_roles WHERE deployment_id = :id AND state = :proposed",
        id=deployment.id,
        proposed=int(PROPOSED),
    )
    return [
        NodeRole(row.id, row.node_id, stored.role_names[row.role_id], deployment.id, PROPOSED, row.cohort)
        for row in found
    ]


async def _of_roles(session: Session, deployment_id: int, role_ids: Collection[int]) -> set[int]:
    if not role_ids:
        return set()
    found = await session.rows(
        "SELECT id FROM node_roles WHERE deployment_id = :id AND role_id = ANY (:roles) AND state <> :proposed",
        id=deployment_id,
        roles=list(role_ids),
        proposed=int(PROPOSED),
    )
    return {row.id for row in found}


async def _touched_members(
    session: Session,
    stored: StoredCatalogue,
    deployment: DeploymentRecord,
    created: Sequence[NodeRole],
    dropped: Collection[int],
) -> set[int]:
    """All committed members of the clusters that gain or lose one."""
    roles = {stored.role_ids[one.role] for one in created if stored.catalogue.role(one.role).has(Flag.CLUSTER)}
    if dropped:
        found = await session.rows(
            "SELECT DISTINCT nr.role_id FROM node_roles nr JOIN roles r ON r.id = nr.role_id AND r.cluster"
            " WHERE nr.id = ANY (:ids)",
            ids=list(dropped),
        )
        roles |= {row.role_id for row in found}
    return await _of_roles(session, deployment.id, roles)


# --- doing it


async def _apply(
    session: GraphSession,
    stored: StoredCatalogue,
    deployment: DeploymentRecord,
    snapshot_id: int,
    proposal: Proposal,
    planned: CommitPlan,
    deferred: Deferred,
) -> None:
    removed = {line.id for line in planned.removed}
    created = [noderole.id for noderole in proposal.created if noderole.id not in removed]
    changed = {*proposal.changed, *await _of_changed_roles(session, stored, proposal), *proposal.relinked} - removed
    await _take_data(session, deployment, snapshot_id)
    await ask_noderoles(session, "on_commit", {*created, *changed})
    await move(session, Trigger.COMMIT, created)
    await adopt(session, deferred.edges)
    await push_cohorts(session, deferred.recohorted)
    await relink(session, stored, deferred.relinked)
    await dirty(session, changed, Trigger.CHANGE)
    await regroup(session, {*created, *removed})
    taking = {id for ids in proposal.takers.values() for id in ids} - removed - changed
    await dirty(session, taking)
    moved = await session.rows(
        "UPDATE nodes n SET deployment_id = :deployment FROM nodes old JOIN deployments d ON d.id = old.deployment_id"
        " WHERE n.id = ANY (:ids) AND n.deployment_id <> :deployment AND old.id = n.id RETURNING n.id, d.name",
        deployment=deployment.id,
        ids=list({noderole.node_id for noderole in proposal.created} - await _nodes_of(session, proposal.relinked)),
    )
    await queue_node_updated(session, {row.id: {"deployment": row.name} for row in moved})
    await remove(session, removed)


async def _nodes_of(session: Session, ids: Collection[int]) -> set[int]:
    if not ids:
        return set()
    rows = await session.rows("SELECT DISTINCT node_id FROM node_roles WHERE id = ANY (:ids)", ids=list(ids))
    return {row.node_id for row in rows}


async def _of_changed_roles(session: Session, stored: StoredCatalogue, proposal: Proposal) -> set[int]:
    return await _of_roles(session, proposal.deployment_id, [stored.role_ids[role] for role in proposal.changed_roles])


async def _take_data(session: Session, deployment: DeploymentRecord, snapshot_id: int) -> None:
    """The intent becomes what is in force."""
    await session.run(
        """
        UPDATE node_roles nr SET user_data = b.data FROM snapshot_bindings b
        WHERE b.snapshot_id = :snapshot AND nr.node_id = b.node_id AND nr.role_id = b.role_id
          AND nr.deployment_id = :deployment AND nr.user_data <> b.data
        """,
        snapshot=snapshot_id,
        deployment=deployment.id,
    )
    await session.run(
        """
        UPDATE deployment_roles dr SET data = sr.data FROM snapshot_roles sr
        WHERE sr.snapshot_id = :snapshot AND dr.deployment_id = :deployment AND dr.role_id = sr.role_id
          AND dr.data <> sr.data
        """,
        snapshot=snapshot_id,
        deployment=deployment.id,
    )


async def _become_head(session: GraphSession, deployment: DeploymentRecord, snapshot_id: int, comment: str) -> None:
    await session.run(
        "UPDATE snapshots SET state = 'archived' WHERE deployment_id = :id AND state = 'head'", id=deployment.id
    )
    await session.run(
        "UPDATE snapshots SET state = 'head', committed_at = now(), comment = :comment WHERE id = :id",
        id=snapshot_id,
        comment=comment,
    )
    await session.run("UPDATE deployments SET upgrade_due = false WHERE id = :id AND upgrade_due", id=deployment.id)
    await drop_unused_roles(session, deployment.id)
    await release(session, deployment)
    await bump_graph(session)
    await emit(session, "snapshot.committed", snapshot_id, deployment_id=deployment.id)
