"""Plans of commits, differences of snapshots, and the state that a deployment shows. Pure; the store reads and writes.

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
from rackwright.domain.graph.removal import find_removed_noderoles
from rackwright.domain.graph.upgrades import Relinked
from rackwright.domain.states import ACTIVE, PROPOSED, NodeRoleState, Trigger, next_state


class SnapshotState(StrEnum):
    """The state of a snapshot in its deployment: being edited, in force, or replaced by a later one. Only append."""

    PROPOSED = "proposed"
    HEAD = "head"
    ARCHIVED = "archived"


@dataclass(frozen=True)
class Proposal:
    """The differences between a proposed snapshot and what is committed now."""

    deployment_id: int
    revision: int
    created: tuple[NodeRole, ...] = ()
    dropped: frozenset[int] = frozenset()
    """Committed noderoles whose binding is not in the proposal."""
    changed: frozenset[int] = frozenset()
    """Committed noderoles whose own data differs."""
    changed_attribs: Mapping[int, Collection[str]] = field(default_factory=dict)
    """For each committed noderole whose values differ and whose role is destructive: which attribs do."""
    changed_roles: frozenset[str] = frozenset()
    """Roles whose deployment-role's data differs."""
    dropped_roles: frozenset[str] = frozenset()
    """Roles that the deployment has and the proposal does not."""
    takers: Mapping[int, Collection[int]] = field(default_factory=dict)
    """For each changed noderole, those that take inputs from it."""
    relinked: Mapping[int, Relinked] = field(default_factory=dict)
    """Committed noderoles that get other parents because a barclamp changed."""

    def staying(self, graph: Graph) -> set[int]:
        """Return the nodes that an upgrade binds roles to; they are not moved into this deployment.

        They were in it before, and may be in a deployment below it by now.
        """
        return {graph.noderoles[id].node_id for id in self.relinked}


@dataclass(frozen=True)
class PlannedNodeRole:
    """One noderole of a plan, and why it is in the plan."""

    id: int
    node: str
    role: str
    because: str = ""


@dataclass(frozen=True)
class CommitPlan:
    """The changes that a commit makes, in order. The commit itself works from this."""

    deployment_id: int
    created: tuple[PlannedNodeRole, ...]
    rerun: tuple[PlannedNodeRole, ...]
    held_back: tuple[PlannedNodeRole, ...]
    """These wait until a cluster they depend on is complete again, then run if their inputs changed."""
    kept: tuple[PlannedNodeRole, ...]
    """These ran, and a commit never has them destroy again: what changed counts from the next time a person does."""
    removed: tuple[PlannedNodeRole, ...]
    relinked: tuple[PlannedNodeRole, ...]
    """These get other parents because a barclamp changed. They run again, except destructive ones that ran."""
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
    """Return what committing the proposal does; raise a conflict if something may not be removed.

    `graph` holds the created noderoles, and all descendants of what is dropped, changed or in a touched cluster.
    """
    removed = find_removed_noderoles(graph, catalogue, proposal.dropped) if proposal.dropped else set()
    _check_bound_stay(graph, proposal, removed)
    touched = _touched_clusters(catalogue, graph, proposal, removed)
    rerun = _reruns(catalogue, graph, proposal, removed, touched)
    held_back = _held_back(catalogue, graph, proposal, removed, touched, rerun)
    created = sorted(proposal.created, key=lambda noderole: noderole.rank)
    nodes_here = {noderole.node_id for noderole in created} - proposal.staying(graph)
    wiped = {
        noderole.node_id
        for noderole in [*created, *(graph.noderoles[id] for id in rerun)]
        if catalogue.role(noderole.role).has(Flag.DESTRUCTIVE)
    }
    parts = {
        "created": tuple(_planned(graph, noderole) for noderole in created),
        "rerun": _planned_by_rank(graph, rerun),
        "held_back": _planned_by_rank(graph, held_back),
        "kept": _planned_by_rank(graph, _kept(catalogue, graph, proposal, removed, rerun)),
        "removed": _planned_by_rank(graph, dict.fromkeys(removed, "")),
        "relinked": _planned_by_rank(graph, {id: relinked.because for id, relinked in proposal.relinked.items()}),
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


def _check_bound_stay(graph: Graph, proposal: Proposal, removed: set[int]) -> None:
    """Refuse to remove, along with what the proposal leaves out, a noderole that it still binds.

    A commit does what the snapshot says.
    """
    for id in sorted(removed - proposal.dropped):
        noderole = graph.noderoles[id]
        if noderole.deployment_id == proposal.deployment_id and not noderole.doomed:
            raise Conflict(
                Rule.ORPHANS,
                f"{graph.title(id)} is bound in this proposal, but stands on something that the proposal takes out. "
                "Unbind it too, or bind again what it stands on.",
            )


def _touched_clusters(
    catalogue: Catalogue, graph: Graph, proposal: Proposal, removed: set[int]
) -> dict[tuple[int, str], str]:
    """Return the clusters that gain or lose a member, as (deployment, role), each with the reason in words."""
    # A noderole that is only proposed, elsewhere, was no member yet.
    leaving = (graph.noderoles[id] for id in removed if graph.noderoles[id].state is not PROPOSED)
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
    removed: set[int],
    touched: Mapping[tuple[int, str], str],
) -> dict[int, str]:
    """Return the noderoles that the commit runs again, each with the reason in words."""
    because: dict[int, str] = {}
    created = {noderole.id for noderole in proposal.created}
    for id, noderole in graph.noderoles.items():
        if id in removed or id in created or _may_never_rerun(catalogue, noderole):
            continue
        if id in proposal.changed:
            because[id] = "its own data changed"
        elif id in proposal.relinked:
            because[id] = "its barclamp changed what it stands on"
        elif noderole.deployment_id == proposal.deployment_id and noderole.role in proposal.changed_roles:
            because[id] = f"data of deployment-role {noderole.role} changed"
        elif (noderole.deployment_id, noderole.role) in touched:
            because[id] = touched[noderole.deployment_id, noderole.role]
    takers = [(id, source) for source, ids in proposal.takers.items() for id in ids]
    for id, source in [*_below_members(graph, proposal, removed, touched), *takers]:
        noderole = graph.noderoles[id]
        if id not in because and id not in removed and id not in created and _reruns_for_input(catalogue, noderole):
            because[id] = f"it takes inputs from {graph.title(source)}"
    return because


def _below_members(
    graph: Graph, proposal: Proposal, removed: set[int], touched: Mapping[tuple[int, str], str]
) -> Iterable[tuple[int, int]]:
    """Yield each noderole that depends, on its own node, on a cluster member that comes or goes; and that member."""
    for key in touched:
        members = graph.of_role(*key)
        below = sorted(graph.descendants(member.id for member in members))
        created = {noderole.id for noderole in proposal.created}
        for member in members:
            if member.id in created or member.id in removed:
                yield from ((id, member.id) for id in below if graph.noderoles[id].node_id == member.node_id)


def _held_back(
    catalogue: Catalogue,
    graph: Graph,
    proposal: Proposal,
    removed: set[int],
    touched: Mapping[tuple[int, str], str],
    rerun: Collection[int],
) -> dict[int, str]:
    """Return the active children of touched clusters that do not run again at once, each with the reason in words."""
    created = {noderole.id for noderole in proposal.created}
    because: dict[int, str] = {}
    for (deployment_id, role), reason in touched.items():
        for member in graph.of_role(deployment_id, role):
            for id in graph.children(member.id):
                child = graph.noderoles[id]
                if child.state is ACTIVE and not _may_never_rerun(catalogue, child):
                    because[id] = reason
    return {id: why for id, why in because.items() if id not in removed and id not in created and id not in rerun}


def _kept(
    catalogue: Catalogue, graph: Graph, proposal: Proposal, removed: Collection[int], rerun: Collection[int]
) -> dict[int, str]:
    """Return the noderoles that keep what they did although their attribs changed, each with these attribs.

    An attrib that a noderole takes which runs again on the same node is in force by that.
    """
    because: dict[int, str] = {}
    for id, attribs in proposal.changed_attribs.items():
        noderole = graph.noderoles[id]
        takers = [graph.noderoles[taker] for taker in proposal.takers.get(id, ()) if taker in rerun]
        taken = {
            attrib
            for taker in takers
            if taker.node_id == noderole.node_id
            for attrib in catalogue.role(taker.role).wants
        }
        waiting = sorted(set(attribs) - taken)
        if waiting and id not in removed and _may_never_rerun(catalogue, noderole):
            because[id] = f"{', '.join(waiting)} counts from its next run, which only a person begins"
    return because


def _reruns_for_input(catalogue: Catalogue, noderole: NodeRole) -> bool:
    destructive = catalogue.role(noderole.role).has(Flag.DESTRUCTIVE)
    return next_state(Trigger.INPUT_CHANGE, noderole.state, unmet=0, destructive=destructive) is not None


def _may_never_rerun(catalogue: Catalogue, noderole: NodeRole) -> bool:
    return noderole.state is ACTIVE and catalogue.role(noderole.role).has(Flag.DESTRUCTIVE)


def _planned(graph: Graph, noderole: NodeRole, because: str = "") -> PlannedNodeRole:
    return PlannedNodeRole(noderole.id, graph.node_name(noderole.node_id), noderole.role, because)


def _planned_by_rank(graph: Graph, because: Mapping[int, str]) -> tuple[PlannedNodeRole, ...]:
    ordered = sorted(because, key=lambda id: graph.noderoles[id].rank)
    return tuple(_planned(graph, graph.noderoles[id], because[id]) for id in ordered)


def _digest(
    proposal: Proposal, parts: Mapping[str, tuple[PlannedNodeRole, ...]], moved: Iterable[str], wiped: Iterable[str]
) -> str:
    """Return a digest of all that a person sees of a plan, so that a commit can tell whether the plan changed."""
    digest = hashlib.sha256(f"{proposal.deployment_id} {proposal.revision} {[*moved]} {[*wiped]}".encode())
    digest.update(json.dumps(sorted(proposal.dropped_roles)).encode())
    for id, relinked in sorted(proposal.relinked.items()):
        links = sorted((link.attrib, link.parent) for link in relinked.links)
        digest.update(json.dumps([id, sorted(relinked.gained), sorted(relinked.lost), links]).encode())
    for name, lines in parts.items():
        digest.update(name.encode())
        digest.update(json.dumps([(line.id, line.because) for line in lines]).encode())
    return digest.hexdigest()


# --- comparing


@dataclass(frozen=True)
class Intent:
    """The whole content of a snapshot, keyed by names."""

    roles: Mapping[str, JsonObject]
    bindings: Mapping[tuple[str, str], JsonObject]
    """(node, role) -> user data"""


@dataclass(frozen=True)
class Difference:
    """The difference between two snapshots."""

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
                binding
                for binding in old.bindings.keys() & new.bindings.keys()
                if old.bindings[binding] != new.bindings[binding]
            )
        ),
    )


class ShownState(StrEnum):
    """The state of a deployment that people see."""

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
    """Return the state that people see of a deployment; `committed` and `proposed`: whether it has such a snapshot."""
    if held:
        return ShownState.HELD
    if not committed:
        return ShownState.PROPOSED if proposed else ShownState.EMPTY
    if counts.get(NodeRoleState.ERROR):
        return ShownState.ERROR
    not_active = sum(count for state, count in counts.items() if state not in (ACTIVE, NodeRoleState.PROPOSED))
    return ShownState.COMMITTED if not_active else ShownState.ACTIVE
