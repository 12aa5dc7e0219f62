"""The noderole graph in memory: nodes, deployments, noderoles and the edges between them.

A graph holds as much of the stored graph as a rule needs. It is filled by the store (or a test) and knows no rule
itself: rules are in `binding.py`, `removal.py` and `snapshots.py`.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from rackwright.domain.states import PROPOSED, NodeRoleState


@dataclass(frozen=True, slots=True)
class GraphNode:
    """What the rules need to know of a node."""

    id: int
    name: str
    deployment_id: int
    admin: bool = False
    system: bool = False
    """Whether it is a phantom node: no machine, but what a deployment's service roles are bound to."""


@dataclass(frozen=True, slots=True)
class Deployment:
    id: int
    name: str
    parent_id: int | None
    phantom_id: int


@dataclass(frozen=True, slots=True)
class NodeRole:
    id: int
    node_id: int
    role: str
    deployment_id: int
    state: NodeRoleState
    cohort: int = 0
    doomed: bool = False
    """Whether it is removed, but its last run is not over: nothing new may depend on it."""

    @property
    def rank(self) -> tuple[int, int]:
        """The order among several noderoles: the lowest cohort first, then the oldest."""
        return (self.cohort, self.id)


class Graph:
    """Nodes, deployments, noderoles and edges, indexed for the lookups of the rules."""

    def __init__(
        self,
        nodes: Iterable[GraphNode] = (),
        deployments: Iterable[Deployment] = (),
        noderoles: Iterable[NodeRole] = (),
        edges: Iterable[tuple[int, int]] = (),
    ) -> None:
        self.nodes = {node.id: node for node in nodes}
        self.deployments = {deployment.id: deployment for deployment in deployments}
        self.noderoles: dict[int, NodeRole] = {}
        self._parents: dict[int, list[int]] = {}
        self._children: dict[int, list[int]] = {}
        self._ids_by_location: dict[tuple[int, str], int] = {}
        self._on_node: dict[int, list[int]] = {}
        self._of_role: dict[tuple[int, str], list[int]] = {}
        self._first: dict[tuple[int, str], int | None] = {}
        """The noderole with the lowest (cohort, id) in each of the lists of `_of_role`, once it was asked for."""
        self._undo: list[Callable[[], None]] | None = None
        """Functions that undo each change of a trial, in the order of the changes; None: there is no trial."""
        for noderole in noderoles:
            self.add(noderole)
        for parent, child in edges:
            self.link(parent, child)

    # --- lookups

    def noderole_at(self, node_id: int, role: str) -> NodeRole | None:
        id = self._ids_by_location.get((node_id, role))
        return None if id is None else self.noderoles[id]

    def on_node(self, node_id: int) -> list[NodeRole]:
        return [self.noderoles[id] for id in self._on_node.get(node_id, ())]

    def of_role(self, deployment_id: int, role: str) -> list[NodeRole]:
        """Return all noderoles of a role in one deployment, the lowest (cohort, id) first."""
        noderoles = (self.noderoles[id] for id in self._of_role.get((deployment_id, role), ()))
        return sorted(noderoles, key=lambda noderole: noderole.rank)

    def first_of_role(self, deployment_id: int, role: str, proposal: int) -> NodeRole | None:
        """Return the noderole of a role in one deployment with the lowest (cohort, id) that is visible in `proposal`.

        `proposal` is the id of the deployment in which something is bound.
        """
        if deployment_id == proposal:
            return self._first_of((deployment_id, role))
        noderoles = self.of_role(deployment_id, role)
        return next((noderole for noderole in noderoles if is_visible(noderole, proposal)), None)

    def _first_of(self, key: tuple[int, str]) -> NodeRole | None:
        if key not in self._first:
            not_doomed = (id for id in self._of_role.get(key, ()) if not self.noderoles[id].doomed)
            self._first[key] = min(not_doomed, key=lambda id: self.noderoles[id].rank, default=None)
        first = self._first[key]
        return None if first is None else self.noderoles[first]

    def parents(self, id: int) -> list[int]:
        return self._parents.get(id, [])

    def children(self, id: int) -> list[int]:
        return self._children.get(id, [])

    def path(self, deployment_id: int) -> Iterator[int]:
        """Yield the deployment itself, its parent, and so on up to the root."""
        current: int | None = deployment_id
        while current is not None:
            yield current
            current = self.deployments[current].parent_id

    def ancestors(self, ids: Iterable[int]) -> set[int]:
        """Return all noderoles that `ids` depend on, without `ids` themselves unless they depend on each other."""
        return _reachable(ids, self._parents)

    def descendants(self, ids: Iterable[int]) -> set[int]:
        return _reachable(ids, self._children)

    def title(self, id: int) -> str:
        """Return the name of a noderole for messages: role on node."""
        noderole = self.noderoles[id]
        return f"{noderole.role} on {self.node_name(noderole.node_id)}"

    def node_name(self, node_id: int) -> str:
        return self.nodes[node_id].name if node_id in self.nodes else f"node {node_id}"

    def deployment_name(self, deployment_id: int) -> str:
        deployment = self.deployments.get(deployment_id)
        return deployment.name if deployment else f"deployment {deployment_id}"

    # --- changes, in memory only

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Undo, at the end of the block, all changes made in it, so that the next trial begins with the same graph."""
        assert self._undo is None, "a trial within a trial"
        self._undo = []
        try:
            yield
        finally:
            undo_steps, self._undo = self._undo, None
            for undo_step in reversed(undo_steps):
                undo_step()

    def _record_undo(self, undo_step: Callable[[], None]) -> None:
        if self._undo is not None:
            self._undo.append(undo_step)

    def add(self, noderole: NodeRole) -> None:
        """Add a noderole whose id, and whose role on its node, are not in the graph yet."""
        self.noderoles[noderole.id] = noderole
        self._ids_by_location[noderole.node_id, noderole.role] = noderole.id
        self._on_node.setdefault(noderole.node_id, []).append(noderole.id)
        key = (noderole.deployment_id, noderole.role)
        self._of_role.setdefault(key, []).append(noderole.id)
        if key in self._first and not noderole.doomed:
            first = self._first[key]
            if first is None or noderole.rank < self.noderoles[first].rank:
                self._first[key] = noderole.id
        self._record_undo(partial(self._undo_add, noderole))

    def _undo_add(self, noderole: NodeRole) -> None:
        """Remove the noderole that was added last."""
        del self.noderoles[noderole.id]
        del self._ids_by_location[noderole.node_id, noderole.role]
        self._on_node[noderole.node_id].pop()
        self._of_role[noderole.deployment_id, noderole.role].pop()
        self._first.pop((noderole.deployment_id, noderole.role), None)

    def link(self, parent: int, child: int) -> None:
        self._parents.setdefault(child, []).append(parent)
        self._children.setdefault(parent, []).append(child)
        self._record_undo(partial(self._undo_link, parent, child))

    def _undo_link(self, parent: int, child: int) -> None:
        """Remove the edge that was added last."""
        self._parents[child].pop()
        self._children[parent].pop()

    def unlink(self, parent: int, child: int) -> None:
        assert self._undo is None, "what a trial unlinks is not put back"
        self._parents[child].remove(parent)
        self._children[parent].remove(child)

    def set_cohort(self, id: int, cohort: int) -> None:
        before = self.noderoles[id]
        self._replace(replace(before, cohort=cohort))
        self._record_undo(partial(self._replace, before))

    def _replace(self, noderole: NodeRole) -> None:
        self.noderoles[noderole.id] = noderole
        # Worked out when next asked for: all noderoles of a role may be replaced, one by one.
        self._first.pop((noderole.deployment_id, noderole.role), None)


def is_visible(noderole: NodeRole, proposal: int) -> bool:
    """Return whether a binding in deployment `proposal` may depend on a noderole.

    It may if the noderole is committed and stays, or is proposed in that deployment.
    """
    return not noderole.doomed and (noderole.state is not PROPOSED or noderole.deployment_id == proposal)


def _reachable(ids: Iterable[int], neighbours: dict[int, list[int]]) -> set[int]:
    reached: set[int] = set()
    stack = list(ids)
    while stack:
        for next_id in neighbours.get(stack.pop(), ()):
            if next_id not in reached:
                reached.add(next_id)
                stack.append(next_id)
    return reached
