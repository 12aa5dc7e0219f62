"""The flag powersave at run time: who is powered down, who is not, and what wakes a node."""

import pytest
from tests.support.servers.install_site import HandMachine, Site

from rackwright.domain.states import TODO
from rackwright.hammers.base import Power
from rackwright.store.graph.noderoles import retry_noderole
from rackwright.store.machines.nodes import update_node

SAVER = "test-powersave"


async def _saving(site: Site) -> HandMachine:
    """A machine with the role ACTIVE and nothing else to do."""
    machine = await site.discovered(1)
    await site.rack.deployment("web")
    await site.rack.deploy("web", (machine.name, SAVER))
    await site.anneal()
    return machine


async def _look(site: Site) -> list[str]:
    actions = await site.powersave.look()
    for action in actions:
        await site.powersave.act(action)
    return [action.sleep.value for action in actions]


async def _sleep(site: Site, machine: HandMachine) -> object:
    [(sleep,)] = await site.rack.rows("SELECT sleep FROM nodes WHERE name = :name", name=machine.name)
    return sleep


async def _give_work(site: Site, machine: HandMachine) -> None:
    noderole = await site.rack.at(machine.short, SAVER)
    await site.change(lambda session: retry_noderole(session, noderole.id))


async def test_a_node_with_nothing_left_to_do_is_powered_down(site: Site) -> None:
    machine = await _saving(site)
    assert await _look(site) == ["falling"]
    assert site.bmc.power[machine.name] is Power.OFF
    assert await _sleep(site, machine) == "asleep"
    assert not await site.alive(machine)
    assert await _look(site) == []


async def test_a_node_without_the_role_is_left_on(site: Site) -> None:
    machine = await site.discovered(1)
    assert await _look(site) == []
    assert await site.alive(machine)


async def test_a_node_that_is_to_stay_on_stays_on(site: Site) -> None:
    machine = await _saving(site)
    await site.change(lambda session: update_node(session, machine.name, {"stay_on": True}))
    assert await _look(site) == []


async def test_a_node_with_work_that_waits_is_not_powered_down(site: Site) -> None:
    machine = await _saving(site)
    await _give_work(site, machine)
    assert await site.rack.state(machine.short, SAVER) is TODO
    assert await _look(site) == []
    await site.anneal()
    assert await _look(site) == ["falling"]


async def test_something_that_follows_the_role_keeps_the_node_on_unless_it_is_only_proposed(site: Site) -> None:
    await site.rack.import_text(
        "name: extra\nparent: test\nroles:\n  - {name: extra-child, jig: noop, requires: [test-powersave]}\n"
    )
    machine = await _saving(site)
    await site.rack.propose("web")
    await site.rack.bind("web", (machine.name, "extra-child"))
    await site.anneal()
    assert await _look(site) == ["falling"], "what is only proposed does not count"
    machine.new_boot()
    await machine.heartbeat()
    await site.rack.commit("web")
    await site.anneal()
    assert await _look(site) == []


async def test_new_work_wakes_a_node_and_runs_when_it_is_up(site: Site) -> None:
    machine = await _saving(site)
    await _look(site)
    await _give_work(site, machine)
    assert await site.anneal() == []
    assert await _look(site) == ["waking"]
    assert site.bmc.power[machine.name] is Power.ON
    assert await site.anneal() == [], "it has not reported its boot yet"
    machine.new_boot()
    await machine.heartbeat()
    assert await site.alive(machine)
    assert (machine.short, SAVER) in await site.anneal()
    assert await _look(site) == ["falling"]


async def test_a_late_heartbeat_does_not_bring_a_sleeping_node_back_to_life(site: Site) -> None:
    machine = await _saving(site)
    await _look(site)
    await machine.heartbeat()
    assert not await site.alive(machine)
    assert await _sleep(site, machine) == "asleep"


async def test_work_that_comes_before_the_power_is_cut_keeps_the_node_up_without_a_boot(site: Site) -> None:
    machine = await _saving(site)
    [falling] = await site.powersave.look()
    await _give_work(site, machine)
    assert [one.sleep.value for one in await site.powersave.look()] == ["waking"]
    await site.powersave.act(falling)
    assert site.bmc.times("off") == 0, "it was decided otherwise in the meantime"
    await machine.heartbeat()
    assert await site.alive(machine)
    assert (machine.short, SAVER) in await site.anneal()


@pytest.mark.parametrize("sleep", ["falling", "waking"])
async def test_a_switch_that_failed_is_tried_again(site: Site, sleep: str) -> None:
    machine = await _saving(site)
    if sleep == "waking":
        await _look(site)
        await _give_work(site, machine)
    site.bmc.broken = True
    assert await _look(site) == [sleep]
    assert await _look(site) == [], "it is one server's for the time of its lease"
    site.bmc.broken = False
    await site.change(lambda session: session.run("UPDATE nodes SET power_until = now() - interval '1 second'"))
    assert await _look(site) == [sleep]
    assert site.bmc.power[machine.name] is (Power.OFF if sleep == "falling" else Power.ON)


async def _later(site: Site, seconds: int) -> None:
    """After it was asked to shut down."""
    update = "UPDATE nodes SET power_until = NULL, shutdown_at = shutdown_at - :seconds * interval '1 second'"
    await site.change(lambda session: session.run(update, seconds=seconds))


async def test_a_system_is_asked_to_shut_down_before_its_power_is_cut_and_both_are_told(site: Site) -> None:
    machine = await _saving(site)
    site.bmc.asks_politely = True
    assert await _look(site) == ["falling"]
    assert (site.bmc.times("shut down"), site.bmc.times("off")) == (1, 0)
    assert await site.events("node.shutdown_asked") == 1
    await _later(site, 60)
    assert await _look(site) == ["falling"]
    assert site.bmc.times("off") == 0, "it has two minutes"
    await _later(site, 60)
    assert await _look(site) == ["falling"]
    assert (site.bmc.times("shut down"), site.bmc.times("off")) == (1, 1)
    assert await site.events("node.power_cut") == 1
    assert await _sleep(site, machine) == "asleep"


async def test_a_system_that_shut_down_by_itself_is_not_switched_off(site: Site) -> None:
    machine = await _saving(site)
    site.bmc.asks_politely = True
    await _look(site)
    site.bmc.power[machine.name] = Power.OFF
    await _later(site, 10)
    await _look(site)
    assert await _sleep(site, machine) == "asleep"
    assert (site.bmc.times("off"), await site.events("node.power_cut")) == (0, 0)


async def test_one_that_is_shutting_down_is_not_up_for_being_heard_once_more(site: Site) -> None:
    machine = await _saving(site)
    site.bmc.asks_politely = True
    await _look(site)
    await _give_work(site, machine)
    await site.powersave.look()
    await machine.heartbeat()
    assert await _sleep(site, machine) == "waking"
    assert not await site.alive(machine)
