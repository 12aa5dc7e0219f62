"""Each rule of the role model about flags: what every flag of a role does."""

import pytest
from tests.integration.store.graph.web_deployment import web
from tests.support.rack import ADMIN, Rack, refused, unbroken

from rackwright.domain.catalogue import Flag
from rackwright.domain.errors import DigestRequired, Invalid, Rule
from rackwright.domain.graph.snapshots import CommitPlan
from rackwright.domain.states import ACTIVE, BLOCKED, ERROR, PROPOSED, TODO, Trigger
from rackwright.store.db.session import GraphSession
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph import commits
from rackwright.store.graph.deployments import get_deployment
from rackwright.store.graph.noderoles import retry_noderole
from rackwright.store.machines.nodes import record_boot, update_node

# --- implicit


async def test_implicit_parent_is_bound_to_the_same_node(rack: Rack) -> None:
    await web(rack, "n1", "n2")
    await rack.bind("web", ("n1", "test-implicit"))
    await rack.bind("web", ("n2", "test-implicit-child"))
    assert await rack.parents("n2", "test-implicit-child") == {("n2", "test-implicit")}


async def test_parent_that_is_not_implicit_is_found_on_another_node(rack: Rack) -> None:
    await web(rack, "n1", "n2")
    await rack.bind("web", ("n1", "test-parent"))
    await rack.bind("web", ("n2", "test-child"))
    assert await rack.parents("n2", "test-child") == {("n1", "test-parent")}


async def test_implicit_provider_on_the_node_stands_in_for_an_implicit_parent(rack: Rack) -> None:
    await web(rack, "n1")
    await rack.deployment("joined")
    await rack.import_text("""
        name: joined
        roles:
          - {name: stand-in, jig: noop, provides: [test-implicit]}
    """)
    await rack.bind("web", ("n1", "stand-in"), ("n1", "test-implicit-child"))
    assert await rack.parents("n1", "test-implicit-child") == {("n1", "stand-in")}


# --- bootstrap


async def test_bootstrap_role_is_bound_to_the_first_admin_node_and_committed(rack: Rack) -> None:
    assert await rack.on("admin") >= {"crowbar-admin-node", "test-bootstrap"}
    bound = await rack.at("admin", "test-bootstrap")
    assert (bound.node, bound.deployment, bound.state) == (ADMIN, "system", TODO)


async def test_bootstrap_role_that_is_imported_later_is_bound_to_the_admin_nodes(rack: Rack) -> None:
    await rack.node("n1")
    await rack.node("admin2", admin=True)
    await rack.deployment("web")
    await rack.deploy("web", ("admin2", "test-milestone"))  # its node lives there now
    late = "name: late\nroles:\n  - {name: late-start, jig: noop, flags: [bootstrap], requires: [late-base]}\n"
    await rack.import_text(late)
    assert "late-start" not in await rack.on("admin")  # what it requires is not imported
    await rack.import_text("name: base\nroles:\n  - {name: late-base, jig: noop, flags: [implicit]}\n")
    for admin in ("admin", "admin2"):
        assert await rack.on(admin) >= {"late-start", "late-base"}
        bound = await rack.at(admin, "late-start")
        assert (bound.deployment, bound.state.label) == ("system", "blocked")
    assert "late-start" not in await rack.on("n1")
    before = await rack.rows("SELECT count(*) FROM node_roles")
    await rack.import_text(late)
    assert await rack.rows("SELECT count(*) FROM node_roles") == before


async def test_discovery_role_that_is_imported_later_is_for_nodes_that_come_later(rack: Rack) -> None:
    await rack.node("n1")
    await rack.import_text("name: late\nroles:\n  - {name: late-found, jig: noop, flags: [discovery]}\n")
    await rack.node("n2")
    assert "late-found" not in await rack.on("n1")
    assert "late-found" in await rack.on("n2")


async def test_bootstrap_role_is_not_bound_to_a_discovered_node(rack: Rack) -> None:
    await rack.node("n1")
    assert not await rack.on("n1") & {"crowbar-admin-node", "test-bootstrap"}


# --- discovery


async def test_discovery_role_is_bound_to_every_new_node_and_committed(rack: Rack) -> None:
    for node in ("n1", "n2"):
        await rack.node(node)
        bound = await rack.at(node, "test-discovery")
        assert (bound.deployment, bound.state) == ("system", TODO)


async def test_discovery_role_pulls_in_what_it_requires(rack: Rack) -> None:
    await rack.node("n1")
    assert await rack.parents("n1", "crowbar-managed-node") == {("n1", "ssh-access")}


async def test_discovery_role_is_not_bound_to_the_admin_node(rack: Rack) -> None:
    assert not await rack.on("admin") & {"crowbar-managed-node", "test-discovery"}


# --- cluster


async def test_cluster_has_all_members_of_its_deployment_as_parents_of_a_child(rack: Rack) -> None:
    await web(rack, "n1", "n2", "n3")
    await rack.bind("web", ("n1", "test-cluster"), ("n2", "test-cluster"))
    await rack.bind("web", ("n3", "test-cluster-child"))
    assert await rack.parents("n3", "test-cluster-child") == {("n1", "test-cluster"), ("n2", "test-cluster")}


async def test_cluster_does_not_reach_into_another_deployment(rack: Rack) -> None:
    await web(rack, "n1", "n2", "n3")
    await rack.deployment("other")
    await rack.deploy("other", ("n1", "test-cluster"))
    await rack.bind("web", ("n2", "test-cluster"), ("n3", "test-cluster-child"))
    assert await rack.parents("n3", "test-cluster-child") == {("n2", "test-cluster")}


async def test_cluster_child_starts_only_when_every_member_is_active(rack: Rack) -> None:
    await web(rack, "n1", "n2", "n3")
    await rack.deploy("web", ("n1", "test-cluster"), ("n2", "test-cluster"), ("n3", "test-cluster-child"))
    first, second = await rack.claim()
    await rack.finish(first)
    assert await rack.state("n3", "test-cluster-child") is BLOCKED
    await rack.finish(second)
    assert await rack.state("n3", "test-cluster-child") is TODO
    await unbroken(rack)


async def test_cluster_holds_its_children_back_while_a_new_member_joins(rack: Rack) -> None:
    await web(rack, "n1", "n2", "n3")
    await rack.deploy("web", ("n1", "test-cluster"), ("n3", "test-cluster-child"))
    await rack.anneal()
    await rack.propose("web")
    await rack.bind("web", ("n2", "test-cluster"))
    assert await rack.state("n3", "test-cluster-child") is ACTIVE
    planned = await rack.plan("web")
    assert [(line.node, line.role) for line in planned.held_back] == [("n3.rack.example", "test-cluster-child")]
    await rack.commit("web", planned.digest)
    assert await rack.states(("n1", "test-cluster"), ("n2", "test-cluster"), ("n3", "test-cluster-child")) == [
        TODO,
        TODO,
        BLOCKED,
    ]
    await unbroken(rack)
    await rack.anneal()
    assert await rack.state("n3", "test-cluster-child") is ACTIVE


async def test_cluster_member_is_handed_all_members(rack: Rack) -> None:
    await web(rack, "n1", "n2")
    await rack.deploy("web", ("n1", "test-cluster"), ("n2", "test-cluster"))
    staged = await rack.staged("n1", "test-cluster")
    assert staged["cluster"] == {
        "members": [{"node": "n1.rack.example", "address": None}, {"node": "n2.rack.example", "address": None}]
    }


async def test_cluster_runs_again_when_a_member_leaves(rack: Rack) -> None:
    await web(rack, "n1", "n2", "n3")
    await rack.deploy("web", ("n1", "test-cluster"), ("n2", "test-cluster"), ("n3", "test-cluster-child"))
    await rack.anneal()
    await rack.propose("web")
    await rack.unbind("web", ("n2", "test-cluster"))
    await rack.commit("web")
    assert await rack.states(("n1", "test-cluster"), ("n3", "test-cluster-child")) == [TODO, BLOCKED]
    assert await rack.parents("n3", "test-cluster-child") == {("n1", "test-cluster")}
    await unbroken(rack)


async def test_cluster_and_implicit_exclude_each_other(rack: Rack) -> None:
    with pytest.raises(Invalid, match=r"(?s)cluster.*implicit"):
        await rack.import_text("name: both\nroles: [{name: both, jig: noop, flags: [cluster, implicit]}]")


# --- service


async def test_service_lands_on_the_phantom_node_of_its_deployment(rack: Rack) -> None:
    await web(rack, "n1")
    await rack.bind("web", ("n1", "test-service-child"))
    assert await rack.parents("n1", "test-service-child") == {("web", "test-service")}
    assert "test-service" not in await rack.on("n1")
    [phantom] = await rack.rows("SELECT system, alive, available FROM nodes WHERE name = 'web.services.internal'")
    assert phantom == (True, True, True)


async def test_service_asked_for_on_a_machine_still_lands_on_the_phantom_node(rack: Rack) -> None:
    await web(rack, "n1")
    await rack.bind("web", ("n1", "test-service"))
    assert (await rack.at("web", "test-service")).deployment == "web"


async def test_service_is_bound_once_in_a_deployment(rack: Rack) -> None:
    await web(rack, "n1", "n2")
    first = await rack.bind("web", ("n1", "test-service"))
    second = await rack.bind("web", ("n2", "test-service"))
    assert first.bound == second.bound


async def test_only_services_live_on_a_phantom_node(rack: Rack) -> None:
    await web(rack)
    with refused(Rule.PHANTOM, "test-milestone", "web.services.internal"):
        await rack.bind("web", ("web.services.internal", "test-milestone"))


# --- destructive


async def destroyed(rack: Rack) -> None:
    """Run a destructive noderole and its child, so that both are ACTIVE."""
    await web(rack, "n1")
    await rack.deploy("web", ("n1", "test-destructive-child"))
    await rack.anneal()
    assert await rack.states(("n1", "test-destructive"), ("n1", "test-destructive-child")) == [ACTIVE, ACTIVE]


async def test_destructive_is_not_run_again_by_a_reboot(rack: Rack) -> None:
    await destroyed(rack)
    node = await rack.node_id("n1")
    await rack.do(lambda session: record_boot(session, node, "second boot"))
    assert await rack.state("n1", "test-destructive") is ACTIVE
    ran = await rack.anneal()
    assert ("n1", "test-destructive-child") in ran
    assert ("n1", "test-destructive") not in ran


async def test_destructive_is_not_run_again_by_retry(rack: Rack) -> None:
    await destroyed(rack)
    id = (await rack.at("n1", "test-destructive")).id
    with refused(Rule.DESTRUCTIVE, "test-destructive", "n1.rack.example", "reinstall"):
        await rack.do(lambda session: retry_noderole(session, id))


async def test_destructive_is_not_run_again_by_a_commit_that_changes_its_data(rack: Rack) -> None:
    await destroyed(rack)
    await rack.propose("web")
    await rack.set_data("web", "n1", "test-destructive", {"os": "other"})
    planned = await rack.plan("web")
    assert planned.wiped == ()
    assert [line.role for line in planned.rerun] == ["test-destructive-child"]
    await rack.commit("web")
    assert await rack.state("n1", "test-destructive") is ACTIVE


async def test_the_plan_names_what_counts_only_from_the_next_destructive_run(rack: Rack) -> None:
    await rack.import_text("""
        name: below
        roles:
          - name: wipes
            jig: noop
            flags: [destructive]
            attribs:
              - {name: layout, map: wipes/layout, schema: {type: string}}
              - {name: wires, map: wipes/wires, schema: {type: string}}
          - {name: rewires, jig: noop, requires: [wipes], wants-attribs: [wires]}
    """)
    await web(rack, "n1")
    await rack.deploy("web", ("n1", "rewires"))
    await rack.anneal()
    await rack.propose("web")
    await rack.set_data("web", "n1", "wipes", {"wipes": {"wires": "other"}})
    assert (await rack.plan("web")).kept == ()
    await rack.set_data("web", "n1", "wipes", {"wipes": {"wires": "other", "layout": "other"}})
    planned = await rack.plan("web")
    [kept] = planned.kept
    assert (kept.role, kept.because) == ("wipes", "layout counts from its next run, which only a person begins")
    assert [line.role for line in planned.rerun] == ["rewires"]
    await rack.commit("web", planned.digest)
    assert await rack.state("n1", "wipes") is ACTIVE


async def test_destructive_is_not_run_again_by_a_changed_input(rack: Rack) -> None:
    await destroyed(rack)
    node = await rack.node_id("n1")
    await rack.do(lambda session: update_node(session, node, {"hint": {"test": {"hinted": "new"}}}))
    assert await rack.state("n1", "test-destructive") is ACTIVE


async def test_destructive_is_not_run_again_by_an_ancestor_that_fails(rack: Rack) -> None:
    await rack.import_text("""
        name: below
        roles:
          - {name: wipes, jig: noop, flags: [destructive], requires: [test-milestone]}
    """)
    await web(rack, "n1")
    await rack.deploy("web", ("n1", "wipes"))
    await rack.anneal()
    parent = (await rack.at("n1", "test-milestone")).id
    await rack.do(lambda session: retry_noderole(session, parent))
    await rack.finish(*await rack.claim(), ok=False)
    assert await rack.states(("n1", "test-milestone"), ("n1", "wipes")) == [ERROR, ACTIVE]


async def test_destructive_is_run_again_by_reinstall_alone(rack: Rack) -> None:
    await destroyed(rack)
    id = (await rack.at("n1", "test-destructive")).id
    await rack.do(lambda session: retry_noderole(session, id, Trigger.REINSTALL))
    assert ("n1", "test-destructive") in await rack.anneal()


async def test_destructive_that_failed_may_be_retried(rack: Rack) -> None:
    await web(rack, "n1")
    await rack.deploy("web", ("n1", "test-destructive"))
    await rack.finish(*await rack.claim(), ok=False)
    id = (await rack.at("n1", "test-destructive")).id
    await rack.do(lambda session: retry_noderole(session, id))
    assert await rack.anneal() == [("n1", "test-destructive")]


async def test_destructive_cannot_be_bound_to_an_admin_node(rack: Rack) -> None:
    await rack.deployment("web")
    with refused(Rule.DESTRUCTIVE_ON_ADMIN, "test-destructive", ADMIN):
        await rack.bind("web", ("admin", "test-destructive"))


async def test_destructive_is_named_in_the_plan_as_a_wipe(rack: Rack) -> None:
    await web(rack, "n1", "n2")
    await rack.bind("web", ("n1", "test-destructive"), ("n2", "test-milestone"))
    assert (await rack.plan("web")).wiped == ("n1.rack.example",)


# --- abstract


async def test_abstract_role_cannot_be_bound(rack: Rack) -> None:
    await web(rack, "n1")
    with refused(Rule.ABSTRACT, "test-abstract", "test-concrete"):
        await rack.bind("web", ("n1", "test-abstract"))


async def test_abstract_requirement_is_met_by_what_provides_it(rack: Rack) -> None:
    await web(rack, "n1", "n2")
    await rack.bind("web", ("n1", "test-concrete"), ("n2", "test-abstract-child"))
    assert await rack.parents("n2", "test-abstract-child") == {("n1", "test-concrete")}


async def test_abstract_requirement_is_never_pulled_in(rack: Rack) -> None:
    await web(rack, "n1")
    with refused(Rule.UNRESOLVED, "test-abstract-child", "test-abstract", "test-concrete"):
        await rack.bind("web", ("n1", "test-abstract-child"))


# --- milestone and powersave: declarations
#
# What they mean for power or the user interface is not here: the model has only the declaration.


@pytest.mark.parametrize(("role", "flag"), [("test-milestone", Flag.MILESTONE), ("test-powersave", Flag.POWERSAVE)])
async def test_milestone_and_powersave_are_kept_as_declared(rack: Rack, role: str, flag: Flag) -> None:
    async with rack.store.read() as session:
        catalogue = (await session.catalogue()).catalogue
    assert catalogue.role(role).flags == {flag}
    assert role in catalogue.roles_with_flag(flag)


async def test_milestone_and_powersave_roles_bind_and_run_as_any_other(rack: Rack) -> None:
    await web(rack, "n1")
    await rack.deploy("web", ("n1", "test-milestone"), ("n1", "test-powersave"))
    await rack.anneal()
    assert await rack.states(("n1", "test-milestone"), ("n1", "test-powersave")) == [ACTIVE, ACTIVE]


async def test_destructive_is_committed_only_by_somebody_who_saw_the_plan(rack: Rack) -> None:
    """What it wipes is not known here, so it is not committed as an install on an empty disk is."""
    await web(rack, "n1")
    await rack.bind("web", ("n1", "test-destructive"))

    async def commit_unseen(session: GraphSession) -> CommitPlan:
        return await commits.commit_proposal(session, await get_deployment(session, "web", EVERYTHING))

    with pytest.raises(DigestRequired, match="test-destructive on n1"):
        await rack.do(commit_unseen)
    assert await rack.state("n1", "test-destructive") is PROPOSED
    await rack.commit("web", (await rack.plan("web")).digest)
