"""The graph in memory: which noderole of a role comes first, and how a trial is undone."""

from copy import deepcopy

import pytest

from rackwright.domain.graph.noderole_graph import Graph, NodeRole
from rackwright.domain.states import ACTIVE, PROPOSED


def noderole(id: int, cohort: int, deployment_id: int = 1, role: str = "r") -> NodeRole:
    return NodeRole(id, node_id=id, role=role, deployment_id=deployment_id, state=ACTIVE, cohort=cohort)


def first(graph: Graph, deployment_id: int = 1) -> int | None:
    first = graph.first_of_role(deployment_id, "r", 1)
    return first.id if first else None


def test_first_of_role_is_the_lowest_cohort_then_the_lowest_id() -> None:
    graph = Graph(noderoles=[noderole(3, 1), noderole(2, 1), noderole(1, 2)])
    assert first(graph) == 2
    assert [noderole.id for noderole in graph.of_role(1, "r")] == [2, 3, 1]


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


# --- trials


def seen(graph: Graph) -> tuple[object, ...]:
    """Return the answers of a graph to all its lookups."""
    ids = sorted(graph.noderoles)
    nodes = sorted({noderole.node_id for noderole in graph.noderoles.values()})
    return (
        deepcopy(graph.noderoles),
        [(id, list(graph.parents(id)), list(graph.children(id))) for id in range(10)],
        [[graph.noderole_at(node, role) for role in "rs"] for node in range(10)],
        [graph.on_node(node) for node in nodes],
        [[graph.of_role(deployment, role) for role in "rs"] for deployment in (1, 2)],
        [[graph.first_of_role(deployment, role, 1) for role in "rs"] for deployment in (1, 2)],
        ids,
    )


def test_a_trial_leaves_the_graph_as_it_was_whether_it_ends_or_breaks_off() -> None:
    graph = Graph(noderoles=[noderole(1, 0), noderole(2, 1), noderole(3, 4, role="s")], edges=[(1, 2), (2, 3)])
    before = seen(graph)

    def change(end: float) -> None:
        graph.add(noderole(4, 0))
        graph.add(noderole(5, 2, role="s"))
        graph.link(4, 5)
        graph.link(4, 2)
        graph.set_cohort(2, 7)
        graph.set_cohort(5, 8)
        graph.set_cohort(2, 9)
        assert first(graph) == 1
        graph.set_cohort(1, 12)
        assert first(graph) == 4
        assert 1 / end

    with graph.trial():
        change(1)
        assert seen(graph) != before
    assert seen(graph) == before
    with pytest.raises(ZeroDivisionError), graph.trial():
        change(0)
    assert seen(graph) == before


def test_changes_outside_a_trial_stay() -> None:
    graph = Graph(noderoles=[noderole(1, 0)])
    with graph.trial():
        graph.add(noderole(2, 0))
    graph.add(noderole(3, 1))
    graph.link(1, 3)
    with graph.trial():
        graph.set_cohort(3, 5)
    assert (sorted(graph.noderoles), graph.parents(3), graph.noderoles[3].cohort) == ([1, 3], [1], 1)
