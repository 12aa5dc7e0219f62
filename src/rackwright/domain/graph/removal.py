"""Rules for removing noderoles: which may be removed, and which others are removed with them."""

from collections.abc import Iterable

from rackwright.domain.catalogue import Catalogue, Flag
from rackwright.domain.errors import Conflict, Rule
from rackwright.domain.graph.noderole_graph import Graph
from rackwright.domain.states import PROPOSED


def find_removed_noderoles(graph: Graph, catalogue: Catalogue, ids: Iterable[int]) -> set[int]:
    """Return all noderoles that are removed when `ids` are, or raise a conflict that names those it would orphan.

    A noderole may be removed if each noderole that depends on it is only proposed, or on its own node in its own
    deployment; these are removed with it. What depends on a cluster as a whole does not depend on the one member that
    leaves, as long as another stays.
    """
    requested = set(ids)
    removed = _all_removed(graph, catalogue, requested)
    for id in sorted(requested):
        dependants = _dependants(graph, catalogue, id, removed)
        orphans = {dependant for dependant in dependants - requested if not _may_go_along(graph, dependant, id)}
        if orphans:
            named = ", ".join(graph.title(orphan) for orphan in sorted(orphans)[:5])
            more = f" and {len(orphans) - 5} more" if len(orphans) > 5 else ""
            raise Conflict(
                Rule.ORPHANS,
                f"{graph.title(id)} cannot be removed: {named}{more} would be left without it. Remove those first.",
            )
    return removed


def _all_removed(graph: Graph, catalogue: Catalogue, requested: set[int]) -> set[int]:
    """Return `requested` with all their dependants.

    Repeated until nothing is added: two that leave may each take a member of one cluster along, and then its children.
    """
    before: set[int] = set()
    removed = set(requested)
    while removed != before:
        before = removed
        removed = before.union(*(_dependants(graph, catalogue, id, before) for id in sorted(requested)))
    return before


def _may_go_along(graph: Graph, dependant_id: int, id: int) -> bool:
    dependant, leaving = graph.noderoles[dependant_id], graph.noderoles[id]
    same_location = dependant.node_id == leaving.node_id and dependant.deployment_id == leaving.deployment_id
    return same_location or dependant.state is PROPOSED


def _dependants(graph: Graph, catalogue: Catalogue, id: int, leaving: set[int]) -> set[int]:
    """Return all noderoles that cannot stay without `id` and the others that leave with it."""
    removed = {id}
    stack = [id]
    while stack:
        parent = stack.pop()
        for child in graph.children(parent):
            if child not in removed and not _peer_stays(graph, catalogue, parent, child, removed | leaving):
                removed.add(child)
                stack.append(child)
    return removed - {id}


def _peer_stays(graph: Graph, catalogue: Catalogue, parent: int, child: int, leaving: set[int]) -> bool:
    """Return whether `parent` is a member of a cluster of which the child keeps another member as a parent."""
    member = graph.noderoles[parent]
    role = catalogue.roles.get(member.role)
    if role is None or not role.has(Flag.CLUSTER):
        return False
    for other in graph.parents(child):
        peer = graph.noderoles[other]
        same_cluster = peer.role == member.role and peer.deployment_id == member.deployment_id
        usable = peer.state is not PROPOSED or graph.noderoles[child].state is PROPOSED
        if same_cluster and usable and not peer.doomed and other not in leaving:
            return True
    return False
