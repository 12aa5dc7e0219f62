"""Binding of roles to nodes: from the graph and the requests to a plan of all changes, or to one conflict. Pure.

The same code answers a dry run, makes a proposal's noderoles, and works them out again when the proposal is committed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rackwright.domain.catalogue import Catalogue, Flag, Role
from rackwright.domain.errors import Conflict, Rule
from rackwright.domain.graph.noderole_graph import Graph, NodeRole, is_visible
from rackwright.domain.states import PROPOSED, NodeRoleState

PLACEHOLDER = 1 << 62
"""Ids from here on are placeholders for noderoles that have no id yet. They sort after all that exist."""


@dataclass(frozen=True, slots=True)
class AttribLink:
    """The parent that a noderole takes a wanted attrib from."""

    child: int
    attrib: str
    parent: int


@dataclass
class BindPlan:
    """The changes that binding makes; an empty plan means that all was bound already."""

    bound: list[int] = field(default_factory=list)
    """The noderole of each request, in the order of the requests."""
    created: list[NodeRole] = field(default_factory=list)
    edges: list[tuple[int, int]] = field(default_factory=list)
    """(parent, child)"""
    links: list[AttribLink] = field(default_factory=list)
    recohorted: dict[int, int] = field(default_factory=dict)
    """The new cohort of each noderole that existed before and whose cohort grew."""


def bind(
    graph: Graph,
    catalogue: Catalogue,
    deployment_id: int,
    requests: Iterable[tuple[int, str]],
    *,
    state: NodeRoleState = PROPOSED,
    known: Mapping[tuple[int, str], int] | None = None,
) -> BindPlan:
    """Bind each (node, role) in one deployment, with all roles that it needs, and return the changes.

    `graph` is used up: the new noderoles are in it afterwards. `known` has the ids that noderoles had before, by
    (node, role), for working a proposal out again.
    """
    binder = Binder(graph, catalogue, deployment_id, state, known or {})
    for node_id, role in requests:
        binder.plan.bound.append(binder.bind(node_id, role))
    return binder.finish()


def bind_each(
    graph: Graph, catalogue: Catalogue, deployment_id: int, targets: Iterable[Sequence[tuple[int, str]]]
) -> list[BindPlan | Conflict]:
    """Return for each target what binding it alone would change, or why it is refused; `graph` stays as it is.

    A target is the requests of one `bind`: (node, role) pairs that are bound together or not at all.
    """
    answers: list[BindPlan | Conflict] = []
    for requests in targets:
        with graph.trial():
            try:
                answers.append(bind(graph, catalogue, deployment_id, requests))
            except Conflict as conflict:
                answers.append(conflict)
    return answers


class Binder:
    """Binds one request after the other in a graph, and collects the changes in `plan`.

    `domain/graph/upgrades.py` extends it with changes of noderoles that are bound already.
    """

    def __init__(
        self,
        graph: Graph,
        catalogue: Catalogue,
        deployment_id: int,
        state: NodeRoleState,
        known: Mapping[tuple[int, str], int],
    ) -> None:
        self.graph = graph
        self.catalogue = catalogue
        self.deployment = graph.deployments[deployment_id]
        self.path = tuple(graph.path(deployment_id))
        self.state = state
        self.known = known
        self.plan = BindPlan()
        self.fresh: set[int] = set()
        self.staying: set[int] = set()
        """Nodes that stay in a deployment below this one, though a role is bound to them in this one."""
        self.lineages: dict[int, frozenset[str]] = {}
        self._next_placeholder = PLACEHOLDER

    def bind(self, node_id: int, name: str) -> int:
        """Bind one role with all it needs and return its noderole. Iterative: requires may be nested deeply."""
        stack = [self._location(node_id, self.catalogue.role(name))]
        while True:
            node, role = stack[-1]
            noderole_id = self._existing_noderole(node, role)
            if noderole_id is None:
                parents, missing = self._resolve_needs(node, self.catalogue.role(role))
                if missing is not None:
                    self._check_circle(stack, missing)
                    stack.append(missing)
                    continue
                noderole_id = self._create(node, self.catalogue.role(role), parents)
            stack.pop()
            if not stack:
                return noderole_id

    @staticmethod
    def _check_circle(stack: list[tuple[int, str]], missing: tuple[int, str]) -> None:
        if missing in stack:
            names = [name for _, name in [*stack[stack.index(missing) :], missing]]
            raise Conflict(Rule.CYCLE, f"These roles need each other in a circle: {' -> '.join(names)}.")

    def finish(self) -> BindPlan:
        self.plan.created = [self.graph.noderoles[noderole.id] for noderole in self.plan.created]
        return self.plan

    # --- where a role is bound

    def _location(self, node_id: int, role: Role) -> tuple[int, str]:
        """Return (node, role): the node that was asked for, or the deployment's phantom node for a service role."""
        return (self.deployment.phantom_id if role.has(Flag.SERVICE) else node_id, role.name)

    def _existing_noderole(self, node_id: int, role: str) -> int | None:
        noderole = self.graph.noderole_at(node_id, role)
        if noderole is None:
            return None
        if noderole.doomed:
            raise Conflict(
                Rule.BUSY,
                f"{self.graph.title(noderole.id)} is being removed and its last run is not over. "
                "Wait for it, or cancel it.",
            )
        if not is_visible(noderole, self.deployment.id):
            where = self.graph.deployment_name(noderole.deployment_id)
            raise Conflict(
                Rule.PROPOSED_ELSEWHERE,
                f"{self.graph.title(noderole.id)} is already proposed in deployment {where!r}. "
                "Commit or discard that proposal first.",
            )
        return noderole.id

    # --- the roles that a role needs

    def _resolve_needs(self, node_id: int, role: Role) -> tuple[dict[str, list[int]], tuple[int, str] | None]:
        """Return the parents that satisfy each needed role, or the first (node, role) that must be bound before."""
        self._check_location(node_id, role)
        parents: dict[str, list[int]] = {}
        for need in self.catalogue.needed_roles(role.name):
            parent = self._find_parent(node_id, need)
            if parent is None:
                return {}, self._location_of_missing(node_id, role, need)
            parents[need] = self._with_peers(parent)
        return parents, None

    def _find_parent(self, node_id: int, need: str) -> NodeRole | None:
        """Return the noderole that satisfies a needed role: on the node itself, else in this deployment or above."""
        on_node = self._find_on_node(node_id, need)
        if on_node is not None:
            return on_node
        if self.catalogue.is_implicit(need):
            return None
        for deployment_id in self.path:
            parent = self.graph.first_of_role(deployment_id, need, self.deployment.id)
            if parent is None:
                parent = self._first_by_rank(
                    self.graph.first_of_role(deployment_id, provider, self.deployment.id)
                    for provider in self.catalogue.providers(need)
                )
            if parent is not None:
                return parent
        return None

    def _find_on_node(self, node_id: int, need: str) -> NodeRole | None:
        """Return the noderole of the needed role on the node itself, else of a role that provides it there."""
        own = self.graph.noderole_at(node_id, need)
        if own is not None and is_visible(own, self.deployment.id):
            return own
        providers = (self.graph.noderole_at(node_id, provider) for provider in self.catalogue.providers(need))
        return self._first_by_rank(
            provider for provider in providers if provider and is_visible(provider, self.deployment.id)
        )

    @staticmethod
    def _first_by_rank(noderoles: Iterable[NodeRole | None]) -> NodeRole | None:
        return min((noderole for noderole in noderoles if noderole), key=lambda noderole: noderole.rank, default=None)

    def _location_of_missing(self, node_id: int, role: Role, need: str) -> tuple[int, str]:
        """Return where a needed role that is bound nowhere is to be bound; raise a conflict if it cannot be."""
        needed = self.catalogue.roles.get(need)
        if needed is None:
            raise Conflict(
                Rule.UNRESOLVED,
                f"{role.name} requires role {need!r}, which no barclamp declares. Import the barclamp that has it.",
            )
        if needed.has(Flag.ABSTRACT):
            raise Conflict(
                Rule.UNRESOLVED,
                f"{role.name} requires {need!r}, which is abstract: first bind a role that provides it"
                f"{_listed(self.catalogue.providers(need))}.",
            )
        location = self._location(node_id, needed)
        on_phantom = self.graph.nodes[location[0]].system
        if on_phantom and not (needed.has(Flag.SERVICE) or needed.has(Flag.IMPLICIT)):
            raise Conflict(
                Rule.UNRESOLVED,
                f"The service {role.name} requires {need!r}, which needs a machine: bind {need!r} to a node in "
                f"{self.deployment.name!r} or a deployment above it first.",
            )
        return location

    def _with_peers(self, noderole: NodeRole) -> list[int]:
        """Return the noderole itself, or all members if its role is a cluster, in the order of their rank."""
        if not self.catalogue.role(noderole.role).has(Flag.CLUSTER):
            return [noderole.id]
        peers = self.graph.of_role(noderole.deployment_id, noderole.role)
        return [peer.id for peer in peers if is_visible(peer, self.deployment.id)]

    # --- rules that forbid a binding

    def _check_location(self, node_id: int, role: Role) -> None:
        node = self.graph.nodes[node_id]
        title = f"{role.name} on {node.name}"
        if role.has(Flag.ABSTRACT):
            raise Conflict(
                Rule.ABSTRACT,
                f"Role {role.name!r} is abstract and cannot be bound: bind a role that provides it"
                f"{_listed(self.catalogue.providers(role.name))}.",
            )
        jig = self.catalogue.jigs.get(role.jig)
        if jig is None or not jig.active:
            why = "is not imported" if jig is None else "is not active"
            raise Conflict(Rule.JIG_INACTIVE, f"{title}: its jig {role.jig!r} {why}. Activate the jig first.")
        if node.system and not (role.has(Flag.SERVICE) or role.has(Flag.IMPLICIT)):
            raise Conflict(Rule.PHANTOM, f"{title}: only service roles live there; bind {role.name!r} to a machine.")
        if node.system and node.id != self.deployment.phantom_id:
            # A commit moves the nodes it binds; a phantom node must stay with its deployment.
            where = self.graph.deployment_name(node.deployment_id)
            raise Conflict(Rule.PHANTOM, f"{title}: it carries the services of {where!r}; bind {role.name!r} there.")
        # A role that the server binds in the root concerns every node below the root, and moves none of them.
        at_home = node.deployment_id in self.path or node_id in self.staying
        if not at_home and self.deployment.parent_id is not None:
            where = self.graph.deployment_name(node.deployment_id)
            raise Conflict(
                Rule.NODE_ELSEWHERE,
                f"{title}: the node belongs to deployment {where!r}, which is not {self.deployment.name!r} nor above "
                "it. Move the node first.",
            )
        if role.has(Flag.DESTRUCTIVE) and node.admin:
            raise Conflict(
                Rule.DESTRUCTIVE_ON_ADMIN, f"{title}: it wipes the machine, and {node.name} is an admin node."
            )
        self._check_neighbours(node_id, role, title)

    def _check_neighbours(self, node_id: int, role: Role, title: str) -> None:
        rivals = self.catalogue.rivals(role.name)
        stand_ins = self.catalogue.stand_ins(role.name)
        if not rivals and not stand_ins:
            return
        for neighbour in self.graph.on_node(node_id):
            if neighbour.role in stand_ins:
                provider, provided = (
                    (role.name, neighbour.role) if neighbour.role in role.provides else (neighbour.role, role.name)
                )
                raise Conflict(
                    Rule.PROVIDES_SAME_NODE,
                    f"{title}: {provider!r} provides {provided!r}, so the two cannot share a node, and "
                    f"{neighbour.role!r} is bound there.",
                )
            if neighbour.role in rivals:
                why = self._why_rivals(role.name, neighbour.role)
                raise Conflict(
                    Rule.CONFLICTS, f"{title}: it conflicts with {neighbour.role!r}, which is bound there{why}."
                )

    def _why_rivals(self, role: str, neighbour: str) -> str:
        """Return the abstract roles by which two roles conflict, in words; an empty text if they do so themselves."""
        declared = self.catalogue.declared_conflict(role, neighbour)
        if declared is None or {*declared} == {role, neighbour}:
            return ""
        provides = [
            f"{name!r} provides {abstract!r}"
            for name in (role, neighbour)
            for abstract in declared
            if abstract in self.catalogue.role(name).provides
        ]
        return f": {declared[0]!r} conflicts with {declared[1]!r}, and {' and '.join(provides)}"

    def _check_lineage(self, role: str, parents: Iterable[int], title: str) -> None:
        """Refuse a role that depends, even through others, on a role that it provides or that provides it."""
        stand_ins = self.catalogue.stand_ins(role)
        if not stand_ins:
            return
        for parent in parents:
            clash = stand_ins & self._lineage(parent)
            if clash:
                other = min(clash)
                raise Conflict(
                    Rule.PROVIDES_LINEAGE,
                    f"{title}: one of {role!r} and {other!r} provides the other, so they cannot stand on each other, "
                    f"and {other!r} is among what {self.graph.title(parent)} stands on.",
                )

    def _lineage(self, id: int) -> frozenset[str]:
        """Return the roles of a noderole and its ancestors, as far as they provide a role or are provided by one."""
        stack = [id]
        while stack:
            top = stack[-1]
            if top in self.lineages:
                stack.pop()
                continue
            parents = self.graph.parents(top)
            unknown = [parent for parent in parents if parent not in self.lineages]
            if unknown:
                stack.extend(unknown)
                continue
            role = self.graph.noderoles[top].role
            own = frozenset((role,)) if self.catalogue.stand_ins(role) else frozenset()
            self.lineages[top] = own.union(*(self.lineages[parent] for parent in parents))
            stack.pop()
        return self.lineages[id]

    # --- changes of the graph

    def _create(self, node_id: int, role: Role, parents: dict[str, list[int]]) -> int:
        title = f"{role.name} on {self.graph.nodes[node_id].name}"
        parent_ids = list(dict.fromkeys(id for ids in parents.values() for id in ids))
        self._check_lineage(role.name, parent_ids, title)
        cohort = 1 + max((self.graph.noderoles[id].cohort for id in parent_ids), default=-1)
        noderole = NodeRole(
            self._new_id(node_id, role.name), node_id, role.name, self.deployment.id, self.state, cohort
        )
        peers = self.graph.of_role(self.deployment.id, role.name) if role.has(Flag.CLUSTER) else []
        self.graph.add(noderole)
        self.fresh.add(noderole.id)
        self.plan.created.append(noderole)
        for parent in parent_ids:
            self._link(parent, noderole.id)
        self._link_attribs(noderole.id, role, parents)
        if peers:
            self._adopt_children(noderole.id, [peer.id for peer in peers], title)
        return noderole.id

    def _new_id(self, node_id: int, role: str) -> int:
        known = self.known.get((node_id, role))
        if known is not None:
            return known
        self._next_placeholder += 1
        return self._next_placeholder

    def _link(self, parent: int, child: int) -> None:
        self.graph.link(parent, child)
        self.plan.edges.append((parent, child))

    def _link_attribs(self, child: int, role: Role, parents: dict[str, list[int]]) -> None:
        for want in role.wants:
            attrib = self.catalogue.attribs.get(want)
            if attrib is None:
                raise Conflict(
                    Rule.UNRESOLVED,
                    f"{role.name} wants attrib {want!r}, which no barclamp declares. Import the barclamp that has it.",
                )
            if attrib.role is not None and attrib.role != role.name and attrib.role not in role.provides:
                self.plan.links.append(AttribLink(child, want, parents[attrib.role][0]))

    def _adopt_children(self, id: int, peers: list[int], title: str) -> None:
        """Make a new member of a cluster a parent of all noderoles that depend on its peers."""
        children = dict.fromkeys(child for peer in peers for child in self.graph.children(peer))
        if not children:
            return
        below = {*children, *self.graph.descendants(children)}
        if below & {id, *self.graph.ancestors([id])}:
            circle = min(below & {id, *self.graph.ancestors([id])})
            raise Conflict(
                Rule.CYCLE,
                f"{title}: as a member of its cluster it would have to come before {self.graph.title(circle)}, "
                "which it stands on itself.",
            )
        for child in children:
            self._link(id, child)
        gained = self._lineage(id)
        for descendant in sorted(below) if gained else ():
            self.lineages.pop(descendant, None)
            role = self.graph.noderoles[descendant].role
            if gained & self.catalogue.stand_ins(role):
                self._check_lineage(role, [id], self.graph.title(descendant))
        self._push_cohorts(id)

    def _push_cohorts(self, start: int) -> None:
        """Raise the cohorts of all descendants that are not above those of their parents any more."""
        stack = [start]
        while stack:
            id = stack.pop()
            least = self.graph.noderoles[id].cohort + 1
            for child in self.graph.children(id):
                if self.graph.noderoles[child].cohort < least:
                    self.graph.set_cohort(child, least)
                    if child not in self.fresh:
                        self.plan.recohorted[child] = least
                    stack.append(child)


def _listed(names: Iterable[str]) -> str:
    listed = ", ".join(sorted(names))
    return f" ({listed})" if listed else ""
