"""Installs that fail, machines that lose power, and servers and workers that die, at each stage."""

import pytest
from tests.integration.annealer.install_steps import OPEN_STAGES, deploy_machine, install_run_id, reinstall
from tests.support.rack import refused
from tests.support.servers.install_site import DISCOVERED, INSTALL, OS, HandMachine, Site

from rackwright.domain.errors import Rule
from rackwright.domain.machines.install import Stage
from rackwright.domain.runs import Run
from rackwright.domain.states import ACTIVE, ERROR, TODO, TRANSITION
from rackwright.store.db.session import Session
from rackwright.store.runs import run_lifecycle
from rackwright.store.runs.claims import Claimant, claim_runs


async def _late(site: Site, machine: HandMachine) -> None:
    """Let the deadline of a machine's install pass."""
    run = await install_run_id(site, machine)
    await site.change(
        lambda session: session.run(
            "UPDATE runs SET started_at = started_at - interval '2 hours' WHERE id = :id", id=run
        )
    )


# --- installs and machines


@pytest.mark.parametrize("stage", OPEN_STAGES, ids=str)
async def test_past_its_deadline_an_install_fails_with_the_stage_it_reached(site: Site, stage: Stage) -> None:
    machine = await deploy_machine(site)
    await site.reach_stage(machine, stage)
    await _late(site, machine)
    await site.change(run_lifecycle.fail_overdue_runs)
    await site.look()
    assert await site.rack.state(machine.short, INSTALL) is ERROR
    assert f"as far as {stage}" in await site.error(machine)
    assert "within 3600 s" in await site.error(machine)
    assert not (await machine.what_to_boot()).endswith("-install")


@pytest.mark.parametrize("stage", OPEN_STAGES, ids=str)
async def test_after_a_failed_install_no_boot_installs_again_until_a_person_says_so(site: Site, stage: Stage) -> None:
    machine = await deploy_machine(site)
    await site.reach_stage(machine, stage)
    await _late(site, machine)
    await site.look()
    machine.new_boot()
    assert not (await machine.what_to_boot()).endswith("-install")
    assert (await machine.register()).status_code == 201
    await site.anneal()
    await site.look()
    assert await site.rack.state(machine.short, INSTALL) is ERROR
    assert not (await machine.what_to_boot()).endswith("-install")
    assert await site.alive(machine)
    await reinstall(site, machine)
    await site.step()
    await site.reach_stage(machine, Stage.DONE)


async def test_power_lost_while_installing_fails_the_install_when_the_machine_is_back(site: Site) -> None:
    machine = await deploy_machine(site)
    await site.reach_stage(machine, Stage.INSTALLING)
    machine.new_boot()
    assert await machine.what_to_boot() == "sledgehammer"
    await machine.register()
    assert await site.rack.state(machine.short, INSTALL) is ERROR
    assert "lost its power" in await site.error(machine)
    assert await machine.what_to_boot() == "sledgehammer", "nothing wipes it again by itself"
    await machine.heartbeat()
    assert await site.alive(machine)
    assert (machine.short, DISCOVERED) in await site.anneal(), "its boot counts now that no install owns it"


async def test_a_machine_that_stays_away_while_installing_ends_its_install_at_the_deadline(site: Site) -> None:
    machine = await deploy_machine(site)
    await site.reach_stage(machine, Stage.INSTALLING)
    machine.new_boot()
    await _late(site, machine)
    await site.look()
    assert await site.rack.state(machine.short, INSTALL) is ERROR
    assert await machine.what_to_boot() == "sledgehammer"


async def test_power_lost_before_the_secret_was_fetched_just_boots_the_installer_again(site: Site) -> None:
    machine = await deploy_machine(site)
    await site.reach_stage(machine, Stage.REBOOTING)
    machine.new_boot()
    assert await machine.what_to_boot() == f"{OS}-install"
    await site.reach_stage(machine, Stage.DONE)


async def test_power_lost_after_the_first_boot_from_disk_is_no_failure(site: Site) -> None:
    machine = await deploy_machine(site)
    await site.reach_stage(machine, Stage.PROBING)
    site.bmc.boots[machine.name] = machine.new_boot()
    await machine.heartbeat("local")
    assert await site.look() == ["probe"]
    assert await site.rack.state(machine.short, INSTALL) is ACTIVE


async def test_a_probe_that_finds_another_system_fails_the_install(site: Site) -> None:
    machine = await deploy_machine(site)
    await site.reach_stage(machine, Stage.PROBING)
    site.bmc.boots[machine.name] = "somebody-else"
    await site.look()
    assert await site.rack.state(machine.short, INSTALL) is ERROR
    assert "somebody-else" in await site.error(machine)
    assert await machine.what_to_boot() == "local"


async def test_a_probe_that_gets_no_answer_is_tried_again_at_the_next_look(site: Site) -> None:
    machine = await deploy_machine(site)
    await site.reach_stage(machine, Stage.PROBING)
    site.bmc.broken = True
    assert await site.look() == ["probe"]
    assert await site.stage(machine) is Stage.PROBING
    site.bmc.broken = False
    assert await site.look() == ["probe"]
    assert await site.stage(machine) is Stage.DONE


# --- servers and workers that die


async def test_a_server_restart_at_each_stage_harms_nothing(site: Site) -> None:
    machine = await deploy_machine(site)
    for stage in (*OPEN_STAGES, Stage.DONE):
        await site.restart()
        await site.reach_stage(machine, stage)
    await site.restart()
    await site.anneal()
    assert await site.rack.state(machine.short, INSTALL) is ACTIVE
    assert (site.bmc.times("reset"), site.bmc.times("look")) == (1, 1)


async def test_a_worker_that_dies_before_it_opened_the_attempt_did_nothing_and_it_runs_again(site: Site) -> None:
    machine = await deploy_machine(site)
    [run] = await _claimed(site)
    await _dead(site, run.id)
    assert await site.rack.state(machine.short, INSTALL) is TODO
    await site.reach_stage(machine, Stage.DONE)


async def test_a_worker_that_dies_after_it_opened_the_attempt_is_not_missed(site: Site) -> None:
    machine = await deploy_machine(site)
    [run] = await _claimed(site)
    outcome = await site.server.jigs["os-install"].run(run, lambda _: None)
    assert outcome.answer == "accepted"
    await _dead(site, run.id)
    assert await site.rack.state(machine.short, INSTALL) is TRANSITION
    await site.reach_stage(machine, Stage.DONE)


async def test_a_worker_that_lost_its_run_opens_no_attempt(site: Site) -> None:
    machine = await deploy_machine(site)
    [asleep] = await _claimed(site)
    await _dead(site, asleep.id)
    await site.reach_stage(machine, Stage.DONE)
    with refused(Rule.BUSY, INSTALL):
        await site.server.jigs["os-install"].run(asleep, lambda _: None)
    assert await site.rack.rows("SELECT count(*) FROM install_attempts") == [(1,)]


async def _claimed(site: Site) -> list[Run]:
    return (await site.change(lambda session: claim_runs(session, Claimant("doomed server"), 10))).started


async def _dead(site: Site, run_id: int) -> None:
    """The worker of a run died, and its lease is over."""

    async def work(session: Session) -> list[int]:
        await session.run("UPDATE runs SET lease_until = now() - interval '1 second' WHERE id = :id", id=run_id)
        return await run_lifecycle.take_over_lost_runs(session)

    await site.change(work)
