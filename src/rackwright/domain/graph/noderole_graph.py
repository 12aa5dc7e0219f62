"""The noderole graph as plain values, and an in-memory view of as much of it as a question needs.

The view is what binding, planning and `why` look at. It is filled by the store (or a test) and knows no rule: rules
are in `binding.py`, `removal.py` and `snapshots.py`.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from rackwright.domain.states import PROPOSED, NodeRoleState


@dataclass(frozen=True, slots=True)
class GraphNode:
    id: int
    name: str
    deployment_id: int
    admin: bool = False
    system: bool = False
    """A phantom: no machine, but the place of a deployment's service roles."""


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
    """Removed, but its last run is not over: nothing new may build on it."""

    @property
    def rank(self) -> tuple[int, int]:
        """Which of several comes first: the lowest cohort, then the oldest."""
        return (self.cohort, self.id)


class Graph:
    """Nodes, deployments, noderoles and edges, indexed for the questions the rules ask."""

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
        self._places: dict[tuple[int, str], int] = {}
        self._on_node: dict[int, list[int]] = {}
        self._of_role: dict[tuple[int, str], list[int]] = {}
        self._first: dict[tuple[int, str], int | None] = {}
        """Of each of those lists the lowest (cohort, id), once somebody asked for it."""
        self._undo: list[Callable[[], None]] | None = None
        """How to take back each change of a trial, in their order; None: this is no trial."""
        for noderole in noderoles:
            self.add(noderole)
        for parent, child in edges:
            self.link(parent, child)

    # --- questions

    def at(self, node_id: int, role: str) -> NodeRole | None:
        found = self._places.get((node_id, role))
        return None if found is None else self.noderoles[found]

    def on_node(self, node_id: int) -> list[NodeRole]:
        return [self.noderoles[id] for id in self._on_node.get(node_id, ())]

    def of_role(self, deployment_id: int, role: str) -> list[NodeRole]:
        """All noderoles of a role in one deployment, first the lowest (cohort, id)."""
        found = (self.noderoles[id] for id in self._of_role.get((deployment_id, role), ()))
        return sorted(found, key=lambda noderole: noderole.rank)

    def first_of_role(self, deployment_id: int, role: str, proposal: int) -> NodeRole | None:
        """The lowest (cohort, id) of a role in one deployment that deployment `proposal` can see."""
        if deployment_id == proposal:
            return self._first_of((deployment_id, role))
        return next((found for found in self.of_role(deployment_id, role) if is_visible(found, proposal)), None)

    def _first_of(self, key: tuple[int, str]) -> NodeRole | None:
        if key not in self._first:
            staying = (id for id in self._of_role.get(key, ()) if not self.noderoles[id].doomed)
            self._first[key] = min(staying, key=lambda id: self.noderoles[id].rank, default=None)
        first = self._first[key]
        return None if first is None else self.noderoles[first]

    def parents(self, id: int) -> list[int]:
        return self._parents.get(id, [])

    def children(self, id: int) -> list[int]:
        return self._children.get(id, [])

    def path(self, deployment_id: int) -> Iterator[int]:
        """The deployment itself, its parent, and so on to the root."""
        at: int | None = deployment_id
        while at is not None:
            yield at
            at = self.deployments[at].parent_id

    def ancestors(self, ids: Iterable[int]) -> set[int]:
        """All that `ids` stand on, themselves left out unless they stand on each other."""
        return _reach(ids, self._parents)

    def descendants(self, ids: Iterable[int]) -> set[int]:
        return _reach(ids, self._children)

    def title(self, id: int) -> str:
        """How messages name a noderole: role on node."""
        noderole = self.noderoles[id]
        return f"{noderole.role} on {self.node_name(noderole.node_id)}"

    def node_name(self, node_id: int) -> str:
        return self.nodes[node_id].name if node_id in self.nodes else f"node {node_id}"

    def deployment_name(self, deployment_id: int) -> str:
        found = self.deployments.get(deployment_id)
        return found.name if found else f"deployment {deployment_id}"

    # --- changes, to a copy a rule is working on

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Take back all changes that are made within the block, so that the next trial begins with the same graph."""
        assert self._undo is None, "a trial within a trial"
        self._undo = []
        try:
            yield
        finally:
            undo, self._undo = self._undo, None
            for take_back in reversed(undo):
                take_back()

    def _changed(self, take_back: Callable[[], None]) -> None:
        if self._undo is not None:
            self._undo.append(take_back)

    def add(self, noderole: NodeRole) -> None:
        """Add a noderole with an id, and in a place, that none here has."""
        self.noderoles[noderole.id] = noderole
        self._places[noderole.node_id, noderole.role] = noderole.id
        self._on_node.setdefault(noderole.node_id, []).append(noderole.id)
        key = (noderole.deployment_id, noderole.role)
        self._of_role.setdefault(key, []).append(noderole.id)
        if key in self._first and not noderole.doomed:
            first = self._first[key]
            if first is None or noderole.rank < self.noderoles[first].rank:
                self._first[key] = noderole.id
        self._changed(partial(self._take_back_add, noderole))

    def _take_back_add(self, noderole: NodeRole) -> None:
        """Remove the noderole that was added last."""
        del self.noderoles[noderole.id]
        del self._places[noderole.node_id, noderole.role]
        self._on_node[noderole.node_id].pop()
        self._of_role[noderole.deployment_id, noderole.role].pop()
        self._first.pop((noderole.deployment_id, noderole.role), None)

    def link(self, parent: int, child: int) -> None:
        self._parents.setdefault(child, []).append(parent)
        self._children.setdefault(parent, []).append(child)
        self._changed(partial(self._take_back_link, parent, child))

    def _take_back_link(self, parent: int, child: int) -> None:
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
        self._changed(partial(self._replace, before))

    def _replace(self, noderole: NodeRole) -> None:
        self.noderoles[noderole.id] = noderole
        # Looked for when next asked for: a whole role may move, one by one.
        self._first.pop((noderole.deployment_id, noderole.role), None)


def is_visible(noderole: NodeRole, proposal: int) -> bool:
    """Whether a binding in deployment `proposal` may build on it: it is committed to stay, or proposed there."""
    return not noderole.doomed and (noderole.state is not PROPOSED or noderole.deployment_id == proposal)


def _reach(ids: Iterable[int], step: dict[int, list[int]]) -> set[int]:
    reached: set[int] = set()
    stack = list(ids)
    while stack:
        for next_id in step.get(stack.pop(), ()):
            if next_id not in reached:
                reached.add(next_id)
                stack.append(next_id)
    return reached
