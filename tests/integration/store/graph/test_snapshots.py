"""Snapshots of a deployment: how two differ, and rollback to an earlier one."""

from tests.support.rack import Rack, refused, unbroken

from rackwright.domain.errors import Rule
from rackwright.domain.states import ACTIVE
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph.snapshots import diff_snapshots, read_intent, select_snapshots
from rackwright.store.machines.nodes import delete_node


async def two_commits(rack: Rack) -> tuple[int, int]:
    """Commit test-wanting on n1 and n2 with data; then commit other data, n2 without and n3 with it."""
    await rack.deployment("web")
    for node in ("n1", "n2", "n3"):
        await rack.node(node)
    await rack.bind("web", ("n1", "test-wanting"), ("n2", "test-wanting"))
    await rack.set_role_data("web", "test-wanting", {"test": {"own": 1}})
    await rack.set_data("web", "n1", "test-wanting", {"test": {"own": 2}})
    await rack.commit("web")
    await rack.anneal()
    await rack.propose("web")
    await rack.set_role_data("web", "test-wanting", {"test": {"own": 3}})
    await rack.set_data("web", "n1", "test-wanting", {})
    await rack.unbind("web", ("n2", "test-wanting"))
    await rack.bind("web", ("n3", "test-wanting"), ("n3", "test-milestone"))
    await rack.commit("web")
    await rack.anneal()
    async with rack.store.read() as session:
        newest, oldest = await select_snapshots(session, "WHERE d.name = 'web' ORDER BY s.id DESC")
    return oldest.id, newest.id


async def test_diff_names_roles_and_bindings_added_removed_and_changed(rack: Rack) -> None:
    old, new = await two_commits(rack)
    async with rack.store.read() as session:
        there, back = (
            await diff_snapshots(session, old, new, EVERYTHING),
            await diff_snapshots(session, new, old, EVERYTHING),
        )
    assert there.roles_added == ("test-milestone",)
    assert there.roles_changed == ("test-wanting",)
    assert there.bindings_added == (("n3.rack.example", "test-milestone"), ("n3.rack.example", "test-wanting"))
    assert there.bindings_removed == (("n2.rack.example", "test-wanting"),)
    assert there.bindings_changed == (("n1.rack.example", "test-wanting"),)
    assert (back.bindings_added, back.bindings_removed) == (there.bindings_removed, there.bindings_added)
    assert (back.roles_added, back.roles_removed) == ((), ("test-milestone",))


async def test_rollback_proposes_what_an_earlier_snapshot_said(rack: Rack) -> None:
    old, _ = await two_commits(rack)
    rolled = await rack.rollback("web", old)
    assert rolled.not_restorable == ()
    async with rack.store.read() as session:
        assert await read_intent(session, rolled.snapshot_id) == await read_intent(session, old)
    await rack.commit("web")
    await rack.anneal()
    await unbroken(rack)
    assert "test-wanting" not in await rack.on("n3")
    assert await rack.state("n2", "test-wanting") is ACTIVE
    assert await rack.value("n1", "test-wanting", "test/own") == 2
    assert await rack.value("n2", "test-wanting", "test/own") == 1


async def test_rollback_lists_bindings_of_deleted_nodes_as_not_restorable(rack: Rack) -> None:
    old, _ = await two_commits(rack)
    await rack.do(lambda session: delete_node(session, "n2.rack.example"))
    rolled = await rack.rollback("web", old)
    assert rolled.not_restorable == (("n2.rack.example", "test-wanting"),)
    await rack.commit("web")
    assert (await rack.at("n1", "test-wanting")).user_data == {"test": {"own": 2}}


async def test_rollback_is_refused_while_a_proposal_is_open(rack: Rack) -> None:
    old, _ = await two_commits(rack)
    await rack.propose("web")
    with refused(Rule.PROPOSAL_EXISTS, "web"):
        await rack.rollback("web", old)


async def test_committed_snapshot_does_not_change(rack: Rack) -> None:
    old, new = await two_commits(rack)
    async with rack.store.read() as session:
        before = [await read_intent(session, old), await read_intent(session, new)]
    await rack.propose("web")
    await rack.set_role_data("web", "test-wanting", {"test": {"own": 50}})
    await rack.unbind("web", ("n1", "test-wanting"))
    await rack.commit("web")
    async with rack.store.read() as session:
        assert [await read_intent(session, old), await read_intent(session, new)] == before
