"""People cancel, commit, retry, roll back or remove a node while it is installed."""

from functools import partial

import pytest
from tests.integration.annealer.install_steps import OPEN_STAGES, deploy_machine, install_run_id, reinstall
from tests.support.rack import refused, unbroken
from tests.support.servers.install_site import INSTALL, INSTALLED, OS, Site

from rackwright.domain.errors import Rule
from rackwright.domain.machines.install import Stage
from rackwright.domain.states import ACTIVE, ERROR, Trigger
from rackwright.store.graph.noderoles import retry_noderole
from rackwright.store.machines.nodes import delete_node
from rackwright.store.runs import run_lifecycle

SOME_STAGES = [Stage.PUBLISHING, Stage.INSTALLING, Stage.PROBING]


@pytest.mark.parametrize("stage", OPEN_STAGES, ids=str)
async def test_a_cancelled_install_ends_at_once_and_its_secret_with_it(site: Site, stage: Stage) -> None:
    machine = await deploy_machine(site)
    await site.reach_stage(machine, stage)
    run = await install_run_id(site, machine)
    await site.change(lambda session: run_lifecycle.cancel_run(session, run))
    assert not (await machine.what_to_boot()).endswith("-install")
    assert (await machine.fetch_secret()).status_code == 404
    if machine.name in site.secrets:
        assert (await machine.result(site.secrets[machine.name])).status_code == 409
    await site.anneal()
    await site.look()
    assert await site.rack.state(machine.short, INSTALL) is ERROR
    assert "cancelled by tester" in await site.error(machine)


async def test_a_cancelled_install_can_be_started_again_at_once(site: Site) -> None:
    machine = await deploy_machine(site)
    await site.reach_stage(machine, Stage.REBOOTING)
    run = await install_run_id(site, machine)
    await site.change(lambda session: run_lifecycle.cancel_run(session, run))
    await machine.heartbeat()
    await reinstall(site, machine)
    await site.step()
    assert await site.stage(machine) is Stage.WAITING
    await site.reach_stage(machine, Stage.DONE)


@pytest.mark.parametrize("stage", SOME_STAGES, ids=str)
async def test_a_commit_while_installing_changes_neither_this_install_nor_starts_another(
    site: Site, stage: Stage
) -> None:
    machine = await deploy_machine(site)
    await site.reach_stage(machine, stage)
    await site.rack.propose("web")
    await site.rack.set_role_data("web", INSTALL, {"provisioner": {"target_os": "rocky-9"}})
    await site.rack.commit("web")
    await site.reach_stage(machine, Stage.DONE)
    assert (machine.short, INSTALL) not in await site.anneal()
    assert await site.rack.state(machine.short, INSTALL) is ACTIVE
    assert await site.rack.rows("SELECT target_os FROM install_attempts") == [(OS,)]


@pytest.mark.parametrize("stage", SOME_STAGES, ids=str)
async def test_neither_retry_nor_reinstall_touches_an_install_under_way(site: Site, stage: Stage) -> None:
    machine = await deploy_machine(site)
    await site.reach_stage(machine, stage)
    noderole = await site.rack.at(machine.short, INSTALL)
    for trigger in (Trigger.RETRY, Trigger.REINSTALL):
        with refused(Rule.NOT_RETRYABLE, INSTALL, machine.name):
            await site.change(partial(retry_noderole, id=noderole.id, trigger=trigger))
    assert await site.stage(machine) is stage


async def test_a_finished_install_is_not_retried_but_a_person_may_reinstall(site: Site) -> None:
    machine = await deploy_machine(site)
    await site.reach_stage(machine, Stage.DONE)
    await site.anneal()
    noderole = await site.rack.at(machine.short, INSTALL)
    with refused(Rule.DESTRUCTIVE, INSTALL):
        await site.change(lambda session: retry_noderole(session, noderole.id))
    await reinstall(site, machine)
    await site.step()
    await site.reach_stage(machine, Stage.DONE)
    assert site.bmc.times("reset") == 2


@pytest.mark.parametrize("stage", [Stage.PUBLISHING, Stage.INSTALLING, Stage.BOOTING], ids=str)
async def test_a_rollback_that_takes_the_install_away_lets_it_end_first(site: Site, stage: Stage) -> None:
    machine = await site.discovered(1)
    await site.rack.deployment("web")
    await site.rack.deploy("web", (machine.name, "test-milestone"))
    bare = (await site.rack.record("web")).head_id
    assert bare is not None
    await site.anneal()
    await site.rack.deploy("web", (machine.name, INSTALLED))
    await site.reach_stage(machine, stage)
    await site.rack.rollback("web", bare)
    await site.rack.commit("web")
    assert (await site.rack.at(machine.short, INSTALL)).doomed
    await site.reach_stage(machine, Stage.DONE)
    await site.anneal()
    assert INSTALL not in await site.rack.on(machine.short)
    assert await site.alive(machine)
    await unbroken(site.rack)


@pytest.mark.parametrize("stage", SOME_STAGES, ids=str)
async def test_a_node_cannot_be_removed_while_it_is_installed_but_after_a_cancel(site: Site, stage: Stage) -> None:
    machine = await deploy_machine(site)
    await site.reach_stage(machine, stage)
    with refused(Rule.BUSY, machine.name):
        await site.change_graph(lambda session: delete_node(session, machine.name))
    run = await install_run_id(site, machine)
    await site.change(lambda session: run_lifecycle.cancel_run(session, run))
    await site.change_graph(lambda session: delete_node(session, machine.name))
    await site.look()
    assert await site.rack.rows("SELECT 1 FROM install_attempts") == []
    assert await machine.what_to_boot() == "sledgehammer", "it is a stranger again"


async def test_what_was_to_be_done_to_a_node_that_is_gone_is_moot(site: Site) -> None:
    machine = await deploy_machine(site)
    await site.reach_stage(machine, Stage.PUBLISHING)
    await site.anneal()
    [action] = await site.installs.advance()
    run = await install_run_id(site, machine)
    await site.change(lambda session: run_lifecycle.cancel_run(session, run))
    await site.change_graph(lambda session: delete_node(session, machine.name))
    await site.installs.act(action)
    assert site.bmc.asked == []
