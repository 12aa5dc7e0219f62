"""The view of the graph that rules look at: which noderole of a role comes first."""

from rackwright.domain.graph.noderole_graph import Graph, NodeRole
from rackwright.domain.states import ACTIVE, PROPOSED


def noderole(id: int, cohort: int, deployment_id: int = 1, role: str = "r") -> NodeRole:
    return NodeRole(id, node_id=id, role=role, deployment_id=deployment_id, state=ACTIVE, cohort=cohort)


def first(graph: Graph, deployment_id: int = 1) -> int | None:
    found = graph.first_of_role(deployment_id, "r", 1)
    return found.id if found else None


def test_first_of_role_is_the_lowest_cohort_then_the_lowest_id() -> None:
    graph = Graph(noderoles=[noderole(3, 1), noderole(2, 1), noderole(1, 2)])
    assert first(graph) == 2
    assert [one.id for one in graph.of_role(1, "r")] == [2, 3, 1]


def test_first_of_role_follows_what_is_added_and_what_moves_down() -> None:
    graph = Graph()
    assert first(graph) is None
    graph.add(noderole(1, 0))
    graph.add(noderole(2, 1))
    assert first(graph) == 1
    graph.set_cohort(1, 5)
    graph.add(noderole(3, 2))
    assert first(graph) == 2
    graph.set_cohort(2, 9)
    assert first(graph) == 3
    graph.add(noderole(4, 0))
    assert first(graph) == 4


def test_first_of_role_in_a_deployment_above_passes_over_what_is_only_proposed_there() -> None:
    proposed = NodeRole(1, node_id=1, role="r", deployment_id=2, state=PROPOSED)
    graph = Graph(noderoles=[proposed, noderole(2, 3, deployment_id=2)])
    assert first(graph, deployment_id=2) == 2
