"""What must hold between what is seen of the store and the naive model: of a plan, of a rollback, after each step."""

from typing import Any

from tests.integration.store.model import naive
from tests.integration.store.model.model_seen import Seen
from tests.integration.store.model.naive_graph import ACTIVE, Key, Snapshot

from rackwright.domain.graph.snapshots import CommitPlan


def same(store: set[Any], model: set[Any]) -> None:
    only = sorted(store - model, key=str), sorted(model - store, key=str)
    assert store == model, f"only in the store: {only[0]}; only in the naive model: {only[1]}"


def compare_plans(planned: CommitPlan, expected: naive.Plan) -> None:
    for what in ("created", "rerun", "held_back", "removed", "relinked"):
        lines = {(what, line.node, line.role) for line in getattr(planned, what)}
        same(lines, {(what, *key) for key in getattr(expected, what)})
    assert (set(planned.moved), set(planned.wiped)) == (expected.moved, expected.wiped)


def compare_intent(seen: Seen, world: naive.World, name: str, past: Snapshot, not_restorable: set[Key]) -> None:
    """Check that the proposal has what the past snapshot had, but for nodes and roles that are gone."""
    lost = {key for key in past.bindings if key[0] not in world.nodes or key[1] not in world.roles}
    assert not_restorable == lost
    intent = seen.snapshots[name][-1]
    restorable = {key: says for key, says in past.bindings.items() if key not in lost}
    assert {key: says for key, says in intent.bindings.items() if key in past.bindings} == restorable
    roles = {role: says for role, says in past.roles.items() if role in world.roles}
    assert {role: says for role, says in intent.roles.items() if role in past.roles} == roles


def agree(seen: Seen, world: naive.World) -> None:
    noderoles = world.noderoles.items()
    same(
        {(key, *noderole.shown) for key, noderole in seen.noderoles.items()},
        {
            (key, noderole.deployment, world.state(key), world.cohort(key), noderole.doomed)
            for key, noderole in noderoles
        },
    )
    same(seen.edges, {(parent, key) for key, noderole in noderoles for parent in noderole.parents})
    same(seen.links, {(key, *link) for key, noderole in noderoles for link in noderole.links.items()})
    by_age = sorted(world.noderoles, key=lambda key: world.noderoles[key].born)
    assert by_age == sorted(seen.noderoles, key=lambda key: seen.noderoles[key].id)


def nodes_and_intent_agree(seen: Seen, world: naive.World) -> None:
    assert seen.homes == {node.name: node.deployment for node in world.nodes.values()}
    assert seen.held == {home.name for home in world.deployments.values() if home.held}
    assert {name: [(s.state, s.roles, s.bindings) for s in line] for name, line in seen.snapshots.items()} == {
        name: [(s.state, s.roles, s.bindings) for s in home.snapshots] for name, home in world.deployments.items()
    }


def committed_snapshots_never_change(seen: Seen, committed: dict[int, object]) -> None:
    for line in seen.snapshots.values():
        for snapshot in line:
            if snapshot.state != "proposed":
                assert committed.setdefault(snapshot.id, (snapshot.roles, snapshot.bindings)) == (
                    snapshot.roles,
                    snapshot.bindings,
                )


def counters_are_true(seen: Seen) -> None:
    assert seen.wrong_counters == []
    assert seen.wrong_slots == []


def todo_means_that_all_parents_are_active(seen: Seen) -> None:
    parents: dict[Key, list[Key]] = {}
    for parent, child in seen.edges:
        parents.setdefault(child, []).append(parent)
    for key, noderole in seen.noderoles.items():
        ready = all(seen.noderoles[parent].state == ACTIVE for parent in parents.get(key, ()))
        if noderole.state in ("todo", "blocked"):
            assert (noderole.state == "todo") == ready, key


def nobody_shares_a_node_or_a_line_with_whom_it_must_not(world: naive.World) -> None:
    for key in world.noderoles:
        for other in world.noderoles:
            if key[0] == other[0] and key != other:
                assert not world.conflict(key[1], other[1])
                assert not world.provides_each_other(key[1], other[1])
        assert key not in world.ancestors(key)
        assert not any(world.provides_each_other(key[1], above[1]) for above in world.ancestors(key))


def active_means_it_ran_with_the_inputs_it_has_now(world: naive.World) -> None:
    for key, noderole in world.noderoles.items():
        if noderole.state == ACTIVE and not world.destroys(key):
            assert not world.has_new_inputs(key), f"{key} has new inputs, but is active"
