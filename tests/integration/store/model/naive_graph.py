"""The naive model's graph: roles, nodes, noderoles and edges, binding and what may be removed.

It has plain dicts and no counters, and stores nothing that can be computed. It imports nothing of the product.
"""

import copy
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

Json = Any
Key = tuple[str, str]
"""(node, role): unique over all deployments, so it names a noderole."""

ACTIVE, PROPOSED, BLOCKED, TODO, TRANSITION, ERROR = "active", "proposed", "blocked", "todo", "transition", "error"
WAITING = "waiting"

STRUCTURE = {"implicit", "cluster", "service", "abstract", "destructive"}


class RefusedByModel(Exception):
    """A step that the rules forbid; `rule` is the name of the rule."""

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule


@dataclass
class Role:
    name: str
    jig: str = "hand"
    requires: list[str] = field(default_factory=list)
    attaches: list[str] = field(default_factory=list)
    wants: list[str] = field(default_factory=list)
    provides: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    flags: set[str] = field(default_factory=set)
    template: dict[str, Json] = field(default_factory=dict)


@dataclass
class Attrib:
    name: str
    role: str | None
    map: list[str]
    default: Json = None
    has_default: bool = False


@dataclass
class Node:
    name: str
    deployment: str
    admin: bool = False
    system: bool = False
    alive: bool = True
    available: bool = True
    discovery: dict[str, Json] = field(default_factory=dict)
    hint: dict[str, Json] = field(default_factory=dict)


@dataclass
class Snapshot:
    state: str
    roles: dict[str, dict[str, Json]] = field(default_factory=dict)
    bindings: dict[Key, dict[str, Json]] = field(default_factory=dict)
    edits: int = 0


@dataclass
class Deployment:
    name: str
    parent: str | None
    phantom: str
    held: bool = False
    snapshots: list[Snapshot] = field(default_factory=list)

    def proposal(self) -> Snapshot | None:
        return next((snapshot for snapshot in self.snapshots if snapshot.state == "proposed"), None)

    def head(self) -> Snapshot | None:
        return next((snapshot for snapshot in self.snapshots if snapshot.state == "head"), None)


@dataclass
class NodeRole:
    node: str
    role: str
    deployment: str
    born: int
    state: str
    parents: set[Key] = field(default_factory=set)
    links: dict[str, Key] = field(default_factory=dict)
    """attrib -> the noderole it is taken from"""
    wall: dict[str, Json] = field(default_factory=dict)
    succeeded_with: Json = None
    """The input of the last run, if that succeeded."""
    running_with: Json = None
    stale: bool = False
    """An input changed while it ran."""
    forced: bool = False
    doomed: bool = False
    dirtied: tuple[Key | None, int] = (None, 0)
    """The noderole whose data last made this one run again, and how often in a row."""
    not_told: set[str] = field(default_factory=set)
    """Keys of facts that it, or one that stands on it, found out since it ran: it does not run again for these."""

    @property
    def key(self) -> Key:
        return (self.node, self.role)


P = ParamSpec("P")
T = TypeVar("T")
W = TypeVar("W", bound="NaiveGraph")


def atomic(work: Callable[Concatenate[W, P], T]) -> Callable[Concatenate[W, P], T]:
    """Undo all changes of a method when it is refused."""

    @wraps(work)
    def run_atomically(world: W, /, *args: P.args, **kwargs: P.kwargs) -> T:
        before = copy.deepcopy(world.__dict__)
        try:
            return work(world, *args, **kwargs)
        except RefusedByModel:
            world.__dict__ = before
            raise

    return run_atomically


class NaiveGraph:
    def __init__(self) -> None:
        self.roles: dict[str, Role] = {}
        self.attribs: dict[str, Attrib] = {}
        self.clients: dict[str, str | None] = {}
        """jig -> client role"""
        self.nodes: dict[str, Node] = {}
        self.deployments: dict[str, Deployment] = {}
        self.noderoles: dict[Key, NodeRole] = {}
        self.births = 0
        self.staying: set[str] = set()
        """Nodes that an upgrade binds something to, though they may live below its deployment."""

    # --- data

    def user_data(self, key: Key) -> dict[str, Json]:
        """Return the data in force: that of head, where head has any."""
        head = self.deployments[self.noderoles[key].deployment].head()
        return head.bindings.get(key, {}) if head and self.noderoles[key].state != PROPOSED else {}

    def role_data(self, deployment: str, role: str) -> dict[str, Json]:
        head = self.deployments[deployment].head()
        return head.roles.get(role, {}) if head else {}

    # --- relations between roles

    def needed(self, name: str) -> list[str]:
        role = self.roles[name]
        client = self.clients.get(role.jig)
        owners = [self.attribs[want].role for want in role.wants if want in self.attribs]
        attached = [other.name for other in sorted(self.roles.values(), key=lambda r: r.name) if name in other.attaches]
        others = [owner for owner in owners if owner and owner not in role.provides]
        needs = [client, *role.requires, *attached, *others]
        return list(dict.fromkeys(need for need in needs if need and need != name))

    def provides_each_other(self, first: str, second: str) -> bool:
        return self._says(first, second, "provides") or self._says(second, first, "provides")

    def conflict(self, first: str, second: str) -> bool:
        if first == second:
            return self._says(first, first, "conflicts")
        pairs = [
            (first_name, second_name)
            for first_name in self._stands_for(first)
            for second_name in self._stands_for(second)
        ]
        return any(self._says(a, b, "conflicts") or self._says(b, a, "conflicts") for a, b in pairs)

    def _stands_for(self, name: str) -> list[str]:
        """Return the role itself, and the abstract roles it provides."""
        provided = self.roles[name].provides if name in self.roles else []
        return [name, *(role for role in provided if self.flag(role, "abstract"))]

    def _says(self, role: str, other: str, relation: str) -> bool:
        return role in self.roles and other in getattr(self.roles[role], relation)

    def flag(self, role: str, flag: str) -> bool:
        return role in self.roles and flag in self.roles[role].flags

    def role_cycle(self) -> bool:
        def below(name: str, path: tuple[str, ...]) -> bool:
            if name in path:
                return True
            return name in self.roles and any(below(need, (*path, name)) for need in self.needed(name))

        return any(below(name, ()) for name in self.roles)

    # --- the graph

    def state(self, key: Key) -> str:
        noderole = self.noderoles[key]
        if noderole.state != WAITING:
            return noderole.state
        return TODO if self.parents_active(key) else BLOCKED

    def parents_active(self, key: Key) -> bool:
        return all(self.noderoles[parent].state == ACTIVE for parent in self.noderoles[key].parents)

    def cohort(self, key: Key) -> int:
        return max((1 + self.cohort(parent) for parent in self.noderoles[key].parents), default=0)

    def rank(self, key: Key) -> tuple[int, int]:
        return (self.cohort(key), self.noderoles[key].born)

    def children(self, key: Key) -> set[Key]:
        return {other for other, noderole in self.noderoles.items() if key in noderole.parents}

    def ancestors(self, key: Key) -> set[Key]:
        ancestors: set[Key] = set()
        for parent in self.noderoles[key].parents:
            ancestors |= {parent} | self.ancestors(parent)
        return ancestors

    def descendants(self, key: Key) -> set[Key]:
        return {other for other in self.noderoles if key in self.ancestors(other)}

    def path(self, deployment: str) -> Iterator[str]:
        name: str | None = deployment
        while name is not None:
            yield name
            name = self.deployments[name].parent

    def destroys(self, key: Key) -> bool:
        return self.flag(key[1], "destructive")

    def spared(self, key: Key) -> bool:
        """Return whether it is destructive and ACTIVE: nothing but a reinstall moves it."""
        return self.destroys(key) and self.noderoles[key].state == ACTIVE

    def peers(self, key: Key) -> set[Key]:
        """Return the other committed members of its cluster."""
        mine = self.noderoles[key]
        return {
            other.key
            for other in self.noderoles.values()
            if other.role == mine.role and other.deployment == mine.deployment and other.key != key
            if other.state != PROPOSED
        }

    def takers(self, key: Key) -> set[Key]:
        """Return those that take inputs from its data: linked ones, and its descendants on its own node."""
        linked = {other.key for other in self.noderoles.values() if key in other.links.values()}
        return linked | {other for other in self.descendants(key) if other[0] == key[0]}

    # --- binding

    def visible(self, key: Key, deployment: str) -> bool:
        noderole = self.noderoles.get(key)
        if noderole is None or noderole.doomed:
            return False
        return noderole.state != PROPOSED or noderole.deployment == deployment

    def _bind(self, deployment: str, node: str, name: str, state: str, births: dict[Key, int]) -> None:
        if self.flag(name, "service"):
            node = self.deployments[deployment].phantom
        key = (node, name)
        if key in self.noderoles:
            if self.noderoles[key].doomed:
                raise RefusedByModel("busy")
            if not self.visible(key, deployment):
                raise RefusedByModel("proposed-elsewhere")
            return
        parents: dict[str, list[Key]] | None = None
        while parents is None:
            self._check_place(deployment, node, name)
            parents = {}
            for need in self.needed(name):
                parent = self._find(deployment, node, need)
                if parent is None:
                    self._bind(deployment, *self._missing(deployment, node, need), state, births)
                    parents = None
                    break
                parents[need] = self._with_peers(parent, deployment)
        self._create(deployment, key, state, parents, births)

    def _check_place(self, deployment: str, node_name: str, name: str) -> None:
        node = self.nodes[node_name]
        if self.flag(name, "abstract"):
            raise RefusedByModel("abstract-role")
        at_home_there = self.flag(name, "service") or self.flag(name, "implicit")
        if node.system and not (at_home_there and node_name == self.deployments[deployment].phantom):
            raise RefusedByModel("phantom-node")
        at_home = node.deployment in self.path(deployment) or node_name in self.staying
        if not at_home and deployment != "system":
            raise RefusedByModel("node-in-other-deployment")
        if self.flag(name, "destructive") and node.admin:
            raise RefusedByModel("destructive-on-admin-node")
        here = sorted(
            (noderole for noderole in self.noderoles.values() if noderole.node == node_name),
            key=lambda noderole: noderole.born,
        )
        for other in here:
            if self.provides_each_other(name, other.role):
                raise RefusedByModel("provides-on-same-node")
            if self.conflict(name, other.role):
                raise RefusedByModel("conflicting-roles")

    def _find(self, deployment: str, node: str, need: str) -> Key | None:
        providers = [role.name for role in self.roles.values() if need in role.provides]
        if self.visible((node, need), deployment):
            return (node, need)
        on_node = [(node, provider) for provider in providers if self.visible((node, provider), deployment)]
        if on_node:
            return min(on_node, key=self.rank)
        if self.flag(need, "implicit"):
            return None
        for ancestor in self.path(deployment):
            there = [
                noderole.key
                for noderole in self.noderoles.values()
                if noderole.deployment == ancestor and self.visible(noderole.key, deployment)
            ]
            for names in ([need], providers):
                candidates = [key for key in there if key[1] in names]
                if candidates:
                    return min(candidates, key=self.rank)
        return None

    def _missing(self, deployment: str, node: str, need: str) -> tuple[str, str]:
        if need not in self.roles or self.flag(need, "abstract"):
            raise RefusedByModel("unresolved-requires")
        if self.flag(need, "service"):
            return (self.deployments[deployment].phantom, need)
        if self.nodes[node].system and not self.flag(need, "implicit"):
            raise RefusedByModel("unresolved-requires")
        return (node, need)

    def _with_peers(self, key: Key, deployment: str) -> list[Key]:
        if not self.flag(key[1], "cluster"):
            return [key]
        members = [
            other.key
            for other in self.noderoles.values()
            if other.role == key[1] and other.deployment == self.noderoles[key].deployment
            if self.visible(other.key, deployment)
        ]
        return sorted(members, key=self.rank)

    def _create(
        self, deployment: str, key: Key, state: str, parents: dict[str, list[Key]], births: dict[Key, int]
    ) -> None:
        node, name = key
        peers = [
            noderole.key
            for noderole in self.noderoles.values()
            if noderole.role == name and noderole.deployment == deployment
        ]
        if key not in births:
            self.births += 1
        born = births.get(key, self.births)
        new = self.noderoles[key] = NodeRole(node, name, deployment, born, state)
        new.parents = {parent for keys in parents.values() for parent in keys}
        self._check_lineage()
        for want in self.roles[name].wants:
            if want not in self.attribs:
                raise RefusedByModel("unresolved-requires")
            owner = self.attribs[want].role
            if owner is not None and owner != name and owner not in self.roles[name].provides:
                new.links[want] = parents[owner][0]
        if self.flag(name, "cluster"):
            children = {child for peer in peers for child in self.children(peer)}
            below = children | {under for child in children for under in self.descendants(child)}
            if below & ({key} | self.ancestors(key)):
                raise RefusedByModel("cycle")
            for child in children:
                self.noderoles[child].parents.add(key)
            self._check_lineage()

    def _check_lineage(self) -> None:
        for key in self.noderoles:
            if any(self.provides_each_other(key[1], above[1]) for above in self.ancestors(key)):
                raise RefusedByModel("provides-in-lineage")

    def _check_known(self, requests: Iterable[Key]) -> None:
        for node, role in requests:
            if node not in self.nodes or role not in self.roles:
                raise RefusedByModel("not-found")

    # --- removal

    def removal(self, keys: Iterable[Key]) -> set[Key]:
        """Return all that goes when `keys` do; refused if that would orphan any."""
        requested = set(keys)
        gone = set(requested)
        while True:
            more = {key for key in self.noderoles if key not in gone and self._falls(key, gone)}
            if not more:
                break
            gone |= more
        for key in requested:
            for dependant in self._standing_on(key, gone) - requested:
                noderole, leaving = self.noderoles[dependant], self.noderoles[key]
                together = noderole.node == leaving.node and noderole.deployment == leaving.deployment
                if noderole.state != PROPOSED and not together:
                    raise RefusedByModel("orphans-dependant")
        return gone

    def _falls(self, key: Key, gone: set[Key]) -> bool:
        return any(self._holds(parent, key, gone) for parent in self.noderoles[key].parents & gone)

    def _holds(self, parent: Key, child: Key, gone: set[Key]) -> bool:
        """Return whether the child needs this parent: not if it is one of a cluster and another member stays."""
        if not self.flag(parent[1], "cluster"):
            return True
        for other in self.noderoles[child].parents - gone:
            peer = self.noderoles[other]
            same = peer.role == parent[1] and peer.deployment == self.noderoles[parent].deployment
            stands = peer.state != PROPOSED or self.noderoles[child].state == PROPOSED
            if same and stands and not peer.doomed:
                return False
        return True

    def _standing_on(self, key: Key, gone: set[Key]) -> set[Key]:
        dependants: set[Key] = set()
        for child in self.children(key) & gone:
            if self._holds(key, child, gone):
                dependants |= {child} | self._standing_on(child, gone)
        return dependants

    def erase(self, keys: Collection[Key]) -> None:
        """Delete noderoles, also from proposals. What took an attrib from one of a cluster takes it from a peer."""
        gone = {key: self.noderoles[key] for key in keys}
        for key, noderole in gone.items():
            proposal = self.deployments[noderole.deployment].proposal()
            if proposal is not None:
                proposal.bindings.pop(key, None)
            del self.noderoles[key]
        for other in self.noderoles.values():
            other.parents -= gone.keys()
        for other in self.noderoles.values():
            for attrib, source in list(other.links.items()):
                if source in gone:
                    left = gone[source]
                    peers = [p for p in other.parents if p[1] == left.role]
                    peers = [p for p in peers if self.noderoles[p].deployment == left.deployment]
                    peers = [p for p in peers if not self.noderoles[p].doomed]
                    other.links[attrib] = min(peers, key=self.rank)
                    self.dirty({other.key})

    # --- inputs

    def dirty(self, keys: Collection[Key]) -> None:
        """Note that an input of these noderoles changed."""
        for key in keys:
            noderole = self.noderoles[key]
            if noderole.state == TRANSITION:
                noderole.stale = True
            elif noderole.state == ACTIVE and not self.destroys(key):
                noderole.state = WAITING
