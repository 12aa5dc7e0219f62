"""Each rule of the role model: conflicts, provides with its restrictions and attribs, and what roles require."""

import pytest
from tests.integration.store.graph.web_deployment import web
from tests.support.rack import Rack, refused

from rackwright.domain.errors import Invalid, Rule
from rackwright.domain.states import PROPOSED, TODO

# --- conflicts


@pytest.mark.parametrize(
    ("first", "second"),
    [("test-conflict-says", "test-conflict-silent"), ("test-conflict-silent", "test-conflict-says")],
)
async def test_conflicts_cannot_be_bound_to_one_node(rack: Rack, first: str, second: str) -> None:
    await web(rack, "n1")
    await rack.bind("web", ("n1", first))
    with refused(Rule.CONFLICTS, first, second, "n1.rack.example"):
        await rack.bind("web", ("n1", second))
    assert second not in await rack.on("n1")


async def test_conflicts_asked_for_together_bind_neither(rack: Rack) -> None:
    await web(rack, "n1")
    before = await rack.everything()
    with refused(Rule.CONFLICTS, "test-conflict-says", "test-conflict-silent"):
        await rack.bind("web", ("n1", "test-conflict-says"), ("n1", "test-conflict-silent"))
    assert await rack.everything() == before


async def test_conflicts_may_be_bound_to_two_nodes(rack: Rack) -> None:
    await web(rack, "n1", "n2")
    await rack.deploy("web", ("n1", "test-conflict-says"), ("n2", "test-conflict-silent"))
    assert await rack.states(("n1", "test-conflict-says"), ("n2", "test-conflict-silent")) == [TODO, TODO]


async def test_conflicts_hold_against_what_another_deployment_bound_there(rack: Rack) -> None:
    await web(rack, "n1")
    await rack.deployment("below", "web")
    await rack.deploy("web", ("n1", "test-conflict-says"))
    with refused(Rule.CONFLICTS, "test-conflict-says"):
        await rack.bind("below", ("n1", "test-conflict-silent"))


async def test_conflicts_hold_for_what_is_pulled_in(rack: Rack) -> None:
    await rack.import_text("""
        name: pulls
        roles:
          - {name: pulls, jig: noop, requires: [pulled]}
          - {name: pulled, jig: noop, conflicts: [test-milestone]}
    """)
    await web(rack, "n1")
    await rack.bind("web", ("n1", "test-milestone"))
    with refused(Rule.CONFLICTS, "pulled", "test-milestone"):
        await rack.bind("web", ("n1", "pulls"))
    assert "pulls" not in await rack.on("n1")


# --- provides


async def test_provides_lets_a_role_be_used_in_place_of_another_on_the_same_node(rack: Rack) -> None:
    await web(rack, "n1")
    await rack.bind("web", ("n1", "test-provider"), ("n1", "test-provided-child"))
    assert await rack.parents("n1", "test-provided-child") == {("n1", "test-provider")}
    assert "test-provided" not in await rack.on("n1")


async def test_provides_lets_a_role_be_used_in_place_of_another_from_elsewhere_in_the_deployment(rack: Rack) -> None:
    await web(rack, "n1", "n2")
    await rack.bind("web", ("n1", "test-provider"), ("n2", "test-provided-child"))
    assert await rack.parents("n2", "test-provided-child") == {("n1", "test-provider")}


async def test_provides_is_second_to_the_role_itself(rack: Rack) -> None:
    await web(rack, "n1", "n2", "n3")
    await rack.bind("web", ("n1", "test-provider"), ("n2", "test-provided"), ("n3", "test-provided-child"))
    assert await rack.parents("n3", "test-provided-child") == {("n2", "test-provided")}


@pytest.mark.parametrize(("first", "second"), [("test-provider", "test-provided"), ("test-provided", "test-provider")])
async def test_provides_pair_cannot_be_bound_to_one_node(rack: Rack, first: str, second: str) -> None:
    await web(rack, "n1")
    await rack.bind("web", ("n1", first))
    with refused(Rule.PROVIDES_SAME_NODE, "test-provider", "test-provided", "n1.rack.example"):
        await rack.bind("web", ("n1", second))
    assert second not in await rack.on("n1")


async def test_provides_pair_may_be_bound_to_two_nodes(rack: Rack) -> None:
    await web(rack, "n1", "n2")
    await rack.deploy("web", ("n1", "test-provider"), ("n2", "test-provided"))
    assert await rack.states(("n1", "test-provider"), ("n2", "test-provided")) == [TODO, TODO]


async def test_provides_pair_cannot_be_direct_parent_and_child(rack: Rack) -> None:
    await rack.import_text("""
        name: lineage
        roles:
          - {name: stands-on-its-like, jig: noop, requires: [test-abstract], provides: [test-concrete]}
    """)
    await web(rack, "n1", "n2")
    await rack.bind("web", ("n1", "test-concrete"))
    with refused(Rule.PROVIDES_LINEAGE, "stands-on-its-like", "test-concrete", "n1.rack.example"):
        await rack.bind("web", ("n2", "stands-on-its-like"))
    assert "stands-on-its-like" not in await rack.on("n2")


async def test_provides_pair_cannot_be_indirect_parent_and_child(rack: Rack) -> None:
    await web(rack, "n1", "n2", "n3")
    await rack.bind("web", ("n1", "test-lineage-start"), ("n2", "test-lineage-middle"))
    before = await rack.everything()
    with refused(Rule.PROVIDES_LINEAGE, "test-lineage-start", "test-lineage-end", "n3.rack.example"):
        await rack.bind("web", ("n3", "test-lineage-end"))
    assert await rack.everything() == before


async def test_provides_pair_cannot_become_parent_and_child_through_a_new_member_of_a_cluster(rack: Rack) -> None:
    await rack.import_text("""
        name: clustered
        roles:
          - {name: member, jig: noop, flags: [cluster], requires: [base]}
          - {name: base, jig: noop, flags: [implicit], requires: [floor]}
          - {name: floor, jig: noop}
          - {name: floor-too, jig: noop, provides: [floor]}
          - {name: on-top, jig: noop, requires: [member], provides: [floor-too]}
    """)
    await web(rack, "n1", "n2", "n3")
    await rack.bind("web", ("n1", "member"), ("n3", "on-top"))
    await rack.bind("web", ("n2", "floor-too"))
    with refused(Rule.PROVIDES_LINEAGE, "on-top", "floor-too"):
        await rack.bind("web", ("n2", "member"))


async def test_attribs_of_the_provided_role_are_defaulted_on_the_provider(rack: Rack) -> None:
    await rack.import_text("""
        name: bare
        roles:
          - {name: bare-provider, jig: noop, provides: [test-provided]}
    """)
    await web(rack, "n1", "n2")
    await rack.bind("web", ("n1", "bare-provider"), ("n2", "test-provided-child"))
    assert (await rack.staged("n1", "bare-provider"))["test"] == {"provided": "from the default"}
    assert (await rack.staged("n2", "test-provided-child"))["test"] == {"provided": "from the default"}


async def test_attribs_of_the_provided_role_are_read_from_the_provider(rack: Rack) -> None:
    await web(rack, "n1", "n2")
    await rack.bind("web", ("n1", "test-provider"), ("n2", "test-provided-child"))
    assert (await rack.staged("n2", "test-provided-child"))["test"] == {"provided": "from the provider's template"}


async def test_attribs_of_the_provided_role_are_set_on_the_provider(rack: Rack) -> None:
    await web(rack, "n1", "n2")
    await rack.bind("web", ("n1", "test-provider"), ("n2", "test-provided-child"))
    await rack.set_data("web", "n1", "test-provider", {"test": {"provided": "from a person"}})
    await rack.commit("web")
    assert (await rack.staged("n1", "test-provider"))["test"] == {"provided": "from a person"}
    assert (await rack.staged("n2", "test-provided-child"))["test"] == {"provided": "from a person"}


async def test_attribs_of_the_provided_role_are_validated_on_the_provider(rack: Rack) -> None:
    await web(rack, "n1")
    await rack.bind("web", ("n1", "test-provider"))
    with pytest.raises(Invalid, match="test-provided-value") as caught:
        await rack.set_data("web", "n1", "test-provider", {"test": {"provided": 5}})
    assert (caught.value.status, caught.value.pointer) == (422, "/test/provided")
    with pytest.raises(Invalid, match="test-provided-value"):
        await rack.set_role_data("web", "test-provider", {"test": {"provided": 5}})
    await rack.commit("web")
    assert (await rack.at("n1", "test-provider")).user_data == {}


async def test_provider_needs_nobody_else_for_an_attrib_of_what_it_provides(rack: Rack) -> None:
    await rack.import_text("""
        name: own
        roles:
          - {name: own-provider, jig: noop, provides: [test-provided], wants-attribs: [test-provided-value]}
    """)
    await web(rack, "n1")
    await rack.bind("web", ("n1", "own-provider"))
    assert await rack.parents("n1", "own-provider") == set()
    assert (await rack.staged("n1", "own-provider"))["test"] == {"provided": "from the default"}


# --- what else the graph is made by


async def test_cohorts_count_the_steps_from_the_top(rack: Rack) -> None:
    await web(rack, "n1")
    await rack.bind("web", ("n1", "test-grandchild"))
    cohorts = [(await rack.at("n1", role)).cohort for role in ("test-parent", "test-child", "test-grandchild")]
    assert cohorts == [0, 1, 2]


async def test_attached_role_is_required_by_its_host(rack: Rack) -> None:
    await web(rack, "n1")
    await rack.bind("web", ("n1", "test-host"))
    assert await rack.parents("n1", "test-host") == {("n1", "test-attached")}


async def test_client_role_of_the_jig_is_required_by_its_roles(rack: Rack) -> None:
    await web(rack, "n1")
    await rack.bind("web", ("n1", "test-remote-worker"))
    assert await rack.parents("n1", "test-remote-worker") == {("n1", "test-client")}


async def test_owner_of_a_wanted_attrib_is_required(rack: Rack) -> None:
    await web(rack, "n1", "n2")
    await rack.bind("web", ("n1", "test-parent"))
    await rack.bind("web", ("n2", "test-wanting"))
    assert await rack.parents("n2", "test-wanting") == {("n1", "test-parent")}


async def test_role_that_requires_one_not_imported_cannot_be_bound(rack: Rack) -> None:
    await web(rack, "n1")
    with refused(Rule.UNRESOLVED, "test-unresolved", "test-not-imported"):
        await rack.bind("web", ("n1", "test-unresolved"))
    await rack.import_text("name: late\nroles: [{name: test-not-imported, jig: noop}]")
    await rack.bind("web", ("n1", "test-unresolved"))
    assert await rack.state("n1", "test-unresolved") is PROPOSED


async def test_role_of_an_inactive_jig_cannot_be_bound(rack: Rack) -> None:
    await web(rack, "n1")
    with refused(Rule.JIG_INACTIVE, "test-inactive-worker", "test-inactive"):
        await rack.bind("web", ("n1", "test-inactive-worker"))


async def test_binding_again_gives_the_noderole_there_is(rack: Rack) -> None:
    await web(rack, "n1")
    first = await rack.bind("web", ("n1", "test-grandchild"))
    again = await rack.bind("web", ("n1", "test-grandchild"))
    assert (again.bound, again.created, again.edges) == (first.bound, [], [])
