"""Snapshots: what a commit would do, and how two of them differ. Pure; the store reads and writes them.

A snapshot is intent: data of deployment-roles, and bindings of roles to nodes with data of their own.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from rackwright.domain.catalogue import Catalogue, Flag, JsonObject
from rackwright.domain.errors import Conflict, Rule
from rackwright.domain.graph.noderole_graph import Graph, NodeRole
from rackwright.domain.graph.removal import plan_removal
from rackwright.domain.graph.upgrades import Relinked
from rackwright.domain.states import ACTIVE, PROPOSED, NodeRoleState


class SnapshotState(StrEnum):
    """Where a snapshot stands in its deployment: edited, in force, or one of before. Only append."""

    PROPOSED = "proposed"
    HEAD = "head"
    ARCHIVED = "archived"


@dataclass(frozen=True)
class Proposal:
    """What differs between a proposed snapshot and what is committed now."""

    deployment_id: int
    revision: int
    created: tuple[NodeRole, ...] = ()
    dropped: frozenset[int] = frozenset()
    """Committed noderoles whose binding is not in the proposal."""
    changed: frozenset[int] = frozenset()
    """Committed noderoles whose own data differs."""
    changed_roles: frozenset[str] = frozenset()
    """Roles whose deployment-role's data differs."""
    dropped_roles: frozenset[str] = frozenset()
    """Roles that the deployment has and the proposal does not."""
    takers: Mapping[int, Collection[int]] = field(default_factory=dict)
    """For each changed noderole, those that take inputs from it."""
    relinked: Mapping[int, Relinked] = field(default_factory=dict)
    """Committed noderoles that come to stand on others because a barclamp changed."""

    def staying(self, graph: Graph) -> set[int]:
        """Return the nodes that an upgrade binds something to: they were here, and may have moved on below."""
        return {graph.noderoles[id].node_id for id in self.relinked}


@dataclass(frozen=True)
class PlannedNodeRole:
    """One line of a plan."""

    id: int
    node: str
    role: str
    because: str = ""


@dataclass(frozen=True)
class CommitPlan:
    """What a commit would do, in order. The commit itself works from this."""

    deployment_id: int
    created: tuple[PlannedNodeRole, ...]
    rerun: tuple[PlannedNodeRole, ...]
    held_back: tuple[PlannedNodeRole, ...]
    """They wait until a cluster they stand on is whole again, then run if their inputs changed."""
    removed: tuple[PlannedNodeRole, ...]
    relinked: tuple[PlannedNodeRole, ...]
    """What comes to stand on others because a barclamp changed; but for destructive ones that ran, it runs again."""
    roles_removed: tuple[str, ...]
    """Roles that the deployment no longer has."""
    moved: tuple[str, ...]
    """Nodes that come into this deployment."""
    wiped: tuple[str, ...]
    """Nodes that would be rebooted and wiped."""
    digest: str

    @property
    def empty(self) -> bool:
        return not (self.created or self.rerun or self.removed or self.relinked or self.roles_removed)


def plan_commit(catalogue: Catalogue, graph: Graph, proposal: Proposal) -> CommitPlan:
    """Work out what committing the proposal does; a conflict if something may not go.

    `graph` holds the created noderoles, and for what is dropped, changed or in a touched cluster all that stands on it.
    """
    gone = plan_removal(graph, catalogue, proposal.dropped) if proposal.dropped else set()
    _check_kept(graph, proposal, gone)
    touched = _touched_clusters(catalogue, graph, proposal, gone)
    rerun = _reruns(catalogue, graph, proposal, gone, touched)
    held_back = _held_back(catalogue, graph, proposal, gone, touched, rerun)
    created = sorted(proposal.created, key=lambda noderole: noderole.rank)
    nodes_here = {noderole.node_id for noderole in created} - proposal.staying(graph)
    wiped = {
        noderole.node_id
        for noderole in [*created, *(graph.noderoles[id] for id in rerun)]
        if catalogue.role(noderole.role).has(Flag.DESTRUCTIVE)
    }
    parts = {
        "created": tuple(_planned(graph, noderole) for noderole in created),
        "rerun": _listed(graph, rerun),
        "held_back": _listed(graph, held_back),
        "removed": _listed(graph, dict.fromkeys(gone, "")),
        "relinked": _listed(graph, {id: one.because for id, one in proposal.relinked.items()}),
    }
    moved = tuple(
        sorted(graph.nodes[id].name for id in nodes_here if graph.nodes[id].deployment_id != proposal.deployment_id)
    )
    wiped_names = tuple(sorted(graph.node_name(id) for id in wiped))
    return CommitPlan(
        proposal.deployment_id,
        **parts,
        roles_removed=tuple(sorted(proposal.dropped_roles)),
        moved=moved,
        wiped=wiped_names,
        digest=_digest(proposal, parts, moved, wiped_names),
    )


def _check_kept(graph: Graph, proposal: Proposal, gone: set[int]) -> None:
    """What the proposal still binds may not go along with what it leaves out: a commit does what the snapshot says."""
    for id in sorted(gone - proposal.dropped):
        noderole = graph.noderoles[id]
        if noderole.deployment_id == proposal.deployment_id and not noderole.doomed:
            raise Conflict(
                Rule.ORPHANS,
                f"{graph.title(id)} is bound in this proposal, but stands on something that the proposal takes out. "
                "Unbind it too, or bind again what it stands on.",
            )


def _touched_clusters(
    catalogue: Catalogue, graph: Graph, proposal: Proposal, gone: set[int]
) -> dict[tuple[int, str], str]:
    """Clusters that gain or lose a member, as (deployment, role)."""
    # One that is only proposed, elsewhere, was no member yet.
    leaving = (graph.noderoles[id] for id in gone if graph.noderoles[id].state is not PROPOSED)
    members = [*proposal.created, *leaving]
    return {
        (member.deployment_id, member.role): f"cluster {member.role} changes its members"
        for member in members
        if catalogue.role(member.role).has(Flag.CLUSTER)
    }


def _reruns(
    catalogue: Catalogue,
    graph: Graph,
    proposal: Proposal,
    gone: set[int],
    touched: Mapping[tuple[int, str], str],
) -> dict[int, str]:
    because: dict[int, str] = {}
    created = {noderole.id for noderole in proposal.created}
    for id, noderole in graph.noderoles.items():
        if id in gone or id in created or _never_again(catalogue, noderole):
            continue
        if id in proposal.changed:
            because[id] = "its own data changed"
        elif id in proposal.relinked:
            because[id] = "its barclamp changed what it stands on"
        elif noderole.deployment_id == proposal.deployment_id and noderole.role in proposal.changed_roles:
            because[id] = f"data of deployment-role {noderole.role} changed"
        elif (noderole.deployment_id, noderole.role) in touched:
            because[id] = touched[noderole.deployment_id, noderole.role]
    taking = [(id, source) for source, takers in proposal.takers.items() for id in takers]
    for id, source in [*_below_members(graph, proposal, gone, touched), *taking]:
        noderole = graph.noderoles[id]
        passed_over = id in because or id in gone or id in created or _never_again(catalogue, noderole)
        if noderole.state is ACTIVE and not passed_over:
            because[id] = f"it takes inputs from {graph.title(source)}"
    return because


def _below_members(
    graph: Graph, proposal: Proposal, gone: set[int], touched: Mapping[tuple[int, str], str]
) -> Iterable[tuple[int, int]]:
    """What stands, on its own node, below a member of a cluster that comes or goes; and that member."""
    for key in touched:
        members = graph.of_role(*key)
        below = sorted(graph.descendants(member.id for member in members))
        created = {noderole.id for noderole in proposal.created}
        for member in members:
            if member.id in created or member.id in gone:
                yield from ((id, member.id) for id in below if graph.noderoles[id].node_id == member.node_id)


def _held_back(
    catalogue: Catalogue,
    graph: Graph,
    proposal: Proposal,
    gone: set[int],
    touched: Mapping[tuple[int, str], str],
    rerun: Collection[int],
) -> dict[int, str]:
    created = {noderole.id for noderole in proposal.created}
    because: dict[int, str] = {}
    for (deployment_id, role), reason in touched.items():
        for member in graph.of_role(deployment_id, role):
            for id in graph.children(member.id):
                child = graph.noderoles[id]
                if child.state is ACTIVE and not _never_again(catalogue, child):
                    because[id] = reason
    return {id: why for id, why in because.items() if id not in gone and id not in created and id not in rerun}


def _never_again(catalogue: Catalogue, noderole: NodeRole) -> bool:
    return noderole.state is ACTIVE and catalogue.role(noderole.role).has(Flag.DESTRUCTIVE)


def _planned(graph: Graph, noderole: NodeRole, because: str = "") -> PlannedNodeRole:
    return PlannedNodeRole(noderole.id, graph.node_name(noderole.node_id), noderole.role, because)


def _listed(graph: Graph, because: Mapping[int, str]) -> tuple[PlannedNodeRole, ...]:
    ordered = sorted(because, key=lambda id: graph.noderoles[id].rank)
    return tuple(_planned(graph, graph.noderoles[id], because[id]) for id in ordered)


def _digest(
    proposal: Proposal, parts: Mapping[str, tuple[PlannedNodeRole, ...]], moved: Iterable[str], wiped: Iterable[str]
) -> str:
    seen = hashlib.sha256(f"{proposal.deployment_id} {proposal.revision} {[*moved]} {[*wiped]}".encode())
    seen.update(json.dumps(sorted(proposal.dropped_roles)).encode())
    for id, one in sorted(proposal.relinked.items()):
        links = sorted((link.attrib, link.parent) for link in one.links)
        seen.update(json.dumps([id, sorted(one.gained), sorted(one.lost), links]).encode())
    for name, lines in parts.items():
        seen.update(name.encode())
        seen.update(json.dumps([(line.id, line.because) for line in lines]).encode())
    return seen.hexdigest()


# --- comparing


@dataclass(frozen=True)
class Intent:
    """All that a snapshot says, keyed by names."""

    roles: Mapping[str, JsonObject]
    bindings: Mapping[tuple[str, str], JsonObject]
    """(node, role) -> user data"""


@dataclass(frozen=True)
class Difference:
    """How to get from one snapshot to another."""

    roles_added: tuple[str, ...]
    roles_removed: tuple[str, ...]
    roles_changed: tuple[str, ...]
    bindings_added: tuple[tuple[str, str], ...]
    bindings_removed: tuple[tuple[str, str], ...]
    bindings_changed: tuple[tuple[str, str], ...]


def diff_intents(old: Intent, new: Intent) -> Difference:
    return Difference(
        roles_added=tuple(sorted(new.roles.keys() - old.roles.keys())),
        roles_removed=tuple(sorted(old.roles.keys() - new.roles.keys())),
        roles_changed=tuple(
            sorted(name for name in old.roles.keys() & new.roles.keys() if old.roles[name] != new.roles[name])
        ),
        bindings_added=tuple(sorted(new.bindings.keys() - old.bindings.keys())),
        bindings_removed=tuple(sorted(old.bindings.keys() - new.bindings.keys())),
        bindings_changed=tuple(
            sorted(
                place
                for place in old.bindings.keys() & new.bindings.keys()
                if old.bindings[place] != new.bindings[place]
            )
        ),
    )


class ShownState(StrEnum):
    """What people see of a deployment."""

    EMPTY = "empty"
    """Nothing was ever committed, and what was proposed is discarded."""
    PROPOSED = "proposed"
    COMMITTED = "committed"
    ACTIVE = "active"
    ERROR = "error"
    HELD = "held"


def shown_state(
    counts: Mapping[NodeRoleState, int], *, held: bool, committed: bool, proposed: bool = True
) -> ShownState:
    """Return what people see of a deployment; `committed` and `proposed`: whether it has such a snapshot."""
    if held:
        return ShownState.HELD
    if not committed:
        return ShownState.PROPOSED if proposed else ShownState.EMPTY
    if counts.get(NodeRoleState.ERROR):
        return ShownState.ERROR
    waiting = sum(n for state, n in counts.items() if state not in (ACTIVE, NodeRoleState.PROPOSED))
    return ShownState.COMMITTED if waiting else ShownState.ACTIVE
