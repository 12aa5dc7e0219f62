"""Removal: which noderoles are removed along with others, and which must not be orphaned."""

import pytest
from tests.unit.domain.scene import Scene

from rackwright.domain.errors import Conflict, Rule
from rackwright.domain.graph.removal import find_removed_noderoles
from rackwright.domain.states import ACTIVE


def gone(scene: Scene, *names: str) -> set[str]:
    return scene.names(find_removed_noderoles(scene.graph, scene.catalogue, [scene.id(name) for name in names]))


def orphans(scene: Scene, *names: str) -> str:
    with pytest.raises(Conflict) as refused:
        gone(scene, *names)
    assert refused.value.rule is Rule.ORPHANS
    return refused.value.message


def test_one_that_nothing_stands_on_goes_alone() -> None:
    scene = Scene("web requires=db", "db")
    scene.bind("web@n1")
    scene.commit()
    assert gone(scene, "web@n1") == {"web@n1"}


def test_all_that_stands_on_it_on_its_own_node_goes_along() -> None:
    scene = Scene("top requires=web", "web requires=db", "db")
    scene.bind("top@n1")
    scene.commit()
    assert gone(scene, "db@n1") == {"db@n1", "web@n1", "top@n1"}


def test_it_stays_if_something_on_another_node_stands_on_it() -> None:
    scene = Scene("web requires=db", "db")
    scene.bind("db@n1", "web@n2")
    scene.commit()
    assert "web on n2" in orphans(scene, "db@n1")


def test_it_stays_if_something_of_another_deployment_stands_on_it_on_its_own_node() -> None:
    scene = Scene("web requires=db", "db", deployments="d e")
    scene.bind("db@n1")
    scene.commit()
    scene.bind("web@n1", into="e")
    scene.commit()
    assert "web on n1" in orphans(scene, "db@n1")


def test_what_is_only_proposed_goes_along_wherever_it_is() -> None:
    scene = Scene("web requires=db", "db", deployments="d e")
    scene.bind("db@n1")
    scene.commit()
    scene.bind("web@n2", into="e")
    assert gone(scene, "db@n1") == {"db@n1", "web@n2"}


def test_a_distant_dependant_counts() -> None:
    scene = Scene("top requires=web", "web requires=db", "db")
    scene.bind("db@n1", "web@n1", "top@n2")
    scene.commit()
    assert "top on n2" in orphans(scene, "db@n1")


def test_removed_together_they_do_not_orphan_each_other() -> None:
    scene = Scene("web requires=db", "db")
    scene.bind("db@n1", "web@n2")
    scene.commit()
    assert gone(scene, "db@n1", "web@n2") == {"db@n1", "web@n2"}


def cluster() -> Scene:
    scene = Scene("web requires=db", "db flags=cluster")
    scene.bind("db@n1", "db@n2", "web@n3")
    return scene


def test_a_member_of_a_cluster_may_go_while_another_stays() -> None:
    scene = cluster()
    scene.commit()
    assert gone(scene, "db@n1") == {"db@n1"}


def test_the_last_member_of_a_cluster_does_not_go_from_under_its_children() -> None:
    scene = cluster()
    scene.commit()
    assert "web on n3" in orphans(scene, "db@n1", "db@n2")


def test_a_member_that_is_only_proposed_does_not_hold_up_what_is_committed() -> None:
    scene = cluster()
    scene.become(ACTIVE, "db@n1", "web@n3")
    assert "web on n3" in orphans(scene, "db@n1")


def test_a_member_that_is_only_proposed_holds_up_what_is_proposed_too() -> None:
    scene = cluster()
    scene.become(ACTIVE, "db@n1")
    assert gone(scene, "db@n1") == {"db@n1"}


def test_a_member_that_is_being_removed_does_not_count_as_one_that_stays() -> None:
    scene = cluster()
    scene.commit()
    scene.doom("db@n2")
    assert "web on n3" in orphans(scene, "db@n1")


def test_another_of_the_same_role_holds_nothing_up_if_it_is_no_cluster() -> None:
    scene = Scene("web requires=db", "db")
    scene.bind("db@n1", "db@n2", "web@n3")
    scene.commit()
    scene.graph.link(scene.id("db@n2"), scene.id("web@n3"))
    assert "web on n3" in orphans(scene, "db@n1")


def test_members_of_another_role_do_not_hold_up() -> None:
    scene = Scene("web requires=db,cache", "db flags=cluster", "cache flags=cluster")
    scene.bind("db@n1", "cache@n2", "web@n3")
    scene.commit()
    assert "web on n3" in orphans(scene, "db@n1")


def test_members_that_go_along_with_different_noderoles_count_together() -> None:
    scene = Scene("base flags=implicit", "db flags=cluster requires=base", "web requires=db")
    scene.bind("db@n1", "db@n2", "web@n3")
    scene.become(ACTIVE, "base@n1", "base@n2", "db@n1", "db@n2")
    assert gone(scene, "base@n1") == {"base@n1", "db@n1"}
    assert gone(scene, "base@n1", "base@n2") == {"base@n1", "db@n1", "base@n2", "db@n2", "web@n3"}
