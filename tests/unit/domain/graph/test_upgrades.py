"""Upgrades: the parents that a bound noderole keeps, gains and loses when its role changed."""

import pytest
from tests.unit.domain.scene import Scene, catalogue

from rackwright.domain.catalogue import Attrib
from rackwright.domain.errors import Conflict, Rule
from rackwright.domain.graph.upgrades import UpgradePlan, is_outdated, plan_upgrade, wiring


def upgraded(scene: Scene, *roles: str, attribs: tuple[Attrib, ...] = ()) -> UpgradePlan:
    """Return what the roles of a new barclamp change in a scene in which all is committed."""
    scene.commit()
    new = catalogue(*roles, attribs=attribs)
    graph = scene.graph
    outdated: dict[int, dict[str, int]] = {
        id: {}
        for id, noderole in graph.noderoles.items()
        if is_outdated(new, noderole, [graph.noderoles[parent] for parent in graph.parents(id)], {})
    }
    return plan_upgrade(graph, new, scene.deployments["d"], (), outdated)


def test_parent_that_still_answers_a_need_is_kept_though_binding_would_choose_another() -> None:
    scene = Scene("web requires=db", "pg provides=db", "db")
    scene.bind("pg@n2")
    scene.bind("web@n1")
    scene.bind("pg@n1")
    upgraded(scene, "web requires=db,cache", "pg provides=db", "db", "cache")
    assert scene.parents("web@n1") == {"pg@n2", "cache@n1"}


def test_implicit_need_is_not_answered_by_a_parent_on_another_node() -> None:
    scene = Scene("web requires=pg", "pg provides=db", "db flags=implicit")
    scene.bind("pg@n2")
    scene.bind("web@n1")
    upgraded(scene, "web requires=pg,db", "pg provides=db", "db flags=implicit")
    assert scene.parents("web@n1") == {"pg@n2", "db@n1"}


def test_cluster_is_gained_and_lost_with_all_its_members() -> None:
    scene = Scene("web", "ring flags=cluster")
    scene.bind("ring@n1", "ring@n2", "web@n3")
    plan = upgraded(scene, "web requires=ring", "ring flags=cluster")
    assert scene.parents("web@n3") == {"ring@n1", "ring@n2"}
    assert [scene.names(relinked.gained) for relinked in plan.relinked] == [{"ring@n1", "ring@n2"}]
    upgraded(scene, "web", "ring flags=cluster")
    assert scene.parents("web@n3") == set()


def test_dependency_may_turn_round() -> None:
    scene = Scene("web requires=db", "db")
    scene.bind("web@n1")
    upgraded(scene, "web", "db requires=web")
    assert (scene.parents("web@n1"), scene.parents("db@n1")) == (set(), {"web@n1"})


def test_need_that_only_a_descendant_answers_is_refused_as_a_circle() -> None:
    scene = Scene("web", "pg requires=web provides=db", "db")
    scene.bind("pg@n1")
    with pytest.raises(Conflict, match=r"web on n1.*pg on n1") as refused:
        upgraded(scene, "web requires=db", "pg requires=web provides=db", "db")
    assert refused.value.rule is Rule.CYCLE


def test_provides_pair_may_not_become_ancestor_and_descendant_further_below() -> None:
    scene = Scene("pg provides=db requires=web", "db", "glue requires=db", "web")
    scene.bind("glue@n2", "pg@n1")
    with pytest.raises(Conflict, match=r"pg on n1.*db") as refused:
        upgraded(scene, "pg provides=db requires=web", "db", "glue requires=db", "web requires=glue")
    assert refused.value.rule is Rule.PROVIDES_LINEAGE


def test_wanted_attrib_is_linked_to_the_parent_that_answers_for_it() -> None:
    scene = Scene("web requires=db", "db")
    scene.bind("web@n1")
    size = Attrib("size", "test", ("size",), role="db")
    [relinked] = upgraded(scene, "web requires=db wants=size", "db", attribs=(size,)).relinked
    assert (relinked.gained, relinked.lost) == ((), ())
    assert [(link.attrib, scene.name(link.parent)) for link in relinked.links] == [("size", "db@n1")]


def test_wiring_changes_with_needs_and_who_may_answer_them_only() -> None:
    first = catalogue("web requires=db", "db", "other")
    assert wiring(first, "web") == wiring(catalogue("web requires=db conflicts=other", "db", "other"), "web")
    assert wiring(first, "web") != wiring(catalogue("web requires=db", "db", "other provides=db"), "web")
