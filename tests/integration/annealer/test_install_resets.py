"""The reset with which an install begins: done once, by whichever server, and no boot before it gets the secret."""

from tests.integration.annealer.install_steps import deploy_machine
from tests.support.servers.install_site import Bmc, Site

from rackwright.annealer.installs import InstallAdvancer, Reach
from rackwright.domain.machines.install import Stage
from rackwright.hammers.base import HammerFailed


async def _lease_over(site: Site) -> None:
    """Let the lease of every action on machines end: it was not done in time."""
    await site.change(
        lambda session: session.run(
            "UPDATE install_attempts SET acting_until = now() - interval '1 second',"
            " resetting_until = resetting_until - interval '1 hour'"
        )
    )


async def test_a_reboot_that_failed_is_tried_again_and_one_that_was_done_is_not(site: Site) -> None:
    machine = await deploy_machine(site)
    await site.reach_stage(machine, Stage.PUBLISHING)
    await site.anneal()
    site.bmc.broken = True
    assert await site.look() == ["reboot"]
    assert await site.look() == [], "it is one server's for the time of its lease"
    await _lease_over(site)
    site.bmc.broken = False
    assert await site.look() == ["reboot"]
    await _lease_over(site)
    assert await site.look() == []
    assert site.bmc.times("reset") == 1


async def test_a_machine_whose_controller_one_server_cannot_reach_is_left_to_another(site: Site) -> None:
    machine = await deploy_machine(site)
    await site.reach_stage(machine, Stage.PUBLISHING)
    await site.anneal()
    here, elsewhere = site.installs, Bmc()
    site.bmc.out_of_reach = True
    there = InstallAdvancer(here.store, Reach(lambda _: elsewhere, lambda _: elsewhere))
    assert await site.look() == ["reboot"]
    assert await site.look() == [], "it leaves the machine alone for a while"
    [action] = await there.advance()
    await there.act(action)
    assert (elsewhere.times("reset"), site.bmc.times("reset")) == (1, 0)
    await site.reach_stage(machine, Stage.INSTALLING)


async def test_a_controller_that_no_server_reaches_is_tried_again_after_a_while(site: Site) -> None:
    machine = await deploy_machine(site)
    await site.reach_stage(machine, Stage.PUBLISHING)
    await site.anneal()
    site.bmc.out_of_reach = True
    site.installs.lease = 0.0
    assert await site.look() == ["reboot"]
    site.bmc.out_of_reach = False
    site.installs.lease = 30.0
    assert await site.look() == ["reboot"]
    assert site.bmc.times("reset") == 1


async def test_a_server_that_slept_over_a_reboot_leaves_the_installing_machine_alone(site: Site) -> None:
    machine = await deploy_machine(site)
    await site.reach_stage(machine, Stage.PUBLISHING)
    await site.anneal()
    [asleep] = await site.installs.advance()
    await _lease_over(site)
    assert await site.look() == ["reboot"]
    await site.reach_stage(machine, Stage.INSTALLING)
    await site.installs.act(asleep)
    assert site.bmc.times("reset") == 1


async def test_a_machine_that_is_being_reset_gets_no_secret_until_that_is_done(site: Site) -> None:
    machine = await deploy_machine(site)
    await site.reach_stage(machine, Stage.PUBLISHING)
    await site.anneal()
    statuses: list[int] = []

    async def reset() -> None:
        statuses.append((await machine.fetch_secret()).status_code)

    site.bmc.on_reset = reset
    assert await site.look() == ["reboot"]
    assert statuses == [409]
    await site.reach_stage(machine, Stage.DONE)


async def test_a_machine_whose_reset_was_done_and_never_reported_boots_until_it_gets_its_secret(site: Site) -> None:
    machine = await deploy_machine(site)
    await site.reach_stage(machine, Stage.PUBLISHING)
    await site.anneal()

    async def reset() -> None:
        raise HammerFailed("the server dies before it can say that it is done")

    site.bmc.on_reset = reset
    assert await site.look() == ["reboot"]
    machine.new_boot()
    assert (await machine.fetch_secret()).status_code == 409, "another server may be about to reset it once more"
    await _lease_over(site)
    [another] = await site.installs.advance()
    machine.new_boot()
    assert (await machine.fetch_secret()).status_code == 200
    site.bmc.on_reset = None
    await site.installs.act(another)
    assert site.bmc.times("reset") == 0, "what installs is left alone"
    assert await site.stage(machine) is Stage.INSTALLING
