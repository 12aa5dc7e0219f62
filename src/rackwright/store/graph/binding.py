"""Writing what binding worked out: noderoles, edges and links, proposed in a snapshot or committed at once."""

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
from rackwright.store.graph.subgraph import bump_graph, graph_version, load_for_binding, lock_parents
from rackwright.store.graph.transitions import LABELS, regroup, step_children
from rackwright.store.hooks.hook_calls import ask_deployment_roles, ask_noderoles
from rackwright.store.runs.slots import add_slots

Request = tuple[int, str]
"""(node id, role name)"""


def check_proposed(deployment: DeploymentRecord) -> int:
    """Return the id of the deployment's open proposal, or refuse what would edit it."""
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


async def require_proposal(session: Session, deployment: DeploymentRecord) -> int:
    """The open proposal of a deployment, locked for editing."""
    found = await session.value(
        "SELECT id FROM snapshots WHERE deployment_id = :id AND state = 'proposed' FOR UPDATE", id=deployment.id
    )
    return check_proposed(replace(deployment, proposed_id=found))


async def plan_binding(session: Session, deployment: DeploymentRecord, requests: Sequence[Request]) -> BindPlan:
    """What binding would do, without doing it. Ids from `PLACEHOLDER` on stand for new noderoles.

    Only reads, and takes no lock. It needs a transaction that sees one moment throughout (`Store.read`).
    """
    check_proposed(deployment)
    await _read_by_index(session)
    plan, _, _ = await _work_out(session, deployment.id, requests, PROPOSED)
    return plan


async def plan_each(
    session: Session, deployment: DeploymentRecord, targets: Sequence[Sequence[Request]]
) -> tuple[list[BindPlan | RackwrightError], Graph]:
    """What binding each target alone would do, or why it is refused, and the graph that this was worked out in.

    Reads once for all targets, whatever their number; as `plan_binding`, it takes no lock.
    """
    check_proposed(deployment)
    await _read_by_index(session)
    stored = await session.catalogue()
    unknown = [next((role for _, role in target if role not in stored.role_ids), None) for target in targets]
    known = [target for target, role in zip(targets, unknown, strict=True) if role is None]
    places = [place for target in known for place in target]
    graph = await load_for_binding(
        session, stored, deployment.id, {node for node, _ in places}, {role for _, role in places}
    )
    worked_out = iter(bind_each(graph, stored.catalogue, deployment.id, known))
    return [next(worked_out) if role is None else NotFound("role", role) for role in unknown], graph


async def _read_by_index(session: Session) -> None:
    """Have PostgreSQL find rows as it does for a change (`_BEGIN` in store.py): a dry run asks the same questions."""
    await session.run("SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)")


async def bind_proposed(session: GraphSession, deployment: DeploymentRecord, requests: Sequence[Request]) -> BindPlan:
    """Bind in the open proposal. Returns the plan with the ids the noderoles got."""
    snapshot_id = await require_proposal(session, deployment)
    if not deployment.counts.get(PROPOSED):
        await mark_worked_out(session, snapshot_id)
    plan, graph, stored = await _work_out(session, deployment.id, requests, PROPOSED)
    plan = await _with_ids(session, plan)
    await _write(session, stored, graph, plan)
    await _into_snapshot(session, stored, snapshot_id, plan, asked=plan.bound)
    await add_deployment_roles(session, stored, deployment.id, {noderole.role for noderole in plan.created})
    await ask_noderoles(session, "on_node_bind", [noderole.id for noderole in plan.created], new=True)
    return plan


async def rebind_proposed(
    session: GraphSession, deployment: DeploymentRecord, snapshot_id: int, worked_out: BindPlan, graph: Graph
) -> BindPlan:
    """Give the proposed noderoles the parents that binding gives them now; what it pulled in anew is added."""
    stored = await session.catalogue()
    present = {noderole.id for noderole in worked_out.created if noderole.id < PLACEHOLDER}
    # Also of the parents that it loses: one that settles now would else count itself off a child that it no longer has.
    former = await session.rows(
        "SELECT DISTINCT parent_id FROM node_role_edges WHERE child_id = ANY (:ids)", ids=list(present)
    )
    latter = {parent for parent, child in worked_out.edges if child in present and parent < PLACEHOLDER}
    await lock_parents(session, {*(row.parent_id for row in former), *latter} - present)
    await session.run("DELETE FROM node_role_edges WHERE child_id = ANY (:ids)", ids=list(present))
    await session.run("DELETE FROM node_role_links WHERE child_id = ANY (:ids)", ids=list(present))
    plan = await _with_ids(session, worked_out)
    await _write(session, stored, graph, plan, present)
    await _into_snapshot(session, stored, snapshot_id, plan, asked=())
    await add_deployment_roles(session, stored, deployment.id, {noderole.role for noderole in plan.created})
    added = [noderole.id for noderole in plan.created if noderole.id not in present]
    await ask_noderoles(session, "on_node_bind", added, new=True)
    return plan


async def bind_committed(session: GraphSession, deployment_id: int, requests: Sequence[Request]) -> BindPlan:
    """Bind and commit in one: the system deployment's way."""
    plan, graph, stored = await _work_out(session, deployment_id, requests, TODO)
    return await commit_at_once(session, stored, deployment_id, graph, plan)


async def commit_at_once(
    session: GraphSession, stored: StoredCatalogue, deployment_id: int, graph: Graph, plan: BindPlan
) -> BindPlan:
    """Write what was worked out as committed, and return it with the ids that the noderoles got."""
    plan = await _with_ids(session, plan)
    await _write(session, stored, graph, plan)
    await add_deployment_roles(session, stored, deployment_id, {noderole.role for noderole in plan.created})
    if plan.created:
        for hook in ("on_node_bind", "on_commit"):
            await ask_noderoles(session, hook, [noderole.id for noderole in plan.created], new=True)
        await regroup(session, {noderole.id for noderole in plan.created})
        await bump_graph(session)
    return plan


async def _work_out(
    session: Session, deployment_id: int, requests: Sequence[Request], state: NodeRoleState
) -> tuple[BindPlan, Graph, StoredCatalogue]:
    stored = await session.catalogue()
    for _, role in requests:
        if role not in stored.role_ids:
            raise NotFound("role", role)
    nodes = {node_id for node_id, _ in requests}
    graph = await load_for_binding(session, stored, deployment_id, nodes, {role for _, role in requests})
    missing = nodes - graph.nodes.keys()
    if missing:
        raise NotFound("node", min(missing))
    return bind(graph, stored.catalogue, deployment_id, requests, state=state), graph, stored


async def _with_ids(session: Session, plan: BindPlan) -> BindPlan:
    """The same plan, with real ids in place of placeholders."""
    new = [noderole.id for noderole in plan.created if noderole.id >= PLACEHOLDER]
    ids = dict(zip(new, await session.new_ids("node_roles", len(new)), strict=True)) if new else {}
    return BindPlan(
        bound=[ids.get(id, id) for id in plan.bound],
        created=[replace(noderole, id=ids.get(noderole.id, noderole.id)) for noderole in plan.created],
        edges=[(ids.get(parent, parent), ids.get(child, child)) for parent, child in plan.edges],
        links=[
            AttribLink(ids.get(one.child, one.child), one.attrib, ids.get(one.parent, one.parent)) for one in plan.links
        ],
        recohorted=dict(plan.recohorted),
    )


async def _write(
    session: GraphSession, stored: StoredCatalogue, graph: Graph, plan: BindPlan, present: Collection[int] = ()
) -> None:
    """Write the noderoles with their edges and links; those `present` have a row already.

    A proposal must not disturb what runs: edges from a proposed noderole to a committed one wait for the commit.
    """
    if not plan.created:
        return
    created = {noderole.id for noderole in plan.created}
    own = [(parent, child) for parent, child in plan.edges if child in created]
    active = await lock_parents(session, {parent for parent, _ in own} - created)
    unmet = Counter(child for parent, child in own if parent not in active)
    await _insert(session, stored, [one for one in plan.created if one.id not in present], unmet)
    await _adjust(session, [one for one in plan.created if one.id in present], unmet)
    await write_edges(session, own)
    await write_links(session, stored, plan.links)
    await announce(session, created - set(present))
    session.moved.extend(
        (one.id, int(_first_state(one, unmet[one.id]))) for one in plan.created if one.id not in present
    )
    adopted = [
        (parent, child)
        for parent, child in plan.edges
        if child not in created and _takes_effect(graph.noderoles[child], plan.created)
    ]
    await adopt(session, adopted)
    await push_cohorts(
        session, {id: n for id, n in plan.recohorted.items() if _takes_effect(graph.noderoles[id], plan.created)}
    )


async def _insert(
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


async def _adjust(session: GraphSession, noderoles: Sequence[NodeRole], unmet: Mapping[int, int]) -> None:
    """Proposed noderoles that stand elsewhere in the graph than before."""
    if noderoles:
        await session.run(
            "UPDATE node_roles nr SET cohort = given.cohort, unmet = given.unmet"
            " FROM unnest(CAST(:ids AS bigint[]), CAST(:cohorts AS int[]), CAST(:unmet AS int[]))"
            " AS given (id, cohort, unmet) WHERE nr.id = given.id",
            ids=[noderole.id for noderole in noderoles],
            cohorts=[noderole.cohort for noderole in noderoles],
            unmet=[unmet.get(noderole.id, 0) for noderole in noderoles],
        )


def _first_state(noderole: NodeRole, unmet: int) -> NodeRoleState:
    if noderole.state is PROPOSED:
        return PROPOSED
    return BLOCKED if unmet else TODO


def _takes_effect(child: NodeRole, created: Sequence[NodeRole]) -> bool:
    """Whether a new parent may stand above it at once: what is proposed shows only within its own proposal."""
    within = child.state is PROPOSED and child.deployment_id == created[0].deployment_id
    return within or created[0].state is not PROPOSED


async def write_edges(session: GraphSession, edges: Iterable[tuple[int, int]]) -> None:
    await session.copy("node_role_edges", ("parent_id", "child_id"), ("int8", "int8"), edges)


async def write_links(session: GraphSession, stored: StoredCatalogue, links: Sequence[AttribLink]) -> None:
    if links:
        await session.copy(
            "node_role_links",
            ("child_id", "attrib_id", "parent_id"),
            ("int8", "int8", "int8"),
            ((link.child, stored.attrib_ids[link.attrib], link.parent) for link in links),
        )


async def adopt(session: GraphSession, edges: Sequence[tuple[int, int]]) -> None:
    """Put new parents, none of them ACTIVE, above noderoles that were there before."""
    if edges:
        await write_edges(session, edges)
        await step_children(session, ((child, 1) for _, child in edges))


async def push_cohorts(session: GraphSession, cohorts: Mapping[int, int]) -> None:
    if cohorts:
        pushed = await session.rows(
            "UPDATE node_roles nr SET cohort = given.cohort"
            " FROM unnest(CAST(:ids AS bigint[]), CAST(:cohorts AS int[])) AS given (id, cohort)"
            " WHERE nr.id = given.id RETURNING nr.node_id",
            ids=list(cohorts),
            cohorts=list(cohorts.values()),
        )
        session.touch(row.node_id for row in pushed)


async def announce(session: Session, ids: Collection[int]) -> None:
    """One event for each noderole, for the state it is in."""
    await session.run(
        f"INSERT INTO events (kind, subject_id, node_id, deployment_id)"
        f" SELECT {LABELS}[state + 1], id, node_id, deployment_id FROM node_roles WHERE id = ANY (:ids) ORDER BY id",
        ids=list(ids),
    )


async def add_deployment_roles(
    session: Session, stored: StoredCatalogue, deployment_id: int, roles: Collection[str]
) -> None:
    """A deployment has a deployment-role for each role bound in it."""
    made = await session.rows(
        "INSERT INTO deployment_roles (deployment_id, role_id) SELECT :deployment_id, unnest(CAST(:roles AS bigint[]))"
        " ON CONFLICT DO NOTHING RETURNING id, role_id",
        deployment_id=deployment_id,
        roles=sorted(stored.role_ids[role] for role in roles),
    )
    await session.run(
        "INSERT INTO events (kind, subject_id, deployment_id, data)"
        " SELECT 'deployment_role.created', dr.id, dr.deployment_id, jsonb_build_object('role', r.name)"
        " FROM deployment_roles dr JOIN roles r ON r.id = dr.role_id WHERE dr.id = ANY (:ids)",
        ids=[row.id for row in made],
    )
    await ask_deployment_roles(session, "on_deployment_create", [row.id for row in made])


async def _into_snapshot(
    session: GraphSession, stored: StoredCatalogue, snapshot_id: int, plan: BindPlan, asked: Collection[int]
) -> None:
    """The proposal now intends all of this; a binding that was taken out of it comes back."""
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
        asked=list(asked),
    )
    await session.run(
        """
        INSERT INTO snapshot_roles (snapshot_id, role_id, role_name, data)
        SELECT :snapshot_id, r.id, r.name, '{}' FROM roles r WHERE r.id = ANY (:roles) ON CONFLICT DO NOTHING
        """,
        snapshot_id=snapshot_id,
        roles=sorted({stored.role_ids[noderole.role] for noderole in plan.created}),
    )
    await touch(session, snapshot_id)


async def touch(session: Session, snapshot_id: int) -> None:
    """The proposal was edited."""
    await session.run("UPDATE snapshots SET revision = revision + 1 WHERE id = :id", id=snapshot_id)


async def mark_worked_out(session: GraphSession, snapshot_id: int) -> None:
    """All that is proposed was bound in the graph as it is now."""
    await session.run(
        "UPDATE snapshots SET worked_out_at = :version WHERE id = :id",
        id=snapshot_id,
        version=await graph_version(session),
    )
