"""Plans of commits, differences of snapshots, and the state that a deployment shows."""

import dataclasses

import pytest
from tests.unit.domain.scene import Scene

from rackwright.domain.catalogue import Attrib
from rackwright.domain.errors import Conflict, Rule
from rackwright.domain.graph.snapshots import (
    CommitPlan,
    Intent,
    PlannedNodeRole,
    Proposal,
    ShownState,
    diff_intents,
    plan_commit,
    shown_state,
)
from rackwright.domain.states import ACTIVE, BLOCKED, ERROR, PROPOSED, TODO, TRANSITION


def planned(scene: Scene, into: str = "d", revision: int = 1, takes: str = "", **changes: str) -> CommitPlan:
    """Plan a commit. `dropped`, `changed`: names of noderoles; `changed_roles`: roles; `takes`: `source>taker`."""
    deployment = scene.deployments[into]
    created = [
        noderole
        for noderole in scene.graph.noderoles.values()
        if noderole.state is PROPOSED and noderole.deployment_id == deployment
    ]
    pairs = [word.split(">") for word in takes.split()]
    proposal = Proposal(
        deployment,
        revision,
        tuple(created),
        dropped=frozenset(map(scene.id, changes.get("dropped", "").split())),
        changed=frozenset(map(scene.id, changes.get("changed", "").split())),
        changed_roles=frozenset(changes.get("changed_roles", "").split()),
        takers={scene.id(source): [scene.id(taker)] for source, taker in pairs},
    )
    return plan_commit(scene.catalogue, scene.graph, proposal)


def names(lines: tuple[PlannedNodeRole, ...]) -> list[str]:
    return [f"{line.role}@{line.node}" for line in lines]


def test_what_is_proposed_is_created_parents_first() -> None:
    scene = Scene("web requires=db", "db")
    scene.bind("web@n1")
    plan = planned(scene)
    assert names(plan.created) == ["db@n1", "web@n1"]
    assert not plan.empty


def test_a_proposal_that_changes_nothing_is_empty() -> None:
    scene = Scene("web")
    scene.bind("web@n1")
    scene.commit()
    assert planned(scene).empty


def test_what_is_left_out_goes_with_what_is_proposed_elsewhere() -> None:
    scene = Scene("db", "web requires=db", deployments="d e")
    scene.bind("db@n1")
    scene.commit()
    scene.bind("web@n2", into="e")
    assert names(planned(scene, dropped="db@n1").removed) == ["db@n1", "web@n2"]


def test_what_the_proposal_binds_may_not_go_along_with_what_it_leaves_out() -> None:
    scene = Scene("db", "web requires=db")
    scene.bind("db@n1")
    scene.commit()
    scene.bind("web@n1")
    with pytest.raises(Conflict, match="web on n1 is bound in this proposal") as refused:
        planned(scene, dropped="db@n1")
    assert refused.value.rule is Rule.ORPHANS


def test_changed_data_re_runs_the_noderole_and_who_takes_from_it() -> None:
    scene = Scene("db", "web requires=db", "cache")
    scene.bind("web@n1", "cache@n1")
    scene.commit()
    plan = planned(scene, changed="db@n1", takes="db@n1>web@n1")
    assert [(line.role, line.because) for line in plan.rerun] == [
        ("db", "its own data changed"),
        ("web", "it takes inputs from db on n1"),
    ]


def test_who_takes_from_it_and_waits_anyway_is_not_listed() -> None:
    scene = Scene("db", "web requires=db")
    scene.bind("web@n1")
    scene.commit()
    scene.become(BLOCKED, "web@n1")
    assert names(planned(scene, changed="db@n1", takes="db@n1>web@n1").rerun) == ["db@n1"]


def test_changed_deployment_role_data_re_runs_its_noderoles_of_this_deployment() -> None:
    scene = Scene("web", deployments="d e")
    scene.bind("web@n1")
    scene.commit()
    scene.bind("web@n2", into="e")
    scene.commit()
    assert names(planned(scene, changed_roles="web").rerun) == ["web@n1"]


def test_a_destructive_one_that_is_active_is_left_alone() -> None:
    scene = Scene("install flags=destructive")
    scene.bind("install@n1")
    scene.commit()
    assert planned(scene, changed="install@n1", changed_roles="install").empty
    scene.become(ERROR)
    plan = planned(scene, changed="install@n1")
    assert (names(plan.rerun), plan.wiped) == (["install@n1"], ("n1",))


def test_nodes_that_come_in_and_nodes_that_are_wiped_are_named() -> None:
    scene = Scene("install flags=destructive", "web", nodes="n1 n2:d n3")
    scene.bind("install@n1", "web@n2")
    plan = planned(scene)
    assert (plan.moved, plan.wiped) == (("n1",), ("n1",))


def test_what_destroys_keeps_what_it_did_until_a_person_has_it_run_again() -> None:
    net = Attrib("net", "test", ("net",), role="install")
    scene = Scene("install flags=destructive", "switch requires=install wants=net", attribs=[net])
    scene.bind("switch@n1", "install@n2")
    scene.commit()
    proposal = Proposal(
        scene.deployments["d"],
        1,
        changed=frozenset({scene.id("install@n1"), scene.id("install@n2")}),
        changed_attribs={scene.id("install@n1"): ["disks", "net"], scene.id("install@n2"): ["disks", "net"]},
        takers={scene.id("install@n1"): [scene.id("switch@n1")]},
    )
    plan = plan_commit(scene.catalogue, scene.graph, proposal)
    assert names(plan.rerun) == ["switch@n1"]
    said = "counts from its next run, which only a person begins"
    assert [(line.node, line.role, line.because) for line in plan.kept] == [
        ("n1", "install", f"disks {said}"),
        ("n2", "install", f"disks, net {said}"),
    ]


def cluster() -> Scene:
    scene = Scene("db flags=cluster", "web requires=db", "top requires=web", "app requires=db flags=destructive")
    scene.bind("db@n1", "web@n3", "top@n3", "app@n3")
    scene.commit()
    return scene


def test_a_new_member_re_runs_its_peers_and_holds_back_what_stands_on_them() -> None:
    scene = cluster()
    scene.bind("db@n2")
    plan = planned(scene)
    assert names(plan.rerun) == ["db@n1"]
    assert names(plan.held_back) == ["web@n3"]


def test_a_member_that_leaves_re_runs_its_peers_and_holds_back_what_stands_on_them() -> None:
    scene = cluster()
    scene.bind("db@n2")
    scene.commit()
    plan = planned(scene, dropped="db@n2")
    assert (names(plan.removed), names(plan.rerun), names(plan.held_back)) == (["db@n2"], ["db@n1"], ["web@n3"])


def test_what_stands_below_a_new_member_on_its_node_takes_inputs_from_it() -> None:
    scene = cluster()
    scene.bind("db@n3")
    assert names(planned(scene).rerun) == ["db@n1", "web@n3", "top@n3"]


def test_a_member_only_proposed_elsewhere_that_goes_leaves_its_cluster_alone() -> None:
    scene = Scene("base flags=implicit", "db flags=cluster requires=base", deployments="d e")
    scene.bind("base@n2")
    scene.commit()
    scene.bind("db@n1", into="e")
    scene.commit()
    scene.bind("db@n2", into="e")
    plan = planned(scene, dropped="base@n2")
    assert (names(plan.removed), names(plan.rerun)) == (["base@n2", "db@n2"], [])


# --- the digest


def test_the_digest_changes_with_anything_that_the_commit_would_do() -> None:
    def digest(revision: int = 1, into: str = "d", bound: str = "db@n1 web@n2", **changes: str) -> str:
        scene = Scene("db flags=cluster", "web requires=db", deployments="d e", nodes="n1 n2 n3")
        scene.bind(*bound.split(), into=into)
        scene.commit()
        scene.bind("db@n3", into=into)
        return planned(scene, into, revision, **changes).digest

    digests = [
        digest(),
        digest(revision=2),
        digest(into="e"),
        digest(changed="web@n2"),
        digest(changed_roles="web"),
        digest(dropped="web@n2"),
        digest(bound="db@n1 web@n2 db@n2"),
    ]
    assert len(set(digests)) == len(digests)
    assert digest() == digests[0]


def test_the_digest_changes_with_the_nodes_that_come_in() -> None:
    def digest(home: str) -> str:
        scene = Scene("web", nodes=f"n1{home}")
        scene.bind("web@n1")
        return planned(scene).digest

    assert digest("") != digest(":d")


def test_the_digest_changes_when_a_node_would_be_wiped() -> None:
    def digest(flags: str) -> str:
        scene = Scene(f"web{flags}")
        scene.bind("web@n1")
        return planned(scene).digest

    assert digest("") != digest(" flags=destructive")


# --- comparing and showing


def test_a_difference_names_all_that_was_added_removed_and_changed() -> None:
    old = Intent({"web": {}, "db": {"a": 1}}, {("n1", "web"): {}, ("n1", "db"): {}})
    new = Intent({"web": {}, "db": {"a": 2}, "dns": {}}, {("n1", "db"): {"x": 1}, ("n2", "dns"): {}})
    there = diff_intents(old, new)
    assert dataclasses.astuple(there) == (("dns",), (), ("db",), (("n2", "dns"),), (("n1", "web"),), (("n1", "db"),))
    back = diff_intents(new, old)
    assert (back.roles_removed, back.bindings_removed, back.bindings_added) == (
        there.roles_added,
        there.bindings_added,
        there.bindings_removed,
    )


@pytest.mark.parametrize(
    ("states", "held", "committed", "shown"),
    [
        ([], False, False, ShownState.PROPOSED),
        ([PROPOSED], False, False, ShownState.PROPOSED),
        ([], False, True, ShownState.ACTIVE),
        ([ACTIVE, PROPOSED], False, True, ShownState.ACTIVE),
        ([ACTIVE, TODO], False, True, ShownState.COMMITTED),
        ([ACTIVE, BLOCKED], False, True, ShownState.COMMITTED),
        ([ACTIVE, TRANSITION], False, True, ShownState.COMMITTED),
        ([TODO, ERROR], False, True, ShownState.ERROR),
        ([ERROR], True, True, ShownState.HELD),
    ],
)
def test_what_a_deployment_shows(states: list[object], held: bool, committed: bool, shown: ShownState) -> None:
    counts = dict.fromkeys(states, 1)
    assert shown_state(counts, held=held, committed=committed) is shown  # type: ignore[arg-type]  # states as given


def test_a_deployment_that_was_never_committed_and_is_no_longer_proposed_is_empty() -> None:
    assert shown_state({}, held=False, committed=False, proposed=False) is ShownState.EMPTY
