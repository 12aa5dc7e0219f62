"""The naive model's graph: roles, nodes, noderoles and edges, binding and what may be removed.

Plain dicts, no counters, nothing pushed: everything is worked out from scratch. It imports nothing of the product.
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


class Refused(Exception):
    """The rules say no; `rule` is the name of the rule."""

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
        return next((one for one in self.snapshots if one.state == "proposed"), None)

    def head(self) -> Snapshot | None:
        return next((one for one in self.snapshots if one.state == "head"), None)


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
    """Whose data last made it run again, and how often in a row."""
    not_told: set[str] = field(default_factory=set)
    """Places of facts that it, or one that stands on it, found out since it ran: it does not run again for these."""

    @property
    def key(self) -> Key:
        return (self.node, self.role)


P = ParamSpec("P")
T = TypeVar("T")
W = TypeVar("W", bound="NaiveGraph")


def atomic(work: Callable[Concatenate[W, P], T]) -> Callable[Concatenate[W, P], T]:
    """All of it or, when refused, nothing."""

    @wraps(work)
    def whole(world: W, /, *args: P.args, **kwargs: P.kwargs) -> T:
        before = copy.deepcopy(world.__dict__)
        try:
            return work(world, *args, **kwargs)
        except Refused:
            world.__dict__ = before
            raise

    return whole


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
        """What is in force: head's word, where head has one."""
        head = self.deployments[self.noderoles[key].deployment].head()
        return head.bindings.get(key, {}) if head and self.noderoles[key].state != PROPOSED else {}

    def role_data(self, deployment: str, role: str) -> dict[str, Json]:
        head = self.deployments[deployment].head()
        return head.roles.get(role, {}) if head else {}

    # --- what roles say of each other

    def needed(self, name: str) -> list[str]:
        role = self.roles[name]
        client = self.clients.get(role.jig)
        owners = [self.attribs[want].role for want in role.wants if want in self.attribs]
        attached = [other.name for other in sorted(self.roles.values(), key=lambda r: r.name) if name in other.attaches]
        others = [owner for owner in owners if owner and owner not in role.provides]
        found = [client, *role.requires, *attached, *others]
        return list(dict.fromkeys(need for need in found if need and need != name))

    def provides_each_other(self, one: str, other: str) -> bool:
        return self._says(one, other, "provides") or self._says(other, one, "provides")

    def conflict(self, one: str, other: str) -> bool:
        if one == other:
            return self._says(one, one, "conflicts")
        pairs = [(mine, theirs) for mine in self._stands_for(one) for theirs in self._stands_for(other)]
        return any(self._says(a, b, "conflicts") or self._says(b, a, "conflicts") for a, b in pairs)

    def _stands_for(self, name: str) -> list[str]:
        """Itself, and the abstract roles it provides."""
        provided = self.roles[name].provides if name in self.roles else []
        return [name, *(one for one in provided if self.flag(one, "abstract"))]

    def _says(self, one: str, other: str, what: str) -> bool:
        return one in self.roles and other in getattr(self.roles[one], what)

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
        found: set[Key] = set()
        for parent in self.noderoles[key].parents:
            found |= {parent} | self.ancestors(parent)
        return found

    def descendants(self, key: Key) -> set[Key]:
        return {other for other in self.noderoles if key in self.ancestors(other)}

    def path(self, deployment: str) -> Iterator[str]:
        at: str | None = deployment
        while at is not None:
            yield at
            at = self.deployments[at].parent

    def destroys(self, key: Key) -> bool:
        return self.flag(key[1], "destructive")

    def spared(self, key: Key) -> bool:
        """Destructive and ACTIVE: nothing but a reinstall moves it."""
        return self.destroys(key) and self.noderoles[key].state == ACTIVE

    def peers(self, key: Key) -> set[Key]:
        """The other committed members of its cluster."""
        mine = self.noderoles[key]
        return {
            other.key
            for other in self.noderoles.values()
            if other.role == mine.role and other.deployment == mine.deployment and other.key != key
            if other.state != PROPOSED
        }

    def takers(self, key: Key) -> set[Key]:
        """Who takes inputs from its data: linked ones, and its descendants on its own node."""
        linked = {other.key for other in self.noderoles.values() if key in other.links.values()}
        return linked | {other for other in self.descendants(key) if other[0] == key[0]}

    # --- binding

    def visible(self, key: Key, deployment: str) -> bool:
        found = self.noderoles.get(key)
        if found is None or found.doomed:
            return False
        return found.state != PROPOSED or found.deployment == deployment

    def _bind(self, deployment: str, node: str, name: str, state: str, births: dict[Key, int]) -> None:
        if self.flag(name, "service"):
            node = self.deployments[deployment].phantom
        key = (node, name)
        if key in self.noderoles:
            if self.noderoles[key].doomed:
                raise Refused("busy")
            if not self.visible(key, deployment):
                raise Refused("proposed-elsewhere")
            return
        parents: dict[str, list[Key]] | None = None
        while parents is None:
            self._check_place(deployment, node, name)
            parents = {}
            for need in self.needed(name):
                found = self._find(deployment, node, need)
                if found is None:
                    self._bind(deployment, *self._missing(deployment, node, need), state, births)
                    parents = None
                    break
                parents[need] = self._with_peers(found, deployment)
        self._create(deployment, key, state, parents, births)

    def _check_place(self, deployment: str, node_name: str, name: str) -> None:
        node = self.nodes[node_name]
        if self.flag(name, "abstract"):
            raise Refused("abstract-role")
        at_home_there = self.flag(name, "service") or self.flag(name, "implicit")
        if node.system and not (at_home_there and node_name == self.deployments[deployment].phantom):
            raise Refused("phantom-node")
        at_home = node.deployment in self.path(deployment) or node_name in self.staying
        if not at_home and deployment != "system":
            raise Refused("node-in-other-deployment")
        if self.flag(name, "destructive") and node.admin:
            raise Refused("destructive-on-admin-node")
        here = sorted((one for one in self.noderoles.values() if one.node == node_name), key=lambda one: one.born)
        for other in here:
            if self.provides_each_other(name, other.role):
                raise Refused("provides-on-same-node")
            if self.conflict(name, other.role):
                raise Refused("conflicting-roles")

    def _find(self, deployment: str, node: str, need: str) -> Key | None:
        providers = [role.name for role in self.roles.values() if need in role.provides]
        if self.visible((node, need), deployment):
            return (node, need)
        on_node = [(node, provider) for provider in providers if self.visible((node, provider), deployment)]
        if on_node:
            return min(on_node, key=self.rank)
        if self.flag(need, "implicit"):
            return None
        for place in self.path(deployment):
            there = [
                one.key
                for one in self.noderoles.values()
                if one.deployment == place and self.visible(one.key, deployment)
            ]
            for wanted in ([need], providers):
                candidates = [key for key in there if key[1] in wanted]
                if candidates:
                    return min(candidates, key=self.rank)
        return None

    def _missing(self, deployment: str, node: str, need: str) -> tuple[str, str]:
        if need not in self.roles or self.flag(need, "abstract"):
            raise Refused("unresolved-requires")
        if self.flag(need, "service"):
            return (self.deployments[deployment].phantom, need)
        if self.nodes[node].system and not self.flag(need, "implicit"):
            raise Refused("unresolved-requires")
        return (node, need)

    def _with_peers(self, key: Key, deployment: str) -> list[Key]:
        if not self.flag(key[1], "cluster"):
            return [key]
        found = [
            other.key
            for other in self.noderoles.values()
            if other.role == key[1] and other.deployment == self.noderoles[key].deployment
            if self.visible(other.key, deployment)
        ]
        return sorted(found, key=self.rank)

    def _create(
        self, deployment: str, key: Key, state: str, parents: dict[str, list[Key]], births: dict[Key, int]
    ) -> None:
        node, name = key
        peers = [one.key for one in self.noderoles.values() if one.role == name and one.deployment == deployment]
        if key not in births:
            self.births += 1
        born = births.get(key, self.births)
        new = self.noderoles[key] = NodeRole(node, name, deployment, born, state)
        new.parents = {parent for found in parents.values() for parent in found}
        self._check_lineage()
        for want in self.roles[name].wants:
            if want not in self.attribs:
                raise Refused("unresolved-requires")
            owner = self.attribs[want].role
            if owner is not None and owner != name and owner not in self.roles[name].provides:
                new.links[want] = parents[owner][0]
        if self.flag(name, "cluster"):
            children = {child for peer in peers for child in self.children(peer)}
            below = children | {under for child in children for under in self.descendants(child)}
            if below & ({key} | self.ancestors(key)):
                raise Refused("cycle")
            for child in children:
                self.noderoles[child].parents.add(key)
            self._check_lineage()

    def _check_lineage(self) -> None:
        for key in self.noderoles:
            if any(self.provides_each_other(key[1], above[1]) for above in self.ancestors(key)):
                raise Refused("provides-in-lineage")

    def _check_known(self, requests: Iterable[Key]) -> None:
        for node, role in requests:
            if node not in self.nodes or role not in self.roles:
                raise Refused("not-found")

    # --- what may go

    def removal(self, keys: Iterable[Key]) -> set[Key]:
        """All that goes when `keys` do; refused if it would orphan any."""
        wanted = set(keys)
        gone = set(wanted)
        while True:
            more = {key for key in self.noderoles if key not in gone and self._falls(key, gone)}
            if not more:
                break
            gone |= more
        for key in wanted:
            for dependant in self._standing_on(key, gone) - wanted:
                one, leaving = self.noderoles[dependant], self.noderoles[key]
                together = one.node == leaving.node and one.deployment == leaving.deployment
                if one.state != PROPOSED and not together:
                    raise Refused("orphans-dependant")
        return gone

    def _falls(self, key: Key, gone: set[Key]) -> bool:
        return any(self._holds(parent, key, gone) for parent in self.noderoles[key].parents & gone)

    def _holds(self, parent: Key, child: Key, gone: set[Key]) -> bool:
        """Whether the child cannot stand without this parent: it can if that is one of a cluster and another stays."""
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
        found: set[Key] = set()
        for child in self.children(key) & gone:
            if self._holds(key, child, gone):
                found |= {child} | self._standing_on(child, gone)
        return found

    def erase(self, keys: Collection[Key]) -> None:
        """They are gone, also from proposals. Who took an attrib from one of a cluster takes it from a peer."""
        gone = {key: self.noderoles[key] for key in keys}
        for key, one in gone.items():
            proposal = self.deployments[one.deployment].proposal()
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
        """An input of these changed."""
        for key in keys:
            one = self.noderoles[key]
            if one.state == TRANSITION:
                one.stale = True
            elif one.state == ACTIVE and not self.destroys(key):
                one.state = WAITING
