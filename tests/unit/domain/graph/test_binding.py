"""Binding: where the roles that a role needs are found or bound, and every reason to refuse."""

import pytest
from tests.unit.domain.scene import Scene, catalogue

from rackwright.domain.catalogue import Attrib
from rackwright.domain.errors import Conflict, NotFound, Rule
from rackwright.domain.graph.binding import AttribLink, BindPlan, bind, bind_each
from rackwright.domain.states import PROPOSED

# --- what a role needs


def test_a_role_needs_its_client_requires_attached_roles_and_owners_of_wanted_attribs() -> None:
    known = catalogue(
        "web jig=tool requires=db wants=size",
        "db",
        "monitor attaches=web",
        "disk",
        "client flags=implicit",
        attribs=[Attrib("size", "test", ("size",), role="disk")],
    )
    assert known.needed_roles("web") == ("client", "db", "monitor", "disk")


def test_a_role_needs_nobody_for_attribs_of_itself_or_of_what_it_provides() -> None:
    known = catalogue(
        "pg provides=db wants=own,size",
        "db",
        attribs=[Attrib("own", "test", ("own",), role="pg"), Attrib("size", "test", ("size",), role="db")],
    )
    assert known.needed_roles("pg") == ()


def test_a_circle_of_needs_is_refused_with_its_path() -> None:
    with pytest.raises(Conflict, match="a -> b -> c -> a") as refused:
        catalogue("a requires=b", "b requires=c", "c requires=a").check()
    assert refused.value.rule is Rule.CYCLE


def test_a_circle_through_attaches_is_refused() -> None:
    with pytest.raises(Conflict, match="circle"):
        catalogue("a requires=b", "b", "a2 requires=a attaches=b").check()


# --- where it is found


def test_binding_twice_gives_the_noderole_that_is_there() -> None:
    scene = Scene("web")
    first = scene.bind("web@n1")
    again = scene.bind("web@n1")
    assert (again.created, again.bound) == ([], [scene.id("web@n1")])
    assert len(first.created) == 1


def test_what_is_nowhere_is_bound_to_the_same_node() -> None:
    scene = Scene("web requires=db", "db")
    scene.bind("web@n1")
    assert scene.bound() == {"web@n1", "db@n1"}
    assert scene.parents("web@n1") == {"db@n1"}


def test_what_is_on_the_node_comes_before_what_is_elsewhere() -> None:
    scene = Scene("web requires=db", "db")
    scene.bind("db@n2", "db@n1", "web@n1")
    assert scene.parents("web@n1") == {"db@n1"}


def test_a_provider_on_the_node_comes_before_the_role_elsewhere() -> None:
    scene = Scene("web requires=db", "db", "pg provides=db")
    scene.bind("db@n2", "pg@n1", "web@n1")
    assert scene.parents("web@n1") == {"pg@n1"}


def test_the_role_in_the_deployment_comes_before_a_provider_there() -> None:
    scene = Scene("web requires=db", "db", "pg provides=db")
    scene.bind("pg@n2", "db@n3", "web@n1")
    assert scene.parents("web@n1") == {"db@n3"}


def test_a_provider_in_the_deployment_comes_before_the_role_above() -> None:
    scene = Scene("web requires=db", "db", "pg provides=db", deployments="d e")
    scene.bind("db@n1")
    scene.commit()
    scene.bind("pg@n2", "web@n3", into="e")
    assert scene.parents("web@n3") == {"pg@n2"}


def test_the_deployments_above_are_searched_up_to_the_root() -> None:
    scene = Scene("web requires=db", "db", deployments="d e f")
    scene.bind("db@n1")
    scene.commit()
    scene.bind("web@n2", into="f")
    assert scene.parents("web@n2") == {"db@n1"}


def test_of_several_the_lowest_cohort_is_taken_and_then_the_oldest() -> None:
    scene = Scene("base", "db requires=base", "web requires=db", nodes="n1 n2 n3 n4")
    scene.bind("db@n1", "db@n2", "web@n4")
    assert scene.parents("web@n4") == {"db@n1"}
    scene = Scene("base", "low", "db", "pg requires=base provides=db", "my provides=db", "web requires=db")
    scene.bind("pg@n1", "my@n2", "web@n3")
    assert scene.parents("web@n3") == {"my@n2"}


def test_an_implicit_role_is_always_on_the_same_node() -> None:
    scene = Scene("web requires=base", "base flags=implicit")
    scene.bind("web@n1", "web@n2")
    assert scene.parents("web@n2") == {"base@n2"}


def test_a_service_lands_on_the_phantom_node_of_the_deployment() -> None:
    scene = Scene("web requires=dns", "dns flags=service")
    scene.bind("web@n1")
    assert scene.parents("web@n1") == {"dns@d-phantom"}
    scene = Scene("dns flags=service")
    scene.bind("dns@n1")
    assert scene.bound() == {"dns@d-phantom"}


def test_what_is_proposed_elsewhere_is_not_built_on() -> None:
    scene = Scene("web requires=db", "db", deployments="d e")
    scene.bind("db@n1")
    scene.bind("web@n2", into="e")
    assert scene.parents("web@n2") == {"db@n2"}


def test_what_is_being_removed_is_not_built_on() -> None:
    scene = Scene("web requires=db", "db")
    scene.bind("db@n1")
    scene.commit()
    scene.doom("db@n1")
    scene.bind("web@n2")
    assert scene.parents("web@n2") == {"db@n2"}


def test_what_is_being_removed_in_a_deployment_above_is_not_built_on() -> None:
    scene = Scene("web requires=db", "db", deployments="d e")
    scene.bind("db@n1")
    scene.commit()
    scene.doom("db@n1")
    scene.bind("web@n2", into="e")
    assert scene.parents("web@n2") == {"db@n2"}


def test_a_member_that_is_being_removed_is_no_parent() -> None:
    scene = Scene("web requires=db", "db flags=cluster")
    scene.bind("db@n1", "db@n2")
    scene.commit()
    scene.doom("db@n2")
    scene.bind("web@n3")
    assert scene.parents("web@n3") == {"db@n1"}


def test_a_need_is_looked_for_again_after_another_was_bound() -> None:
    scene = Scene("web requires=db,pg", "db", "pg provides=db")
    scene.bind("db@n2", "web@n1")
    assert scene.parents("web@n1") == {"pg@n1"}


# --- clusters, cohorts and links


def test_all_members_of_a_cluster_become_parents() -> None:
    scene = Scene("web requires=db", "db flags=cluster")
    scene.bind("db@n1", "db@n2", "web@n3")
    assert scene.parents("web@n3") == {"db@n1", "db@n2"}


def test_members_of_another_deployment_are_no_parents() -> None:
    scene = Scene("web requires=db", "db flags=cluster", deployments="d e")
    scene.bind("db@n1")
    scene.commit()
    scene.bind("db@n2", "web@n3", into="e")
    assert scene.parents("web@n3") == {"db@n2"}


def test_a_new_member_becomes_a_parent_of_its_peers_children() -> None:
    scene = Scene("web requires=db", "db flags=cluster")
    scene.bind("db@n1", "web@n3", "db@n2")
    assert scene.parents("web@n3") == {"db@n1", "db@n2"}


def test_a_second_one_of_no_cluster_becomes_nobodys_parent() -> None:
    scene = Scene("web requires=db", "db")
    scene.bind("db@n1", "web@n3", "db@n2")
    assert scene.parents("web@n3") == {"db@n1"}


def test_the_cohort_is_one_more_than_the_highest_of_the_parents() -> None:
    scene = Scene("a", "b requires=a", "c requires=a,b", "d")
    scene.bind("c@n1", "d@n1")
    assert [scene.cohort(f"{name}@n1") for name in "abcd"] == [0, 1, 2, 0]


def test_a_new_member_with_a_higher_cohort_pushes_all_that_stands_on_it() -> None:
    scene = Scene(
        "deep", "base provides=ground requires=deep", "ground", "db flags=cluster requires=ground",
        "web requires=db", "top requires=web",
    )  # fmt: skip
    scene.bind("db@n1", "web@n3", "top@n3")
    scene.commit()
    plan = scene.bind("base@n2", "db@n2")
    assert (scene.cohort("db@n2"), scene.cohort("web@n3"), scene.cohort("top@n3")) == (2, 3, 4)
    assert plan.recohorted == {scene.id("web@n3"): 3, scene.id("top@n3"): 4}


def test_a_wanted_attrib_is_linked_to_the_parent_that_supplies_it() -> None:
    scene = Scene("web wants=size", "db", "pg provides=db", attribs=[Attrib("size", "test", ("size",), role="db")])
    scene.bind("pg@n1")
    plan = scene.bind("web@n1")
    assert [(link.attrib, scene.name(link.parent)) for link in plan.links] == [("size", "pg@n1")]


def test_an_attrib_of_the_node_needs_no_link() -> None:
    scene = Scene("web wants=fact", attribs=[Attrib("fact", "test", ("fact",))])
    assert scene.bind("web@n1").links == list[AttribLink]()


# --- refused


def refused(scene: Scene, binding: str, rule: Rule, *words: str, into: str = "d") -> None:
    """Check that binding is a conflict by that rule, whose message has all the words."""
    with pytest.raises(Conflict) as conflict:
        scene.bind(binding, into=into)
    assert conflict.value.rule is rule
    for word in words:
        assert word in conflict.value.message


def test_an_unknown_role_is_not_found() -> None:
    with pytest.raises(NotFound):
        Scene("web").bind("db@n1")


def test_a_required_role_that_is_not_imported_is_a_conflict() -> None:
    refused(Scene("web requires=db"), "web@n1", Rule.UNRESOLVED, "web", "'db'")


def test_a_wanted_attrib_that_is_not_imported_is_a_conflict() -> None:
    refused(Scene("web wants=size"), "web@n1", Rule.UNRESOLVED, "'size'")


def test_a_required_abstract_role_that_nobody_provides_is_a_conflict() -> None:
    scene = Scene("web requires=db", "db flags=abstract", "pg provides=db")
    refused(scene, "web@n1", Rule.UNRESOLVED, "abstract", "pg")


def test_an_abstract_role_cannot_be_bound() -> None:
    refused(Scene("db flags=abstract", "pg provides=db"), "db@n1", Rule.ABSTRACT, "pg")


def test_a_role_of_an_inactive_jig_cannot_be_bound() -> None:
    refused(Scene("web jig=off"), "web@n1", Rule.JIG_INACTIVE, "'off'", "not active")
    refused(Scene("web jig=lost"), "web@n1", Rule.JIG_INACTIVE, "'lost'", "not imported")


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("b", "a")])
def test_conflicting_roles_cannot_share_a_node_whoever_says_so(first: str, second: str) -> None:
    scene = Scene("a conflicts=b", "b")
    scene.bind(f"{first}@n1")
    refused(scene, f"{second}@n1", Rule.CONFLICTS, f"'{first}'")
    scene.bind(f"{second}@n2")


def test_a_conflict_with_what_is_proposed_elsewhere_counts() -> None:
    scene = Scene("a conflicts=b", "b", deployments="d e")
    scene.bind("a@n1")
    refused(scene, "b@n1", Rule.CONFLICTS, into="e")


@pytest.mark.parametrize(("first", "second"), [("exim", "postfix"), ("postfix", "exim")])
@pytest.mark.parametrize("says", ["the role", "the abstract one"])
def test_a_conflict_with_an_abstract_role_holds_for_what_provides_it(first: str, second: str, says: str) -> None:
    who, whom = ("exim conflicts=mta", "mta") if says == "the role" else ("exim", "mta conflicts=exim")
    scene = Scene(who, f"{whom} flags=abstract", "postfix provides=mta")
    scene.bind(f"{first}@n1")
    refused(scene, f"{second}@n1", Rule.CONFLICTS, f"'{first}'", "'mta'")
    scene.bind(f"{second}@n2")


def test_what_provides_an_abstract_role_and_conflicts_with_it_is_alone_in_that() -> None:
    scene = Scene(
        "mta flags=abstract", "exim provides=mta conflicts=mta", "postfix provides=mta", "sendmail provides=mta"
    )
    scene.bind("exim@n1", "postfix@n2", "sendmail@n2")
    refused(scene, "postfix@n1", Rule.CONFLICTS, "'exim'", "'mta'")
    refused(scene, "exim@n2", Rule.CONFLICTS)


def test_a_conflict_of_two_abstract_roles_holds_for_all_that_provide_them() -> None:
    scene = Scene("mta flags=abstract conflicts=mda", "mda flags=abstract", "exim provides=mta", "dovecot provides=mda")
    scene.bind("exim@n1")
    refused(scene, "dovecot@n1", Rule.CONFLICTS, "'exim'", "'mta'", "'mda'")


def test_a_conflict_with_a_role_that_can_be_bound_is_with_that_one_alone() -> None:
    scene = Scene("exim conflicts=sendmail", "sendmail", "postfix provides=sendmail")
    scene.bind("exim@n1", "postfix@n1")
    refused(scene, "sendmail@n1", Rule.CONFLICTS, "'exim'")


def test_a_role_that_conflicts_with_what_it_pulls_in_is_refused() -> None:
    refused(Scene("a requires=b conflicts=b", "b"), "a@n1", Rule.CONFLICTS)


@pytest.mark.parametrize(("first", "second"), [("db", "pg"), ("pg", "db")])
def test_a_role_and_its_provider_cannot_share_a_node(first: str, second: str) -> None:
    scene = Scene("db", "pg provides=db")
    scene.bind(f"{first}@n1")
    refused(scene, f"{second}@n1", Rule.PROVIDES_SAME_NODE, "'pg' provides 'db'")


def test_a_provides_pair_cannot_be_parent_and_child() -> None:
    scene = Scene("db", "pg provides=db requires=old", "old requires=db")
    scene.bind("db@n2")
    refused(scene, "pg@n1", Rule.PROVIDES_LINEAGE, "'pg'", "'db'")


def test_a_provides_pair_cannot_be_distant_ancestor_and_descendant() -> None:
    scene = Scene("db", "a requires=db", "b requires=a", "pg provides=db requires=b")
    scene.bind("b@n2")
    refused(scene, "pg@n1", Rule.PROVIDES_LINEAGE)


def test_a_new_member_cannot_bring_a_provides_pair_into_line() -> None:
    scene = Scene("db flags=cluster requires=store", "store", "x provides=store", "web requires=db provides=x")
    scene.bind("store@n1", "db@n1", "web@n3", "x@n2")
    refused(scene, "db@n2", Rule.PROVIDES_LINEAGE, "'web'", "'x'")


def test_a_new_member_cannot_stand_on_what_stands_on_its_cluster() -> None:
    scene = Scene(
        "store flags=abstract",
        "local provides=store",
        "nfs provides=store requires=db",
        "db flags=cluster requires=store",
    )
    scene.bind("local@n1", "db@n1", "nfs@n2")
    refused(scene, "db@n2", Rule.CYCLE, "db on n2", "nfs on n2")


def test_what_is_proposed_in_another_deployment_is_a_conflict_that_names_it() -> None:
    scene = Scene("web", deployments="d e")
    scene.bind("web@n1")
    refused(scene, "web@n1", Rule.PROPOSED_ELSEWHERE, "'d'", into="e")


def test_what_is_being_removed_cannot_be_bound_again_before_it_is_gone() -> None:
    scene = Scene("web", "dns flags=service")
    scene.bind("web@n1", "dns@n1")
    scene.commit()
    scene.doom("web@n1")
    scene.doom("dns@d-phantom")
    refused(scene, "web@n1", Rule.BUSY, "web on n1")
    refused(scene, "dns@n2", Rule.BUSY, "dns on d-phantom")


def test_a_destructive_role_cannot_be_bound_to_an_admin_node() -> None:
    scene = Scene("install flags=destructive", nodes="n1! n2")
    refused(scene, "install@n1", Rule.DESTRUCTIVE_ON_ADMIN, "n1")
    scene.bind("install@n2")


def test_an_ordinary_role_cannot_be_bound_to_a_phantom_node() -> None:
    refused(Scene("web"), "web@d-phantom", Rule.PHANTOM)


def test_an_implicit_role_cannot_be_bound_to_the_phantom_node_of_another_deployment() -> None:
    refused(Scene("base flags=implicit"), "base@system-phantom", Rule.PHANTOM, "'system'")


def test_a_service_cannot_pull_an_ordinary_role_onto_its_phantom_node() -> None:
    scene = Scene("dns flags=service requires=db", "db")
    refused(scene, "dns@n1", Rule.UNRESOLVED, "'db'", "machine")
    scene.bind("db@n1", "dns@n1")
    assert scene.parents("dns@d-phantom") == {"db@n1"}


def test_a_node_of_another_branch_cannot_be_bound() -> None:
    scene = Scene("web", nodes="n1:e n2:d", deployments="d e")
    refused(scene, "web@n1", Rule.NODE_ELSEWHERE, "'e'")
    scene.bind("web@n2", into="e")


def test_what_the_server_binds_in_the_root_reaches_the_nodes_of_every_deployment() -> None:
    scene = Scene("net", nodes="n1:e n2:d n3", deployments="d e")
    plan = scene.bind("net@n1", "net@n2", "net@n3", into="system")
    assert {noderole.deployment_id for noderole in plan.created} == {scene.deployments["system"]}


def test_a_refused_circle_of_unchecked_roles_names_it() -> None:
    refused(Scene("a requires=b", "b requires=a"), "a@n1", Rule.CYCLE, "a -> b -> a")


def test_what_binding_makes_is_proposed() -> None:
    scene = Scene("web requires=db", "db")
    assert {noderole.state for noderole in scene.bind("web@n1").created} == {PROPOSED}


# --- many targets, each by itself


def contested() -> Scene:
    """Return a scene for targets of every kind: a cluster with children, a rival, a provides pair, an admin node."""
    scene = Scene(
        "db flags=cluster requires=sql", "web requires=db,base", "base flags=implicit", "front requires=web",
        "rival conflicts=web", "pg provides=sql requires=base", "sql", "shop requires=sql", "abstract flags=abstract",
        "lost requires=nowhere", "desk jig=off", "wipe flags=destructive", "log flags=service", "watched requires=log",
        nodes="n1 n2 n3 n4 boss!", deployments="d",
    )  # fmt: skip
    scene.bind("db@n1", "web@n2", "front@n2")
    scene.commit()
    scene.bind("rival@n3", "pg@n4", "db@n2")
    return scene


def test_each_target_is_answered_as_if_it_were_the_only_one_and_the_graph_stays() -> None:
    scene = contested()
    home = scene.deployments["d"]
    places = [(node, role) for node in scene.nodes.values() for role in scene.catalogue.roles]
    targets = [[place] for place in places] + [places[first : first + 3] for first in range(0, len(places), 2)]

    def alone(target: list[tuple[int, str]]) -> BindPlan | tuple[Rule, str]:
        try:
            return bind(contested().graph, scene.catalogue, home, target)
        except Conflict as refused:
            return refused.rule, refused.message

    answers = bind_each(scene.graph, scene.catalogue, home, targets)
    comparable = [answer if isinstance(answer, BindPlan) else (answer.rule, answer.message) for answer in answers]
    assert comparable == [alone(target) for target in targets]
    refusals = {answer.rule for answer in answers if isinstance(answer, Conflict)}
    assert refusals >= {Rule.CONFLICTS, Rule.ABSTRACT, Rule.UNRESOLVED, Rule.JIG_INACTIVE, Rule.DESTRUCTIVE_ON_ADMIN}
    assert any(isinstance(answer, BindPlan) and answer.recohorted for answer in answers)
    assert scene.graph.noderoles == contested().graph.noderoles
