"""Bringing bound noderoles up to date with barclamps that were imported after they were bound.

The rules are in `domain/graph/upgrades.py`. A commit does it for its deployment; an import does it for the system
deployment, which is never proposed, and marks the others in which something is to be done.
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
from rackwright.store.graph.binding import commit_at_once, write_edges, write_links
from rackwright.store.graph.deployments import DeploymentRecord
from rackwright.store.graph.noderoles import lower_cohorts
from rackwright.store.graph.subgraph import load_for_binding, load_with_descendants, lock_parents
from rackwright.store.graph.transitions import dirty, step_children

Outdated = dict[int, dict[int, AttribSources]]
"""By the deployment, the noderoles that do not stand as their roles say, and the attribs they take from others now."""


async def outdated_in(
    session: Session, stored: StoredCatalogue, deployment: DeploymentRecord, snapshot_id: int
) -> Mapping[int, AttribSources]:
    """Return the outdated noderoles of a deployment that its proposal keeps."""
    found = await _outdated(
        session,
        stored,
        "nr.deployment_id = :deployment AND EXISTS (SELECT FROM snapshot_bindings b WHERE b.snapshot_id = :snapshot"
        " AND b.node_id = nr.node_id AND b.role_id = nr.role_id)",
        deployment=deployment.id,
        snapshot=snapshot_id,
    )
    return found.get(deployment.id, {})


async def load_for_upgrade(
    session: Session,
    stored: StoredCatalogue,
    deployment_id: int,
    places: Collection[tuple[int, str]],
    outdated: Collection[int],
) -> Graph:
    """Read all that binding these (node, role) and upgrading these noderoles can look at."""
    everywhere = set(places)
    if outdated:
        rows = await session.rows("SELECT node_id, role_id FROM node_roles WHERE id = ANY (:ids)", ids=list(outdated))
        everywhere |= {(row.node_id, stored.role_names[row.role_id]) for row in rows}
    nodes, roles = {node for node, _ in everywhere}, {role for _, role in everywhere}
    return await load_for_binding(session, stored, deployment_id, nodes, roles, changing=outdated)


async def relink(session: GraphSession, stored: StoredCatalogue, relinked: Sequence[Relinked]) -> None:
    """Put noderoles that are committed under their new parents.

    The caller has them run again: their inputs are others now.
    """
    if not relinked:
        return
    gained = [(parent, one.id) for one in relinked for parent in one.gained]
    lost = [(parent, one.id) for one in relinked for parent in one.lost]
    active = await lock_parents(session, {parent for parent, _ in [*gained, *lost]})
    await session.run(
        "DELETE FROM node_role_edges e USING unnest(CAST(:parents AS bigint[]), CAST(:children AS bigint[]))"
        " AS lost (parent_id, child_id) WHERE e.parent_id = lost.parent_id AND e.child_id = lost.child_id",
        parents=[parent for parent, _ in lost],
        children=[child for _, child in lost],
    )
    await write_edges(session, gained)
    steps = [(child, 1) for parent, child in gained if parent not in active]
    steps += [(child, -1) for parent, child in lost if parent not in active]
    await step_children(session, steps)
    ids = [one.id for one in relinked]
    await session.run("DELETE FROM node_role_links WHERE child_id = ANY (:ids)", ids=ids)
    links: list[AttribLink] = [link for one in relinked for link in one.links]
    await write_links(session, stored, links)
    await lower_cohorts(session, ids)


def apply_to(graph: Graph, relinked: Sequence[Relinked]) -> None:
    """Have a graph show the new parents, as far as it holds them."""
    for one in relinked:
        for parent in one.lost:
            if parent in graph.noderoles:
                graph.unlink(parent, one.id)
        for parent in one.gained:
            if parent in graph.noderoles:
                graph.link(parent, one.id)


def takers_of(graph: Graph, relinked: Sequence[Relinked]) -> dict[int, list[int]]:
    """For each relinked noderole, those below it that see other ancestors on their node than before."""
    return {
        one.id: sorted(id for id in graph.descendants([one.id]) if graph.noderoles[id].node_id in one.nodes)
        for one in relinked
    }


# --- at an import


async def upgrade_after_import(session: GraphSession, before: StoredCatalogue, after: StoredCatalogue) -> list[str]:
    """Upgrade the system deployment, mark others in which something is to be done, and return their names."""
    old, new = before.catalogue, after.catalogue
    both = old.roles.keys() & new.roles.keys()
    roles = [after.role_ids[name] for name in both if wiring(old, name) != wiring(new, name)]
    # Those that are marked are looked at again: the import may have been what brings them back in line.
    found = await _outdated(session, after, "nr.role_id = ANY (:roles) OR d.upgrade_due", roles=roles)
    system = await session.value("SELECT id FROM deployments WHERE parent_id IS NULL")
    in_system = found.pop(system, {})
    if in_system:
        await _upgrade_system(session, after, system, in_system)
    await session.run(
        "UPDATE deployments SET upgrade_due = id = ANY (:ids) WHERE upgrade_due <> (id = ANY (:ids))", ids=list(found)
    )
    rows = await session.rows("SELECT name FROM deployments WHERE upgrade_due ORDER BY name")
    return [row.name for row in rows]


async def _upgrade_system(
    session: GraphSession, stored: StoredCatalogue, deployment_id: int, outdated: Mapping[int, AttribSources]
) -> None:
    graph = await load_for_upgrade(session, stored, deployment_id, (), outdated.keys())
    try:
        worked_out = plan_upgrade(graph, stored.catalogue, deployment_id, (), outdated, state=TODO)
    except Conflict as conflict:
        raise Conflict(
            conflict.rule,
            f"What is bound in the system deployment cannot follow this import: {conflict.message}",
        ) from conflict
    relinked = await _write(session, stored, deployment_id, graph, worked_out)
    below = await load_with_descendants(session, stored, outdated.keys())
    await dirty(session, outdated.keys(), Trigger.CHANGE)
    taking = takers_of(below, relinked)
    await dirty(session, {id for ids in taking.values() for id in ids} - outdated.keys())


async def _write(
    session: GraphSession, stored: StoredCatalogue, deployment_id: int, graph: Graph, worked_out: UpgradePlan
) -> list[Relinked]:
    written = await commit_at_once(session, stored, deployment_id, graph, worked_out.bind_plan)
    pairs = zip(worked_out.bind_plan.created, written.created, strict=True)
    ids = {planned.id: noderole.id for planned, noderole in pairs}
    relinked = [one.with_ids(ids) for one in worked_out.relinked]
    await relink(session, stored, relinked)
    return relinked


# --- finding them


async def _outdated(session: Session, stored: StoredCatalogue, where: str, **values: object) -> Outdated:
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
    parents = await _parents(session, stored, ids)
    links = await _links(session, ids)
    found: Outdated = {}
    for row in rows:
        noderole = _noderole(stored, row)
        own_links = links.get(row.id, {})
        if is_outdated(stored.catalogue, noderole, parents.get(row.id, ()), own_links):
            found.setdefault(row.deployment_id, {})[row.id] = own_links
    return found


async def _parents(session: Session, stored: StoredCatalogue, ids: Collection[int]) -> dict[int, list[NodeRole]]:
    found: dict[int, list[NodeRole]] = {}
    rows = await session.rows(
        "SELECT e.child_id, p.id, p.node_id, p.role_id, p.deployment_id, p.state, p.cohort FROM node_role_edges e"
        " JOIN node_roles p ON p.id = e.parent_id WHERE e.child_id = ANY (:ids)",
        ids=list(ids),
    )
    for row in rows:
        found.setdefault(row.child_id, []).append(_noderole(stored, row))
    return found


async def _links(session: Session, ids: Collection[int]) -> dict[int, dict[str, int]]:
    found: dict[int, dict[str, int]] = {}
    rows = await session.rows(
        "SELECT l.child_id, a.name, l.parent_id FROM node_role_links l JOIN attribs a ON a.id = l.attrib_id"
        " WHERE l.child_id = ANY (:ids)",
        ids=list(ids),
    )
    for row in rows:
        found.setdefault(row.child_id, {})[row.name] = row.parent_id
    return found


def _noderole(stored: StoredCatalogue, row: Row[Any]) -> NodeRole:
    role = stored.role_names[row.role_id]
    return NodeRole(row.id, row.node_id, role, row.deployment_id, NodeRoleState(row.state), row.cohort)
