"""Each rule of deployments: the system deployment, workload deployments and their tree, data, and the commit."""

import pytest
from tests.integration.store.graph.web_deployment import web
from tests.support.rack import SYSTEM, Rack, refused, unbroken

from rackwright.domain.errors import Invalid, NotFound, Rule
from rackwright.domain.graph.snapshots import ShownState
from rackwright.domain.states import ACTIVE, BLOCKED, ERROR, PROPOSED, TODO
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph.deployments import delete_deployment
from rackwright.store.machines.nodes import get_node

# --- the system deployment


async def test_system_deployment_cannot_be_proposed(rack: Rack) -> None:
    with refused(Rule.SYSTEM, "system"):
        await rack.propose(SYSTEM)


async def test_system_deployment_cannot_be_recalled(rack: Rack) -> None:
    with refused(Rule.SYSTEM, "system"):
        await rack.recall(SYSTEM)
    assert not (await rack.record(SYSTEM)).held


async def test_system_deployment_cannot_be_bound_to_by_a_person(rack: Rack) -> None:
    await rack.node("n1")
    before = await rack.everything()
    with refused(Rule.SYSTEM, "bootstrap", "discovery"):
        await rack.bind(SYSTEM, ("n1", "test-milestone"))
    assert await rack.everything() == before


async def test_system_deployment_cannot_be_committed_or_discarded(rack: Rack) -> None:
    with refused(Rule.SYSTEM):
        await rack.commit(SYSTEM)
    with refused(Rule.SYSTEM):
        await rack.discard(SYSTEM)


async def test_system_deployment_is_always_committed(rack: Rack) -> None:
    await rack.node("n1")
    record = await rack.record(SYSTEM)
    assert record.head_id is not None
    assert record.proposed_id is None
    assert PROPOSED not in record.counts


async def test_system_deployment_cannot_be_deleted(rack: Rack) -> None:
    with refused(Rule.SYSTEM, "system"):
        await rack.do(lambda session: delete_deployment(session, SYSTEM))


async def test_system_deployment_is_where_a_new_node_is(rack: Rack) -> None:
    await rack.node("n1")
    async with rack.store.read() as session:
        assert (await get_node(session, "n1.rack.example", EVERYTHING)).deployment == SYSTEM


# --- workload deployments


async def test_workload_deployment_hosts_other_noderoles_than_discovery_and_bootstrap(rack: Rack) -> None:
    await web(rack, "n1")
    await rack.deploy("web", ("n1", "test-milestone"))
    assert (await rack.at("n1", "test-milestone")).deployment == "web"
    assert (await rack.at("n1", "test-discovery")).deployment == SYSTEM


async def test_workload_deployment_is_below_the_system_deployment_unless_said_otherwise(rack: Rack) -> None:
    await rack.deployment("web")
    await rack.deployment("shop", "web")
    await rack.deployment("cart", "shop")
    system, web_, shop, cart = [await rack.record(name) for name in (SYSTEM, "web", "shop", "cart")]
    assert (web_.parent_id, shop.parent_id, cart.parent_id) == (system.id, web_.id, shop.id)


async def test_workload_deployment_finds_what_it_requires_in_those_above_it(rack: Rack) -> None:
    await web(rack, "n1", "n2", "n3")
    await rack.deployment("shop", "web")
    await rack.deploy("web", ("n1", "test-parent"))
    await rack.bind("shop", ("n2", "test-child"))
    assert await rack.parents("n2", "test-child") == {("n1", "test-parent")}
    assert "test-parent" not in await rack.on("n2")


async def test_workload_deployment_prefers_its_own_to_those_above_it(rack: Rack) -> None:
    await web(rack, "n1", "n2", "n3")
    await rack.deployment("shop", "web")
    await rack.deploy("web", ("n1", "test-parent"))
    await rack.bind("shop", ("n2", "test-parent"), ("n3", "test-child"))
    assert await rack.parents("n3", "test-child") == {("n2", "test-parent")}


async def test_workload_deployment_does_not_see_its_siblings(rack: Rack) -> None:
    await web(rack, "n1", "n2")
    await rack.deployment("other")
    await rack.deploy("other", ("n1", "test-parent"))
    await rack.bind("web", ("n2", "test-child"))
    assert await rack.parents("n2", "test-child") == {("n2", "test-parent")}


async def test_workload_deployment_does_not_see_proposals_of_those_above_it(rack: Rack) -> None:
    await web(rack, "n1", "n2")
    await rack.deployment("shop", "web")
    await rack.bind("web", ("n1", "test-parent"))
    await rack.bind("shop", ("n2", "test-child"))
    assert await rack.parents("n2", "test-child") == {("n2", "test-parent")}


async def test_place_proposed_elsewhere_cannot_be_proposed_again(rack: Rack) -> None:
    await web(rack, "n1")
    await rack.deployment("other")
    await rack.bind("other", ("n1", "test-milestone"))
    with refused(Rule.PROPOSED_ELSEWHERE, "test-milestone", "n1.rack.example", "other"):
        await rack.bind("web", ("n1", "test-milestone"))


async def test_deployment_name_is_taken_once(rack: Rack) -> None:
    await rack.deployment("web")
    with refused(Rule.EXISTS, "web"):
        await rack.deployment("web")
    with pytest.raises(Invalid):
        await rack.deployment("Not A Name")
    with pytest.raises(NotFound):
        await rack.deployment("shop", "nowhere")


async def test_deployment_with_one_below_it_cannot_be_deleted(rack: Rack) -> None:
    await rack.deployment("web")
    await rack.deployment("shop", "web")
    with refused(Rule.HAS_CHILDREN, "web", "shop"):
        await rack.do(lambda session: delete_deployment(session, "web"))


async def test_deployment_with_a_run_under_way_cannot_be_deleted(rack: Rack) -> None:
    await web(rack, "n1")
    await rack.deploy("web", ("n1", "test-milestone"))
    [run] = await rack.claim()
    with refused(Rule.BUSY, "web"):
        await rack.do(lambda session: delete_deployment(session, "web"))
    await rack.finish(run)
    await rack.do(lambda session: delete_deployment(session, "web"))


async def test_deleted_deployment_gives_its_nodes_to_its_parent_and_takes_its_noderoles_along(rack: Rack) -> None:
    await web(rack, "n1", "n2")
    await rack.deployment("shop", "web")
    await rack.deploy("shop", ("n1", "test-service-child"), ("n2", "test-cluster-child"))
    await rack.propose("shop")
    await rack.bind("shop", ("n1", "test-milestone"))
    await rack.do(lambda session: delete_deployment(session, "shop"))
    async with rack.store.read() as session:
        assert (await get_node(session, "n1.rack.example", EVERYTHING)).deployment == "web"
    assert await rack.on("n1") == {"crowbar-managed-node", "ssh-access", "test-discovery"}
    assert await rack.rows("SELECT name FROM nodes WHERE name LIKE 'shop%'") == []
    await unbroken(rack)


async def test_deleted_deployment_tells_of_each_noderole_it_took_along(rack: Rack) -> None:
    await web(rack, "n1")
    await rack.deploy("web", ("n1", "test-child"))
    await rack.do(lambda session: delete_deployment(session, "web"))
    events = await rack.rows("SELECT data ->> 'role' FROM events WHERE kind = 'noderole.removed' ORDER BY 1")
    assert events == [("test-child",), ("test-parent",)]


# --- data


async def test_deployment_role_data_is_the_default_of_its_noderoles(rack: Rack) -> None:
    await web(rack, "n1", "n2")
    await rack.bind("web", ("n1", "test-wanting"), ("n2", "test-wanting"))
    await rack.set_role_data("web", "test-wanting", {"test": {"own": 1}})
    await rack.commit("web")
    for node in ("n1", "n2"):
        assert await rack.value(node, "test-wanting", "test/own") == 1


async def test_noderole_data_overrides_the_deployment_roles(rack: Rack) -> None:
    await web(rack, "n1", "n2")
    await rack.bind("web", ("n1", "test-wanting"), ("n2", "test-wanting"))
    await rack.set_role_data("web", "test-wanting", {"test": {"own": 1}})
    await rack.set_data("web", "n2", "test-wanting", {"test": {"own": 2}})
    await rack.commit("web")
    assert await rack.value("n1", "test-wanting", "test/own") == 1
    assert await rack.value("n2", "test-wanting", "test/own") == 2


async def test_data_counts_only_once_committed(rack: Rack) -> None:
    await web(rack, "n1")
    await rack.deploy("web", ("n1", "test-wanting"))
    await rack.anneal()
    await rack.propose("web")
    await rack.set_role_data("web", "test-wanting", {"test": {"own": 1}})
    assert await rack.value("n1", "test-wanting", "test/own") == 7
    assert await rack.state("n1", "test-wanting") is ACTIVE
    await rack.commit("web")
    assert await rack.value("n1", "test-wanting", "test/own") == 1


async def test_changed_deployment_role_data_runs_its_noderoles_and_their_takers_again(rack: Rack) -> None:
    await web(rack, "n1", "n2", "n3")
    await rack.deploy("web", ("n1", "test-parent"), ("n2", "test-wanting"), ("n3", "test-child"))
    await rack.anneal()
    await rack.propose("web")
    await rack.set_role_data("web", "test-parent", {"test": {"templated": "changed"}})
    planned = await rack.plan("web")
    assert [(line.role, line.because) for line in planned.rerun] == [
        ("test-parent", "data of deployment-role test-parent changed"),
        ("test-wanting", "it takes inputs from test-parent on n1.rack.example"),
    ]
    await rack.commit("web", planned.digest)
    assert await rack.states(("n1", "test-parent"), ("n2", "test-wanting"), ("n3", "test-child")) == [
        TODO,
        BLOCKED,
        ACTIVE,
    ]
    assert await rack.anneal() == [("n1", "test-parent"), ("n2", "test-wanting")]


async def test_what_failed_runs_again_when_a_commit_changes_what_it_takes(rack: Rack) -> None:
    await web(rack, "n1", "n2")
    await rack.deploy("web", ("n1", "test-parent"), ("n2", "test-wanting"))
    await rack.finish(*await rack.claim())
    await rack.finish(*await rack.claim(), ok=False)
    assert await rack.states(("n1", "test-parent"), ("n2", "test-wanting")) == [ACTIVE, ERROR]
    await rack.propose("web")
    await rack.set_data("web", "n1", "test-parent", {"test": {"templated": "mended"}})
    planned = await rack.plan("web")
    assert [line.role for line in planned.rerun] == ["test-parent", "test-wanting"]
    await rack.commit("web", planned.digest)
    assert await rack.states(("n1", "test-parent"), ("n2", "test-wanting")) == [TODO, BLOCKED]
    assert await rack.anneal() == [("n1", "test-parent"), ("n2", "test-wanting")]


async def test_data_that_does_not_fit_the_schema_is_refused_with_a_pointer(rack: Rack) -> None:
    await web(rack, "n1")
    await rack.bind("web", ("n1", "test-wanting"))
    with pytest.raises(Invalid, match="test-wanting-own") as caught:
        await rack.set_role_data("web", "test-wanting", {"test": {"own": 101}})
    assert caught.value.pointer == "/test/own"
    with pytest.raises(Invalid, match=r"test-parent-result.*read-only"):
        await rack.set_role_data("web", "test-parent", {"test": {"result": "mine"}})


# --- the commit


async def test_commit_takes_freshly_bound_noderoles_to_todo_or_blocked(rack: Rack) -> None:
    await web(rack, "n1")
    await rack.bind("web", ("n1", "test-child"))
    assert await rack.states(("n1", "test-parent"), ("n1", "test-child")) == [PROPOSED, PROPOSED]
    assert await rack.claim() == []
    await rack.commit("web")
    assert await rack.states(("n1", "test-parent"), ("n1", "test-child")) == [TODO, BLOCKED]
    assert await rack.anneal() == [("n1", "test-parent"), ("n1", "test-child")]
    assert await rack.states(("n1", "test-parent"), ("n1", "test-child")) == [ACTIVE, ACTIVE]


async def test_commit_brings_the_nodes_into_the_deployment(rack: Rack) -> None:
    await web(rack, "n1")
    await rack.bind("web", ("n1", "test-milestone"))
    planned = await rack.plan("web")
    assert planned.moved == ("n1.rack.example",)
    await rack.commit("web", planned.digest)
    async with rack.store.read() as session:
        assert (await get_node(session, "n1.rack.example", EVERYTHING)).deployment == "web"


async def test_commit_makes_the_proposal_head_and_archives_the_old_head(rack: Rack) -> None:
    await web(rack, "n1")
    await rack.deploy("web", ("n1", "test-milestone"))
    first = (await rack.record("web")).head_id
    await rack.deploy("web", ("n1", "test-powersave"))
    record = await rack.record("web")
    assert record.proposed_id is None
    assert await rack.rows("SELECT id, state FROM snapshots WHERE deployment_id = :id ORDER BY id", id=record.id) == [
        (first, "archived"),
        (record.head_id, "head"),
    ]


async def test_commit_with_the_digest_of_an_older_plan_is_refused(rack: Rack) -> None:
    await web(rack, "n1", "n2")
    await rack.bind("web", ("n1", "test-milestone"))
    seen = await rack.plan("web")
    await rack.bind("web", ("n2", "test-milestone"))
    before = await rack.everything()
    with refused(Rule.PLAN_CHANGED, "web"):
        await rack.commit("web", seen.digest)
    assert await rack.everything() == before
    await rack.commit("web", (await rack.plan("web")).digest)


async def test_commit_with_data_changed_since_the_plan_is_refused(rack: Rack) -> None:
    await web(rack, "n1")
    await rack.bind("web", ("n1", "test-wanting"))
    seen = await rack.plan("web")
    await rack.set_data("web", "n1", "test-wanting", {"test": {"own": 9}})
    with refused(Rule.PLAN_CHANGED):
        await rack.commit("web", seen.digest)


async def test_commit_works_bindings_out_again_where_the_graph_moved_on(rack: Rack) -> None:
    await web(rack, "n1", "n2")
    await rack.deployment("shop", "web")
    await rack.bind("web", ("n1", "test-parent"))
    await rack.bind("shop", ("n2", "test-child"))
    seen = await rack.plan("shop")
    await rack.commit("web")
    await rack.unbind("shop", ("n2", "test-parent"))
    await rack.bind("shop", ("n2", "test-child"))
    with refused(Rule.PLAN_CHANGED):
        await rack.commit("shop", seen.digest)
    await rack.commit("shop")
    assert await rack.parents("n2", "test-child") == {("n1", "test-parent")}
    await unbroken(rack)


async def test_plan_stays_good_where_another_commit_changed_nothing_for_it(rack: Rack) -> None:
    await web(rack, "n1", "n2")
    await rack.deployment("other")
    await rack.bind("web", ("n1", "test-grandchild"))
    seen = await rack.plan("web")
    await rack.deploy("other", ("n2", "test-milestone"))
    assert (await rack.plan("web")).digest == seen.digest
    await rack.commit("web", seen.digest)
    await unbroken(rack)


async def test_commit_for_a_node_that_another_deployment_took_meanwhile_is_refused(rack: Rack) -> None:
    await web(rack, "n1")
    await rack.deployment("other")
    await rack.bind("web", ("n1", "test-milestone"))
    await rack.bind("other", ("n1", "test-powersave"))
    await rack.commit("other")
    with refused(Rule.NODE_ELSEWHERE, "n1.rack.example", "other", "web"):
        await rack.commit("web")


async def test_commit_without_a_proposal_is_refused(rack: Rack) -> None:
    await web(rack, "n1")
    await rack.deploy("web", ("n1", "test-milestone"))
    with refused(Rule.NOT_PROPOSED, "web"):
        await rack.commit("web")


async def test_commit_removes_what_was_unbound(rack: Rack) -> None:
    await web(rack, "n1")
    await rack.deploy("web", ("n1", "test-grandchild"))
    await rack.anneal()
    await rack.propose("web")
    await rack.unbind("web", ("n1", "test-child"))
    assert await rack.state("n1", "test-grandchild") is ACTIVE
    planned = await rack.plan("web")
    assert [line.role for line in planned.removed] == ["test-child", "test-grandchild"]
    await rack.commit("web", planned.digest)
    assert await rack.on("n1") & {"test-parent", "test-child", "test-grandchild"} == {"test-parent"}


async def test_unbinding_what_another_node_stands_on_is_refused(rack: Rack) -> None:
    await web(rack, "n1", "n2")
    await rack.deploy("web", ("n1", "test-parent"), ("n2", "test-child"))
    await rack.propose("web")
    with refused(Rule.ORPHANS, "test-parent", "n1.rack.example", "test-child", "n2.rack.example"):
        await rack.unbind("web", ("n1", "test-parent"))


async def test_unbound_noderole_in_transition_goes_when_its_run_ends(rack: Rack) -> None:
    await web(rack, "n1")
    await rack.deploy("web", ("n1", "test-milestone"))
    [run] = await rack.claim()
    await rack.propose("web")
    await rack.unbind("web", ("n1", "test-milestone"))
    await rack.commit("web")
    assert (await rack.at("n1", "test-milestone")).doomed
    await rack.finish(run)
    assert "test-milestone" not in await rack.on("n1")


# --- propose, recall, discard


async def test_propose_copies_head_while_running_work_goes_on(rack: Rack) -> None:
    await web(rack, "n1")
    await rack.deploy("web", ("n1", "test-child"))
    await rack.propose("web")
    assert (await rack.plan("web")).empty
    assert await rack.anneal() == [("n1", "test-parent"), ("n1", "test-child")]


async def test_second_proposal_is_refused(rack: Rack) -> None:
    await rack.deployment("web")
    with refused(Rule.PROPOSAL_EXISTS, "web"):
        await rack.propose("web")


async def test_recall_holds_the_deployment_until_its_copy_is_committed(rack: Rack) -> None:
    await web(rack, "n1", "n2")
    await rack.deploy("web", ("n1", "test-child"), ("n2", "test-milestone"))
    running = await rack.claim(1)
    await rack.recall("web")
    assert (await rack.record("web")).state is ShownState.HELD
    await rack.finish(*running)
    assert await rack.state("n1", "test-parent") is ACTIVE
    assert await rack.claim() == []
    await rack.commit("web")
    assert (await rack.record("web")).state is ShownState.COMMITTED
    assert await rack.anneal() != []


async def test_recall_holds_the_deployment_until_its_copy_is_discarded(rack: Rack) -> None:
    await web(rack, "n1")
    await rack.deploy("web", ("n1", "test-milestone"))
    head = (await rack.record("web")).head_id
    await rack.recall("web")
    assert await rack.claim() == []
    await rack.discard("web")
    assert (await rack.record("web")).head_id == head
    assert await rack.anneal() == [("n1", "test-milestone")]


async def test_recall_is_refused_while_a_proposal_is_open_or_nothing_is_committed(rack: Rack) -> None:
    await web(rack, "n1")
    with refused(Rule.NOTHING_COMMITTED, "web"):
        await rack.recall("web")
    await rack.deploy("web", ("n1", "test-milestone"))
    await rack.propose("web")
    with refused(Rule.PROPOSAL_EXISTS, "web"):
        await rack.recall("web")
    assert not (await rack.record("web")).held


async def test_discard_takes_proposed_noderoles_away_and_leaves_committed_ones(rack: Rack) -> None:
    await web(rack, "n1")
    await rack.deploy("web", ("n1", "test-parent"))
    await rack.anneal()
    await rack.propose("web")
    await rack.bind("web", ("n1", "test-grandchild"))
    await rack.set_role_data("web", "test-parent", {"test": {"templated": "changed"}})
    await rack.unbind("web", ("n1", "test-grandchild"))
    await rack.discard("web")
    assert await rack.on("n1") & {"test-parent", "test-child", "test-grandchild"} == {"test-parent"}
    assert await rack.state("n1", "test-parent") is ACTIVE
    assert await rack.value("n1", "test-parent", "test/templated") == "from the template"


async def test_shown_state_is_proposed_committed_active_or_error(rack: Rack) -> None:
    await web(rack, "n1")
    assert (await rack.record("web")).state is ShownState.PROPOSED
    await rack.deploy("web", ("n1", "test-child"))
    assert (await rack.record("web")).state is ShownState.COMMITTED
    await rack.finish(*await rack.claim(), ok=False)
    assert (await rack.record("web")).state is ShownState.ERROR
    assert await rack.states(("n1", "test-parent"), ("n1", "test-child")) == [ERROR, BLOCKED]
