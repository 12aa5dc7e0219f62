"""Committing a proposal: computes the plan, and does what the plan says, in one transaction.

The same code computes the plan before the commit, for the person to see, and within the commit. If the two plans
differ, or a rule no longer holds, the commit is a conflict and nothing has changed.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rackwright.domain.attributes import merge, read_at_path
from rackwright.domain.catalogue import Flag
from rackwright.domain.errors import DigestRequired, PlanChanged
from rackwright.domain.graph.binding import BindPlan
from rackwright.domain.graph.noderole_graph import Graph, NodeRole
from rackwright.domain.graph.snapshots import CommitPlan, Proposal, plan_commit
from rackwright.domain.graph.upgrades import Relinked, plan_upgrade
from rackwright.domain.installs.wipes import InstallWipes, digest_wipes
from rackwright.domain.states import PROPOSED, Trigger
from rackwright.store.catalogue.stored_catalogue import StoredCatalogue
from rackwright.store.db.session import GraphSession, Session
from rackwright.store.events.outbox import emit
from rackwright.store.graph.binding import (
    add_parents,
    lock_proposal,
    rebind_proposed,
    record_graph_version,
    update_cohorts,
)
from rackwright.store.graph.deployments import DeploymentRecord
from rackwright.store.graph.node_networks import check_network_changes
from rackwright.store.graph.noderoles import remove_noderoles
from rackwright.store.graph.planned_installs import select_resolved_installs
from rackwright.store.graph.snapshots import drop_unused_roles, release
from rackwright.store.graph.subgraph import bump_graph, load_nodes, load_with_descendants, read_graph_version
from rackwright.store.graph.transitions import find_takers, mark_dirty, move_noderoles, rerun_cluster_peers
from rackwright.store.graph.upgrades import (
    apply_relinks,
    find_relinked_takers,
    load_for_upgrade,
    relink_noderoles,
    select_outdated_in_proposal,
)
from rackwright.store.hooks.hook_calls import ask_noderoles, queue_node_updated
from rackwright.store.machines.confirmed_wipes import check_wipes, confirm_wipes


async def plan_proposal_commit(session: GraphSession, deployment: DeploymentRecord) -> CommitPlan:
    """Return what a commit would do now.

    Where the graph changed since the proposal was bound, its bindings are computed again and written.
    """
    snapshot_id = await lock_proposal(session, deployment)
    stored = await session.catalogue()
    deferred = await _rebind_if_outdated(session, stored, deployment, snapshot_id)
    plan, _, _ = await _build_plan(session, stored, deployment, snapshot_id, deferred.relinked)
    return plan


async def commit_proposal(
    session: GraphSession, deployment: DeploymentRecord, digest: str | None = None, comment: str = ""
) -> CommitPlan:
    """Make the proposal head. `digest` is that of the plan the person saw: a plan that differs is refused.

    Without one, a commit that wipes data is refused as well. What it wipes is confirmed with it.
    """
    snapshot_id = await lock_proposal(session, deployment)
    stored = await session.catalogue()
    deferred = await _rebind_if_outdated(session, stored, deployment, snapshot_id)
    plan, proposal, wipes = await _build_plan(session, stored, deployment, snapshot_id, deferred.relinked)
    if digest is not None and digest != plan.digest:
        raise PlanChanged(
            f"What committing deployment {deployment.name!r} would do has changed since you saw its plan, or what is "
            f"on the disks that it wipes. Look at the plan again: rackwright deployment plan {deployment.name}",
        )
    check_wipes(wipes, digest, f"rackwright deployment plan {deployment.name}")
    _check_other_wipes(stored, plan, wipes, digest, deployment)
    await _apply_plan(session, stored, deployment, snapshot_id, proposal, plan, deferred)
    await check_network_changes(session, [line.id for line in (*plan.created, *plan.rerun)])
    await confirm_wipes(session, wipes)
    await _make_head(session, deployment, snapshot_id, comment)
    return plan


def _check_other_wipes(
    stored: StoredCatalogue,
    plan: CommitPlan,
    wipes: Collection[InstallWipes],
    digest: str | None,
    deployment: DeploymentRecord,
) -> None:
    """Refuse to run, without a digest, a role that destroys and installs no system: nobody knows what it wipes."""
    installing = {wiped.node_role_id for wiped in wipes}
    others = [
        f"{line.role} on {line.node}"
        for line in (*plan.created, *plan.rerun)
        if line.id not in installing and stored.catalogue.role(line.role).has(Flag.DESTRUCTIVE)
    ]
    if others and digest is None:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise DigestRequired(
            f"This wipes what nobody knows: {others[0]}{more}. Look at it, and send the digest of what you saw: "
            f"rackwright deployment plan {deployment.name}"
        )


# --- computing bindings again


@dataclass(frozen=True)
class DeferredChanges:
    """Changes that only a commit may make, since they concern noderoles that are committed already."""

    edges: Sequence[tuple[int, int]] = ()
    """From new members of clusters to the noderoles that stand on those clusters."""
    recohorted: Mapping[int, int] = field(default_factory=dict)
    relinked: Sequence[Relinked] = ()


async def _rebind_if_outdated(
    session: GraphSession, stored: StoredCatalogue, deployment: DeploymentRecord, snapshot_id: int
) -> DeferredChanges:
    """Bind the proposal again, in the same order, if the graph has changed since; return what is left to the commit.

    If a barclamp changed, noderoles that are committed get their new parents as well.
    """
    proposed = await session.rows(
        "SELECT id, node_id, role_id FROM node_roles WHERE deployment_id = :id AND state = :proposed ORDER BY id",
        id=deployment.id,
        proposed=int(PROPOSED),
    )
    roles = {stored.role_names[row.role_id] for row in proposed}
    clustered = any(stored.catalogue.role(role).has(Flag.CLUSTER) for role in roles)
    version = await read_graph_version(session)
    snapshot = await session.row(
        "SELECT s.worked_out_at, d.upgrade_due FROM snapshots s JOIN deployments d ON d.id = s.deployment_id"
        " WHERE s.id = :id",
        id=snapshot_id,
    )
    assert snapshot is not None
    outdated = (
        await select_outdated_in_proposal(session, stored, deployment, snapshot_id) if snapshot.upgrade_due else {}
    )
    if not outdated and (not proposed or (snapshot.worked_out_at == version and not clustered)):
        return DeferredChanges()
    proposed_ids = {(row.node_id, stored.role_names[row.role_id]): row.id for row in proposed}
    graph = await load_for_upgrade(session, stored, deployment.id, proposed_ids, outdated)
    graph_without = _copy_without(graph, set(proposed_ids.values()))
    upgraded = plan_upgrade(
        graph_without, stored.catalogue, deployment.id, list(proposed_ids), outdated, known=proposed_ids
    )
    new_plan, relinked = upgraded.bind_plan, list(upgraded.relinked)
    if not _is_unchanged(graph, new_plan, set(proposed_ids.values())):
        planned = new_plan.created
        new_plan = await rebind_proposed(session, deployment, snapshot_id, new_plan, graph_without)
        pairs = zip(planned, new_plan.created, strict=True)
        ids = {planned_noderole.id: written.id for planned_noderole, written in pairs}
        relinked = [noderole.with_ids(ids) for noderole in relinked]
    await record_graph_version(session, snapshot_id)
    created = {noderole.id for noderole in new_plan.created}
    edges = [(parent, child) for parent, child in new_plan.edges if child not in created]
    return DeferredChanges(edges, new_plan.recohorted, relinked)


def _copy_without(graph: Graph, ids: set[int]) -> Graph:
    """Return a copy of the graph without these noderoles."""
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


def _is_unchanged(graph: Graph, plan: BindPlan, proposed_ids: set[int]) -> bool:
    """Return whether the plan has just the noderoles and edges that are in the graph."""
    if {noderole.id for noderole in plan.created} != proposed_ids:
        return False
    before = {(parent, child) for child in proposed_ids for parent in graph.parents(child)}
    after = {(parent, child) for parent, child in plan.edges if child in proposed_ids}
    return before == after and all(graph.noderoles[noderole.id].cohort == noderole.cohort for noderole in plan.created)


# --- the plan


async def _build_plan(
    session: Session,
    stored: StoredCatalogue,
    deployment: DeploymentRecord,
    snapshot_id: int,
    relinked: Sequence[Relinked],
) -> tuple[CommitPlan, Proposal, list[InstallWipes]]:
    created = await _select_proposed_noderoles(session, stored, deployment)
    dropped = await _select_ids(session, _DROPPED, deployment, snapshot_id)
    changed = await _select_ids(session, _CHANGED, deployment, snapshot_id)
    changed_roles = await session.rows(_CHANGED_ROLES, deployment=deployment.id, snapshot=snapshot_id)
    role_ids = [row.role_id for row in changed_roles]
    changed_attribs = await _select_changed_attribs(session, stored, deployment, snapshot_id)
    affected_ids = {*changed, *await _select_noderoles_of_roles(session, deployment.id, role_ids)}
    cluster_members = await _select_affected_members(session, stored, deployment, created, dropped)
    takers = await find_takers(session, affected_ids)
    involved_ids = {*dropped, *affected_ids, *cluster_members, *(id for ids in takers.values() for id in ids)}
    involved_ids |= {relinked_noderole.id for relinked_noderole in relinked}
    graph = await load_with_descendants(session, stored, involved_ids) if involved_ids else Graph()
    await load_nodes(session, graph, {noderole.node_id for noderole in created})
    for noderole in created:
        if noderole.id not in graph.noderoles:
            graph.add(noderole)
    apply_relinks(graph, relinked)
    for id, more_takers in find_relinked_takers(graph, relinked).items():
        takers[id] = [*takers.get(id, ()), *more_takers]
    revision = await session.value("SELECT revision FROM snapshots WHERE id = :id", id=snapshot_id)
    proposal = Proposal(
        deployment_id=deployment.id,
        revision=revision,
        created=tuple(created),
        dropped=frozenset(dropped),
        changed=frozenset(changed),
        changed_attribs=changed_attribs,
        changed_roles=frozenset(stored.role_names[id] for id in role_ids),
        dropped_roles=await _select_dropped_roles(session, deployment, snapshot_id),
        takers=takers,
        relinked={relinked_noderole.id: relinked_noderole for relinked_noderole in relinked},
    )
    plan = plan_commit(stored.catalogue, graph, proposal)
    installs = await select_resolved_installs(session, [line.id for line in (*plan.created, *plan.rerun)])
    wipes = [install.wipes for install in installs]
    return replace(plan, digest=digest_wipes(plan.digest, wipes)), proposal, wipes


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


_CHANGED_VALUES = """
SELECT nr.id, nr.role_id, dr.data AS role_data, sr.data AS new_role_data, nr.user_data, b.data AS new_data
FROM node_roles nr
JOIN deployment_roles dr ON dr.deployment_id = nr.deployment_id AND dr.role_id = nr.role_id
JOIN snapshot_roles sr ON sr.snapshot_id = :snapshot AND sr.role_id = nr.role_id
JOIN snapshot_bindings b ON b.snapshot_id = :snapshot AND b.node_id = nr.node_id AND b.role_id = nr.role_id
WHERE nr.deployment_id = :deployment AND nr.state <> :proposed AND nr.role_id = ANY (:roles)
  AND (b.data <> nr.user_data OR sr.data <> dr.data)
"""


async def _select_changed_attribs(
    session: Session, stored: StoredCatalogue, deployment: DeploymentRecord, snapshot_id: int
) -> dict[int, Collection[str]]:
    """Return the attribs whose values differ in the proposal, by the committed noderole of a destructive role."""
    destructive = [id for id, name in stored.role_names.items() if stored.catalogue.role(name).has(Flag.DESTRUCTIVE)]
    rows = await session.rows(
        _CHANGED_VALUES, deployment=deployment.id, snapshot=snapshot_id, proposed=int(PROPOSED), roles=destructive
    )
    changed: dict[int, Collection[str]] = {}
    for row in rows:
        before, after = merge(row.role_data, row.user_data), merge(row.new_role_data, row.new_data)
        role = stored.role_names[row.role_id]
        changed[row.id] = [
            attrib.name
            for attrib in stored.catalogue.attribs.values()
            if attrib.role == role and read_at_path(before, attrib.map) != read_at_path(after, attrib.map)
        ]
    return changed


async def _select_dropped_roles(session: Session, deployment: DeploymentRecord, snapshot_id: int) -> frozenset[str]:
    """Return the deployment-roles that go with this commit, as `drop_unused_roles` will select them."""
    rows = await session.rows(_DROPPED_ROLES, deployment=deployment.id, snapshot=snapshot_id)
    return frozenset(row.name for row in rows)


async def _select_ids(session: Session, query: str, deployment: DeploymentRecord, snapshot_id: int) -> set[int]:
    rows = await session.rows(query, deployment=deployment.id, snapshot=snapshot_id, proposed=int(PROPOSED))
    return {row.id for row in rows}


async def _select_proposed_noderoles(
    session: Session, stored: StoredCatalogue, deployment: DeploymentRecord
) -> list[NodeRole]:
    rows = await session.rows(
        "SELECT id, node_id, role_id, cohort FROM node_roles WHERE deployment_id = :id AND state = :proposed",
        id=deployment.id,
        proposed=int(PROPOSED),
    )
    return [
        NodeRole(row.id, row.node_id, stored.role_names[row.role_id], deployment.id, PROPOSED, row.cohort)
        for row in rows
    ]


async def _select_noderoles_of_roles(session: Session, deployment_id: int, role_ids: Collection[int]) -> set[int]:
    if not role_ids:
        return set()
    rows = await session.rows(
        "SELECT id FROM node_roles WHERE deployment_id = :id AND role_id = ANY (:roles) AND state <> :proposed",
        id=deployment_id,
        roles=list(role_ids),
        proposed=int(PROPOSED),
    )
    return {row.id for row in rows}


async def _select_affected_members(
    session: Session,
    stored: StoredCatalogue,
    deployment: DeploymentRecord,
    created: Sequence[NodeRole],
    dropped: Collection[int],
) -> set[int]:
    """Return all committed members of the clusters that gain or lose a member."""
    roles = {
        stored.role_ids[noderole.role] for noderole in created if stored.catalogue.role(noderole.role).has(Flag.CLUSTER)
    }
    if dropped:
        rows = await session.rows(
            "SELECT DISTINCT nr.role_id FROM node_roles nr JOIN roles r ON r.id = nr.role_id AND r.cluster"
            " WHERE nr.id = ANY (:ids)",
            ids=list(dropped),
        )
        roles |= {row.role_id for row in rows}
    return await _select_noderoles_of_roles(session, deployment.id, roles)


# --- applying the plan


async def _apply_plan(
    session: GraphSession,
    stored: StoredCatalogue,
    deployment: DeploymentRecord,
    snapshot_id: int,
    proposal: Proposal,
    plan: CommitPlan,
    deferred: DeferredChanges,
) -> None:
    removed = {line.id for line in plan.removed}
    created = [noderole.id for noderole in proposal.created if noderole.id not in removed]
    changed = {
        *proposal.changed,
        *await _select_noderoles_of_changed_roles(session, stored, proposal),
        *proposal.relinked,
    } - removed
    await _copy_data(session, deployment, snapshot_id)
    await ask_noderoles(session, "on_commit", {*created, *changed})
    await move_noderoles(session, Trigger.COMMIT, created)
    await add_parents(session, deferred.edges)
    await update_cohorts(session, deferred.recohorted)
    await relink_noderoles(session, stored, deferred.relinked)
    await mark_dirty(session, changed, Trigger.CHANGE)
    await rerun_cluster_peers(session, {*created, *removed})
    taker_ids = {id for ids in proposal.takers.values() for id in ids} - removed - changed
    await mark_dirty(session, taker_ids, Trigger.INPUT_CHANGE)
    moved = await session.rows(
        "UPDATE nodes n SET deployment_id = :deployment FROM nodes old JOIN deployments d ON d.id = old.deployment_id"
        " WHERE n.id = ANY (:ids) AND n.deployment_id <> :deployment AND old.id = n.id RETURNING n.id, d.name",
        deployment=deployment.id,
        ids=list({noderole.node_id for noderole in proposal.created} - await _select_nodes(session, proposal.relinked)),
    )
    await queue_node_updated(session, {row.id: {"deployment": row.name} for row in moved})
    await remove_noderoles(session, removed)


async def _select_nodes(session: Session, ids: Collection[int]) -> set[int]:
    if not ids:
        return set()
    rows = await session.rows("SELECT DISTINCT node_id FROM node_roles WHERE id = ANY (:ids)", ids=list(ids))
    return {row.node_id for row in rows}


async def _select_noderoles_of_changed_roles(session: Session, stored: StoredCatalogue, proposal: Proposal) -> set[int]:
    return await _select_noderoles_of_roles(
        session, proposal.deployment_id, [stored.role_ids[role] for role in proposal.changed_roles]
    )


async def _copy_data(session: Session, deployment: DeploymentRecord, snapshot_id: int) -> None:
    """Copy the data of the proposal to noderoles and deployment-roles, where it is in force."""
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


async def _make_head(session: GraphSession, deployment: DeploymentRecord, snapshot_id: int, comment: str) -> None:
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
