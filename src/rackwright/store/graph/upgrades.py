"""Gives bound noderoles the parents and links that barclamps imported after the binding ask for.

The rules are in `domain/graph/upgrades.py`. A commit upgrades its deployment; an import upgrades the system deployment,
which is never proposed, and marks the other deployments in which noderoles are outdated.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Row

from rackwright.domain.errors import Conflict
from rackwright.domain.graph.binding import AttribLink
from rackwright.domain.graph.noderole_graph import Graph, NodeRole
from rackwright.domain.graph.upgrades import AttribSources, Relinked, UpgradePlan, is_outdated, plan_upgrade, wiring
from rackwright.domain.states import PROPOSED, TODO, NodeRoleState, Trigger
from rackwright.store.catalogue.stored_catalogue import StoredCatalogue
from rackwright.store.db.session import GraphSession, Session
from rackwright.store.graph.binding import write_committed, write_edges, write_links
from rackwright.store.graph.deployments import DeploymentRecord
from rackwright.store.graph.noderoles import recompute_cohorts
from rackwright.store.graph.subgraph import load_for_binding, load_with_descendants, lock_parents
from rackwright.store.graph.transitions import change_unmet_counts, mark_dirty

Outdated = dict[int, dict[int, AttribSources]]
"""By deployment: the noderoles whose parents or links are not what their roles ask for, with their present links."""


async def select_outdated_in_proposal(
    session: Session, stored: StoredCatalogue, deployment: DeploymentRecord, snapshot_id: int
) -> Mapping[int, AttribSources]:
    """Return the outdated noderoles of a deployment that its proposal keeps, with their links."""
    outdated = await _select_outdated(
        session,
        stored,
        "nr.deployment_id = :deployment AND EXISTS (SELECT FROM snapshot_bindings b WHERE b.snapshot_id = :snapshot"
        " AND b.node_id = nr.node_id AND b.role_id = nr.role_id)",
        deployment=deployment.id,
        snapshot=snapshot_id,
    )
    return outdated.get(deployment.id, {})


async def load_for_upgrade(
    session: Session,
    stored: StoredCatalogue,
    deployment_id: int,
    pairs: Collection[tuple[int, str]],
    outdated: Collection[int],
) -> Graph:
    """Read all noderoles that binding these (node, role) pairs and upgrading these noderoles can look at."""
    all_pairs = set(pairs)
    if outdated:
        rows = await session.rows("SELECT node_id, role_id FROM node_roles WHERE id = ANY (:ids)", ids=list(outdated))
        all_pairs |= {(row.node_id, stored.role_names[row.role_id]) for row in rows}
    nodes, roles = {node for node, _ in all_pairs}, {role for _, role in all_pairs}
    return await load_for_binding(session, stored, deployment_id, nodes, roles, changing=outdated)


async def relink_noderoles(session: GraphSession, stored: StoredCatalogue, relinked: Sequence[Relinked]) -> None:
    """Put noderoles that are committed under their new parents.

    The caller has them run again, because their inputs change with this.
    """
    if not relinked:
        return
    gained_edges = [(parent, noderole.id) for noderole in relinked for parent in noderole.gained]
    lost_edges = [(parent, noderole.id) for noderole in relinked for parent in noderole.lost]
    active_parents = await lock_parents(session, {parent for parent, _ in [*gained_edges, *lost_edges]})
    await session.run(
        "DELETE FROM node_role_edges e USING unnest(CAST(:parents AS bigint[]), CAST(:children AS bigint[]))"
        " AS lost (parent_id, child_id) WHERE e.parent_id = lost.parent_id AND e.child_id = lost.child_id",
        parents=[parent for parent, _ in lost_edges],
        children=[child for _, child in lost_edges],
    )
    await write_edges(session, gained_edges)
    steps = [(child, 1) for parent, child in gained_edges if parent not in active_parents]
    steps += [(child, -1) for parent, child in lost_edges if parent not in active_parents]
    await change_unmet_counts(session, steps)
    ids = [noderole.id for noderole in relinked]
    await session.run("DELETE FROM node_role_links WHERE child_id = ANY (:ids)", ids=ids)
    links: list[AttribLink] = [link for noderole in relinked for link in noderole.links]
    await write_links(session, stored, links)
    await recompute_cohorts(session, ids)


def apply_relinks(graph: Graph, relinked: Sequence[Relinked]) -> None:
    """Change the edges of a graph to the new parents, as far as it holds those."""
    for noderole in relinked:
        for parent in noderole.lost:
            if parent in graph.noderoles:
                graph.unlink(parent, noderole.id)
        for parent in noderole.gained:
            if parent in graph.noderoles:
                graph.link(parent, noderole.id)


def find_relinked_takers(graph: Graph, relinked: Sequence[Relinked]) -> dict[int, list[int]]:
    """Return for each relinked noderole those below it that have other ancestors on their node than before."""
    return {
        noderole.id: sorted(
            id for id in graph.descendants([noderole.id]) if graph.noderoles[id].node_id in noderole.nodes
        )
        for noderole in relinked
    }


# --- at an import


async def upgrade_after_import(session: GraphSession, before: StoredCatalogue, after: StoredCatalogue) -> list[str]:
    """Upgrade the system deployment, mark the others that have outdated noderoles, and return the names of those."""
    old, new = before.catalogue, after.catalogue
    common_roles = old.roles.keys() & new.roles.keys()
    changed_role_ids = [after.role_ids[name] for name in common_roles if wiring(old, name) != wiring(new, name)]
    # Deployments that are marked already are checked again: this import may be what brings them back in line.
    outdated = await _select_outdated(
        session, after, "nr.role_id = ANY (:roles) OR d.upgrade_due", roles=changed_role_ids
    )
    system_id = await session.value("SELECT id FROM deployments WHERE parent_id IS NULL")
    in_system = outdated.pop(system_id, {})
    if in_system:
        await _upgrade_system(session, after, system_id, in_system)
    await session.run(
        "UPDATE deployments SET upgrade_due = id = ANY (:ids) WHERE upgrade_due <> (id = ANY (:ids))",
        ids=list(outdated),
    )
    rows = await session.rows("SELECT name FROM deployments WHERE upgrade_due ORDER BY name")
    return [row.name for row in rows]


async def _upgrade_system(
    session: GraphSession, stored: StoredCatalogue, deployment_id: int, outdated: Mapping[int, AttribSources]
) -> None:
    graph = await load_for_upgrade(session, stored, deployment_id, (), outdated.keys())
    try:
        new_upgrade = plan_upgrade(graph, stored.catalogue, deployment_id, (), outdated, state=TODO)
    except Conflict as conflict:
        raise Conflict(
            conflict.rule,
            f"What is bound in the system deployment cannot follow this import: {conflict.message}",
        ) from conflict
    relinked = await _write_upgrade(session, stored, deployment_id, graph, new_upgrade)
    descendants = await load_with_descendants(session, stored, outdated.keys())
    await mark_dirty(session, outdated.keys(), Trigger.CHANGE)
    takers = find_relinked_takers(descendants, relinked)
    await mark_dirty(session, {id for ids in takers.values() for id in ids} - outdated.keys())


async def _write_upgrade(
    session: GraphSession, stored: StoredCatalogue, deployment_id: int, graph: Graph, new_upgrade: UpgradePlan
) -> list[Relinked]:
    written = await write_committed(session, stored, deployment_id, graph, new_upgrade.bind_plan)
    pairs = zip(new_upgrade.bind_plan.created, written.created, strict=True)
    ids = {planned.id: noderole.id for planned, noderole in pairs}
    relinked = [relinked_noderole.with_ids(ids) for relinked_noderole in new_upgrade.relinked]
    await relink_noderoles(session, stored, relinked)
    return relinked


# --- selecting outdated noderoles


async def _select_outdated(session: Session, stored: StoredCatalogue, where: str, **values: object) -> Outdated:
    rows = await session.rows(
        f"""
        SELECT nr.id, nr.node_id, nr.role_id, nr.deployment_id, nr.state, nr.cohort FROM node_roles nr
        JOIN deployments d ON d.id = nr.deployment_id
        WHERE nr.state <> :proposed AND NOT nr.doomed AND ({where})
        """,
        proposed=int(PROPOSED),
        **values,
    )
    ids = [row.id for row in rows]
    parents = await _select_parents(session, stored, ids)
    links = await _select_links(session, ids)
    outdated: Outdated = {}
    for row in rows:
        noderole = _build_noderole(stored, row)
        own_links = links.get(row.id, {})
        if is_outdated(stored.catalogue, noderole, parents.get(row.id, ()), own_links):
            outdated.setdefault(row.deployment_id, {})[row.id] = own_links
    return outdated


async def _select_parents(session: Session, stored: StoredCatalogue, ids: Collection[int]) -> dict[int, list[NodeRole]]:
    parents: dict[int, list[NodeRole]] = {}
    rows = await session.rows(
        "SELECT e.child_id, p.id, p.node_id, p.role_id, p.deployment_id, p.state, p.cohort FROM node_role_edges e"
        " JOIN node_roles p ON p.id = e.parent_id WHERE e.child_id = ANY (:ids)",
        ids=list(ids),
    )
    for row in rows:
        parents.setdefault(row.child_id, []).append(_build_noderole(stored, row))
    return parents


async def _select_links(session: Session, ids: Collection[int]) -> dict[int, dict[str, int]]:
    links: dict[int, dict[str, int]] = {}
    rows = await session.rows(
        "SELECT l.child_id, a.name, l.parent_id FROM node_role_links l JOIN attribs a ON a.id = l.attrib_id"
        " WHERE l.child_id = ANY (:ids)",
        ids=list(ids),
    )
    for row in rows:
        links.setdefault(row.child_id, {})[row.name] = row.parent_id
    return links


def _build_noderole(stored: StoredCatalogue, row: Row[Any]) -> NodeRole:
    role = stored.role_names[row.role_id]
    return NodeRole(row.id, row.node_id, role, row.deployment_id, NodeRoleState(row.state), row.cohort)
