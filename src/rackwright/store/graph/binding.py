"""Writes the result of binding (noderoles, edges and links) to the database, proposed in a snapshot or committed."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from rackwright.domain.errors import Conflict, NotFound, RackwrightError, Rule
from rackwright.domain.graph.binding import PLACEHOLDER, AttribLink, BindPlan, bind, bind_each
from rackwright.domain.graph.noderole_graph import Graph, NodeRole
from rackwright.domain.states import BLOCKED, PROPOSED, TODO, NodeRoleState
from rackwright.store.catalogue.stored_catalogue import StoredCatalogue
from rackwright.store.db.session import GraphSession, Session
from rackwright.store.graph.deployments import DeploymentRecord
from rackwright.store.graph.subgraph import bump_graph, load_for_binding, lock_parents, read_graph_version
from rackwright.store.graph.transitions import EVENT_KINDS, change_unmet_counts, rerun_cluster_peers
from rackwright.store.hooks.hook_calls import ask_deployment_roles, ask_noderoles
from rackwright.store.runs.slots import add_slots

BindRequest = tuple[int, str]
"""(node id, role name)"""


def require_proposed_id(deployment: DeploymentRecord) -> int:
    """Return the id of the deployment's open proposal; refuse a deployment that has none."""
    if deployment.system:
        raise Conflict(
            Rule.SYSTEM,
            "The system deployment is never proposed: its bindings come from bootstrap and discovery alone. "
            "Create a deployment of your own below it.",
        )
    if deployment.proposed_id is None:
        raise Conflict(
            Rule.NOT_PROPOSED, f"Deployment {deployment.name!r} has no open proposal. Propose one, then edit it."
        )
    return deployment.proposed_id


async def lock_proposal(session: Session, deployment: DeploymentRecord) -> int:
    """Lock the open proposal of a deployment for editing and return its id."""
    proposed_id = await session.value(
        "SELECT id FROM snapshots WHERE deployment_id = :id AND state = 'proposed' FOR UPDATE", id=deployment.id
    )
    return require_proposed_id(replace(deployment, proposed_id=proposed_id))


async def plan_binding(session: Session, deployment: DeploymentRecord, requests: Sequence[BindRequest]) -> BindPlan:
    """Return what binding these requests would do, without doing it.

    Ids from `PLACEHOLDER` on stand for new noderoles. It only reads, and takes no lock. It needs a transaction that
    sees one moment throughout (`Store.read`).
    """
    require_proposed_id(deployment)
    await _prefer_indexes(session)
    plan, _, _ = await _compute_plan(session, deployment.id, requests, PROPOSED)
    return plan


async def plan_each_binding(
    session: Session, deployment: DeploymentRecord, targets: Sequence[Sequence[BindRequest]]
) -> tuple[list[BindPlan | RackwrightError], Graph]:
    """Return the plan of binding each target alone, or the error that refuses it, and the graph they were computed in.

    It reads once for all targets, whatever their number; as `plan_binding`, it takes no lock.
    """
    require_proposed_id(deployment)
    await _prefer_indexes(session)
    stored = await session.catalogue()
    unknown_roles = [next((role for _, role in target if role not in stored.role_ids), None) for target in targets]
    known_targets = [target for target, role in zip(targets, unknown_roles, strict=True) if role is None]
    requests = [request for target in known_targets for request in target]
    graph = await load_for_binding(
        session, stored, deployment.id, {node for node, _ in requests}, {role for _, role in requests}
    )
    plans = iter(bind_each(graph, stored.catalogue, deployment.id, known_targets))
    return [next(plans) if role is None else NotFound("role", role) for role in unknown_roles], graph


async def _prefer_indexes(session: Session) -> None:
    """Have PostgreSQL find rows by index, as for a change (`_BEGIN` in store.py).

    A dry run asks the same questions as a change.
    """
    await session.run("SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)")


async def bind_proposed(
    session: GraphSession, deployment: DeploymentRecord, requests: Sequence[BindRequest]
) -> BindPlan:
    """Bind in the open proposal and return the plan with the ids that the noderoles got."""
    snapshot_id = await lock_proposal(session, deployment)
    if not deployment.counts.get(PROPOSED):
        await record_graph_version(session, snapshot_id)
    plan, graph, stored = await _compute_plan(session, deployment.id, requests, PROPOSED)
    plan = await _assign_ids(session, plan)
    await _write_plan(session, stored, graph, plan)
    await _add_to_snapshot(session, stored, snapshot_id, plan, requested=plan.bound)
    await add_deployment_roles(session, stored, deployment.id, {noderole.role for noderole in plan.created})
    await ask_noderoles(session, "on_node_bind", [noderole.id for noderole in plan.created], new=True)
    return plan


async def rebind_proposed(
    session: GraphSession, deployment: DeploymentRecord, snapshot_id: int, new_plan: BindPlan, graph: Graph
) -> BindPlan:
    """Give the proposed noderoles the parents that `new_plan` gives them, add its new ones, and return it with ids."""
    stored = await session.catalogue()
    present = {noderole.id for noderole in new_plan.created if noderole.id < PLACEHOLDER}
    # Parents that a noderole loses are locked too: one that settles now would else lower the count of a child that it
    # no longer has.
    old_parents = await session.rows(
        "SELECT DISTINCT parent_id FROM node_role_edges WHERE child_id = ANY (:ids)", ids=list(present)
    )
    new_parents = {parent for parent, child in new_plan.edges if child in present and parent < PLACEHOLDER}
    await lock_parents(session, {*(row.parent_id for row in old_parents), *new_parents} - present)
    await session.run("DELETE FROM node_role_edges WHERE child_id = ANY (:ids)", ids=list(present))
    await session.run("DELETE FROM node_role_links WHERE child_id = ANY (:ids)", ids=list(present))
    plan = await _assign_ids(session, new_plan)
    await _write_plan(session, stored, graph, plan, present)
    await _add_to_snapshot(session, stored, snapshot_id, plan, requested=())
    await add_deployment_roles(session, stored, deployment.id, {noderole.role for noderole in plan.created})
    added_ids = [noderole.id for noderole in plan.created if noderole.id not in present]
    await ask_noderoles(session, "on_node_bind", added_ids, new=True)
    return plan


async def bind_committed(session: GraphSession, deployment_id: int, requests: Sequence[BindRequest]) -> BindPlan:
    """Bind and commit in one step, as the system deployment does."""
    plan, graph, stored = await _compute_plan(session, deployment_id, requests, TODO)
    return await write_committed(session, stored, deployment_id, graph, plan)


async def write_committed(
    session: GraphSession, stored: StoredCatalogue, deployment_id: int, graph: Graph, plan: BindPlan
) -> BindPlan:
    """Write a plan as committed, and return it with the ids that the noderoles got."""
    plan = await _assign_ids(session, plan)
    await _write_plan(session, stored, graph, plan)
    await add_deployment_roles(session, stored, deployment_id, {noderole.role for noderole in plan.created})
    if plan.created:
        for hook in ("on_node_bind", "on_commit"):
            await ask_noderoles(session, hook, [noderole.id for noderole in plan.created], new=True)
        await rerun_cluster_peers(session, {noderole.id for noderole in plan.created})
        await bump_graph(session)
    return plan


async def _compute_plan(
    session: Session, deployment_id: int, requests: Sequence[BindRequest], state: NodeRoleState
) -> tuple[BindPlan, Graph, StoredCatalogue]:
    stored = await session.catalogue()
    for _, role in requests:
        if role not in stored.role_ids:
            raise NotFound("role", role)
    node_ids = {node_id for node_id, _ in requests}
    graph = await load_for_binding(session, stored, deployment_id, node_ids, {role for _, role in requests})
    missing_nodes = node_ids - graph.nodes.keys()
    if missing_nodes:
        raise NotFound("node", min(missing_nodes))
    return bind(graph, stored.catalogue, deployment_id, requests, state=state), graph, stored


async def _assign_ids(session: Session, plan: BindPlan) -> BindPlan:
    """Return the same plan with real ids in place of placeholders."""
    placeholders = [noderole.id for noderole in plan.created if noderole.id >= PLACEHOLDER]
    new_ids = await session.new_ids("node_roles", len(placeholders)) if placeholders else ()
    ids = dict(zip(placeholders, new_ids, strict=True))
    return BindPlan(
        bound=[ids.get(id, id) for id in plan.bound],
        created=[replace(noderole, id=ids.get(noderole.id, noderole.id)) for noderole in plan.created],
        edges=[(ids.get(parent, parent), ids.get(child, child)) for parent, child in plan.edges],
        links=[
            AttribLink(ids.get(link.child, link.child), link.attrib, ids.get(link.parent, link.parent))
            for link in plan.links
        ],
        recohorted=dict(plan.recohorted),
    )


async def _write_plan(
    session: GraphSession, stored: StoredCatalogue, graph: Graph, plan: BindPlan, present: Collection[int] = ()
) -> None:
    """Write the noderoles of a plan with their edges and links; those in `present` have a row already.

    A proposal must not disturb what runs: edges from a proposed noderole to a committed one wait for the commit.
    """
    if not plan.created:
        return
    created_ids = {noderole.id for noderole in plan.created}
    own_edges = [(parent, child) for parent, child in plan.edges if child in created_ids]
    active_parents = await lock_parents(session, {parent for parent, _ in own_edges} - created_ids)
    unmet = Counter(child for parent, child in own_edges if parent not in active_parents)
    new = [noderole for noderole in plan.created if noderole.id not in present]
    await _insert_noderoles(session, stored, new, unmet)
    await _update_positions(session, [noderole for noderole in plan.created if noderole.id in present], unmet)
    await write_edges(session, own_edges)
    await write_links(session, stored, plan.links)
    await emit_noderole_states(session, created_ids - set(present))
    session.state_changes.extend((noderole.id, int(_first_state(noderole, unmet[noderole.id]))) for noderole in new)
    new_parents_of_others = [
        (parent, child)
        for parent, child in plan.edges
        if child not in created_ids and _is_effective_now(graph.noderoles[child], plan.created)
    ]
    await add_parents(session, new_parents_of_others)
    await update_cohorts(
        session, {id: n for id, n in plan.recohorted.items() if _is_effective_now(graph.noderoles[id], plan.created)}
    )


async def _insert_noderoles(
    session: GraphSession, stored: StoredCatalogue, noderoles: Sequence[NodeRole], unmet: Mapping[int, int]
) -> None:
    await session.copy(
        "node_roles",
        ("id", "node_id", "role_id", "deployment_id", "state", "cohort", "unmet"),
        ("int8", "int8", "int8", "int8", "int2", "int4", "int4"),
        (
            (
                noderole.id,
                noderole.node_id,
                stored.role_ids[noderole.role],
                noderole.deployment_id,
                int(_first_state(noderole, unmet.get(noderole.id, 0))),
                noderole.cohort,
                unmet.get(noderole.id, 0),
            )
            for noderole in noderoles
        ),
    )
    await add_slots(session, node_roles=[noderole.id for noderole in noderoles])
    session.touch({noderole.node_id for noderole in noderoles if noderole.state is not PROPOSED})


async def _update_positions(session: GraphSession, noderoles: Sequence[NodeRole], unmet: Mapping[int, int]) -> None:
    """Update cohorts and counts of unmet parents of proposed noderoles that moved within the graph."""
    if noderoles:
        await session.run(
            "UPDATE node_roles nr SET cohort = new_values.cohort, unmet = new_values.unmet"
            " FROM unnest(CAST(:ids AS bigint[]), CAST(:cohorts AS int[]), CAST(:unmet AS int[]))"
            " AS new_values (id, cohort, unmet) WHERE nr.id = new_values.id",
            ids=[noderole.id for noderole in noderoles],
            cohorts=[noderole.cohort for noderole in noderoles],
            unmet=[unmet.get(noderole.id, 0) for noderole in noderoles],
        )


def _first_state(noderole: NodeRole, unmet: int) -> NodeRoleState:
    if noderole.state is PROPOSED:
        return PROPOSED
    return BLOCKED if unmet else TODO


def _is_effective_now(child: NodeRole, created: Sequence[NodeRole]) -> bool:
    """Return whether a new parent may be put above `child` at once: what is proposed shows only in its own proposal."""
    same_proposal = child.state is PROPOSED and child.deployment_id == created[0].deployment_id
    return same_proposal or created[0].state is not PROPOSED


async def write_edges(session: GraphSession, edges: Iterable[tuple[int, int]]) -> None:
    """Insert edges, each as (parent, child)."""
    await session.copy("node_role_edges", ("parent_id", "child_id"), ("int8", "int8"), edges)


async def write_links(session: GraphSession, stored: StoredCatalogue, links: Sequence[AttribLink]) -> None:
    if links:
        await session.copy(
            "node_role_links",
            ("child_id", "attrib_id", "parent_id"),
            ("int8", "int8", "int8"),
            ((link.child, stored.attrib_ids[link.attrib], link.parent) for link in links),
        )


async def add_parents(session: GraphSession, edges: Sequence[tuple[int, int]]) -> None:
    """Insert edges from new parents, none of them ACTIVE, to noderoles that existed before."""
    if edges:
        await write_edges(session, edges)
        await change_unmet_counts(session, ((child, 1) for _, child in edges))


async def update_cohorts(session: GraphSession, cohorts: Mapping[int, int]) -> None:
    """Set the cohorts of these noderoles."""
    if cohorts:
        rows = await session.rows(
            "UPDATE node_roles nr SET cohort = new_values.cohort"
            " FROM unnest(CAST(:ids AS bigint[]), CAST(:cohorts AS int[])) AS new_values (id, cohort)"
            " WHERE nr.id = new_values.id RETURNING nr.node_id",
            ids=list(cohorts),
            cohorts=list(cohorts.values()),
        )
        session.touch(row.node_id for row in rows)


async def emit_noderole_states(session: Session, ids: Collection[int]) -> None:
    """Write one event for each noderole, for the state that it is in."""
    await session.run(
        f"INSERT INTO events (kind, subject_id, node_id, deployment_id)"
        f" SELECT {EVENT_KINDS}[state + 1], id, node_id, deployment_id FROM node_roles"
        " WHERE id = ANY (:ids) ORDER BY id",
        ids=list(ids),
    )


async def add_deployment_roles(
    session: Session, stored: StoredCatalogue, deployment_id: int, roles: Collection[str]
) -> None:
    """Create the deployment-roles that a deployment lacks: it has one for each role bound in it."""
    created = await session.rows(
        "INSERT INTO deployment_roles (deployment_id, role_id) SELECT :deployment_id, unnest(CAST(:roles AS bigint[]))"
        " ON CONFLICT DO NOTHING RETURNING id, role_id",
        deployment_id=deployment_id,
        roles=sorted(stored.role_ids[role] for role in roles),
    )
    await session.run(
        "INSERT INTO events (kind, subject_id, deployment_id, data)"
        " SELECT 'deployment_role.created', dr.id, dr.deployment_id, jsonb_build_object('role', r.name)"
        " FROM deployment_roles dr JOIN roles r ON r.id = dr.role_id WHERE dr.id = ANY (:ids)",
        ids=[row.id for row in created],
    )
    await ask_deployment_roles(session, "on_deployment_create", [row.id for row in created])


async def _add_to_snapshot(
    session: GraphSession, stored: StoredCatalogue, snapshot_id: int, plan: BindPlan, requested: Collection[int]
) -> None:
    """Add what the plan bound to the proposal; a binding that was taken out of the proposal comes back."""
    ids = sorted({*plan.bound, *(noderole.id for noderole in plan.created)})
    await session.run(
        """
        INSERT INTO snapshot_bindings (snapshot_id, node_id, role_id, node_name, role_name, asked, data)
        SELECT :snapshot_id, nr.node_id, nr.role_id, n.name, r.name,
               nr.id IN (SELECT unnest(CAST(:asked AS bigint[]))), nr.user_data
        FROM node_roles nr JOIN nodes n ON n.id = nr.node_id JOIN roles r ON r.id = nr.role_id
        JOIN snapshots s ON s.id = :snapshot_id AND s.deployment_id = nr.deployment_id
        WHERE nr.id = ANY (:ids)
        ON CONFLICT (snapshot_id, node_id, role_id) DO UPDATE SET asked = snapshot_bindings.asked OR excluded.asked
        """,
        snapshot_id=snapshot_id,
        ids=ids,
        asked=list(requested),
    )
    await session.run(
        """
        INSERT INTO snapshot_roles (snapshot_id, role_id, role_name, data)
        SELECT :snapshot_id, r.id, r.name, '{}' FROM roles r WHERE r.id = ANY (:roles) ON CONFLICT DO NOTHING
        """,
        snapshot_id=snapshot_id,
        roles=sorted({stored.role_ids[noderole.role] for noderole in plan.created}),
    )
    await bump_revision(session, snapshot_id)


async def bump_revision(session: Session, snapshot_id: int) -> None:
    """Raise the revision of a proposal, because it was edited."""
    await session.run("UPDATE snapshots SET revision = revision + 1 WHERE id = :id", id=snapshot_id)


async def record_graph_version(session: GraphSession, snapshot_id: int) -> None:
    """Record in the proposal that all of its noderoles were bound in the graph as it is now."""
    await session.run(
        "UPDATE snapshots SET worked_out_at = :version WHERE id = :id",
        id=snapshot_id,
        version=await read_graph_version(session),
    )
