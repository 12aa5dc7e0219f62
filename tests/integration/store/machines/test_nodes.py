"""Machines: never created twice, found again by MAC, UUID or key, where they may go, and when they may be deleted."""

import pytest
from tests.support.rack import ADMIN, SYSTEM, Rack, refused

from rackwright.domain.errors import Invalid, Rule
from rackwright.domain.states import ACTIVE, BLOCKED, TODO
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.machines.nodes import (
    NewNode,
    create_node,
    delete_node,
    find_node,
    get_node,
    move_node,
    record_boot,
    update_node,
)

MAC, OTHER_MAC = "52:54:00:12:34:56", "52:54:00:12:34:57"
UUID, OTHER_UUID = "6f1d7a7e-53b0-4f5c-9f0e-0a4b7d7f5f10", "6f1d7a7e-53b0-4f5c-9f0e-0a4b7d7f5f11"


async def known(rack: Rack) -> int:
    new = NewNode("n1.rack.example", macs=[MAC, OTHER_MAC], uuid=UUID, key="serial-1")
    return await rack.do(lambda session: create_node(session, new))


@pytest.mark.parametrize(
    ("macs", "uuid", "key"),
    [
        ([MAC.upper()], None, None),
        ([OTHER_MAC.replace(":", "-")], None, None),
        ([], UUID.upper(), None),
        ([], None, "serial-1"),
    ],
)
async def test_node_is_found_again_by_any_mac_uuid_or_key(
    rack: Rack, macs: list[str], uuid: str | None, key: str | None
) -> None:
    id = await known(rack)
    async with rack.store.read() as session:
        assert await find_node(session, macs, uuid, key) == id
        assert await find_node(session, ["52:54:00:00:00:00"], OTHER_UUID, "serial-2") is None
    with refused(Rule.EXISTS, "n1.rack.example"):
        new = NewNode("n2.rack.example", macs=macs, uuid=uuid, key=key)
        await rack.do(lambda session: create_node(session, new))


async def test_node_name_is_taken_once_in_any_case(rack: Rack) -> None:
    await rack.node("n1")
    with refused(Rule.EXISTS, "n1.rack.example"):
        await rack.node("N1")


async def test_signs_of_two_nodes_at_once_are_refused_with_both_names(rack: Rack) -> None:
    await known(rack)
    await rack.do(lambda session: create_node(session, NewNode("n2.rack.example", uuid=OTHER_UUID)))
    with refused(Rule.EXISTS, "n1.rack.example", "n2.rack.example"):
        await rack.do(lambda session: find_node(session, [MAC], OTHER_UUID))


@pytest.mark.parametrize("name", ["short", "under_score.example", "10.0.0.1", "x.services.internal", ""])
async def test_bad_node_name_is_refused(rack: Rack, name: str) -> None:
    with pytest.raises(Invalid):
        await rack.do(lambda session: create_node(session, NewNode(name)))


async def test_last_admin_node_cannot_be_deleted(rack: Rack) -> None:
    with refused(Rule.LAST_ADMIN, ADMIN):
        await rack.do(lambda session: delete_node(session, ADMIN))
    await rack.node("admin2", admin=True)
    await rack.do(lambda session: delete_node(session, ADMIN))
    with refused(Rule.LAST_ADMIN, "admin2.rack.example"):
        await rack.do(lambda session: delete_node(session, "admin2.rack.example"))


async def test_deleted_node_takes_its_noderoles_along(rack: Rack) -> None:
    await rack.deployment("web")
    await rack.node("n1")
    await rack.deploy("web", ("n1", "test-grandchild"))
    await rack.do(lambda session: delete_node(session, "n1.rack.example"))
    assert await rack.rows("SELECT 1 FROM node_roles nr JOIN nodes n ON n.id = nr.node_id WHERE n.name ~ '^n1'") == []


async def test_node_that_others_stand_on_cannot_be_deleted(rack: Rack) -> None:
    await rack.deployment("web")
    await rack.node("n1")
    await rack.node("n2")
    await rack.deploy("web", ("n1", "test-parent"), ("n2", "test-child"))
    with refused(Rule.ORPHANS, "test-parent", "n1.rack.example", "test-child", "n2.rack.example"):
        await rack.do(lambda session: delete_node(session, "n1.rack.example"))


async def test_node_with_a_run_under_way_cannot_be_deleted(rack: Rack) -> None:
    await rack.node("n1")
    await rack.claim()
    with refused(Rule.BUSY, "n1.rack.example"):
        await rack.do(lambda session: delete_node(session, "n1.rack.example"))


async def test_phantom_node_cannot_be_deleted_moved_or_changed(rack: Rack) -> None:
    await rack.deployment("web")
    phantom = "web.services.internal"
    with refused(Rule.PHANTOM, phantom):
        await rack.do(lambda session: delete_node(session, phantom))
    with refused(Rule.PHANTOM, phantom):
        await rack.do(lambda session: move_node(session, phantom, SYSTEM))
    with refused(Rule.PHANTOM, phantom):
        await rack.do(lambda session: update_node(session, phantom, {"alive": False}))


async def test_node_may_move_into_a_descendant_with_its_noderoles(rack: Rack) -> None:
    await rack.deployment("web")
    await rack.deployment("shop", "web")
    await rack.node("n1")
    await rack.deploy("web", ("n1", "test-milestone"))
    await rack.do(lambda session: move_node(session, "n1.rack.example", "shop"))
    async with rack.store.read() as session:
        assert (await get_node(session, "n1.rack.example", EVERYTHING)).deployment == "shop"


@pytest.mark.parametrize("target", [SYSTEM, "other"])
async def test_node_with_noderoles_cannot_move_out_of_their_deployment(rack: Rack, target: str) -> None:
    await rack.deployment("web")
    await rack.deployment("other")
    await rack.node("n1")
    await rack.deploy("web", ("n1", "test-milestone"))
    with refused(Rule.BOUND, "n1.rack.example", "test-milestone", "web", target):
        await rack.do(lambda session: move_node(session, "n1.rack.example", target))


async def test_node_cannot_leave_its_noderoles_behind_in_two_steps(rack: Rack) -> None:
    await rack.deployment("web")
    await rack.deployment("shop", "web")
    await rack.deployment("other")
    await rack.node("n1")
    await rack.deploy("web", ("n1", "test-milestone"))
    await rack.do(lambda session: move_node(session, "n1.rack.example", "shop"))
    with refused(Rule.BOUND, "n1.rack.example", "test-milestone", "web", "other"):
        await rack.do(lambda session: move_node(session, "n1.rack.example", "other"))
    await rack.do(lambda session: move_node(session, "n1.rack.example", "web"))


async def test_proposal_elsewhere_does_not_tie_a_node(rack: Rack) -> None:
    await rack.deployment("web")
    await rack.deployment("other")
    await rack.node("n1")
    await rack.bind("web", ("n1", "test-milestone"))
    await rack.do(lambda session: move_node(session, "n1.rack.example", "other"))
    with refused(Rule.NODE_ELSEWHERE, "n1.rack.example", "other", "web"):
        await rack.commit("web")


async def test_node_without_noderoles_may_move_anywhere(rack: Rack) -> None:
    await rack.deployment("web")
    await rack.deployment("other")
    await rack.node("n1", deployment="web")
    await rack.do(lambda session: move_node(session, "n1.rack.example", "other"))
    await rack.do(lambda session: move_node(session, "n1.rack.example", SYSTEM))


async def test_new_boot_id_runs_noderoles_again_and_an_old_one_does_not(rack: Rack) -> None:
    id = await rack.node("n1")
    await rack.anneal()
    assert await rack.do(lambda session: record_boot(session, id, "boot-1"))
    assert await rack.states(("n1", "ssh-access"), ("n1", "crowbar-managed-node")) == [TODO, BLOCKED]
    await rack.anneal()
    assert not await rack.do(lambda session: record_boot(session, id, "boot-1"))
    assert await rack.state("n1", "ssh-access") is ACTIVE


async def test_nothing_starts_on_a_node_that_is_not_alive_or_not_available(rack: Rack) -> None:
    id = await rack.node("n1", alive=False)
    await rack.anneal()
    assert await rack.state("n1", "ssh-access") is TODO
    await rack.do(lambda session: update_node(session, id, {"alive": True, "available": False}))
    assert await rack.claim() == []
    await rack.do(lambda session: update_node(session, id, {"available": True}))
    await rack.anneal()
    assert await rack.state("n1", "ssh-access") is ACTIVE
