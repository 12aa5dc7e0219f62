"""What may be taken out of the graph, and what goes with it."""

from collections.abc import Iterable

from rackwright.domain.catalogue import Catalogue, Flag
from rackwright.domain.errors import Conflict, Rule
from rackwright.domain.graph.noderole_graph import Graph
from rackwright.domain.states import PROPOSED


def plan_removal(graph: Graph, catalogue: Catalogue, ids: Iterable[int]) -> set[int]:
    """The noderoles that go when `ids` do, or a conflict that names whom it would orphan.

    A noderole may go if each that stands on it is only proposed, or on its own node in its own deployment; they go
    with it. What stands on a cluster as a whole does not stand on the one member that leaves, as long as another stays.
    """
    wanted = set(ids)
    gone = _all_going(graph, catalogue, wanted)
    for id in sorted(wanted):
        dependants = _dependants(graph, catalogue, id, gone)
        orphans = {one for one in dependants - wanted if not _may_go_along(graph, one, id)}
        if orphans:
            named = ", ".join(graph.title(one) for one in sorted(orphans)[:5])
            more = f" and {len(orphans) - 5} more" if len(orphans) > 5 else ""
            raise Conflict(
                Rule.ORPHANS,
                f"{graph.title(id)} cannot be removed: {named}{more} would be left without it. Remove those first.",
            )
    return gone


def _all_going(graph: Graph, catalogue: Catalogue, wanted: set[int]) -> set[int]:
    """Until nothing more goes: two that leave may each take a member of one cluster along, and then its children."""
    gone: set[int] = set()
    going = set(wanted)
    while going != gone:
        gone = going
        going = gone.union(*(_dependants(graph, catalogue, id, gone) for id in sorted(wanted)))
    return gone


def _may_go_along(graph: Graph, dependant_id: int, id: int) -> bool:
    dependant, leaving = graph.noderoles[dependant_id], graph.noderoles[id]
    together = dependant.node_id == leaving.node_id and dependant.deployment_id == leaving.deployment_id
    return together or dependant.state is PROPOSED


def _dependants(graph: Graph, catalogue: Catalogue, id: int, leaving: set[int]) -> set[int]:
    """All that could not stand without `id` and the others that leave with it."""
    gone = {id}
    stack = [id]
    while stack:
        parent = stack.pop()
        for child in graph.children(parent):
            if child not in gone and not _peer_stays(graph, catalogue, parent, child, gone | leaving):
                gone.add(child)
                stack.append(child)
    return gone - {id}


def _peer_stays(graph: Graph, catalogue: Catalogue, parent: int, child: int, leaving: set[int]) -> bool:
    member = graph.noderoles[parent]
    role = catalogue.roles.get(member.role)
    if role is None or not role.has(Flag.CLUSTER):
        return False
    for other in graph.parents(child):
        peer = graph.noderoles[other]
        same = peer.role == member.role and peer.deployment_id == member.deployment_id
        stands = peer.state is not PROPOSED or graph.noderoles[child].state is PROPOSED
        if same and stands and not peer.doomed and other not in leaving:
            return True
    return False
