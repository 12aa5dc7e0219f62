"""Rules of the store on which the store and the naive model once disagreed, each by itself."""

from typing import Any

import pytest
from tests.integration.store.rack import Rack, barclamp

from rackwright.domain.catalogue import Attrib
from rackwright.domain.errors import Conflict, NotFound, Rule
from rackwright.domain.states import ACTIVE, BLOCKED, ERROR, PROPOSED, TODO
from rackwright.store.barclamp_import import import_barclamps
from rackwright.store.db.database import Database
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph import commits, snapshots
from rackwright.store.graph.deployments import create_deployment, delete_deployment
from rackwright.store.graph.noderoles import retry_noderole
from rackwright.store.graph.run_attribs import stage_noderoles
from rackwright.store.machines.nodes import delete_node, get_node, move_node, record_boot, update_node
from rackwright.store.runs.slots import find_wrong_slots
from rackwright.store.store import Store


@pytest.fixture
def rack(database: Database) -> Rack:
    return Rack(Store(database))


async def slots_are_true(rack: Rack) -> bool:
    async def look(session: Session) -> bool:
        _, wrong = await find_wrong_slots(session, -(1 << 62), 1000)
        return not wrong

    return await rack.do(look)


async def test_a_proposed_member_stands_above_nothing_of_another_proposal(rack: Rack) -> None:
    await rack.fill(barclamp("db flags=cluster", "web requires=db"), deployments="d e")
    await rack.commit("db@n1")
    await rack.bind("web@n2", into="e")
    await rack.bind("db@n3")
    assert await rack.parents("web@n2") == {"db@n1"}
    await rack.commit()
    assert await rack.parents("web@n2") == {"db@n1", "db@n3"}


async def test_an_implicit_role_on_another_node_answers_for_the_role_it_provides(rack: Rack) -> None:
    await rack.fill(barclamp("db", "web requires=db", "pg provides=db flags=implicit"))
    await rack.commit("pg@n1")
    await rack.bind("web@n2")
    assert await rack.parents("web@n2") == {"pg@n1"}


async def test_a_node_moved_away_is_noticed_at_commit_though_the_proposal_was_edited_since(rack: Rack) -> None:
    await rack.fill(barclamp("web"))
    await rack.bind("web@n1")
    await rack.do(create_deployment, "other", "system")
    await rack.do(move_node, "n1.example", "other")
    await rack.edit("d", snapshots.set_role_data, "web", {"port": 1})
    with pytest.raises(Conflict) as refused:
        await rack.edit("d", commits.commit_proposal)
    assert refused.value.rule is Rule.NODE_ELSEWHERE


async def test_bindings_are_worked_out_again_in_the_order_they_were_made(rack: Rack) -> None:
    """Another order gives other parents: what was bound first does not see what came later."""
    await rack.fill(barclamp("base", "db", "web requires=db", "pg requires=base provides=db"), deployments="d e")
    await rack.commit("db@n1")
    await rack.bind("web@n2", into="e")
    await rack.bind("db@n3", into="e")
    await rack.do(create_deployment, "other", "system")
    await rack.commit(into="e")
    assert await rack.parents("web@n2") == {"db@n1"}


async def test_a_noderole_being_removed_gets_no_new_children(rack: Rack) -> None:
    await rack.fill(barclamp("db", "web requires=db"))
    await rack.commit("db@n1")
    await rack.start()
    await rack.unbind("db@n1")
    await rack.bind("web@n2")
    assert await rack.parents("web@n2") == {"db@n2"}
    await rack.end("db@n1")
    assert set(await rack.states()) == {"db@n2", "web@n2"}


async def test_a_reboot_ends_what_is_being_removed(rack: Rack) -> None:
    await rack.fill(barclamp("db"))
    await rack.commit("db@n1")
    await rack.start()
    await rack.unbind("db@n1")
    await rack.do(record_boot, await rack.node_id("n1"), "second boot")
    assert await rack.states() == {}


async def test_a_reboot_does_not_start_a_half_done_install_again(rack: Rack) -> None:
    await rack.fill(barclamp("install flags=destructive", "web"))
    await rack.commit("install@n1")
    await rack.start()
    await rack.do(record_boot, await rack.node_id("n1"), "second boot")
    assert await rack.states() == {"install@n1": ERROR}


async def test_the_inputs_of_a_success_before_a_failure_do_not_make_it_active(rack: Rack) -> None:
    await rack.fill(barclamp("web"))
    await rack.commit("web@n1")
    await rack.work()
    for says, ok in (({"port": 1}, False), ({}, True)):
        await rack.edit("d", snapshots.propose)
        await rack.edit("d", snapshots.set_role_data, "web", says)
        await rack.commit()
        assert await rack.start() == {"web@n1"}
        await rack.end("web@n1", ok)
    assert await rack.states() == {"web@n1": ACTIVE}


async def test_a_refused_import_leaves_nothing_behind(rack: Rack) -> None:
    await rack.fill(barclamp("web"))
    with pytest.raises(Conflict, match="circle"):
        await rack.do(import_barclamps, [barclamp("web requires=db", "db requires=web")])
    await rack.do(import_barclamps, [barclamp("web", "dns")])
    await rack.commit("web@n1", "dns@n1")
    assert await rack.parents("web@n1") == set()


async def test_deleting_the_node_of_a_member_re_runs_its_cluster(rack: Rack) -> None:
    await rack.fill(barclamp("db flags=cluster", "web requires=db"))
    await rack.commit("db@n1", "db@n2", "web@n3")
    await rack.work()
    await rack.do(delete_node, "n2.example")
    assert await rack.states() == {"db@n1": TODO, "web@n3": BLOCKED}
    assert await rack.work() == ["db@n1"]


async def test_what_stood_on_a_departed_member_gets_its_cohort_and_attribs_from_the_peers(rack: Rack) -> None:
    size = Attrib("size", "test", ("size",), role="db", default=1, has_default=True)
    roles = ("local provides=disk", "base", "san provides=disk requires=base", "disk flags=abstract")
    await rack.fill(barclamp(*roles, "db flags=cluster requires=disk", "web wants=size", attribs=[size]))
    await rack.commit("san@n1", "db@n1", "local@n2", "db@n2", "web@n3")
    await rack.work()
    assert (await rack.find("web@n3")).cohort == 3
    await rack.unbind("db@n1")
    assert (await rack.find("web@n3")).cohort == 2
    await rack.start()
    await rack.end("db@n2", size=7)
    async with rack.store.read() as session:
        links = await session.rows("SELECT parent_id FROM node_role_links")
    assert [row.parent_id for row in links] == [(await rack.find("db@n2")).id]
    assert await slots_are_true(rack)
    assert await rack.work() == ["web@n3"]


async def test_what_stands_below_a_new_member_on_its_node_runs_again(rack: Rack) -> None:
    await rack.fill(barclamp("db flags=cluster", "web requires=db", "top requires=web", db={"seen": True}))
    await rack.commit("db@n1", "web@n2", "top@n2")
    await rack.work()
    await rack.commit("db@n2")
    assert await rack.work() == ["db@n1", "db@n2", "web@n2", "top@n2"]


async def test_a_node_stays_where_all_its_noderoles_can_follow(rack: Rack) -> None:
    await rack.fill(barclamp("web"), deployments="d e")
    await rack.commit("web@n1")
    await rack.do(move_node, "n1.example", "e")
    await rack.do(create_deployment, "other", "system")
    with pytest.raises(Conflict, match="'web' bound in 'd'") as refused:
        await rack.do(move_node, "n1.example", "other")
    assert refused.value.rule is Rule.BOUND
    await rack.do(move_node, "n1.example", "d")


async def test_only_what_is_bound_in_the_deployment_can_be_unbound_there(rack: Rack) -> None:
    await rack.fill(barclamp("db", "web requires=db"), deployments="d e")
    await rack.commit("db@n1")
    await rack.bind("web@n2", into="e")
    with pytest.raises(NotFound):
        await rack.edit("e", snapshots.unbind, [(await rack.find("db@n1")).id])
    assert (await rack.find("web@n2")).state is PROPOSED


async def test_a_new_address_re_runs_all_peers(rack: Rack) -> None:
    await rack.fill(barclamp("db flags=cluster"))
    await rack.commit("db@n1", "db@n2")
    await rack.work()
    await rack.do(update_node, "n1.example", {"discovery": {"address": "192.0.2.7"}})
    assert await rack.work() == ["db@n1", "db@n2"]
    await rack.do(update_node, "n1.example", {"hint": {"address": "192.0.2.8"}})
    assert await rack.work() == ["db@n1", "db@n2"], "what a person says counts more"
    staged = await rack.do(stage_noderoles, [(await rack.find("db@n2")).id])
    [cluster] = [noderole.staged.input["cluster"] for noderole in staged.values()]
    members = [{"node": "n1.example", "address": "192.0.2.8"}, {"node": "n2.example", "address": None}]
    assert cluster == {"members": members}


async def test_a_new_default_re_runs_those_that_take_it(rack: Rack) -> None:
    def size(default: int) -> Attrib:
        return Attrib("size", "test", ("size",), role="db", default=default, has_default=True)

    await rack.fill(barclamp("db", "web wants=size", attribs=[size(1)]))
    await rack.commit("db@n1", "web@n2")
    await rack.work()
    await rack.do(import_barclamps, [barclamp("db", "web wants=size", attribs=[size(2)])])
    assert await rack.work() == ["db@n1", "web@n2"]


async def test_what_runs_next_is_right_after_a_deployment_was_deleted(rack: Rack) -> None:
    await rack.fill(barclamp("web"))
    await rack.commit("web@n1")
    await rack.do(delete_deployment, "d")
    assert await slots_are_true(rack)


async def test_a_commit_removes_nothing_that_its_snapshot_binds(rack: Rack) -> None:
    await rack.fill(barclamp("db", "web requires=db"))
    await rack.commit("db@n1")
    await rack.edit("d", snapshots.propose)
    await rack.edit("d", snapshots.unbind, [(await rack.find("db@n1")).id])
    await rack.bind("web@n1")
    with pytest.raises(Conflict, match="is bound in this proposal"):
        await rack.edit("d", commits.commit_proposal)


async def test_what_only_waits_while_its_inputs_change_does_not_oscillate(rack: Rack) -> None:
    await rack.fill(barclamp("db", "web requires=db"))
    await rack.commit("web@n1")
    for size in range(8):
        assert await rack.start() == {"db@n1"}
        await rack.end("db@n1", size=size)
        await rack.do(retry_noderole, (await rack.find("db@n1")).id)
    assert await rack.states() == {"db@n1": TODO, "web@n1": BLOCKED}


async def test_what_a_run_finds_out_about_its_node_reaches_the_node_and_never_the_writer(rack: Rack) -> None:
    facts = [
        Attrib("disks", "test", ("disks",)),
        Attrib("raid-level", "test", ("raid", "level"), schema={"type": "integer"}),
        Attrib("bmc-address", "test", ("bmc", "address"), schema={"type": "string"}),
        Attrib("ssh-port", "test", ("ssh", "port"), schema={"type": "integer"}),
        Attrib("node-address", "test", ("address",), schema={"type": "string"}),
        Attrib("password", "test", ("password",), schema={"type": "string"}, secret=True),
    ]
    chain = ("base", "finder requires=base wants=disks", "user requires=finder wants=disks")
    await rack.fill(barclamp(*chain, "beside wants=disks", "calm", attribs=facts))
    await rack.commit("user@n1", "beside@n1", "calm@n1")
    await rack.work()
    await rack.do(retry_noderole, (await rack.find("finder@n1")).id)
    assert await rack.start() == {"finder@n1"}
    enemy: dict[str, Any] = {
        "bmc": {"address": "198.51.100.6"},
        "ssh": {"port": 1},
        "address": "198.51.100.6",
        "password": "mine",
    }
    await rack.end("finder@n1", disks=["sda"], raid={"level": "one"}, other=1, **enemy)
    node = await rack.do(get_node, "n1.example", EVERYTHING)
    assert node.discovery == {"disks": ["sda"]}, "and nothing of how it is reached, nor what fits no schema"
    assert await rack.work() == ["beside@n1", "user@n1"], "not the writer, nor what it stands on"


async def test_two_that_find_ever_new_things_about_their_node_do_not_chase_each_other_for_ever(rack: Rack) -> None:
    fact = Attrib("disks", "test", ("disks",))
    await rack.fill(barclamp("left wants=disks", "right wants=disks", "calm", attribs=[fact]))
    await rack.commit("left@n1", "right@n1", "calm@n1")
    await rack.work()
    await rack.do(retry_noderole, (await rack.find("left@n1")).id)
    runs = 0
    while started := await rack.start():
        (which,) = started
        runs += 1
        assert runs < 30, "they never come to rest"
        await rack.end(which, disks=[which, runs])
    states = await rack.states()
    assert sorted(states.values()) == [ACTIVE, ACTIVE, ERROR]
    assert states["calm@n1"] is ACTIVE
    stopped = "left@n1" if states["left@n1"] is ERROR else "right@n1"
    assert "oscillates" in str((await rack.find(stopped)).error)
