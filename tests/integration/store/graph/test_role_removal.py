"""A role is taken out of a deployment: in a proposal, with its noderoles, and back again."""

import pytest
from tests.support.rack import Rack, refused, unbroken

from rackwright.domain.errors import NotFound, Rule
from rackwright.domain.states import ACTIVE, TRANSITION
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph.snapshots import add_role, diff_snapshots, read_intent, select_snapshots


async def ready(rack: Rack) -> None:
    """Give deployment web test-child on n1 and n2, which stands on test-parent on n1, and data for the role."""
    await rack.deployment("web")
    for node in ("n1", "n2"):
        await rack.node(node)
    await rack.bind("web", ("n1", "test-child"), ("n2", "test-child"))
    await rack.set_role_data("web", "test-child", {"kept": 1})
    await rack.commit("web")
    await rack.anneal()


async def roles_of(rack: Rack, deployment: str) -> set[str]:
    rows = await rack.rows(
        "SELECT r.name FROM deployment_roles dr JOIN roles r ON r.id = dr.role_id"
        " JOIN deployments d ON d.id = dr.deployment_id WHERE d.name = :name",
        name=deployment,
    )
    return {str(name) for (name,) in rows}


async def test_a_role_leaves_with_its_noderoles_when_the_proposal_is_committed(rack: Rack) -> None:
    await ready(rack)
    with refused(Rule.NOT_PROPOSED, "web"):
        await rack.remove_role("web", "test-child")
    await rack.propose("web")
    assert await rack.remove_role("web", "test-child") == [("n1", "test-child"), ("n2", "test-child")]
    assert await rack.state("n1", "test-child") is ACTIVE, "what is committed stays until the commit"
    with pytest.raises(NotFound):
        await rack.remove_role("web", "test-child")
    planned = await rack.plan("web")
    assert planned.roles_removed == ("test-child",)
    assert [line.role for line in planned.removed] == ["test-child", "test-child"]
    await rack.commit("web", planned.digest)
    assert await roles_of(rack, "web") == {"test-parent"}
    assert await rack.noderoles("WHERE r.name = 'test-child'") == []
    await unbroken(rack)
    async with rack.store.read() as session:
        newest, oldest = await select_snapshots(session, "WHERE d.name = 'web' ORDER BY s.id DESC")
        difference = await diff_snapshots(session, oldest.id, newest.id, EVERYTHING)
    assert difference.roles_removed == ("test-child",)
    back = await rack.rollback("web", oldest.id)
    async with rack.store.read() as session:
        assert await read_intent(session, back.snapshot_id) == await read_intent(session, oldest.id)
    assert (await rack.commit("web")).roles_removed == ()
    assert await roles_of(rack, "web") == {"test-child", "test-parent"}


async def test_a_role_that_is_only_proposed_or_never_bound_is_gone_at_once(rack: Rack) -> None:
    await ready(rack)
    await rack.propose("web")
    await rack.bind("web", ("n2", "test-milestone"))
    await rack.do(rack._on("web", lambda session, web: add_role(session, web, "test-service")))
    assert await rack.remove_role("web", "test-milestone") == [("n2", "test-milestone")]
    assert await rack.remove_role("web", "test-service") == []
    assert await roles_of(rack, "web") == {"test-child", "test-parent"}
    assert (await rack.plan("web")).empty


async def test_a_role_without_noderoles_is_a_change_of_its_own(rack: Rack) -> None:
    await ready(rack)
    await rack.propose("web")
    await rack.do(rack._on("web", lambda session, web: add_role(session, web, "test-service")))
    await rack.commit("web")
    await rack.propose("web")
    before = await rack.plan("web")
    await rack.remove_role("web", "test-service")
    planned = await rack.plan("web")
    assert (before.empty, planned.empty, planned.roles_removed) == (True, False, ("test-service",))


async def test_what_stands_on_it_elsewhere_is_named(rack: Rack) -> None:
    await ready(rack)
    await rack.deployment("shop", "web")
    await rack.node("n3")
    await rack.deploy("shop", ("n3", "test-child"))
    await rack.propose("web")
    before = await rack.everything()
    with refused(Rule.ORPHANS, "test-parent", "test-child", "n3.rack.example"):
        await rack.remove_role("web", "test-parent")
    assert await rack.everything() == before


async def test_the_role_goes_although_a_run_of_it_is_not_over(rack: Rack) -> None:
    await rack.deployment("web")
    await rack.node("n1")
    await rack.anneal()
    await rack.deploy("web", ("n1", "test-milestone"))
    [run] = await rack.claim()
    assert await rack.state("n1", "test-milestone") is TRANSITION
    await rack.propose("web")
    await rack.remove_role("web", "test-milestone")
    await rack.commit("web")
    assert await roles_of(rack, "web") == set(), "nobody would look again when the run ends"
    await rack.finish(run)
    assert await rack.on("n1") & {"test-milestone"} == set()
    await unbroken(rack)
